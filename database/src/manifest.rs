//! The records of a MANIFEST: version edits, and the version that they lead to.

use std::collections::{BTreeMap, BTreeSet};

use leveltable::db::InternalKey;

use crate::decode::{Decoder, Defect};

/// LevelDB has levels 0 to 6, goleveldb more where they fill up.
const MAX_LEVEL: u64 = 63;

const ROCKSDB: &str = ", as in a MANIFEST of RocksDB or Pebble";

/// A version edit: what a flush, a compaction or an opening changed.
///
/// ```text
/// 1 comparator's name     2 log number         3 next file number      4 last sequence
/// 5 level internal key (where the next compaction begins)              6 level number (deleted file)
/// 7 level number size smallest largest (new file, with internal keys)  9 previous log number
/// ```
///
/// Tags and numbers are varints, names and keys have their length before them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edit {
    /// The comparator's name.
    pub comparator: Option<Vec<u8>>,
    /// Logs with smaller numbers are in tables.
    pub log_number: Option<u64>,
    /// A log that counts in spite of its number. 0 for none.
    pub prev_log_number: Option<u64>,
    /// No file has this number or a larger one.
    pub next_file_number: Option<u64>,
    /// The largest sequence number in tables.
    pub last_sequence: Option<u64>,
    /// Levels and numbers of tables that are no longer part of the database.
    pub deleted: Vec<(u32, u64)>,
    /// Levels and tables that are part of the database from now on.
    pub added: Vec<(u32, TableFile)>,
}

/// A table as a MANIFEST lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFile {
    /// Number of the file, as in `000005.ldb`.
    pub number: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// The first key, an internal key: user key, sequence number and type.
    pub smallest: Vec<u8>,
    /// The last key, an internal key.
    pub largest: Vec<u8>,
}

impl TableFile {
    /// The first user key.
    pub fn first_user_key(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    /// The last user key.
    pub fn last_user_key(&self) -> &[u8] {
        user_key(&self.largest)
    }
}

fn user_key(stored: &[u8]) -> &[u8] {
    let len = stored.len().saturating_sub(8);
    stored.get(..len).unwrap_or_default()
}

impl Edit {
    /// Decodes the payload of a MANIFEST's record.
    ///
    /// # Errors
    ///
    /// Where it is no version edit of LevelDB's: a tag that LevelDB does not have, or bytes that end too early.
    pub fn parse(payload: &[u8]) -> Result<Edit, Defect> {
        let mut edit = Edit::default();
        edit.read(payload)?;
        Ok(edit)
    }

    /// Decodes a payload on top of what earlier ones said.
    fn read(&mut self, payload: &[u8]) -> Result<(), Defect> {
        let mut rest = Decoder::new(payload);
        while !rest.is_empty() {
            let before = rest.clone();
            match rest.varint("a tag")? {
                1 => self.comparator = Some(rest.string("the comparator's name")?.to_vec()),
                2 => self.log_number = Some(rest.varint("the log number")?),
                3 => self.next_file_number = Some(rest.varint("the next file number")?),
                4 => self.last_sequence = Some(rest.varint("the last sequence number")?),
                5 => {
                    level(&mut rest)?;
                    rest.string("a compaction's key")?;
                }
                6 => {
                    let level = level(&mut rest)?;
                    self.deleted.push((level, rest.varint("a file number")?));
                }
                7 => {
                    let level = level(&mut rest)?;
                    let table = TableFile {
                        number: rest.varint("a file number")?,
                        size: rest.varint("a file size")?,
                        smallest: internal_key(&mut rest)?,
                        largest: internal_key(&mut rest)?,
                    };
                    self.added.push((level, table));
                }
                9 => self.prev_log_number = Some(rest.varint("the previous log number")?),
                tag => {
                    let of_whom = if tag < 100 { "" } else { ROCKSDB };
                    return Err(before.defect("a tag of LevelDB's", format!("{tag}{of_whom}")));
                }
            }
        }
        Ok(())
    }
}

fn level(rest: &mut Decoder<'_>) -> Result<u32, Defect> {
    let before = rest.clone();
    let level = rest.varint("a level")?;
    if level > MAX_LEVEL {
        return Err(before.defect(format!("a level up to {MAX_LEVEL}"), level.to_string()));
    }
    Ok(level as u32)
}

fn internal_key(rest: &mut Decoder<'_>) -> Result<Vec<u8>, Defect> {
    let before = rest.clone();
    let stored = rest.string("an internal key")?;
    if InternalKey::parse(stored).is_none() {
        let found = format!("\"{}\"", stored.escape_ascii());
        return Err(before.defect("an internal key of type 0 or 1", found));
    }
    Ok(stored.to_vec())
}

/// What all edits of a MANIFEST amount to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    /// What was stated last, without the tables.
    pub(crate) stated: Edit,
    /// By level and number.
    pub(crate) tables: BTreeMap<(u32, u64), TableFile>,
    /// Numbers of tables that were listed once.
    pub(crate) deleted: BTreeSet<u64>,
}

impl Version {
    /// Applies an edit: deletions first, as LevelDB does.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), Defect> {
        self.stated.read(payload)?;
        for (level, number) in self.stated.deleted.drain(..) {
            if self.tables.remove(&(level, number)).is_some() {
                self.deleted.insert(number);
            }
        }
        let added = self.stated.added.drain(..);
        self.tables
            .extend(added.map(|(level, file)| ((level, file.number), file)));
        Ok(())
    }

    /// The first log whose changes are not in tables yet, and an older one or 0.
    pub(crate) fn first_logs(&self) -> (u64, u64) {
        let stated = [self.stated.log_number, self.stated.prev_log_number];
        stated.map(Option::unwrap_or_default).into()
    }

    /// Whether a log's changes are not in tables yet.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        let (first, older) = self.first_logs();
        number >= first || number == older
    }
}
