//! `idb_cmp1`, the order of the IndexedDB databases of Chrome and Electron.
//!
//! User keys are tuples there: a database, an object store and an index, and then a key of JavaScript. Numbers among them are
//! little-endian, so that they are not in bytewise order. Chromium describes the encoding in
//! `content/browser/indexed_db/docs/leveldb_coding_scheme.md`.

use std::cmp::Ordering;

use leveltable::Comparator;

use crate::decode::Decoder;

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
struct Tuple<'k> {
    database: u64,
    object_store: u64,
    index: u64,
    fields: Vec<Field<'k>>,
}

#[derive(Debug, PartialEq, PartialOrd)]
enum Field<'k> {
    Number(u64),
    /// UTF-16 in big-endian order, so that its bytes are in the order of its code units.
    Text(&'k [u8]),
    Key(IdbKey<'k>),
}

/// A key of JavaScript: numbers come before dates, these before strings, binary data and arrays.
#[derive(Debug, PartialEq, PartialOrd)]
enum IdbKey<'k> {
    Null,
    Number(f64),
    Date(f64),
    Text(&'k [u8]),
    Binary(&'k [u8]),
    Array(Vec<IdbKey<'k>>),
}

/// Arrays within arrays are followed so far.
const MAX_NESTED: u32 = 32;

/// What a key is not if it does not parse. It has its place all the same, so that nobody reads why.
const WHAT: &str = "a part of a key";

impl<'k> Tuple<'k> {
    fn parse(key: &'k [u8]) -> Option<Tuple<'k>> {
        let mut rest = Decoder::new(key);
        // Three lengths, each less one: of three bits, three bits and two.
        let lengths = rest.byte(WHAT).ok()?;
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
                    let sequence = rest.varint64(WHAT).ok()?;
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
fn metadata<'k>(
    is_global: bool,
    rest: &mut Decoder<'k>,
    fields: &mut Vec<Field<'k>>,
) -> Option<()> {
    let kind = rest.byte(WHAT).ok()?;
    fields.push(Field::Number(kind.into()));
    if is_global && kind == 50 {
        // What transactions have yet to undo or to clean up: in bytewise order.
        fields.push(Field::Text(rest.take_rest()));
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
        fields.push(Field::Number(rest.varint64(WHAT).ok()?));
    }
    for _ in 0..texts {
        fields.push(Field::Text(bytes(rest, 2)?));
    }
    if has_type {
        fields.push(Field::Number(rest.byte(WHAT).ok()?.into()));
    }
    Some(())
}

fn idb_key<'k>(rest: &mut Decoder<'k>, nested: u32) -> Option<IdbKey<'k>> {
    Some(match rest.byte(WHAT).ok()? {
        0 => IdbKey::Null,
        1 => IdbKey::Text(bytes(rest, 2)?),
        2 => IdbKey::Date(double(rest)?),
        3 => IdbKey::Number(double(rest)?),
        4 => {
            let count = rest.varint64(WHAT).ok()?;
            let nested = nested.checked_sub(1)?;
            let keys = (0..count).map(|_| idb_key(rest, nested));
            IdbKey::Array(keys.collect::<Option<_>>()?)
        }
        6 => IdbKey::Binary(bytes(rest, 1)?),
        _ => return None,
    })
}

/// A length in units of `unit` bytes, and as many.
fn bytes<'k>(rest: &mut Decoder<'k>, unit: u64) -> Option<&'k [u8]> {
    let len = rest.varint64(WHAT).ok()?.checked_mul(unit)?;
    rest.bytes(usize::try_from(len).ok()?, WHAT).ok()
}

/// A little-endian number of `len_less_one + 1` bytes.
fn id(rest: &mut Decoder<'_>, len_less_one: u8) -> Option<u64> {
    let bytes = rest.bytes(usize::from(len_less_one) + 1, WHAT).ok()?;
    let bytes = bytes.iter().rev();
    Some(bytes.fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

/// As little-endian machines write it. Not a number has no place in the order, and 0 and -0 have one.
fn double(rest: &mut Decoder<'_>) -> Option<f64> {
    let number = f64::from_le_bytes(rest.array(WHAT).ok()?) + 0.0;
    (!number.is_nan()).then_some(number)
}
