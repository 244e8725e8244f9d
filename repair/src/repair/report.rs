//! The report of a repair.

use std::fmt;

use leveltable_database::{BuiltDatabase, FileKind};

/// The findings of [`repair`](crate::repair()), and what it wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct RepairReport {
    /// What is lost, unproven, or left out, in this order, and notes.
    pub findings: Vec<RepairFinding>,
    /// The MANIFESTs, tables and logs of the directory, and what was used from each.
    pub files: Vec<RepairedFile>,
    /// The new database.
    pub written: BuiltDatabase,
    /// The name of its comparator.
    pub comparator: String,
}

impl RepairReport {
    /// Whether no finding is [`Grade::Lost`] or [`Grade::Unproven`].
    pub fn is_complete(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| matches!(finding.grade, Grade::LeftOut | Grade::Note))
    }
}

/// A part of a database that was not recovered, or that needs a remark; one of [`RepairReport::findings`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairFinding {
    /// How much it matters.
    pub grade: Grade,
    /// The name of the file.
    pub file: Option<String>,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Number of bytes in the file.
    pub bytes: Option<u64>,
    /// What happened, in words.
    pub reason: String,
    /// The first user key that it may concern; `None` for all keys up to `to`. Only for what is lost or unproven.
    pub from: Option<Vec<u8>>,
    /// The last user key that it may concern; `None` for all keys from `from` on. Only for what is lost or unproven.
    pub to: Option<Vec<u8>>,
    /// Number of keys or changes, if it is known.
    pub keys: Option<u64>,
}

impl RepairFinding {
    /// A finding about a range of keys, or about none in particular.
    pub(super) fn new(
        grade: Grade,
        file: Option<String>,
        reason: String,
        (from, to): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> RepairFinding {
        RepairFinding {
            grade,
            file,
            offset: None,
            bytes: None,
            reason,
            from,
            to,
            keys: None,
        }
    }
}

/// How much a [`RepairFinding`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grade {
    /// Data that could not be recovered.
    Lost,
    /// Keys may be missing, older than they were, or back although they were deleted; nothing proves it.
    Unproven,
    /// Data that no longer counted, and is left out.
    LeftOut,
    /// Additional information.
    Note,
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Grade::Lost => "lost",
            Grade::Unproven => "unproven",
            Grade::LeftOut => "left-out",
            Grade::Note => "note",
        })
    }
}

/// A file that a repair examined; one of [`RepairReport::files`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedFile {
    /// The file's name.
    pub name: String,
    /// The file's kind, from its name.
    pub kind: FileKind,
    /// The file's size; `None` if the file is missing.
    pub bytes: Option<u64>,
    /// Number of versions that were read from it: values and deletions, old ones included. For a MANIFEST, the number of
    /// sound records.
    pub versions: u64,
    /// Whether the file was used, and what was wrong with it.
    pub state: String,
}

impl fmt::Display for RepairFinding {
    /// A line of text: `lost: 000005.ldb at offset 4096: ..., keys "a" to "b"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.grade)?;
        if let Some(file) = &self.file {
            write!(f, "{file}")?;
            if let Some(offset) = self.offset {
                write!(f, " at offset {offset}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)?;
        if !matches!(self.grade, Grade::Lost | Grade::Unproven) {
            return Ok(());
        }
        let show = |key: &Option<Vec<u8>>, open: &str| match key {
            Some(key) => format!("\"{}\"", key.escape_ascii()),
            None => open.to_owned(),
        };
        match (&self.from, &self.to) {
            (None, None) => f.write_str("; any key"),
            (from, to) => {
                let (from, to) = (show(from, "the first"), show(to, "the last"));
                write!(f, "; keys {from} to {to}")
            }
        }
    }
}
