//! Reads a table through a memory map: no copies, no block cache, no read calls.
//!
//! The map comes in as [`Bytes`]. Uncompressed blocks are used where they lie in the file, so a value is a
//! slice of the map; compressed ones are decompressed into the block cache, and a value is a slice of that block.
//! The one `unsafe` is the map's own: whoever makes it promises that nobody changes the file, and this crate cannot
//! know that.
//!
//! `cargo run --example mmap`

use std::fs::File;

use bytes::Bytes;
use leveltable::{Compression, OpenOptions, WriteOptions};
use memmap2::Mmap;

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

    // SAFETY: nobody may write to or truncate the file while the map, or any value taken from it, is in use.
    // This one lies in a directory of this program's own, and nothing here writes to a finished table. One
    // that is *replaced* under its name, as `WriteOptions::create` does, is no danger: the map keeps the
    // old file. But the end of a file that was truncated raises SIGBUS on access, which ends the program.
    #[expect(unsafe_code, reason = "nobody else can make that promise")]
    let map = unsafe { Mmap::map(&File::open(&path)?)? };
    #[cfg(unix)]
    map.advise(memmap2::Advice::Random)?; // lookups jump about, so reading ahead would be in vain

    let bytes = Bytes::from_owner(map);
    let table = OpenOptions::new().open_source(bytes.clone())?;
    let value = table.get(&777u64.to_be_bytes())?.ok_or("777 is missing")?;
    println!("777 squared is {}", value.escape_ascii());
    assert!(
        bytes.as_ptr_range().contains(&value.as_ptr()),
        "the value lies in the map"
    );
    assert_eq!(
        table.stats().source_reads,
        0,
        "nothing was read through a call"
    );

    // A value keeps the whole map alive, and may outlive the table.
    drop((table, bytes));
    assert_eq!(value, "603729");
    Ok(())
}
