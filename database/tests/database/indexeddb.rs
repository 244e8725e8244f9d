//! The order of IndexedDB's keys, `idb_cmp1`.

use std::cmp::Ordering;

use leveltable::Comparator;
use leveltable_database::IndexedDbComparator;

/// A key of an object store, by its encoding; a number follows `number`'s type.
fn key(kind: &[u8], number: Option<f64>) -> Vec<u8> {
    let mut key = [&[0, 1, 1, 1], kind].concat();
    key.extend(number.iter().flat_map(|number| number.to_le_bytes()));
    key
}

#[test]
fn keys_are_compared_by_their_meaning() {
    let numbers = [
        f64::NEG_INFINITY,
        -1.5,
        -1e-300,
        0.0,
        1e-300,
        1.5,
        300.0,
        f64::INFINITY,
    ];
    let mut ascending = vec![
        // Of the database 0, then of the first: a type, and what it says.
        vec![0, 0, 0, 0, 1],
        vec![0, 0, 0, 0, 50, 7],
        vec![0, 0, 0, 0, 100, 3],
        vec![0, 0, 0, 0, 100, 0x80, 2],
        vec![0, 0, 0, 0, 201, 0, 1, 0, b'a'],
        vec![0, 0, 0, 0, 201, 1, 0, b'a', 0],
        vec![0, 1, 0, 0, 50, 2, 1],
        vec![0, 1, 0, 0, 50, 0x80, 2, 0],
        key(&[0], None),
    ];
    ascending.extend(numbers.map(|number| key(&[3], Some(number))));
    ascending.extend(numbers.map(|number| key(&[2], Some(number))));
    let others: [&[u8]; 14] = [
        &[1, 0],
        &[1, 1, 0, b'a'],
        &[1, 2, 0, b'a', 0, 0],
        &[1, 1, 0, b'b'],
        &[1, 1, 1, 0],
        &[6, 0],
        &[6, 1, 0],
        &[6, 2, 0, 0],
        &[6, 2, 0, 1],
        &[6, 1, 1],
        &[4, 0],
        &[4, 1, 0],
        &[4, 2, 0, 0],
        &[4, 1, 1, 0],
    ];
    ascending.extend(others.map(|kind| key(kind, None)));
    ascending.extend([
        // An index: its key, a sequence number, and the primary key.
        vec![0, 1, 1, 30, 0],
        vec![0, 1, 1, 30, 0, 0],
        vec![0, 1, 1, 30, 0, 0, 0],
        vec![0, 1, 1, 30, 0, 0, 1, 0],
        // The database 256, whose number has two bytes.
        vec![0x20, 0, 1, 1, 1, 0],
        // No keys of IndexedDB.
        vec![],
        key(&[3], None),
        key(&[3], Some(f64::NAN)),
        key(&[4, 2, 0], None),
        key(&[9], None),
    ]);
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            let order = IndexedDbComparator.compare(a, b);
            assert_eq!(order, i.cmp(&j), "{a:?} {b:?}");
        }
    }
    // One meaning, two encodings: told apart by their bytes.
    let [zero, negative] = [0.0, -0.0].map(|number| key(&[3], Some(number)));
    assert_eq!(
        IndexedDbComparator.compare(&zero, &negative),
        Ordering::Less
    );
}
