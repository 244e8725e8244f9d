//! Reads a table through a memory map: no copies, no block cache, no read calls.
//!
//! The table reads uncompressed blocks in place, so a value is a slice of the map. Compressed blocks are decompressed into
//! the block cache, and a value is a slice of such a block. Creating the map is `unsafe`: the caller promises that nobody
//! changes the file, which this crate cannot check.
//!
//! `cargo run --features mmap --example mmap`

use leveltable::{Compression, OpenOptions, Source, WriteOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("squares.ldb");
    let mut builder = WriteOptions::new()
        .compression(Compression::None) // so that values can be slices of the map
        .create(&path)?;
    for n in 0..100_000u64 {
        builder.add(n.to_be_bytes(), (n * n).to_string().as_bytes())?;
    }
    builder.finish()?;

    // SAFETY: nobody may write to or truncate the file while the table, or a value taken from it, is in use. The file is in
    // this program's own temporary directory, and the program does not write to finished tables. *Replacing* a file, as
    // `WriteOptions::create` does, is safe: the map keeps the old file.
    #[expect(
        unsafe_code,
        reason = "only the program can promise that the file stays unchanged"
    )]
    let source = unsafe { Source::map(&path)? };
    let table = OpenOptions::new().open_source(source)?;

    let value = table.get(777u64.to_be_bytes())?.ok_or("777 is missing")?;
    println!("777 squared is {}", value.escape_ascii());
    assert_eq!(table.stats().source_reads, 0, "no read calls were made");

    // A value keeps the map alive, and can outlive the table.
    drop(table);
    assert_eq!(value, "603729");
    Ok(())
}
