//! All versions of a user key that files still hold.

use bytes::Bytes;
use leveltable::Result;
use leveltable::db::Version;

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
    /// The user key.
    pub user_key: Bytes,
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
    /// and every table whose keys may include `key`, from its beginning to its end. Unlisted files that cannot be read are passed over.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Database::get).
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = key.as_ref();
        self.versions(Some(key), |found| found == key)
    }

    /// Returns each version of the keys that are `wanted`, in the order of the keys, and of each key as
    /// [`history`](Database::history) does. Keys of a database in an unknown order are in byte order.
    ///
    /// Reads all files, and needs memory for all that it returns.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Database::get).
    pub fn history_of(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<HistoryEntry>> {
        self.versions(None, wanted)
    }

    /// The versions of the keys that are `wanted`: of `only` one, if that is given.
    fn versions(
        &self,
        only: Option<&[u8]>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<HistoryEntry>> {
        let state = self.shared.state();
        let mut versions: Vec<(bool, HistoryEntry)> = Vec::new();
        for file in self.files()? {
            let is_unlisted = match file.state {
                FileState::Live => false,
                FileState::Obsolete | FileState::Orphan => true,
                FileState::Missing | FileState::Aside => continue,
            };
            let found = match file.kind {
                FileKind::Log => self.versions_in_log(&file, &wanted),
                FileKind::Table => state.versions_in_table(&file, only, &wanted),
                _ => continue,
            };
            match found {
                Ok(found) => versions.extend(found.into_iter().map(|entry| (is_unlisted, entry))),
                Err(error) if !is_unlisted => return Err(error),
                Err(_) => {}
            }
        }
        versions.sort_by(|(a_unlisted, a), (b_unlisted, b)| {
            let keys = match &state.order {
                Some(order) => order.compare(&a.user_key, &b.user_key),
                None => a.user_key.cmp(&b.user_key),
            };
            let sequences = b.sequence.cmp(&a.sequence);
            keys.then(a_unlisted.cmp(b_unlisted)).then(sequences)
        });
        let mut newer: Option<(Bytes, u64, bool)> = None;
        for (is_unlisted, entry) in &mut versions {
            if *is_unlisted {
                continue;
            }
            entry.state = match &newer {
                Some((key, by, true)) if *key == entry.user_key => VersionState::Deleted(*by),
                Some((key, by, false)) if *key == entry.user_key => VersionState::Overwritten(*by),
                _ => VersionState::Live,
            };
            let is_deletion = entry.version == Version::Deleted;
            newer = Some((entry.user_key.clone(), entry.sequence, is_deletion));
        }
        Ok(versions.into_iter().map(|(_, entry)| entry).collect())
    }

    fn versions_in_log(
        &self,
        file: &DatabaseFile,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<HistoryEntry>> {
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
            for change in batch.changes().filter(|change| wanted(change.user_key)) {
                let value = change.value.map(<[u8]>::to_vec);
                versions.push(HistoryEntry {
                    user_key: Bytes::copy_from_slice(change.user_key),
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
    fn versions_in_table(
        &self,
        file: &DatabaseFile,
        only: Option<&[u8]>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<HistoryEntry>> {
        if let (Some(key), Some((level, listed)), Some(order)) = (only, &file.listed, &self.order)
            && self.trusts_ends(*level)
            && (order.compare(key, listed.first_user_key()).is_lt()
                || order.compare(key, listed.last_user_key()).is_gt())
        {
            return Ok(Vec::new());
        }
        let table = match &file.listed {
            Some((_, listed)) => self.table(listed)?,
            None => self.open_unlisted(&file.name)?,
        };
        // Blocks know their offsets, and a walk knows the versions.
        let mut blocks = table.stored().blocks();
        let (mut offset, mut left) = (0, 0);
        let mut versions = Vec::new();
        for entry in table.stored().iter() {
            let entry = entry?;
            while left == 0
                && let Some(block) = blocks.next()
            {
                let block = block?;
                (offset, left) = (block.offset, block.entries);
            }
            left = left.saturating_sub(1);
            if wanted(&entry.user_key) {
                versions.push(HistoryEntry {
                    user_key: entry.user_key,
                    sequence: entry.sequence,
                    version: entry.version,
                    file: file.name.clone(),
                    offset,
                    state: VersionState::FileNotListed,
                });
            }
        }
        Ok(versions)
    }
}
