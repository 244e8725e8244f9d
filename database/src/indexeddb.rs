//! `idb_cmp1`, the order of the IndexedDB databases of Chrome and Electron.
//!
//! User keys are tuples there: a database, an object store and an index, and then a key of JavaScript. Numbers among them are
//! little-endian, so that they are not in bytewise order. Chromium describes the encoding in
//! `content/browser/indexed_db/docs/leveldb_coding_scheme.md`.

use std::cmp::Ordering;

use leveltable::Comparator;

/// The order of Chromium's IndexedDB, `idb_cmp1`. Found by its name where a MANIFEST names it.
///
/// For a table without its MANIFEST: `OpenOptions::new().comparator(IndexedDbComparator).open_db(path)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexedDbComparator;

impl Comparator for IndexedDbComparator {
    fn name(&self) -> &str {
        "idb_cmp1"
    }

    /// Compares what the keys mean. Any bytes must have a place, so keys that mean nothing come last, in bytewise order; and
    /// different encodings of one meaning are told apart by their bytes.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match (Tuple::parse(a), Tuple::parse(b)) {
            (Some(x), Some(y)) => x.partial_cmp(&y).unwrap_or(Ordering::Equal).then(a.cmp(b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(b),
        }
    }
}

/// A key's meaning. The fields are compared in turn.
#[derive(Debug, PartialEq, PartialOrd)]
struct Tuple {
    database: u64,
    object_store: u64,
    index: u64,
    fields: Vec<Field>,
}

#[derive(Debug, PartialEq, PartialOrd)]
enum Field {
    Number(u64),
    /// UTF-16 in big-endian order, so that its bytes are in the order of its code units.
    Text(Vec<u8>),
    Key(IdbKey),
}

/// A key of JavaScript: numbers come before dates, these before strings, binary data and arrays.
#[derive(Debug, PartialEq, PartialOrd)]
enum IdbKey {
    Null,
    Number(f64),
    Date(f64),
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Array(Vec<IdbKey>),
}

/// Arrays within arrays are followed so far.
const MAX_NESTED: u32 = 32;
impl Tuple {
    fn parse(key: &[u8]) -> Option<Tuple> {
        let mut rest = key;
        // Three lengths, each less one: of three bits, three bits and two.
        let lengths = byte(&mut rest)?;
        let database = id(&mut rest, lengths >> 5)?;
        let object_store = id(&mut rest, lengths >> 2 & 7)?;
        let index = id(&mut rest, lengths & 3)?;
        let mut fields = Vec::new();
        match (database, object_store, index) {
            (_, 0, 0) => metadata(database == 0, &mut rest, &mut fields)?,
            (_, _, 1..=3) => fields.push(Field::Key(idb_key(&mut rest, MAX_NESTED)?)),
            // An index: its key, and the primary key after a sequence number, which is always 0 now.
            _ => {
                fields.push(Field::Key(idb_key(&mut rest, MAX_NESTED)?));
                if !rest.is_empty() {
                    let sequence = varint(&mut rest)?;
                    if !rest.is_empty() {
                        fields.push(Field::Key(idb_key(&mut rest, MAX_NESTED)?));
                    }
                    fields.push(Field::Number(sequence));
                }
            }
        }
        rest.is_empty().then_some(Tuple {
            database,
            object_store,
            index,
            fields,
        })
    }
}

/// What follows the prefix of metadata: a type, and then numbers and names.
fn metadata(is_global: bool, rest: &mut &[u8], fields: &mut Vec<Field>) -> Option<()> {
    let kind = byte(rest)?;
    fields.push(Field::Number(kind.into()));
    if is_global && kind == 50 {
        // What transactions have yet to undo or to clean up: in bytewise order.
        fields.push(Field::Text(std::mem::take(rest).to_vec()));
    }
    let (numbers, texts, has_type) = match (is_global, kind) {
        (true, 100) => (1, 0, false),
        (true, 201) => (0, 2, false),
        (false, 50) => (1, 0, true),
        (false, 100) => (2, 0, true),
        (false, 150) => (1, 0, false),
        (false, 151) => (2, 0, false),
        (false, 200) => (0, 1, false),
        (false, 201) => (1, 1, false),
        _ => (0, 0, false),
    };
    for _ in 0..numbers {
        fields.push(Field::Number(varint(rest)?));
    }
    for _ in 0..texts {
        let units = varint(rest)?;
        fields.push(Field::Text(take(rest, units.checked_mul(2)?)?));
    }
    if has_type {
        fields.push(Field::Number(byte(rest)?.into()));
    }
    Some(())
}

fn idb_key(rest: &mut &[u8], nested: u32) -> Option<IdbKey> {
    Some(match byte(rest)? {
        0 => IdbKey::Null,
        1 => {
            let units = varint(rest)?;
            IdbKey::Text(take(rest, units.checked_mul(2)?)?)
        }
        2 => IdbKey::Date(double(rest)?),
        3 => IdbKey::Number(double(rest)?),
        4 => {
            let count = varint(rest)?;
            let nested = nested.checked_sub(1)?;
            let keys = (0..count).map(|_| idb_key(rest, nested));
            IdbKey::Array(keys.collect::<Option<_>>()?)
        }
        6 => {
            let len = varint(rest)?;
            IdbKey::Binary(take(rest, len)?)
        }
        _ => return None,
    })
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (&first, others) = rest.split_first()?;
    *rest = others;
    Some(first)
}

fn take(rest: &mut &[u8], len: u64) -> Option<Vec<u8>> {
    let (taken, others) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = others;
    Some(taken.to_vec())
}

/// A little-endian number of `len_less_one + 1` bytes.
fn id(rest: &mut &[u8], len_less_one: u8) -> Option<u64> {
    let bytes = take(rest, u64::from(len_less_one) + 1)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |n, &byte| n << 8 | u64::from(byte)),
    )
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(rest)?;
        number |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(number);
        }
    }
    None
}

/// As little-endian machines write it. Not a number has no place in the order, and 0 and -0 have one.
fn double(rest: &mut &[u8]) -> Option<f64> {
    let bytes = take(rest, 8)?;
    let number = f64::from_le_bytes(bytes.try_into().ok()?) + 0.0;
    (!number.is_nan()).then_some(number)
}
