//! Decodes the records of logs (write batches) and of MANIFESTs (version edits). Their bytes are untrusted.

use bytes::Bytes;
use leveltable::db::{DbEntry, InternalKey, MAX_SEQUENCE, Version};
use leveltable::sister_crates::{get_varint64, put_varint, user_key};
use leveltable::{Corruption, Section};

/// LevelDB has levels 0 to 6; goleveldb adds more when they fill up.
const MAX_LEVEL: u64 = 63;

/// Ends the description of a find by RocksDB or Pebble. The contents of a file are quoted before it, and so cannot imitate
/// it.
pub(crate) const FOREIGN: &str = ", as RocksDB and Pebble write";

/// The rest of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N as u64)?.first_chunk().copied()
    }

    /// A varint.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, len) = get_varint64(self.rest)?;
        self.take(len as u64).map(|_| number)
    }

    /// A length and that many bytes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len)
    }

    fn level(&mut self) -> Option<u32> {
        let level = self.number()?;
        (level <= MAX_LEVEL).then_some(level as u32)
    }

    fn internal_key(&mut self) -> Option<Vec<u8>> {
        let stored = self.string()?;
        InternalKey::parse(stored).map(|_| stored.to_vec())
    }

    fn change(&mut self, sequence: u64) -> Option<DbEntry> {
        let [kind] = self.array()?;
        let user_key = Bytes::copy_from_slice(self.string()?);
        let version = match kind {
            0 => Version::Deleted,
            1 => Version::Value(Bytes::copy_from_slice(self.string()?)),
            _ => return None,
        };
        Some(DbEntry::new(user_key, sequence, version))
    }

    /// Describes what is here instead of what is expected. The offset is relative to `payload`.
    fn defect(self, payload: &[u8], section: Section, expected: &str, hint: &str) -> Corruption {
        let (first, _) = self.rest.split_at(self.rest.len().min(20));
        let found = format!("\"{}\"{hint}", first.escape_ascii());
        let offset = payload.len() - self.rest.len();
        Corruption::new(section, offset as u64, expected, found)
    }
}

/// A write batch: changes that take effect together, each with its own sequence number.
///
/// ```text
/// fixed64 sequence of the first change, fixed32 number of changes, change*
/// change = 1 key value | 0 key          key, value = varint32 length, bytes
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// The changes, in the order in which they take effect.
    pub changes: Vec<DbEntry>,
}

impl Batch {
    /// Checks the whole payload of a log record, and copies its keys and values. Takes some 80 bytes for each change, plus the
    /// copies; [`LogReader`](crate::LogReader) has an example.
    ///
    /// # Errors
    ///
    /// The place where it is not a batch of LevelDB's, as an offset within the payload.
    pub fn parse(payload: &[u8]) -> Result<Batch, Corruption> {
        let mut rest = Decoder { rest: payload };
        let defect = |at: Decoder<'_>, expected: &str, hint: &str| {
            Err(at.defect(payload, Section::Log, expected, hint))
        };
        let header = rest.array().zip(rest.array());
        let (sequence, count) = header.unwrap_or(([0xff; 8], [0xff; 4]));
        let (sequence, count) = (u64::from_le_bytes(sequence), u32::from_le_bytes(count));
        if sequence.saturating_add(count.into()) > MAX_SEQUENCE {
            let expected = "a sequence number of 56 bits and a number of changes";
            return defect(Decoder { rest: payload }, expected, "");
        }
        let mut changes = Vec::new();
        while !rest.rest.is_empty() && changes.len() < count as usize {
            let before = rest;
            let Some(change) = rest.change(sequence + changes.len() as u64) else {
                let hint = ", as other engines' logs have perhaps";
                return defect(before, "a change of type 0 or 1", hint);
            };
            changes.push(change);
        }
        if changes.len() != count as usize || !rest.rest.is_empty() {
            let expected = format!("{count} changes, as the record says");
            return defect(rest, &expected, &format!(" after {}", changes.len()));
        }
        Ok(Batch { changes })
    }
}

