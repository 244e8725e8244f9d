//! Writes a table, opens it, looks a key up and walks the keys of one prefix.
//!
//! `cargo run --example write_and_read`

use leveltable::{Table, TableBuilder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("fruit.ldb");

    let mut builder = TableBuilder::create(&path)?;
    builder.add(b"apple/green", b"Granny Smith")?; // keys come in ascending order
    builder.add(b"apple/red", b"Braeburn")?;
    builder.add(b"banana", b"Cavendish")?;
    let summary = builder.finish()?; // here the file appears, whole and synced
    println!("{} entries, {} bytes", summary.entries, summary.file_bytes);

    let table = Table::open(&path)?;
    assert_eq!(table.get(b"banana")?.as_deref(), Some(&b"Cavendish"[..]));
    assert_eq!(table.get(b"cherry")?, None); // the filter knows, so nothing is read
    for entry in table.prefix("apple/") {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    Ok(())
}
