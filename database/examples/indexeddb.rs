//! What an IndexedDB of Chrome or Electron holds: the number of entries of each object store and index.
//!
//! `cargo run -p leveltable-database --example indexeddb -- "…/IndexedDB/https_example.com_0.indexeddb.leveldb"`
//!
//! The program may be running: nothing is locked or written.

use std::collections::BTreeMap;

use leveltable_database::Database;

/// The numbers with which a key begins: database, object store and index. Each has a length of its own.
fn place(key: &[u8]) -> Option<[u64; 3]> {
    let (&lengths, mut rest) = key.split_first()?;
    let mut number = |len_less_one: u8| {
        let (bytes, after) = rest.split_at_checked(usize::from(len_less_one) + 1)?;
        rest = after;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |n, &byte| n << 8 | u64::from(byte)),
        )
    };
    Some([
        number(lengths >> 5)?,
        number(lengths >> 2 & 7)?,
        number(lengths & 3)?,
    ])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(dir) = std::env::args_os().nth(1) else {
        println!("name the directory of a database");
        return Ok(());
    };
    let db = Database::open_read_only(dir)?;
    println!(
        "in the order {}, {} changes so far",
        db.comparator(),
        db.last_sequence()
    );
    let mut counts = BTreeMap::<_, (u64, usize)>::new();
    for entry in db.iter() {
        let (key, value) = entry?;
        let (entries, bytes) = counts.entry(place(&key)).or_default();
        *entries += 1;
        *bytes += value.len();
    }
    for (place, (entries, bytes)) in counts {
        match place {
            Some([database, 0, 0]) => print!("database {database}, metadata"),
            Some([database, store, index]) => {
                print!("database {database}, object store {store}, index {index}");
            }
            None => print!("other keys"),
        }
        println!(": {entries} entries, {bytes} bytes");
    }
    Ok(())
}