/// A version edit: the changes of a flush, a compaction or an opening.
///
/// ```text
/// 1 comparator's name     2 log number         3 next file number      4 last sequence
/// 5 level internal key (where the next compaction begins)              6 level number (deleted file)
/// 7 level number size smallest largest (new file, with internal keys)  9 previous log number
/// ```
///
/// Tags and numbers are varints; names and keys are preceded by their length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edit {
    /// The comparator's name.
    pub comparator: Option<Vec<u8>>,
    /// The changes of logs with smaller numbers are in tables.
    pub log_number: Option<u64>,
    /// A log that counts in spite of its number; 0 for none.
    pub prev_log_number: Option<u64>,
    /// No file has this number or a larger one.
    pub next_file_number: Option<u64>,
    /// The largest sequence number in tables.
    pub last_sequence: Option<u64>,
    /// Levels and numbers of tables that are no longer part of the database.
    pub deleted: Vec<(u32, u64)>,
    /// Levels and tables that are part of the database from now on.
    pub added: Vec<(u32, TableMetadata)>,
}

/// A table as an [`Edit`] of the MANIFEST lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMetadata {
    /// Number of the file, as in `000005.ldb`.
    pub number: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// The first key, an internal key: user key, sequence number and type.
    pub smallest: Vec<u8>,
    /// The last key, an internal key.
    pub largest: Vec<u8>,
}

impl TableMetadata {
    /// The user key of [`smallest`](TableMetadata::smallest).
    pub fn first_user_key(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    /// The user key of [`largest`](TableMetadata::largest).
    pub fn last_user_key(&self) -> &[u8] {
        user_key(&self.largest)
    }
}

/// Appends a length and the bytes.
fn put_string(dst: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(dst, bytes.len() as u64);
    dst.extend_from_slice(bytes);
}

impl Edit {
    /// Decodes the payload of a MANIFEST's record, which a [`LogReader`](crate::LogReader) returns.
    ///
    /// # Errors
    ///
    /// The place where it is not a version edit of LevelDB's, as an offset within the payload: a tag that LevelDB does not have,
    /// or bytes that end too early.
    pub fn parse(payload: &[u8]) -> Result<Edit, Corruption> {
        let mut edit = Edit::default();
        edit.read(payload)?;
        Ok(edit)
    }

    /// Decodes a payload, and adds its fields to those of earlier ones.
    pub(crate) fn read(&mut self, payload: &[u8]) -> Result<(), Corruption> {
        let mut rest = Decoder { rest: payload };
        while !rest.rest.is_empty() {
            let before = rest;
            if self.read_field(&mut rest).is_none() {
                let expected = "a tag and its field, as LevelDB writes them";
                let mut field = before;
                let is_foreign = field.number() >= Some(100);
                let hint = if is_foreign { FOREIGN } else { "" };
                return Err(before.defect(payload, Section::Manifest, expected, hint));
            }
        }
        Ok(())
    }

    /// The payload of a record, its fields in LevelDB's order.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        if let Some(name) = &self.comparator {
            put_varint(&mut payload, 1);
            put_string(&mut payload, name);
        }
        let (log, previous) = (self.log_number, self.prev_log_number);
        let (next, last) = (self.next_file_number, self.last_sequence);
        for (tag, number) in [(2, log), (9, previous), (3, next), (4, last)] {
            if let Some(number) = number {
                put_varint(&mut payload, tag);
                put_varint(&mut payload, number);
            }
        }
        for &(level, number) in &self.deleted {
            for field in [6, level.into(), number] {
                put_varint(&mut payload, field);
            }
        }
        for (level, table) in &self.added {
            for field in [7, u64::from(*level), table.number, table.size] {
                put_varint(&mut payload, field);
            }
            put_string(&mut payload, &table.smallest);
            put_string(&mut payload, &table.largest);
        }
        payload
    }

    fn read_field(&mut self, rest: &mut Decoder<'_>) -> Option<()> {
        match rest.number()? {
            1 => self.comparator = Some(rest.string()?.to_vec()),
            2 => self.log_number = Some(rest.number()?),
            3 => self.next_file_number = Some(rest.number()?),
            4 => self.last_sequence = Some(rest.number()?),
            5 => drop((rest.level()?, rest.string()?)),
            6 => self.deleted.push((rest.level()?, rest.number()?)),
            7 => {
                let level = rest.level()?;
                let table = TableMetadata {
                    number: rest.number()?,
                    size: rest.number()?,
                    smallest: rest.internal_key()?,
                    largest: rest.internal_key()?,
                };
                self.added.push((level, table));
            }
            9 => self.prev_log_number = Some(rest.number()?),
            _ => return None,
        }
        Some(())
    }
}
