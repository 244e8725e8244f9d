//! Sets of tables, as commands know them. What reads and writes them is in [`remote`](crate::remote), which may be left out.

use std::ops::Bound;

use bytes::Bytes;
use leveltable::Source;
use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::row::{RowSource, Walk};

/// An open set.
pub(crate) trait Set {
    /// Returns what tells this publication from any other.
    fn id(&self) -> String;

    /// Returns the tables, in the order of their keys.
    fn shards(&self) -> Vec<Shard>;

    /// Returns the value of each key, `None` where there is none.
    fn get_many(&self, keys: &[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>>;

    /// Returns the wanted entries.
    fn rows(&self, walk: &Walk) -> RowSource;

    /// Returns the bounds of at most `n` parts of about the same size.
    fn splits(&self, n: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>>;

    /// Returns a copy of each of the tables, as it was when the set was published. While one is used, the next ones are copied.
    fn copies(&self) -> Box<dyn Iterator<Item = leveltable::Result<Source>> + '_>;
}

/// A table of a set, as its manifest records it, and `build --json` and `info --json` print it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Shard {
    /// A file or a URL.
    pub(crate) path: String,
    pub(crate) first_key: Key,
    pub(crate) last_key: Key,
    pub(crate) bytes: u64,
    /// Bytes at its end that opening reads.
    pub(crate) tail_bytes: u64,
    /// What the store tells of the content.
    pub(crate) e_tag: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) entries: Option<u64>,
}

/// Returns the number of entries of all tables, if each says its own.
pub(crate) fn entries_of(shards: &[Shard]) -> Option<u64> {
    shards.iter().map(|shard| shard.entries).sum()
}
