//! Sets of tables, as commands know them. What reads and writes them is in [`remote`](crate::remote), which may be left out.

use std::ops::Bound;

use bytes::Bytes;
use leveltable::Source;
use serde::{Deserialize, Serialize};

use crate::info::{Key, Record, size};
use crate::notation::quoted;
use crate::output::{BOLD, and_entries, count};
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

/// Fills in the record of a set of these tables. Returns also its lines; with `list`, one of each table.
pub(crate) fn describe(shards: Vec<Shard>, list: bool, empty: Record) -> (Record, Vec<String>) {
    let (bytes, entries) = (
        shards.iter().map(|shard| shard.bytes).sum(),
        entries_of(&shards),
    );
    let tables = count(shards.len() as u64, "table");
    let (size, n) = (size(bytes), and_entries(entries));
    let mut lines = vec![format!("a set of {tables}, {size}{n}")];
    let first = shards.first().map(|shard| shard.first_key.clone());
    let last = shards.last().map(|shard| shard.last_key.clone());
    if let (Some(first), Some(last)) = (&first, &last) {
        lines.push(format!(
            "\nkeys    {}\n     .. {}",
            first.show(),
            last.show()
        ));
    }
    if list {
        let title = format!("{:>12} {:>12}  table", "bytes", "entries");
        lines.push(format!("\n{BOLD}{title}{BOLD:#}"));
        lines.extend(shards.iter().map(|shard| {
            let n = shard.entries.map_or("-".into(), |n| n.to_string());
            let (path, first) = (&shard.path, quoted(&shard.first_key.key, 60));
            format!("{:>12} {n:>12}  {path} from {first}", shard.bytes)
        }));
    }
    let record = Record {
        file_bytes: Some(bytes),
        keys: Some("plain"),
        order_known: Some(true),
        entries,
        first_key: first,
        last_key: last,
        shards: Some(shards),
        ..empty
    };
    (record, lines)
}
