//! The tests of tables that the engine builds and reads, as one program: it compiles in half the time that one for each of these takes.
//! `cargo test --test engine orders::` runs those of one of them.

#[path = "../common/mod.rs"]
mod common;

mod align;
mod batches;
mod concurrency;
mod cpp_leveldb;
mod damage;
mod earlier_reader;
mod faults;
mod filter_rates;
mod golden;
mod large_files;
mod lsm;
#[cfg(feature = "mmap")]
mod map;
mod merge;
mod model;
mod opening;
mod orders;
mod prefix_filter;
mod properties;
mod publish;
mod reads;
mod regressions;
#[cfg(feature = "async")]
mod remote;
#[cfg(feature = "async")]
mod remote_errors;
mod sstable_crate;
mod table_cache;
mod verify;
