//! The files of a database, and which of them count.

use std::collections::HashSet;

use leveltable::Result;

use crate::directory::{FileKind, file_name, list, name_of};
use crate::record::TableMetadata;
use crate::state::State;

/// A file of a database's directory, or one that is missing there; returned by
/// [`Database::files`](crate::Database::files).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseFile {
    /// The file's name.
    pub name: String,
    /// The file's kind, from its name.
    pub kind: FileKind,
    /// The number in its name.
    pub number: Option<u64>,
    /// The file's size in bytes; `None` if the file is missing.
    pub bytes: Option<u64>,
    /// Whether it counts.
    pub state: FileState,
    /// The table's level and its entry in the MANIFEST, if it is listed.
    pub listed: Option<(u32, TableMetadata)>,
}

/// Whether a [file](DatabaseFile) is part of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileState {
    /// Part of the database.
    Live,
    /// Listed, but missing.
    Missing,
    /// No longer part of the database, since its contents are elsewhere now: a writer would have removed it.
    Obsolete,
    /// A table or a log that the MANIFEST does not know. LevelDB deletes such files when it opens the database.
    Orphan,
    /// No data: `LOG`, `LOCK` and the like, and files of others.
    Aside,
}

/// The files of the directory, and those that are listed and missing.
pub(crate) fn files_of(state: &State) -> Result<Vec<DatabaseFile>> {
    let (mut names, listed) = (list(&*state.dir)?, &state.version.tables);
    let found: HashSet<_> = names.keys().map(|name| FileKind::of(name)).collect();
    let tables = listed.keys().map(|&number| file_name(number, "ldb"));
    let log = state.recovery.missing_log;
    let missing = tables.chain(log.map(|number| file_name(number, "log")));
    let missing = missing.filter(|name| !found.contains(&FileKind::of(name)));
    names.extend(missing.map(|name| (name, None)));
    let current = state.current.as_ref().map(|current| name_of(&current.path));
    let file = |(name, bytes): (String, Option<u64>)| {
        let (kind, number) = FileKind::of(&name);
        let id = number.unwrap_or(0);
        let table = listed.get(&id).filter(|_| kind == FileKind::Table);
        let state = match kind {
            _ if bytes.is_none() => FileState::Missing,
            FileKind::Current => FileState::Live,
            FileKind::Manifest if current.as_ref() == Some(&name) => FileState::Live,
            FileKind::Table if table.is_some() => FileState::Live,
            FileKind::Table if !state.version.deleted.contains(&id) => FileState::Orphan,
            FileKind::Log if state.version.needs_log(id) => FileState::Live,
            FileKind::Manifest | FileKind::Table | FileKind::Log => FileState::Obsolete,
            FileKind::Other => FileState::Aside,
        };
        DatabaseFile {
            name,
            kind,
            number,
            bytes,
            state,
            listed: table.map(|table| (table.level, table.file.clone())),
        }
    };
    Ok(names.into_iter().map(file).collect())
}
