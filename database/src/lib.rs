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
//! | unfinished ends of logs | [`Database::recovery`] |
//! | beside a writer | [`Database::refresh`], [`Database::pin`] |
//! | old versions of a key, and where they lie | [`Database::history`], [`Database::history_range`] |
//! | the files, and which of them count | [`Database::files`] |
//! | records of a single log or MANIFEST | [`LogReader`], [`Batch`], [`Edit`] |
//! | databases of Chrome and Electron | [`IndexedDbComparator`] |
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used)]
#![deny(clippy::indexing_slicing, clippy::panic)]

mod approximate;
mod builder;
mod compact;
mod database;
mod directory;
mod files;
mod handle;
mod indexeddb;
mod log;
mod options;
mod record;
mod state;
mod storage;
mod walk;
mod writer;

pub use builder::{BuiltDatabase, DatabaseBuildOptions, DatabaseBuilder};
pub use compact::{CompactOptions, Compacted, compact_into};
pub use database::{Database, DatabaseOptions};
pub use directory::FileKind;
pub use files::{DatabaseFile, FileState};
pub use indexeddb::IndexedDbComparator;
pub use log::{Gap, GapKind, LogItem, LogReader, LogRecord, ReadLog, Recovery};
pub use record::{Batch, Edit, TableMetadata};
pub use walk::{DatabaseRange, HistoryEntries, HistoryEntry, VersionState};

#[doc(hidden)]
pub mod sister_crates {
    //! For the other crates of the workspace, which are released together with this one, and for tests: databases in directories of
    //! any kind. They may change at any time.

    use std::sync::Arc;

    use leveltable::Result;

    pub use crate::compact::{check_outside, settings_of, usual_table_bytes};
    pub use crate::indexeddb::{built_in_comparator, is_indexed_db_key};
    pub use crate::log::check_foreign;
    pub use crate::storage::{
        Directory, FileSystem, NewDirectory, NewFile, Sequential, check_space, failed, new_like,
    };
    pub use crate::writer::holds_lock;
    use crate::{CompactOptions, Compacted, Database, DatabaseOptions};
    use crate::{DatabaseBuildOptions, DatabaseBuilder};

    /// Opens the database in a directory.
    pub fn open(dir: Arc<dyn Directory>, options: &DatabaseOptions) -> Result<Database> {
        options.open_in(dir)
    }

    /// Starts a database in a new directory.
    pub fn build(
        new: Box<dyn NewDirectory>,
        options: DatabaseBuildOptions,
    ) -> Result<DatabaseBuilder> {
        DatabaseBuilder::create_in(new, options)
    }

    /// Compacts the database in a directory into a new one.
    pub fn compact(
        dir: Arc<dyn Directory>,
        new: Box<dyn NewDirectory>,
        options: CompactOptions<'_>,
    ) -> Result<Compacted> {
        crate::compact::compact(dir, options, |options| {
            DatabaseBuilder::create_in(new, options)
        })
    }
}

/// The README's code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
