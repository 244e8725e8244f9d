//! Writes a table, opens it, looks up a key and scans the keys with one prefix.
//!
//! `cargo run --example write_and_read`

use leveltable::{Table, TableBuilder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("fruit.ldb");

    let mut builder = TableBuilder::create(&path)?;
    builder.add(b"apple/green", b"Granny Smith")?; // add keys in ascending order
    builder.add(b"apple/red", b"Braeburn")?;
    builder.add(b"banana", b"Cavendish")?;
    let summary = builder.finish()?; // the file appears here, complete and synced
    println!(
        "{} entries, {} bytes",
        summary.properties.entries, summary.file_bytes
    );

    let table = Table::open(&path)?;
    assert_eq!(table.get(b"banana")?.as_deref(), Some(&b"Cavendish"[..]));
    assert_eq!(table.get(b"cherry")?, None); // excluded by the filter, without reading a block
    for entry in table.prefix("apple/") {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    Ok(())
}
