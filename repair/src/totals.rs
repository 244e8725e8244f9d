//! Sums over the entries of a table.

use std::ops::RangeInclusive;

use leveltable::db::{InternalKey, ValueType};

/// Sums over the data blocks of a table that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of the data blocks in the file, compressed, with their trailers.
    pub data_bytes: u64,
    /// The first key as it is stored.
    pub first_key: Option<Vec<u8>>,
    /// The last key as it is stored.
    pub last_key: Option<Vec<u8>>,
    /// Smallest and largest sequence number, if the keys are a database's.
    pub sequences: Option<RangeInclusive<u64>>,
    /// Number of deletions, if the keys are a database's.
    pub deletions: u64,
}

impl Totals {
    /// Counts an entry. `is_database`: its key is an internal key.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], is_database: bool) {
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        if let Some(key) = InternalKey::parse(key).filter(|_| is_database) {
            let sequence = key.sequence;
            let seen = self.sequences.clone().unwrap_or(sequence..=sequence);
            self.sequences = Some(sequence.min(*seen.start())..=sequence.max(*seen.end()));
            self.deletions += u64::from(key.value_type == ValueType::Deletion);
        }
    }
}
