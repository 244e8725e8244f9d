//! The tuples of `leveltable.reports`.

use std::collections::BTreeMap;

use leveltable::format::Properties;
use leveltable::sister_crates::counts;
use leveltable::{Stats, Summary};
use leveltable_database::{
    BuiltDatabase, Compacted, DatabaseFile, Gap, HistoryEntry, Recovery, TableMetadata,
    VersionState,
};
use leveltable_repair::{
    Finding, LostRange, RepairFinding, RepairReport, RepairedFile, SalvageReport, VerifyReport,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

type Made<'py> = PyResult<Bound<'py, PyAny>>;

/// Makes the tuple `$class` of `leveltable.reports`: from fields of `$from` with the same names, and from others.
macro_rules! tuple {
    ($py:expr, $class:literal, $from:expr, [$($same:ident),*], { $($field:ident: $value:expr),* $(,)? }) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($same), &$from.$same)?;)*
        $(fields.set_item(stringify!($field), $value)?;)*
        let class = $py.import("leveltable.reports")?.getattr($class)?;
        class.call((), Some(&fields))
    }};
}

pub(crate) fn stats(py: Python<'_>, stats: Stats) -> Made<'_> {
    let fields = PyDict::new(py);
    for (name, count) in counts(&stats) {
        fields.set_item(name, count)?;
    }
    let class = py.import("leveltable.reports")?.getattr("Stats")?;
    class.call((), Some(&fields))
}

pub(crate) fn properties<'py>(py: Python<'py>, found: &Properties) -> Made<'py> {
    let user = found.user_properties();
    let user = user.map(|(name, value)| (String::from_utf8_lossy(name), value));
    tuple!(py, "Properties", found, [
        comparator, creator, entries, key_bytes, value_bytes, data_blocks, data_bytes, filter_policy, filter_bytes
    ], {
        first_key: found.first_key.as_deref(),
        last_key: found.last_key.as_deref(),
        user: user.collect::<BTreeMap<_, _>>(),
    })
}

pub(crate) fn summary<'py>(py: Python<'py>, summary: &Summary) -> Made<'py> {
    let written = &summary.properties;
    tuple!(py, "Summary", written, [entries, key_bytes, value_bytes, data_blocks, data_bytes], {
        file_bytes: summary.file_bytes,
        first_key: written.first_key.as_deref(),
        last_key: written.last_key.as_deref(),
    })
}

pub(crate) fn built<'py>(py: Python<'py>, built: &BuiltDatabase) -> Made<'py> {
    tuple!(
        py,
        "BuiltDatabase",
        built,
        [tables, entries, bytes, level, last_sequence, leftovers],
        {}
    )
}

pub(crate) fn compacted<'py>(py: Python<'py>, compacted: &Compacted) -> Made<'py> {
    tuple!(py, "Compacted", compacted, [bytes_before, has_writer], {
        built: built(py, &compacted.built)?,
    })
}

pub(crate) fn verified<'py>(py: Python<'py>, report: &VerifyReport) -> Made<'py> {
    let findings = report.findings.iter().map(|found| finding(py, found));
    tuple!(py, "VerifyReport", report, [
        file_bytes, checked_bytes, data_blocks, entries, damage, unchecked, warnings
    ], {
        is_sound: report.is_sound(),
        findings: findings.collect::<PyResult<Vec<_>>>()?,
    })
}

fn finding<'py>(py: Python<'py>, found: &Finding) -> Made<'py> {
    tuple!(py, "Finding", found, [], {
        severity: found.severity().to_string(),
        section: found.section().to_string(),
        offset: found.offset(),
        expected: found.expected(),
        found: found.found(),
    })
}

pub(crate) fn salvaged<'py>(py: Python<'py>, report: &SalvageReport) -> Made<'py> {
    let lost = report.lost.iter().map(|range| lost(py, range));
    tuple!(py, "SalvageReport", report, [file_bytes, entries, data_blocks, stated_entries], {
        is_complete: report.is_complete(),
        lost: lost.collect::<PyResult<Vec<_>>>()?,
    })
}

fn lost<'py>(py: Python<'py>, lost: &LostRange) -> Made<'py> {
    tuple!(py, "LostRange", lost, [reason, entries], {
        start: lost.range.start,
        stop: lost.range.end,
        after: lost.after.as_deref(),
        before: lost.before.as_deref(),
    })
}

pub(crate) fn repaired<'py>(py: Python<'py>, report: &RepairReport) -> Made<'py> {
    let findings = report
        .findings
        .iter()
        .map(|found| found_by_repair(py, found));
    let files = report.files.iter().map(|file| repaired_file(py, file));
    tuple!(py, "RepairReport", report, [comparator], {
        is_complete: report.is_complete(),
        findings: findings.collect::<PyResult<Vec<_>>>()?,
        files: files.collect::<PyResult<Vec<_>>>()?,
        built: built(py, &report.written)?,
    })
}

fn found_by_repair<'py>(py: Python<'py>, found: &RepairFinding) -> Made<'py> {
    tuple!(py, "RepairFinding", found, [file, offset, reason, keys], {
        grade: found.grade.to_string(),
        length: found.bytes,
        first_key: found.from.as_deref(),
        last_key: found.to.as_deref(),
    })
}

fn repaired_file<'py>(py: Python<'py>, file: &RepairedFile) -> Made<'py> {
    tuple!(py, "RepairedFile", file, [name, versions, state], {
        kind: format!("{:?}", file.kind).to_lowercase(),
        file_bytes: file.bytes,
    })
}

pub(crate) fn version(py: Python<'_>, version: HistoryEntry) -> Made<'_> {
    let (state, by) = match version.state {
        VersionState::Live => ("live", None),
        VersionState::Overwritten(by) => ("overwritten", Some(by)),
        VersionState::Deleted(by) => ("deleted", Some(by)),
        VersionState::FileNotListed => ("file not listed", None),
    };
    let value = version.version.clone().into_value();
    tuple!(py, "Version", version, [sequence, file, offset], {
        value: value.as_deref(),
        state: state,
        by: by,
    })
}

pub(crate) fn file<'py>(py: Python<'py>, file: &DatabaseFile) -> Made<'py> {
    let table = file.listed.as_ref().map(|(_, table)| table);
    tuple!(py, "DatabaseFile", file, [name], {
        kind: format!("{:?}", file.kind).to_lowercase(),
        file_bytes: file.bytes,
        state: format!("{:?}", file.state).to_lowercase(),
        level: file.listed.as_ref().map(|(level, _)| *level),
        first_key: table.map(TableMetadata::first_user_key),
        last_key: table.map(TableMetadata::last_user_key),
    })
}

pub(crate) fn recovery<'py>(py: Python<'py>, recovery: &Recovery) -> Made<'py> {
    let gaps = recovery
        .gaps
        .iter()
        .map(|(file, gap)| self::gap(py, file, gap));
    let unreadable = recovery.unreadable_tables.iter();
    let unreadable = unreadable.map(|(name, error)| (name, error.to_string()));
    tuple!(py, "Recovery", recovery, [without_manifest, missing_log], {
        changes: recovery.logs.iter().map(|log| log.changes).sum::<u64>(),
        gaps: gaps.collect::<PyResult<Vec<_>>>()?,
        unreadable_tables: unreadable.collect::<Vec<_>>(),
    })
}

fn gap<'py>(py: Python<'py>, file: &str, gap: &Gap) -> Made<'py> {
    tuple!(py, "Gap", gap, [offset, expected, found], {
        file: file,
        length: gap.bytes,
    })
}
