//! What `info` shows of a set.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::info::{key_json, size};
use crate::notation::quoted;
use crate::output::{BOLD, count, entries, file_record};
use crate::remote::{Set, Shard};

/// Everything that is shown of a set.
pub(crate) struct SetInfo<'a> {
    path: &'a Path,
    shards: Vec<Shard>,
    entries: Option<u64>,
    bytes: u64,
    list_shards: bool,
}

impl SetInfo<'_> {
    pub(crate) fn of<'a>(path: &'a Path, set: &Set, list_shards: bool) -> SetInfo<'a> {
        let shards: Vec<Shard> = set.shards().collect();
        SetInfo {
            path,
            entries: set.entries(),
            bytes: shards.iter().map(|shard| shard.bytes).sum(),
            shards,
            list_shards,
        }
    }

    pub(crate) fn draw(&self, out: &mut impl Write) -> io::Result<()> {
        let shards = count(self.shards.len() as u64, "table");
        write!(out, "a set of {shards}, {}", size(self.bytes))?;
        match self.entries {
            Some(n) => writeln!(out, ", {}", entries(n))?,
            None => writeln!(out)?,
        }
        if let (Some(first), Some(last)) = (self.shards.first(), self.shards.last()) {
            writeln!(out, "\nkeys    {}", quoted(&first.first_key, 60))?;
            writeln!(out, "     .. {}", quoted(&last.last_key, 60))?;
        }
        if !self.list_shards {
            return Ok(());
        }
        writeln!(
            out,
            "\n{BOLD}{:>12} {:>12}  table{BOLD:#}",
            "bytes", "entries"
        )?;
        for shard in &self.shards {
            let Shard { path, bytes, .. } = shard;
            let n = shard.entries.map_or("-".into(), |n| n.to_string());
            let first = quoted(&shard.first_key, 60);
            writeln!(out, "{bytes:>12} {n:>12}  {path} from {first}")?;
        }
        Ok(())
    }

    pub(crate) fn to_json(&self, fields: &[&str]) -> Value {
        let shard = |shard: &Shard| {
            json!({
                "path": shard.path,
                "bytes": shard.bytes,
                "entries": shard.entries,
                "first_key": key_json(&shard.first_key),
                "last_key": key_json(&shard.last_key),
            })
        };
        let first = self.shards.first().map(|shard| key_json(&shard.first_key));
        let last = self.shards.last().map(|shard| key_json(&shard.last_key));
        let record = json!({
            "file_bytes": self.bytes,
            "keys": "plain",
            "order_known": true,
            "entries": self.entries,
            "first_key": first,
            "last_key": last,
            "shards": self.shards.iter().map(shard).collect::<Vec<_>>(),
        });
        file_record(self.path, fields, record)
    }
}
