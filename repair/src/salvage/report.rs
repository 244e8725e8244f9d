//! The report of a salvage.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use leveltable::Section;

use super::find::Blocks;
#[cfg(doc)]
use super::salvage;
#[cfg(doc)]
use leveltable::format::Properties;

/// Counts of what [`salvage`] copied, and the lost ranges.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each lost range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SalvageReport {
    /// Size of the damaged file.
    pub file_bytes: u64,
    /// Number of entries copied.
    pub entries: u64,
    /// Number of data blocks copied.
    pub data_blocks: u64,
    /// Number of entries of the damaged table according to its [`Properties`], if those were found.
    pub stated_entries: Option<u64>,
    /// Number of its data blocks according to its [`Properties`], if those were found.
    pub stated_data_blocks: Option<u64>,
    /// State of the index.
    pub index: IndexState,
    /// The ranges of the file with data, or what may have been data, from which nothing was copied, in the order of the
    /// keys around them. Sound blocks that the index does not list come last.
    pub lost: Vec<LostRange>,
    /// Sound blocks that were not treated as data, and the section that they were taken for.
    pub set_aside: Vec<(Section, Range<u64>)>,
    /// Whether the progress callback ended the run early. This report then ends there.
    pub cancelled: bool,
}

/// A part of a file whose entries are lost; one of [`SalvageReport::lost`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Its offsets in the file.
    pub range: Range<u64>,
    /// Why it could not be copied.
    pub reason: String,
    /// Number of its entries, if it is a sound block that has no place in the table.
    pub entries: Option<u64>,
    /// The last key copied before it: all lost keys come after this one. `None` if nothing was copied before, or if it has no place
    /// among the keys.
    pub after: Option<Bytes>,
    /// The first key copied after it: all lost keys come before this one. `None` if nothing was copied after, or if it has no
    /// place among the keys.
    pub before: Option<Bytes>,
}

/// State of a damaged table's index; see [`SalvageReport::index`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// The footer led to it, and it is sound: it lists all data blocks.
    Sound,
    /// It is sound, and lists all data blocks, but no footer led to it.
    Found,
    /// There is none, or it is damaged: data blocks were found by scanning.
    #[default]
    Lost,
}

impl SalvageReport {
    /// A report before anything is copied.
    pub(super) fn of(blocks: &Blocks<'_>) -> SalvageReport {
        let found = blocks.found.values();
        let set_aside = found.filter(|found| found.section != Section::Data);
        let set_aside = set_aside.map(|found| (found.section, found.range.clone()));
        let properties = blocks.style.properties.as_ref();
        SalvageReport {
            file_bytes: blocks.file.size,
            index: match &blocks.index {
                Some(index) if index.is_in_place => IndexState::Sound,
                Some(_) => IndexState::Found,
                None => IndexState::Lost,
            },
            stated_entries: properties.map(|properties| properties.entries),
            stated_data_blocks: properties.map(|properties| properties.data_blocks),
            set_aside: set_aside.collect(),
            ..SalvageReport::default()
        }
    }

    /// Total size of all [lost](SalvageReport::lost) ranges in bytes.
    pub fn lost_bytes(&self) -> u64 {
        let lost = self.lost.iter();
        let lens = lost.map(|lost| lost.range.end - lost.range.start);
        lens.fold(0, u64::saturating_add)
    }

    /// Whether the run came to its end and the whole table was copied, according to its index or its properties.
    ///
    /// False if neither was found, or if [data was found that was not copied](SalvageReport::lost).
    pub fn is_complete(&self) -> bool {
        let says_all = self.index != IndexState::Lost || self.stated_entries.is_some();
        (self.index == IndexState::Sound || says_all && self.is_as_stated())
            && self.lost.is_empty()
            && !self.cancelled
    }

    /// Whether as many entries and data blocks were copied as the table's [`Properties`] say. True if none were found.
    pub fn is_as_stated(&self) -> bool {
        let stated = self.stated_entries.zip(self.stated_data_blocks);
        stated.is_none_or(|stated| stated == (self.entries, self.data_blocks))
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries copied from {} data blocks; {} of {} bytes lost",
            self.entries,
            self.data_blocks,
            self.lost_bytes(),
            self.file_bytes,
        )?;
        if let Some((entries, blocks)) = self.stated_entries.zip(self.stated_data_blocks)
            && !self.is_as_stated()
        {
            let stated = format!("{entries} entries in {blocks} data blocks");
            write!(f, "; the properties state {stated}")?;
        }
        if self.cancelled {
            f.write_str("; cancelled")?;
        }
        self.lost.iter().try_for_each(|lost| write!(f, "\n{lost}"))
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(f, "lost: bytes {start} to {end}")?;
        for (place, key) in [("after", &self.after), ("before", &self.before)] {
            if let Some(key) = key {
                write!(f, ", {place} key \"{}\"", key.escape_ascii())?;
            }
        }
        write!(f, ": {}", self.reason)
    }
}
