//! The tuples of `leveltable.reports`.

use leveltable::inspect::Properties;
use leveltable::repair::{Finding, LostRange, SalvageReport, Severity, VerifyReport};
use leveltable::{Stats, Summary};
use leveltable_database::{
    DatabaseFile, FileGap, FileKind, FileState, HistoryEntry, Recovery, TableFile, VersionState,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

type Made<'py> = PyResult<Bound<'py, PyAny>>;

/// Makes the tuple `$class` of `leveltable.reports` of fields by name.
macro_rules! tuple {
    ($py:expr, $class:literal, { $($field:ident: $value:expr,)+ }) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($field), $value)?;)+
        $py.import("leveltable.reports")?
            .getattr($class)?
            .call((), Some(&fields))
    }};
}

fn bytes<'py>(py: Python<'py>, key: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
    key.map(|key| PyBytes::new(py, key))
}

pub(crate) fn stats(py: Python<'_>, stats: Stats) -> Made<'_> {
    tuple!(py, "Stats", {
        source_reads: stats.source_reads,
        source_bytes: stats.source_bytes,
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        filter_rejected: stats.filter_rejected,
        filter_passed: stats.filter_passed,
        prefix_rejected: stats.prefix_rejected,
        prefix_passed: stats.prefix_passed,
    })
}

pub(crate) fn properties<'py>(py: Python<'py>, properties: &Properties) -> Made<'py> {
    let user = PyDict::new(py);
    for (name, value) in properties.user_properties() {
        user.set_item(String::from_utf8_lossy(name), PyBytes::new(py, value))?;
    }
    tuple!(py, "Properties", {
        comparator: &properties.comparator,
        creator: properties.creator.as_deref(),
        entries: properties.entries,
        first_key: bytes(py, properties.first_key.as_deref()),
        last_key: bytes(py, properties.last_key.as_deref()),
        key_bytes: properties.key_bytes,
        value_bytes: properties.value_bytes,
        data_blocks: properties.data_blocks,
        data_bytes: properties.data_bytes,
        filter_policy: properties.filter_policy.as_deref(),
        filter_bytes: properties.filter_bytes,
        user: user,
    })
}

pub(crate) fn summary<'py>(py: Python<'py>, summary: &Summary) -> Made<'py> {
    tuple!(py, "Summary", {
        entries: summary.entries,
        key_bytes: summary.key_bytes,
        value_bytes: summary.value_bytes,
        data_blocks: summary.data_blocks,
        data_bytes: summary.data_bytes,
        file_bytes: summary.file_bytes,
        first_key: bytes(py, summary.first_key.as_deref()),
        last_key: bytes(py, summary.last_key.as_deref()),
    })
}

pub(crate) fn verified<'py>(py: Python<'py>, report: &VerifyReport) -> Made<'py> {
    let findings = report.findings.iter().map(|found| finding(py, found));
    tuple!(py, "VerifyReport", {
        is_sound: report.is_sound(),
        file_bytes: report.file_bytes,
        checked_bytes: report.checked_bytes,
        data_blocks: report.data_blocks,
        entries: report.entries,
        damage: report.damage,
        unchecked: report.unchecked,
        warnings: report.warnings,
        findings: findings.collect::<PyResult<Vec<_>>>()?,
    })
}

fn finding<'py>(py: Python<'py>, found: &Finding) -> Made<'py> {
    tuple!(py, "Finding", {
        severity: match found.severity() {
            Severity::Damage => "damage",
            Severity::Unchecked => "unchecked",
            Severity::Warning => "warning",
            _ => "note",
        },
        section: found.section().to_string(),
        offset: found.offset(),
        expected: found.expected(),
        found: found.found(),
    })
}

pub(crate) fn salvaged<'py>(py: Python<'py>, report: &SalvageReport) -> Made<'py> {
    let lost = report.lost.iter().map(|range| lost(py, range));
    tuple!(py, "SalvageReport", {
        is_complete: report.is_complete(),
        file_bytes: report.file_bytes,
        entries: report.entries,
        data_blocks: report.data_blocks,
        stated_entries: report.stated_entries,
        entries_out_of_order: report.entries_out_of_order,
        lost: lost.collect::<PyResult<Vec<_>>>()?,
    })
}

fn lost<'py>(py: Python<'py>, lost: &LostRange) -> Made<'py> {
    tuple!(py, "LostRange", {
        start: lost.range.start,
        stop: lost.range.end,
        reason: &lost.reason,
        entries: lost.entries,
        after: bytes(py, lost.after.as_deref()),
        before: bytes(py, lost.before.as_deref()),
    })
}

pub(crate) fn version(py: Python<'_>, version: HistoryEntry) -> Made<'_> {
    let (state, by) = match version.state {
        VersionState::Live => ("live", None),
        VersionState::Overwritten(by) => ("overwritten", Some(by)),
        VersionState::Deleted(by) => ("deleted", Some(by)),
        VersionState::FileNotListed => ("file not listed", None),
    };
    let value = version.version.into_value();
    tuple!(py, "Version", {
        sequence: version.sequence,
        value: bytes(py, value.as_deref()),
        state: state,
        by: by,
        file: version.file,
        offset: version.offset,
    })
}

pub(crate) fn file<'py>(py: Python<'py>, file: &DatabaseFile) -> Made<'py> {
    let level = file.listed.as_ref().map(|(level, _)| *level);
    let table = file.listed.as_ref().map(|(_, table)| table);
    tuple!(py, "DatabaseFile", {
        name: &file.name,
        kind: match file.kind {
            FileKind::Current => "CURRENT",
            FileKind::Manifest => "MANIFEST",
            FileKind::Log => "log",
            FileKind::Table => "table",
            FileKind::Lock => "LOCK",
            FileKind::InfoLog => "LOG",
            FileKind::Temporary => "temporary",
            FileKind::Other => "other",
        },
        bytes: file.bytes,
        state: match file.state {
            FileState::Live => "live",
            FileState::Missing => "missing",
            FileState::Obsolete => "obsolete",
            FileState::Orphan => "orphan",
            FileState::Aside => "aside",
        },
        level: level,
        first_key: bytes(py, table.map(TableFile::first_user_key)),
        last_key: bytes(py, table.map(TableFile::last_user_key)),
    })
}

pub(crate) fn recovery<'py>(py: Python<'py>, recovery: &Recovery) -> Made<'py> {
    let gaps = recovery.gaps.iter().map(|found| gap(py, found));
    let unreadable = recovery.unreadable_tables.iter();
    let unreadable = unreadable.map(|(name, error)| (name, error.to_string()));
    tuple!(py, "Recovery", {
        without_manifest: recovery.without_manifest,
        changes: recovery.logs.iter().map(|log| log.changes).sum::<u64>(),
        gaps: gaps.collect::<PyResult<Vec<_>>>()?,
        missing_log: recovery.missing_log,
        unreadable_tables: unreadable.collect::<Vec<_>>(),
    })
}

fn gap<'py>(py: Python<'py>, gap: &FileGap) -> Made<'py> {
    tuple!(py, "Gap", {
        file: &gap.file,
        offset: gap.gap.offset,
        bytes: gap.gap.bytes,
        expected: &gap.gap.expected,
        found: &gap.gap.found,
    })
}
