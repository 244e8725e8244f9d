//! Reads LevelDB databases: directories of `CURRENT`, `MANIFEST-000002`, `000003.log` and `000005.ldb`. Takes no lock and writes
//! nothing, so a writer may be at work.
//!
//! ```no_run
//! use leveltable_database::Database;
//!
//! let db = Database::open_read_only("Local Storage/leveldb")?;
//! println!("{:?}", db.get("key")?);
//! for entry in db.range("a".."b") {
//!     let (key, value) = entry?;
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), leveltable::Error>(())
//! ```
//!
//! | | |
//! |---|---|
//! | live contents | [`Database`]: [`get`](Database::get), [`get_many`](Database::get_many), [`range`](Database::range), [`prefix`](Database::prefix) |
//! | order, damage, caches | [`DatabaseOptions`] |
//! | what a writer died with, or is still writing | [`Database::recovery`] |
//! | beside a writer | [`Database::refresh`], [`Database::pin`] |
//! | old versions of a key, and where they lie | [`Database::history`], [`Database::history_range`] |
//! | the files, and which of them count | [`Database::files`] |
//! | records of a single log or MANIFEST | [`LogReader`], [`Batch`], [`Edit`] |
//! | databases of Chrome and Electron | [`IndexedDbComparator`] |
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used)]
#![deny(clippy::indexing_slicing, clippy::panic)]

mod approximate;
mod database;
mod directory;
mod indexeddb;
mod log;
mod record;
mod state;
mod walk;

pub use database::{Database, DatabaseOptions};
pub use directory::{DatabaseFile, FileKind, FileState};
pub use indexeddb::IndexedDbComparator;
pub use log::{Gap, GapKind, LogItem, LogReader, LogRecord, ReadLog, Recovery};
pub use record::{Batch, Edit, TableFile};
pub use walk::{DatabaseRange, HistoryEntries, HistoryEntry, VersionState};

/// The README's code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
