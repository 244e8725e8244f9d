//! All versions of a user key that files still hold.

use leveltable::db::{InternalKey, InternalKeyComparator, ValueType, Version};
use leveltable::{Comparator, Result};

use crate::batch::Batch;
use crate::database::Database;
use crate::directory::{FileKind, failed};
use crate::files::{DatabaseFile, FileState};
use crate::log::{LogItem, LogReader};
use crate::state::State;

/// A version of a user key that a file still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// When it was written: larger is later.
    pub sequence: u64,
    /// What was written.
    pub version: Version,
    /// The file's name.
    pub file: String,
    /// Offset in the file: of the record in a log, of the block in a table.
    pub offset: u64,
    /// Whether it counts, and why not.
    pub state: VersionState,
}

/// Whether a version is what a lookup finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// A lookup finds it. A deletion that is live hides older versions.
    Live,
    /// A later value, of this sequence number, replaced it.
    Overwritten(u64),
    /// A later deletion, of this sequence number, removed it.
    Deleted(u64),
    /// It is in a file that is no part of the database: see [`FileState`].
    FileNotListed,
}

impl Database {
    /// Returns each version of `key` in the directory's logs and tables, the newest first, those in files that are no part of the
    /// database last.
    ///
    /// These are the versions that compactions have not dropped yet; they are no snapshots of the database. Reads the logs again,
    /// and every table whose keys may include `key`, until the block that does. Unlisted files that cannot be read are passed over.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Database::get).
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = key.as_ref();
        let state = self.shared.state();
        let mut live = Vec::new();
        let mut unlisted = Vec::new();
        for file in self.files()? {
            let is_live = match file.state {
                FileState::Live => true,
                FileState::Obsolete | FileState::Orphan => false,
                FileState::Missing | FileState::Aside => continue,
            };
            let found = match file.kind {
                FileKind::Log => self.versions_in_log(&file, key),
                FileKind::Table => state.versions_in_table(&file, key),
                _ => continue,
            };
            match found {
                Ok(found) if is_live => live.extend(found),
                Ok(found) => unlisted.extend(found),
                Err(error) if is_live => return Err(error),
                Err(_) => {}
            }
        }
        live.sort_by_key(|entry| std::cmp::Reverse(entry.sequence));
        let mut newer: Option<(u64, bool)> = None;
        for entry in &mut live {
            entry.state = match newer {
                None => VersionState::Live,
                Some((by, true)) => VersionState::Deleted(by),
                Some((by, false)) => VersionState::Overwritten(by),
            };
            newer = Some((entry.sequence, entry.version == Version::Deleted));
        }
        unlisted.sort_by_key(|entry| std::cmp::Reverse(entry.sequence));
        live.extend(unlisted);
        Ok(live)
    }

    fn versions_in_log(&self, file: &DatabaseFile, key: &[u8]) -> Result<Vec<HistoryEntry>> {
        let path = self.path().join(&file.name);
        let mut versions = Vec::new();
        for item in LogReader::open(&path)? {
            // Opening has said what is damaged.
            let LogItem::Record(record) = item.map_err(|e| failed("reading the log", e, &path))?
            else {
                continue;
            };
            let Ok(batch) = Batch::parse(&record.payload) else {
                continue;
            };
            for change in batch.changes().filter(|change| change.user_key == key) {
                let value = change.value.map(<[u8]>::to_vec);
                versions.push(HistoryEntry {
                    sequence: change.sequence,
                    version: value.into(),
                    file: file.name.clone(),
                    offset: record.offset,
                    state: VersionState::FileNotListed,
                });
            }
        }
        Ok(versions)
    }
}

impl State {
    fn versions_in_table(&self, file: &DatabaseFile, key: &[u8]) -> Result<Vec<HistoryEntry>> {
        let order = self.known_order()?;
        if let Some((_, listed)) = &file.listed
            && (order.compare(key, listed.first_user_key()).is_lt()
                || order.compare(key, listed.last_user_key()).is_gt())
        {
            return Ok(Vec::new());
        }
        let table = match &file.listed {
            Some((_, listed)) => self.table(listed)?,
            None => self.open_unlisted(&file.name)?,
        };
        let mut versions = Vec::new();
        for entry in table.range(key..=key) {
            let entry = entry?;
            versions.push(HistoryEntry {
                sequence: entry.sequence,
                version: entry.version,
                file: file.name.clone(),
                offset: 0,
                state: VersionState::FileNotListed,
            });
        }
        // The blocks that these are in.
        let order = InternalKeyComparator::new(order.clone());
        let mut unplaced = versions.iter_mut().peekable();
        for block in table.blocks() {
            if unplaced.peek().is_none() {
                break;
            }
            let block = block?;
            let Some((_, last)) = &block.key_range else {
                continue;
            };
            let is_in =
                |version: &&mut HistoryEntry| order.compare(&version.stored_key(key), last).is_le();
            while let Some(version) = unplaced.next_if(is_in) {
                version.offset = block.offset;
            }
        }
        Ok(versions)
    }
}

impl HistoryEntry {
    /// The internal key of this version of `user_key`.
    fn stored_key(&self, user_key: &[u8]) -> Vec<u8> {
        let value_type = match self.version {
            Version::Value(_) => ValueType::Value,
            Version::Deleted => ValueType::Deletion,
        };
        let mut stored = Vec::new();
        InternalKey {
            user_key,
            sequence: self.sequence,
            value_type,
        }
        .encode(&mut stored);
        stored
    }
}
