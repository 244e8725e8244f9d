//! The files of a database's directory, and which of them count.

use std::collections::{BTreeMap, HashMap};

use leveltable::Result;

use crate::database::Database;
use crate::directory::{self, FileKind};
use crate::manifest::TableFile;
use crate::state::State;

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
        let found = directory::list(self.path())?.into_iter();
        let mut sizes: BTreeMap<String, Option<u64>> =
            found.map(|(name, bytes)| (name, Some(bytes))).collect();
        let listed = state.tables();
        let listed: HashMap<u64, _> = listed.map(|table| (table.1.number, table)).collect();
        for [name, old_name] in listed.keys().map(|&number| directory::table_names(number)) {
            if !sizes.contains_key(&old_name) {
                sizes.entry(name).or_default();
            }
        }
        if let Some(log) = state.recovery.missing_log {
            sizes.entry(directory::log_name(log)).or_default();
        }
        let file = |(name, bytes): (String, Option<u64>)| {
            let (kind, number) = FileKind::of(&name);
            let table = number.filter(|_| kind == FileKind::Table);
            let table = table.and_then(|number| listed.get(&number));
            DatabaseFile {
                state: state.state_of((&name, bytes), (kind, number), table.is_some()),
                name,
                kind,
                number,
                bytes,
                listed: table.map(|&(level, file)| (level as u32, file.clone())),
            }
        };
        Ok(sizes.into_iter().map(file).collect())
    }
}

impl State {
    fn state_of(
        &self,
        (name, bytes): (&str, Option<u64>),
        (kind, number): (FileKind, Option<u64>),
        is_listed: bool,
    ) -> FileState {
        let current = self.current.as_ref().map(|current| &*current.manifest);
        let number = number.unwrap_or(0);
        match kind {
            _ if bytes.is_none() => FileState::Missing,
            FileKind::Current => FileState::Live,
            FileKind::Manifest if current == Some(name) => FileState::Live,
            FileKind::Table if is_listed => FileState::Live,
            FileKind::Table if !self.version.deleted.contains(&number) => FileState::Orphan,
            FileKind::Log if self.version.needs_log(number) => FileState::Live,
            FileKind::Manifest | FileKind::Table | FileKind::Log => FileState::Obsolete,
            _ => FileState::Aside,
        }
    }
}
