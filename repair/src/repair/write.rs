//! Writes the newest version of each key, unless it is a deletion, or was dropped.

use std::collections::BTreeMap;
use std::ops::Range;

use leveltable::Result;
use leveltable::db::{InternalKey, ValueType};
use leveltable_database::DatabaseBuilder;
use leveltable_database::sister_crates::Directory;

use super::judge::Case;
use super::report::{Grade, RepairFinding};
use super::table::{Role, Row, Table, merged};
use crate::progress::Reporter;

/// Counts of keys for the findings.
#[derive(Default)]
struct Said {
    /// Keys that a compaction dropped, by table.
    dropped: BTreeMap<usize, u64>,
    /// Keys that may have been dropped.
    undecided: Counted,
    /// Keys with two values under one sequence number.
    ambiguous: Counted,
}

/// A number of keys, with the first and the last.
#[derive(Default)]
struct Counted {
    keys: u64,
    ends: Option<(Vec<u8>, Vec<u8>)>,
}

impl Counted {
    fn add(&mut self, key: &[u8]) {
        self.keys += 1;
        match &mut self.ends {
            Some((_, last)) => key.clone_into(last),
            none => *none = Some((key.to_vec(), key.to_vec())),
        }
    }

    fn report(self, reason: &str) -> Option<RepairFinding> {
        let (first, last) = self.ends?;
        let keys = (Some(first), Some(last));
        Some(RepairFinding {
            keys: Some(self.keys),
            ..RepairFinding::new(Grade::Unproven, None, reason.to_owned(), keys)
        })
    }
}

/// Passes the newest versions to the builder, in the order of their keys. `lost` are the sequence numbers of changes that were lost from
/// logs.
pub(super) fn write(
    dir: &dyn Directory,
    case: &mut Case<'_>,
    (logs, lost): (Vec<Vec<Row>>, &[Range<u64>]),
    mut builder: DatabaseBuilder,
    progress: &mut Reporter<'_>,
) -> Result<DatabaseBuilder> {
    let (order, mut said) = (&case.order, Said::default());
    let (mut seen, mut best) = (0, None::<(Row, bool)>);
    let all = case.versions();
    let needs_spare = !case.lost.is_empty() || !lost.is_empty();
    let is_wanted = |table: &Table| table.role > Role::Spare || needs_spare;
    for row in merged(dir, &case.tables, is_wanted, logs, order) {
        let row = row?;
        seen += 1;
        progress.proceed_within(2, seen, all)?;
        if let Some((newest, is_shared)) = &mut best
            && order.compare(newest.user_key(), row.user_key()).is_eq()
        {
            *is_shared |= row.key == newest.key && row.rank.0 > Role::Spare && row.table.is_some();
            let is_same = (row.tag(), &row.value) == (newest.tag(), &newest.value);
            if row.sequence() == newest.sequence() && !is_same && case.role(&row, lost).is_some() {
                said.ambiguous.add(row.user_key());
            }
            continue;
        }
        if let Some(newest) = best.take() {
            add(case, newest, &mut builder, &mut said)?;
        }
        let role = case.role(&row, lost);
        best = role.map(|role| (with_role(row, role), false));
    }
    if let Some(newest) = best {
        add(case, newest, &mut builder, &mut said)?;
    }
    said.report(case);
    Ok(builder)
}

fn with_role(row: Row, role: Role) -> Row {
    let rank = (role, row.rank.1);
    Row { rank, ..row }
}

/// Adds a key's newest version. `is_shared` says whether several tables have it.
fn add(
    case: &Case<'_>,
    (newest, is_shared): (Row, bool),
    builder: &mut DatabaseBuilder,
    said: &mut Said,
) -> Result<()> {
    let parsed = InternalKey::parse(&newest.key);
    let Some(version) = parsed.filter(|key| key.value_type == ValueType::Value) else {
        return Ok(());
    };
    let counts = newest.rank.0 > Role::Spare;
    if let Some(table) = newest.table.filter(|_| counts && !is_shared) {
        if case.was_dropped(version.user_key, table) {
            *said.dropped.entry(table).or_default() += 1;
            return Ok(());
        }
        if case.may_be_dropped(version.user_key, table) {
            said.undecided.add(version.user_key);
        }
    }
    builder.add(version, &newest.value)
}

impl Said {
    fn report(self, case: &mut Case<'_>) {
        for (at, keys) in self.dropped {
            let file = case.tables.get(at).map(|table| table.name.clone());
            let reason = "a compaction that read this table dropped these keys";
            case.findings.push(RepairFinding {
                keys: Some(keys),
                ..RepairFinding::new(Grade::LeftOut, file, reason.to_owned(), (None, None))
            });
        }
        let ambiguous =
            "files have different values for these keys under the same sequence numbers";
        let undecided = "a compaction of a table that is missing may have dropped these keys";
        case.findings.extend(self.ambiguous.report(ambiguous));
        case.findings.extend(self.undecided.report(undecided));
    }
}
