//! The files of a database's directory, and which of them count.

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
        let found = directory::list(self.path())?;
        let mut files: Vec<DatabaseFile> = Vec::new();
        for (name, bytes) in found {
            let (kind, number) = FileKind::of(&name);
            let listed = number.filter(|_| kind == FileKind::Table);
            let listed = listed.and_then(|number| state.listed(number));
            files.push(DatabaseFile {
                state: state.state_of(&name, kind, number, listed.is_some()),
                name,
                kind,
                number,
                bytes: Some(bytes),
                listed,
            });
        }
        for (level, table) in state.levels.all() {
            let is_there = |file: &DatabaseFile| {
                file.kind == FileKind::Table && file.number == Some(table.number)
            };
            if !files.iter().any(is_there) {
                let [name, _] = directory::table_names(table.number);
                files.push(DatabaseFile {
                    name,
                    kind: FileKind::Table,
                    number: Some(table.number),
                    bytes: None,
                    state: FileState::Missing,
                    listed: Some((level, table.clone())),
                });
            }
        }
        if let Some(log) = state.recovery.missing_log {
            files.push(DatabaseFile {
                name: directory::log_name(log),
                kind: FileKind::Log,
                number: Some(log),
                bytes: None,
                state: FileState::Missing,
                listed: None,
            });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}

impl State {
    fn listed(&self, number: u64) -> Option<(u32, TableFile)> {
        let mut all = self.levels.all();
        let (level, file) = all.find(|(_, file)| file.number == number)?;
        Some((level, file.clone()))
    }

    fn state_of(
        &self,
        name: &str,
        kind: FileKind,
        number: Option<u64>,
        is_listed: bool,
    ) -> FileState {
        let current = self.current.as_ref().map(|current| &*current.manifest);
        match (kind, number) {
            (FileKind::Current, _) => FileState::Live,
            (FileKind::Manifest, _) if current == Some(name) => FileState::Live,
            (FileKind::Manifest, _) => FileState::Obsolete,
            (FileKind::Table, _) if is_listed => FileState::Live,
            (FileKind::Table, Some(number)) if self.version.deleted.contains(&number) => {
                FileState::Obsolete
            }
            (FileKind::Table, _) => FileState::Orphan,
            (FileKind::Log, Some(number)) if self.version.needs_log(number) => FileState::Live,
            (FileKind::Log, _) => FileState::Obsolete,
            _ => FileState::Aside,
        }
    }
}
