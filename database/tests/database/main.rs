//! Tests of databases, as one program: it compiles in a fraction of the time that one for each module takes.
//! `cargo test -p leveltable-database --test database build::` runs those of one of them.

#[path = "../common/mod.rs"]
mod common;

mod approximate;
mod beside_a_writer;
mod build;
mod build_speed;
mod compact;
mod cpp_build;
mod cpp_leveldb;
mod damage;
mod format;
mod held;
mod indexeddb;
#[cfg(target_os = "linux")]
mod reads;
mod speed;
mod system_calls;
mod walk;
