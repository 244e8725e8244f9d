//! Repair of directories: the rules one by one, faults at each step, and simulated databases after accidents.

#[path = "../../../database/tests/common/encode.rs"]
#[allow(dead_code)] // each test uses its part
mod encode;
#[path = "../../../database/tests/common/memory.rs"]
#[allow(dead_code)]
mod memory;
mod model;
#[path = "../../../fuzz/src/naive.rs"]
#[allow(dead_code, unreachable_pub)] // a library's there
mod naive;
#[path = "../../../fuzz/src/recovery.rs"]
#[allow(unreachable_pub)]
mod recovery;
mod rules;
mod simulated;
mod simulation;

use std::collections::BTreeMap;
use std::sync::Arc;

use leveltable::Result;
use leveltable_database::{Database, DatabaseOptions};
use leveltable_repair::sister_crates::repair_in;
use leveltable_repair::{RepairOptions, RepairReport};
use memory::Memory;

/// Keys and values.
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Repairs a directory in memory, and reads the new database with all checks.
fn repair_memory(dir: &Memory, options: RepairOptions<'_>) -> Result<(RepairReport, Contents)> {
    let new = Memory::new("new");
    let report = repair_in(Arc::new(dir.clone()), Box::new(new.clone()), options)?;
    assert!(new.is_published());
    let options = DatabaseOptions::new();
    let db = leveltable_database::sister_crates::open(Arc::new(new), &options)?;
    Ok((report, contents(&db)))
}

fn contents(db: &Database) -> Contents {
    let entry = |entry: Result<(bytes::Bytes, bytes::Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    db.iter().map(entry).collect()
}
