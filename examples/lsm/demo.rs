//! What `cargo run --release --example lsm` does and prints.

use std::fs;

use leveltable::Stats;

use super::{Lsm, NOW, Result};

pub(crate) fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut db = Lsm::open(dir.path(), 1 << 20, 4)?;
    db.write(&[("apple", Some("red")), ("banana", Some("yellow"))])?;
    let before = db.snapshot();
    db.write(&[("apple", Some("green"))])?;
    db.write(&[("banana", None::<&str>)])?;
    db.compact()?; // keeps what the snapshot sees
    for (when, at) in [("now", NOW), ("before", *before)] {
        for entry in db.range(.., at)?.rev() {
            println!("{when}: {:?}", entry?);
        }
    }
    drop(before);

    for batch in 0..100u32 {
        let key = |i: u32| format!("key {:07}", (batch * 1000 + i).wrapping_mul(7919) % 100_000);
        let changes: Vec<_> = (0..1000).map(|i| (key(i), Some([b'v'; 100]))).collect();
        db.write(&changes)?; // of 1000 changes at once
    }
    drop(db); // without a flush: the last changes are in the log

    let mut db = Lsm::open(dir.path(), 1 << 20, 4)?;
    println!("reopened: {} entries", db.range(.., NOW)?.count());
    assert_eq!(db.get(b"apple", NOW)?.as_deref(), Some(&b"green"[..]));
    assert_eq!(db.get(b"banana", NOW)?, None);
    db.compact()?;
    let mut names = Vec::new();
    for file in fs::read_dir(dir.path())? {
        let file = file?;
        names.push(format!(
            "{} of {} bytes",
            file.file_name().display(),
            file.metadata()?.len()
        ));
    }
    names.sort();
    println!("after a compaction: {}", names.join(", "));
    Ok(())
}

impl Lsm {
    /// What each table has done since it was opened, newest first.
    pub fn stats(&self) -> Result<Vec<Stats>> {
        let stats = |id| Ok(self.table(id)?.as_table().stats());
        self.tables.iter().map(stats).collect()
    }
}
