//! `idb_cmp1`, the order of the IndexedDB databases of Chrome and Electron.
//!
//! User keys are tuples: a database, an object store and an index, and then a JavaScript key. Numbers in them are
//! little-endian, so that they are not in bytewise order. Chromium describes the encoding in
//! `content/browser/indexed_db/docs/leveldb_coding_scheme.md`.

use std::cmp::Ordering;
use std::sync::Arc;

use leveltable::{BytewiseComparator, Comparator};

use crate::record::Decoder;

/// The order of Chromium's IndexedDB, `idb_cmp1`. It is used automatically where a MANIFEST names it.
///
/// A table without its MANIFEST can be opened with it:
///
/// ```no_run
/// use leveltable::OpenOptions;
/// use leveltable_database::IndexedDbComparator;
///
/// let table = OpenOptions::new().comparator(IndexedDbComparator).open_db("000005.ldb")?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexedDbComparator;

impl Comparator for IndexedDbComparator {
    fn name(&self) -> &str {
        "idb_cmp1"
    }

    /// Compares the decoded keys. Any bytes must have a place, so keys that cannot be decoded come last, in bytewise order;
    /// and different encodings of one key are ordered by their bytes.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (of_a, of_b) = (meaning(a), meaning(b));
        let by_meaning = of_b.is_some().cmp(&of_a.is_some());
        by_meaning.then(of_a.cmp(&of_b)).then(a.cmp(b))
    }
}

/// The comparator of this name, if it is built in: LevelDB's default, or that of Chromium's IndexedDB.
pub fn built_in_comparator(name: &[u8]) -> Option<Arc<dyn Comparator>> {
    let known: [Arc<dyn Comparator>; 2] =
        [Arc::new(BytewiseComparator), Arc::new(IndexedDbComparator)];
    let mut known = known.into_iter();
    known.find(|comparator| comparator.name().as_bytes() == name)
}

/// Whether a key is one of Chromium's IndexedDB.
pub fn is_indexed_db_key(key: &[u8]) -> bool {
    meaning(key).is_some()
}

/// Maximum depth of arrays within arrays.
const MAX_NESTED: u32 = 32;

/// Comes before the types of JavaScript keys, which begin at 1.
const END: u8 = 0;

/// The decoded key, as bytes whose order is that of the keys: numbers are big-endian, strings have an end that sorts first.
fn meaning(key: &[u8]) -> Option<Vec<u8>> {
    let mut key = Key {
        payload: Decoder { rest: key },
        meaning: Vec::with_capacity(2 * key.len() + 24),
    };
    // Three lengths, each minus one: of three bits, three bits and two.
    let [lengths] = key.payload.array()?;
    let database = key.id(lengths >> 5)?;
    let object_store = key.id(lengths >> 2 & 7)?;
    let index = key.id(lengths & 3)?;
    match (database, object_store, index) {
        (_, 0, 0) => key.metadata(database == 0)?,
        (_, _, 1..=3) => key.value(MAX_NESTED)?,
        // An index: its key, then a sequence number, which is always 0 now, then the primary key.
        _ => {
            key.value(MAX_NESTED)?;
            if let Some(sequence) = key.payload.number() {
                match key.payload.rest {
                    [] => key.meaning.push(END),
                    _ => key.value(MAX_NESTED)?,
                }
                key.meaning.extend(sequence.to_be_bytes());
            }
        }
    }
    key.payload.rest.is_empty().then_some(key.meaning)
}

struct Key<'k> {
    /// The rest of the key.
    payload: Decoder<'k>,
    meaning: Vec<u8>,
}

impl Key<'_> {
    /// The part after the prefix of a metadata key: a type, and then numbers, names and types. Keys that transactions have yet
    /// to undo or to clean up are in bytewise order.
    fn metadata(&mut self, is_global: bool) -> Option<()> {
        let [kind] = self.payload.array()?;
        self.meaning.push(kind);
        let fields = match (is_global, kind) {
            (true, 50) => return self.copy(self.payload.rest.len() as u64),
            (true, 201) => "ss",
            (true, 100) | (false, 150) => "n",
            (false, 50) => "nt",
            (false, 100) => "nnt",
            (false, 151) => "nn",
            (false, 200) => "s",
            (false, 201) => "ns",
            _ => "",
        };
        for field in fields.chars() {
            match field {
                'n' => self.number()?,
                's' => self.string(2)?,
                _ => self.copy(1)?,
            }
        }
        Some(())
    }

    /// A JavaScript key: numbers come before dates, then strings, binary data and arrays.
    fn value(&mut self, nested: u32) -> Option<()> {
        let [kind] = self.payload.array()?;
        let place = [1, 4, 3, 2, 6, 0, 5].get(usize::from(kind))?;
        self.meaning.push(*place);
        match kind {
            0 => {}
            1 => self.string(2)?,
            2 | 3 => self.double()?,
            4 => {
                for _ in 0..self.payload.number()? {
                    self.value(nested.checked_sub(1)?)?;
                }
                self.meaning.push(END);
            }
            6 => self.string(1)?,
            _ => return None,
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let number = self.payload.number()?;
        self.meaning.extend(number.to_be_bytes());
        Some(())
    }

    /// A length in units, and that many units: bytes, or UTF-16 in big-endian order, so that bytes are in the order of code units.
    fn string(&mut self, unit: u64) -> Option<()> {
        let units = self.payload.number()?;
        for &byte in self.payload.take(units.checked_mul(unit)?)? {
            self.meaning.push(byte);
            self.meaning.extend((byte == END).then_some(0xff));
        }
        self.meaning.extend([END, END]);
        Some(())
    }

    /// As little-endian machines store it. NaN has no place in the order, and 0 and -0 are equal.
    fn double(&mut self) -> Option<()> {
        let number = f64::from_le_bytes(self.payload.array()?) + 0.0;
        let bits = number.to_bits();
        // For negative numbers, all bits are flipped, for others the sign bit.
        let flipped = (bits as i64 >> 63) as u64 | 1 << 63;
        self.meaning.extend((bits ^ flipped).to_be_bytes());
        (!number.is_nan()).then_some(())
    }

    fn copy(&mut self, len: u64) -> Option<()> {
        self.meaning.extend(self.payload.take(len)?);
        Some(())
    }

    /// A little-endian number of `len_less_one + 1` bytes.
    fn id(&mut self, len_less_one: u8) -> Option<u64> {
        let bytes = self.payload.take(u64::from(len_less_one) + 1)?.iter().rev();
        let id = bytes.fold(0, |n, &byte| n << 8 | u64::from(byte));
        self.meaning.extend(id.to_be_bytes());
        Some(id)
    }
}
