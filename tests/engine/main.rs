//! Tests of the tables that the engine builds and reads, as one program: it compiles in half the time that one for each module takes.
//! `cargo test --test engine orders::` runs those of one of them.

#[path = "../common/mod.rs"]
mod common;

mod approximate;
mod batches;
mod concurrency;
mod cpp_leveldb;
mod current;
mod damage;
mod earlier_reader;
mod faults;
mod filter_rates;
mod forms;
mod golden;
mod inputs;
mod large_files;
mod lsm;
mod merge;
mod messages;
mod opening;
mod orders;
mod prefix_filter;
mod properties;
mod publish;
mod reads;
mod regressions;
mod runs;
mod sorter;
mod sstable_crate;
mod table_cache;
mod walk_speed;
