//! What a verification says: findings, and figures.

use std::fmt;

use crate::error::{Error, ErrorKind, Section, show_key};
use crate::format::Defect;
#[cfg(doc)]
use crate::read::table::Table;

/// Most findings that a report holds; the rest are counted. About a kilobyte each at worst.
const MOST_FINDINGS: usize = 1000;

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Unusual, and tolerated by readers: padding between blocks, a data block without a filter, bytes
    /// behind a handle.
    Warning,
    /// Nothing can be said of it: this build lacks its codec, the source failed to read it, or what would
    /// lead to it is damaged.
    Unchecked,
    /// Not what a writer writes. Entries are lost, or some reader may answer wrongly.
    Damage,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Unchecked => "unchecked",
            Severity::Damage => "damage",
        })
    }
}

/// One thing that [`Table::verify`] found: where, what a sound table has there, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    section: Section,
    offset: u64,
    expected: String,
    found: String,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The part of the file that is concerned.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Offset in the file of that part's block, or of the gap.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What a sound table would have there.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// What is there.
    pub fn found(&self) -> &str {
        &self.found
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} at offset {}: expected {}, found {}",
            self.severity, self.section, self.offset, self.expected, self.found
        )
    }
}

/// What [`Table::verify`] saw.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each finding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Size of the file.
    pub file_bytes: u64,
    /// Bytes of the blocks that were read and checked, and of the footer.
    pub checked_bytes: u64,
    /// Data blocks that were sound enough to be walked.
    pub data_blocks: u64,
    /// Entries in them.
    pub entries: u64,
    /// How often a filter was asked for a key that is there: entries times filters.
    pub filter_checks: u64,
    /// Whether the keys were checked as internal keys of a database.
    pub internal_keys: bool,
    /// Whether the progress callback ended the run early.
    pub cancelled: bool,
    /// What was found, in the order of offsets: the first 1 000 that were met.
    pub findings: Vec<Finding>,
    /// How many findings there were of [`Severity::Damage`], those left out of the list included.
    pub damage: u64,
    /// The same of [`Severity::Unchecked`].
    pub unchecked: u64,
    /// The same of [`Severity::Warning`].
    pub warnings: u64,
}

impl VerifyReport {
    /// Whether everything was checked and nothing is damaged. Warnings are let pass.
    pub fn is_sound(&self) -> bool {
        self.damage == 0 && self.unchecked == 0 && !self.cancelled
    }

    /// Findings that the list has no room for.
    pub fn left_out(&self) -> u64 {
        let all = self.damage + self.unchecked + self.warnings;
        all.saturating_sub(self.findings.len() as u64)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries in {} data blocks; {} of {} bytes checked; {} damaged, {} unchecked, {} warnings",
            self.entries,
            self.data_blocks,
            self.checked_bytes,
            self.file_bytes,
            self.damage,
            self.unchecked,
            self.warnings
        )?;
        if self.cancelled {
            f.write_str("; cancelled")?;
        }
        for finding in &self.findings {
            write!(f, "\n{finding}")?;
        }
        match self.left_out() {
            0 => Ok(()),
            n => write!(f, "\nand {n} more"),
        }
    }
}

impl VerifyReport {
    /// Puts the findings in the order of offsets.
    pub(super) fn sort(&mut self) {
        self.findings
            .sort_by_key(|finding| (finding.offset, finding.section));
    }

    /// Records a finding: in full while there is room.
    pub(super) fn find(
        &mut self,
        severity: Severity,
        (section, offset): (Section, u64),
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        match severity {
            Severity::Damage => self.damage += 1,
            Severity::Unchecked => self.unchecked += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding {
                severity,
                section,
                offset,
                expected: expected.into(),
                found: found.into(),
            });
        }
    }

    pub(super) fn find_defect(&mut self, place: (Section, u64), defect: Defect) {
        self.find_error(place, &defect.locate(place.0, place.1));
    }

    pub(super) fn find_error(&mut self, place: (Section, u64), error: &Error) {
        match (error.corruption(), error.kind()) {
            (Some(corruption), _) => self.find(
                Severity::Damage,
                (corruption.section(), corruption.offset()),
                corruption.expected(),
                corruption.found(),
            ),
            (None, ErrorKind::Unsupported | ErrorKind::Io) => {
                self.find(
                    Severity::Unchecked,
                    place,
                    "a block that can be read",
                    error.to_string(),
                );
            }
            (None, _) => self.find(Severity::Damage, place, "a sound table", error.to_string()),
        }
    }

    pub(super) fn find_tally(&mut self, severity: Severity, place: (Section, u64), tally: Tally) {
        if let Some((expected, mut found)) = tally.first {
            if tally.count > 1 {
                found.push_str(&format!(" (and {} more such)", tally.count - 1));
            }
            self.find(severity, place, expected, found);
        }
    }
}

/// Findings of one kind that could be as many as keys: the first is told, the rest are counted.
#[derive(Default)]
pub(super) struct Tally {
    count: u64,
    first: Option<(String, String)>,
}

impl Tally {
    /// Counts one; `words` are what was expected and what was found.
    pub(super) fn note(&mut self, words: impl FnOnce() -> (String, String)) {
        self.count += 1;
        self.first.get_or_insert_with(words);
    }
}

/// What was expected and what was found where `key` does not come after `before`.
pub(super) fn not_ascending(before: &[u8], key: &[u8]) -> (String, String) {
    (
        format!("keys that ascend, one after {}", show_key(before)),
        show_key(key),
    )
}
