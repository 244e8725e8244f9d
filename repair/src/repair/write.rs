//! Writes the newest version of each key, unless that is a deletion, or was dropped.

use std::collections::BTreeMap;
use std::ops::Range;

use leveltable::Result;
use leveltable::db::{InternalKey, ValueType};
use leveltable_database::DatabaseBuilder;
use leveltable_database::sister_crates::Directory;

use super::judge::Case;
use super::log::{Log, Logged};
use super::report::{Grade, RepairFinding};
use super::table::{Role, Row, Table, merged};
use crate::progress::Reporter;

/// Versions that are in no table, and what tables are asked for beside what counts.
pub(super) struct Rest {
    rows: Vec<Vec<Row>>,
    lost_sequences: Vec<Range<u64>>,
    needs_spare: bool,
    pub(super) last_sequence: u64,
}

impl Rest {
    /// Adds the changes of older logs, where these may replace what is lost.
    pub(super) fn read(
        dir: &dyn Directory,
        case: &Case<'_>,
        logged: Logged,
        logs: &mut [Log],
    ) -> Result<Rest> {
        let mut old = Logged::default();
        if !case.lost.is_empty() {
            for log in logs.iter_mut().filter(|log| !log.counts) {
                old.read_old(dir, log)?;
            }
        }
        let lost_sequences = logged.lost.clone();
        Ok(Rest {
            needs_spare: case.needs_spare(&lost_sequences),
            last_sequence: logged.last_sequence,
            rows: vec![
                logged.into_rows(Role::Log, &case.order),
                old.into_rows(Role::Spare, &case.order),
            ],
            lost_sequences,
        })
    }
}

/// What there is to say of keys, counted.
#[derive(Default)]
struct Said {
    /// Keys that a compaction dropped, by table.
    dropped: BTreeMap<usize, u64>,
    /// Keys that may have been dropped.
    undecided: Counted,
    /// Keys with two values under one sequence number: a listed table's was taken, or one of those that count alike.
    decided: Counted,
    doubtful: Counted,
}

/// Keys, the first of them and the last.
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

    fn report(self, grade: Grade, reason: &str) -> Option<RepairFinding> {
        let (first, last) = self.ends?;
        let has_range = grade == Grade::Unproven;
        let ends = has_range.then_some((first, last)).unzip();
        Some(RepairFinding {
            keys: Some(self.keys),
            ..RepairFinding::new(grade, None, reason.to_owned(), ends)
        })
    }
}

/// Passes the newest versions to the builder, in the order of their keys.
pub(super) fn write(
    dir: &dyn Directory,
    case: &mut Case<'_>,
    rest: Rest,
    mut builder: DatabaseBuilder,
    progress: &mut Reporter<'_>,
) -> Result<DatabaseBuilder> {
    let (order, mut said) = (&case.order, Said::default());
    let (mut seen, mut best) = (0, None::<(Row, bool)>);
    let all = case.versions();
    let is_wanted = |table: &Table| table.role > Role::Spare || rest.needs_spare;
    let lost = rest.lost_sequences;
    for row in merged(dir, &case.tables, is_wanted, rest.rows, order) {
        let row = row?;
        seen += 1;
        progress.proceed_within(2, seen, all)?;
        if let Some((newest, is_shared)) = &mut best
            && order.compare(newest.user_key(), row.user_key()).is_eq()
        {
            *is_shared |= row.key == newest.key && row.rank.0 > Role::Spare && row.table.is_some();
            if row.sequence() == newest.sequence() && case.role(&row, &lost).is_some() {
                said.compare(newest, &row);
            }
            continue;
        }
        if let Some(newest) = best.take() {
            add(case, newest, &mut builder, &mut said)?;
        }
        let role = case.role(&row, &lost);
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
    /// Notes two versions of a key with the same sequence number, unless they are the same.
    fn compare(&mut self, newest: &Row, other: &Row) {
        if (newest.tag(), &newest.value) == (other.tag(), &other.value) {
            return;
        }
        if newest.rank.0 == Role::Listed && other.rank.0 != Role::Listed {
            self.decided.add(newest.user_key());
        } else {
            self.doubtful.add(newest.user_key());
        }
    }

    fn report(self, case: &mut Case<'_>) {
        for (at, keys) in self.dropped {
            let file = case.tables.get(at).map(|table| table.name.clone());
            let reason = "a compaction that read this table dropped these keys";
            case.findings.push(RepairFinding {
                keys: Some(keys),
                ..RepairFinding::new(Grade::LeftOut, file, reason.to_owned(), (None, None))
            });
        }
        let two = "files have different values for these keys under the same sequence numbers";
        let undecided = "a compaction of a table that is missing may have dropped these keys";
        let counted = [
            self.undecided.report(Grade::Unproven, undecided),
            self.doubtful.report(Grade::Unproven, two),
            self.decided.report(Grade::Note, two),
        ];
        case.findings.extend(counted.into_iter().flatten());
    }
}
