//! The report of a verification: findings and figures.

use std::fmt;

use leveltable::db::KeyKind;
use leveltable::{Corruption, Error, ErrorKind, Section};

#[cfg(doc)]
use super::verify;

/// Maximum number of findings in a report; the rest are counted. About a kilobyte each at worst.
const MAX_FINDINGS: usize = 1000;

/// A section, and the offset of its block.
pub(super) type Place = (Section, u64);

/// The severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Unusual, but tolerated by readers: bytes between blocks that are not the padding of
    /// [`block_align`](leveltable::WriteOptions::block_align), a data block without a filter, bytes after a handle, a footer whose padding
    /// is not zeros, an unknown version of `about.pieces`.
    Warning,
    /// Could not be checked: this build lacks the codec, the source failed, or the handle that leads there is damaged.
    Unchecked,
    /// No writer writes this. Entries are lost, or some reader may return wrong results.
    Damage,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        f.write_str(&name.to_lowercase())
    }
}

/// A finding of [`verify`]: its severity, its place, what a sound table has there, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    corruption: Corruption,
}

impl Finding {
    /// Its severity; see [`Finding`].
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The affected part of the file; see [`Finding`].
    pub fn section(&self) -> Section {
        self.corruption.section
    }

    /// Offset in the file of the block of that [section](Finding::section), or of the gap.
    pub fn offset(&self) -> u64 {
        self.corruption.offset
    }

    /// Describes what a sound table has at that [offset](Finding::offset).
    pub fn expected(&self) -> &str {
        &self.corruption.expected
    }

    /// Describes what is there instead of what is [expected](Finding::expected).
    pub fn found(&self) -> &str {
        &self.corruption.found
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.corruption)
    }
}

/// The findings of [`verify`], and counts of what it read.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each finding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct VerifyReport {
    /// Size of the file.
    pub file_bytes: u64,
    /// Number of bytes of the blocks that were read and checked, of the footer, and of the padding in an aligned table.
    pub checked_bytes: u64,
    /// Number of data blocks that were sound enough to be walked: none without a sound index.
    pub data_blocks: u64,
    /// Number of entries in them.
    pub entries: u64,
    /// Number of filter lookups for present keys: entries times filters.
    pub filter_checks: u64,
    /// The kind of keys that the table was checked for.
    pub keys: KeyKind,
    /// Whether the order of the keys is unknown: they ascend neither bytewise nor as a database's do, or the table names a
    /// comparator that the caller did not. Everything but their order was checked.
    pub unknown_order: bool,
    /// The reason, if it is unknown.
    pub order_clue: Option<String>,
    /// Whether the progress callback ended the run early.
    pub cancelled: bool,
    /// The findings, in the order of offsets: the first 1,000.
    pub findings: Vec<Finding>,
    /// Number of findings of [`Severity::Damage`], including those left out of the list.
    pub damage: u64,
    /// Number of findings of [`Severity::Unchecked`].
    pub unchecked: u64,
    /// Number of findings of [`Severity::Warning`].
    pub warnings: u64,
}

impl VerifyReport {
    /// Whether everything was checked, the order of the keys included, and nothing is damaged. Ignores warnings.
    /// [`VerifyOptions`](crate::VerifyOptions) has an example.
    pub fn is_sound(&self) -> bool {
        self.blocks_are_sound() && !self.unknown_order
    }

    /// Whether everything but the order of the keys, which may be [unknown](VerifyReport::unknown_order), was checked, and
    /// nothing is damaged.
    pub fn blocks_are_sound(&self) -> bool {
        self.damage == 0 && self.unchecked == 0 && !self.cancelled
    }

    /// Number of findings that are not in the [list](VerifyReport::findings).
    pub fn left_out(&self) -> u64 {
        let all = self.damage + self.unchecked + self.warnings;
        all.saturating_sub(self.findings.len() as u64)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, blocks) = (self.entries, self.data_blocks);
        let (checked, bytes) = (self.checked_bytes, self.file_bytes);
        let (damage, unchecked, warnings) = (self.damage, self.unchecked, self.warnings);
        write!(
            f,
            "{entries} entries in {blocks} data blocks; {checked} of {bytes} bytes checked; "
        )?;
        write!(
            f,
            "{damage} damaged, {unchecked} unchecked, {warnings} warnings"
        )?;
        if self.cancelled {
            f.write_str("; cancelled")?;
        }
        if let Some(clue) = &self.order_clue {
            write!(f, "; the order of the keys is not known: {clue}")?;
        }
        let mut findings = self.findings.iter();
        findings.try_for_each(|finding| write!(f, "\n{finding}"))?;
        match self.left_out() {
            0 => Ok(()),
            n => write!(f, "\nand {n} more"),
        }
    }
}

impl VerifyReport {
    /// Records a finding: in full while there is room.
    pub(super) fn find(
        &mut self,
        severity: Severity,
        (section, offset): Place,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        match severity {
            Severity::Damage => self.damage += 1,
            Severity::Unchecked => self.unchecked += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding {
                severity,
                corruption: Corruption::new(section, offset, expected, found),
            });
        }
    }

    pub(super) fn find_error(&mut self, place: Place, error: &Error) {
        if let Some(own) = error.corruption() {
            let place = (own.section, own.offset);
            return self.find(Severity::Damage, place, &own.expected, &own.found);
        }
        let severity = match error.kind() {
            ErrorKind::NotATable | ErrorKind::DatabaseTable => Severity::Damage,
            _ => Severity::Unchecked,
        };
        let found = error.to_string();
        // The text after "found" says what the file is.
        let found = found.trim_start_matches("this is ");
        self.find(severity, place, "a LevelDB table that can be read", found);
    }
}

/// Keys that a filter rejects: a description of the first one, and their number. There can be as many as the table has
/// keys.
#[derive(Debug, Default)]
pub(super) struct Tally {
    count: u64,
    first: Option<(String, String)>,
}

impl Tally {
    /// Counts one more key. `words` returns what was expected and what was found.
    pub(super) fn note(&mut self, words: impl FnOnce() -> (String, String)) {
        self.count += 1;
        self.first.get_or_insert_with(words);
    }

    /// The finding as text, if there is one.
    pub(super) fn words(self) -> Option<(String, String)> {
        let (expected, mut found) = self.first?;
        if self.count > 1 {
            found.push_str(&format!(" (and {} more such)", self.count - 1));
        }
        Some((expected, found))
    }
}
