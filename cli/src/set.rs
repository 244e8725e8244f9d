//! Sets of tables, as seen by commands. [`remote`](crate::remote), which is optional, reads and writes them.

use std::ops::Bound;

use bytes::Bytes;
use leveltable::Source;
use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::row::{RowSource, Walk};

/// An open set.
pub(crate) trait Set {
    /// Returns the identity of this publication.
    fn id(&self) -> String;

    /// Returns the tables, in the order of their keys.
    fn shards(&self) -> Vec<Shard>;

    /// Returns the value of each key, or `None` if there is none.
    fn get_many(&self, keys: &[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>>;

    /// Returns the wanted entries.
    fn rows(&self, walk: &Walk) -> RowSource;

    /// Returns the bounds of at most `n` parts of similar size.
    fn splits(&self, n: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>>;

    /// Returns a copy of each of the tables, as it was when the set was published. While one is used, the next ones are copied.
    fn copies(&self) -> Box<dyn Iterator<Item = leveltable::Result<Source>> + '_>;
}

/// A table of a set, as recorded in its manifest, and printed by `build --json` and `info --json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Shard {
    /// A file or a URL.
    pub(crate) path: String,
    pub(crate) first_key: Key,
    pub(crate) last_key: Key,
    pub(crate) bytes: u64,
    /// Number of bytes at its end that opening reads.
    pub(crate) tail_bytes: u64,
    /// The store's identification of the content.
    pub(crate) e_tag: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) entries: Option<u64>,
}

/// Returns the number of entries of all tables, if every table records it.
pub(crate) fn entries_of(shards: &[Shard]) -> Option<u64> {
    shards.iter().map(|shard| shard.entries).sum()
}
