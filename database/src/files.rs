//! The files of a database's directory, and which of them count.

use std::collections::{BTreeMap, HashMap};

use leveltable::Result;

use crate::database::Database;
use crate::directory::{FileKind, file_name, list, name_of};
use crate::manifest::TableFile;

/// A file of a database's directory, or one that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseFile {
    /// Its name.
    pub name: String,
    /// What it is, by its name.
    pub kind: FileKind,
    /// The number in its name.
    pub number: Option<u64>,
    /// Its size in bytes; `None` if it is not there.
    pub bytes: Option<u64>,
    /// Whether it counts.
    pub state: FileState,
    /// The level, and what the MANIFEST says of the table, if it lists it.
    pub listed: Option<(u32, TableFile)>,
}

/// Whether a file is part of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileState {
    /// Part of the database.
    Live,
    /// Listed, and not there.
    Missing,
    /// It was part of the database, and its contents are elsewhere now: a writer would have removed it.
    Obsolete,
    /// A table or a log that the MANIFEST does not know. LevelDB deletes such files when it opens the database.
    Orphan,
    /// No data: `LOG`, `LOCK` and the like, and files of others.
    Aside,
}

impl Database {
    /// The files of the directory as of now, and those that are listed and not there, by the MANIFEST as it was read; sorted by name.
    ///
    /// # Errors
    ///
    /// Those of listing the directory.
    pub fn files(&self) -> Result<Vec<DatabaseFile>> {
        let state = self.shared.state();
        let found = list(self.path())?.into_iter();
        let mut sizes: BTreeMap<String, Option<u64>> =
            found.map(|(name, bytes)| (name, Some(bytes))).collect();
        let tables = state.tables();
        let listed: HashMap<u64, _> = tables.map(|table| (table.1.file.number, table)).collect();
        for &number in listed.keys() {
            if !sizes.contains_key(&file_name(number, "sst")) {
                sizes.entry(file_name(number, "ldb")).or_default();
            }
        }
        if let Some(log) = state.recovery.missing_log {
            sizes.entry(file_name(log, "log")).or_default();
        }
        let current = state.current.as_ref().map(|current| name_of(&current.path));
        let file = |(name, bytes): (String, Option<u64>)| {
            let (kind, number) = FileKind::of(&name);
            let n = number.unwrap_or(0);
            let table = listed.get(&n).filter(|_| kind == FileKind::Table);
            let state = match kind {
                _ if bytes.is_none() => FileState::Missing,
                FileKind::Current => FileState::Live,
                FileKind::Manifest if current.as_ref() == Some(&name) => FileState::Live,
                FileKind::Table if table.is_some() => FileState::Live,
                FileKind::Table if !state.version.deleted.contains(&n) => FileState::Orphan,
                FileKind::Log if state.version.needs_log(n) => FileState::Live,
                FileKind::Manifest | FileKind::Table | FileKind::Log => FileState::Obsolete,
                _ => FileState::Aside,
            };
            DatabaseFile {
                name,
                kind,
                number,
                bytes,
                state,
                listed: table.map(|(level, table)| (*level, table.file.clone())),
            }
        };
        Ok(sizes.into_iter().map(file).collect())
    }
}
