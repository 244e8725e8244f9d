//! The output of `info` for a set.

use serde::Serialize;
use serde_json::json;

use super::record::Described;
use super::text::size;
use crate::key::Key;
use crate::notation::quoted;
use crate::output::{BOLD, and_entries, count};
use crate::set::{Shard, entries_of};

#[derive(Serialize)]
struct SetRecord {
    file_bytes: u64,
    keys: &'static str,
    order_known: bool,
    entries: Option<u64>,
    first_key: Option<Key>,
    last_key: Option<Key>,
    shards: Vec<Shard>,
}

/// Describes a set of these tables; with `list`, with a line for each.
pub(super) fn describe(shards: Vec<Shard>, list: bool) -> Described {
    let bytes = shards.iter().map(|shard| shard.bytes).sum();
    let entries = entries_of(&shards);
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
    let record = SetRecord {
        file_bytes: bytes,
        keys: "plain",
        order_known: true,
        entries,
        first_key: first,
        last_key: last,
        shards,
    };
    Described {
        kind: Some("set"),
        record: json!(record),
        lines,
        ..Described::default()
    }
}
