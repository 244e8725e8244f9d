//! Counts the read requests of this crate. They depend on no clock and have no peer.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use leveltable::{OpenOptions, ReadAt, Source, Table, WriteOptions};

use crate::figures::{header, row};
use crate::workload;

/// Number of blocks of the scan.
const BLOCKS: usize = 1000;

/// A scan up to a key.
type Scan = fn(&Table, &[u8]) -> Result<()>;

/// Returns a table of the requests of some openings and scans of the workload's table.
pub fn table(directory: &Path) -> Result<String> {
    let mut text = header("work, through `ReadAt`", ["requests", "bytes"]);
    let mut add = |what: &str, (requests, bytes): (u64, u64)| {
        row(&mut text, what, [requests.to_string(), bytes.to_string()]);
    };
    for entries in [400, 20_000] {
        let file = Bytes::from(small_table(directory, entries)?);
        let what = format!("open, {} KB", file.len() / 1000);
        add(&what, opening(file)?);
    }
    let path = directory.join("default.ldb");
    let file = File::open(&path)?;
    let what = format!("open, {} MB", file.metadata()?.len() / 1_000_000);
    add(&what, opening(file)?);

    let blocks = leveltable_repair::blocks(Source::open(&path)?)?.take(BLOCKS);
    let blocks: Vec<_> = blocks.collect::<leveltable::Result<_>>()?;
    let last = blocks.last().context("an empty table")?;
    let (_, last_key) = last.key_range.as_ref().context("an empty block")?;
    let blocks = blocks.len();
    let scans: [(_, Scan); 3] = [
        ("scan forward, `range(..=last)`", |table, last| {
            walk(table.range(..=last))
        }),
        ("scan backward, `range(..=last).rev()`", |table, last| {
            walk(table.range(..=last).rev())
        }),
        ("scan forward, cursor", |table, last| {
            let mut cursor = table.cursor();
            while cursor.next()? && cursor.key() < last {}
            Ok(())
        }),
    ];
    for (what, scan) in scans {
        let source = Arc::new(File::open(&path)?);
        let table = OpenOptions::new().no_cache().open_source(source)?;
        let before = requests(&table);
        scan(&table, last_key)?;
        let after = requests(&table);
        let requests = (after.0 - before.0, after.1 - before.1);
        add(&format!("{what}, {blocks} blocks"), requests);
    }
    Ok(text)
}

fn walk(
    entries: impl Iterator<Item = leveltable::Result<(bytes::Bytes, bytes::Bytes)>>,
) -> Result<()> {
    for entry in entries {
        entry?;
    }
    Ok(())
}

fn opening(source: impl ReadAt + 'static) -> Result<(u64, u64)> {
    let table = OpenOptions::new().open_source(Arc::new(source))?;
    Ok(requests(&table))
}

/// The number of a table's reads, and their bytes.
fn requests(table: &Table) -> (u64, u64) {
    let stats = table.stats();
    (stats.source_reads, stats.source_bytes)
}

/// Returns the first entries of the workload as a table of their own.
fn small_table(directory: &Path, entries: usize) -> Result<Vec<u8>> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let mut file = Vec::new();
    let keys = keys.get(..entries).unwrap_or(&keys);
    workload::build(&WriteOptions::new(), &mut file, keys, &values)?;
    Ok(file)
}
