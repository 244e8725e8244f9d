//! Reads a table through a memory map: no copies, no block cache, no read calls.
//!
//! The table opens the map as [`Bytes`]. It reads uncompressed blocks in place, so a value is a slice of the map.
//! Compressed blocks are decompressed into the block cache, and a value is a slice of such a block. Creating the
//! map is `unsafe`: the caller promises that nobody changes the file, which this crate cannot check.
//!
//! `cargo run --example mmap`

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Compression, OpenOptions, WriteOptions};
use memmap2::Mmap;

/// The map, shared by the table and by whoever advises the system.
struct Map(Arc<Mmap>);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

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

    // SAFETY: nobody may write to or truncate the file while the map, or a value taken from it, is in use. The
    // file is in this program's own temporary directory, and the program does not write to finished tables.
    // *Replacing* a file, as `WriteOptions::create` does, is safe: the map keeps the old file. Reading the map past
    // the end of a truncated file raises SIGBUS, which ends the program.
    #[expect(
        unsafe_code,
        reason = "only the program can promise that the file stays unchanged"
    )]
    let map = unsafe { Mmap::map(&File::open(&path)?)? };
    let map = Arc::new(map);
    let bytes = Bytes::from_owner(Map(Arc::clone(&map)));
    let table = OpenOptions::new().open_source(bytes.clone())?;
    // Opening reads index and filter from end to end, which the system's read-ahead speeds up. Lookups are random, so
    // reading ahead would be wasted from here on.
    #[cfg(unix)]
    map.advise(memmap2::Advice::Random)?;

    let value = table.get(777u64.to_be_bytes())?.ok_or("777 is missing")?;
    println!("777 squared is {}", value.escape_ascii());
    assert!(
        bytes.as_ptr_range().contains(&value.as_ptr()),
        "the value is a slice of the map"
    );
    assert_eq!(table.stats().source_reads, 0, "no read calls were made");

    // A value keeps the map alive, and can outlive the table.
    drop((table, bytes));
    assert_eq!(value, "603729");
    Ok(())
}
