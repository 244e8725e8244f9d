//! Decides which files count, and what is lost or unproven.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use leveltable::Result;
use leveltable::sister_crates::{Order, internal_order, user_key};
use leveltable_database::TableMetadata;
use leveltable_database::sister_crates::Directory;

use super::log::Log;
use super::manifest::Manifest;
use super::report::{Grade, RepairFinding};
use super::table::{Hole, Role, Row, Table, is_within, merged};
use crate::progress::Reporter;

/// A range of user keys, both ends included; open where `None`.
type Keys = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The facts about a database before its versions are written.
pub(super) struct Case<'a> {
    pub(super) manifest: Option<&'a Manifest>,
    pub(super) order: Order,
    pub(super) tables: Vec<Table>,
    pub(super) findings: Vec<RepairFinding>,
    /// The missing tables that the MANIFEST lists.
    missing: Vec<(u32, TableMetadata)>,
    /// Whether nothing is wrong with the MANIFEST, so that only files that it lists count.
    is_settled: bool,
    /// Whether the MANIFEST is lost, damaged or old.
    pub(super) is_doubtful: bool,
    /// The missing tables that compactions replaced.
    replaced: Vec<Replaced>,
    /// For each table those with higher numbers that share a version with it: a compaction read this one and wrote those.
    heirs: HashMap<usize, Vec<usize>>,
    /// Ranges of lost keys that other tables or older logs may hold.
    pub(super) lost: Vec<Keys>,
}

/// A missing table that a compaction read, and the tables that it wrote.
struct Replaced {
    keys: Keys,
    level: u32,
    heirs: Vec<usize>,
}

impl<'a> Case<'a> {
    /// Decides which files count.
    pub(super) fn new(
        manifest: Option<&'a Manifest>,
        order: Order,
        tables: Vec<Table>,
        logs: &mut [Log],
    ) -> Case<'a> {
        let mut case = Case {
            manifest,
            order,
            tables,
            findings: Vec::new(),
            missing: Vec::new(),
            is_settled: false,
            is_doubtful: true,
            replaced: Vec::new(),
            heirs: HashMap::new(),
            lost: Vec::new(),
        };
        let first_log = manifest.and_then(|manifest| manifest.log).unwrap_or(0);
        let previous = manifest.and_then(|manifest| manifest.previous_log);
        for log in logs.iter_mut() {
            log.counts = log.number >= first_log || Some(log.number) == previous;
        }
        let Some(manifest) = manifest else {
            case.tables
                .iter_mut()
                .for_each(|table| table.role = Role::Unlisted);
            return case;
        };
        let has_log = |number| logs.iter().any(|log| log.number == number);
        let is_log_there = match manifest.log {
            // No log since it was opened: LevelDB never leaves such a state, but other programs do.
            Some(0) => case
                .tables
                .iter()
                .all(|table| table.number < manifest.next_file),
            Some(number) => has_log(number),
            None => false,
        };
        let is_later = |log: &Log| log.number > first_log;
        let is_old = match first_log {
            0 => !is_log_there,
            number => !has_log(number) && logs.iter().any(is_later),
        };
        case.is_settled = !manifest.is_damaged && is_log_there;
        case.is_doubtful = manifest.is_damaged || !case.is_settled && is_old;
        case.assign_roles(manifest);
        case
    }

    fn assign_roles(&mut self, manifest: &Manifest) {
        let internal = internal_order(self.order.clone());
        for table in &mut self.tables {
            let listed = manifest.live.get(&table.number);
            if listed.is_some_and(|(_, listed)| table.is(listed, &internal)) {
                table.role = Role::Listed;
            }
        }
        let listed = self
            .tables
            .iter()
            .filter(|table| table.role == Role::Listed);
        let listed: HashSet<u64> = listed.map(|table| table.number).collect();
        let live = manifest.live.values();
        let missing = live.filter(|(_, file)| !listed.contains(&file.number));
        self.missing = missing.cloned().collect();
        // If the MANIFEST is in order, unlisted files only count in place of a missing table.
        let is_whole = self.is_settled && self.missing.is_empty();
        for table in self
            .tables
            .iter_mut()
            .filter(|table| table.role == Role::Spare)
        {
            if !is_whole && !manifest.deleted.contains(&table.number) {
                table.role = Role::Unlisted;
            }
        }
    }

    /// Number of versions in tables.
    pub(super) fn versions(&self) -> u64 {
        self.tables.iter().map(|table| table.versions).sum()
    }

    /// The highest sequence number in tables that count.
    pub(super) fn tables_end(&self) -> u64 {
        let counting = self.tables.iter().filter(|table| table.role > Role::Spare);
        let highest = counting.filter_map(|table| Some(table.sequences?.1));
        highest.max().unwrap_or(0)
    }

    /// Reports what is lost or unproven because of the logs themselves.
    pub(super) fn judge_logs(&mut self, logs: &[Log]) {
        let named = self.manifest.and_then(|manifest| manifest.log);
        let log = named.filter(|&log| log > 0);
        let is_gone = log.is_some_and(|log| logs.iter().all(|own| own.number < log));
        let is_stated = self.is_settled && log.is_none();
        if is_gone || logs.is_empty() && !is_stated {
            let file = log.map(|log| format!("{log:06}.log"));
            let reason = "no log is there: changes that no table has, if there were any, are lost";
            self.say(Grade::Lost, file, reason.to_owned(), (None, None));
        }
    }

    /// Reports what is lost or unproven because of the tables.
    pub(super) fn judge_tables(
        &mut self,
        dir: &dyn Directory,
        progress: &mut Reporter<'_>,
    ) -> Result<()> {
        let has_unlisted = self.tables.iter().any(|table| table.role == Role::Unlisted);
        let mut holders = HashMap::new();
        if self.is_doubtful || has_unlisted && !self.missing.is_empty() {
            holders = self.compare(dir, progress)?;
        }
        for missing in std::mem::take(&mut self.missing) {
            self.judge_missing(&missing, &holders);
            self.missing.push(missing);
        }
        for at in 0..self.tables.len() {
            let is_replacing = self.replaced.iter().any(|own| own.heirs.contains(&at));
            self.judge_damage(at, is_replacing);
        }
        if self.is_doubtful {
            let what = match self.manifest {
                None => "no MANIFEST can be read",
                Some(manifest) if manifest.is_damaged => "the MANIFEST is damaged",
                Some(_) => "the MANIFEST is older than other files",
            };
            let reason =
                format!("{what}: tables may be missing, or back although they no longer counted");
            self.say(Grade::Unproven, None, reason, (None, None));
        }
        Ok(())
    }

    /// Goes through all versions, and notes which tables share one. Returns the tables that hold an end of a missing table, by
    /// its number.
    fn compare(
        &mut self,
        dir: &dyn Directory,
        progress: &mut Reporter<'_>,
    ) -> Result<HashMap<u64, HashSet<usize>>> {
        let mut ends: HashMap<&[u8], Vec<u64>> = HashMap::new();
        for (_, file) in &self.missing {
            for end in [&file.smallest, &file.largest] {
                ends.entry(end).or_default().push(file.number);
            }
        }
        let mut holders: HashMap<u64, HashSet<usize>> = HashMap::new();
        let (mut pairs, mut sharing) = (HashSet::new(), Vec::new());
        let (mut last, mut seen, all) = (Vec::new(), 0, self.versions());
        let counts = |table: &Table| table.role > Role::Spare;
        for row in merged(dir, &self.tables, counts, Vec::new(), &self.order) {
            let Row { key, table, .. } = row?;
            seen += 1;
            progress.proceed_within(1, seen, all)?;
            let Some(at) = table else { continue };
            if key != last {
                sharing.clear();
                last = key;
            }
            for &other in &sharing {
                let number = |at: usize| self.tables.get(at).map(|table| table.number);
                let pair = if number(other) < number(at) {
                    (other, at)
                } else {
                    (at, other)
                };
                pairs.insert(pair);
            }
            sharing.push(at);
            for &number in ends.get(&last[..]).into_iter().flatten() {
                holders.entry(number).or_default().insert(at);
            }
        }
        for (older, newer) in pairs {
            self.heirs.entry(older).or_default().push(newer);
        }
        Ok(holders)
    }

    /// Reports what is lost with a missing table.
    fn judge_missing(
        &mut self,
        (level, missing): &(u32, TableMetadata),
        holders: &HashMap<u64, HashSet<usize>>,
    ) {
        let name = Some(format!("{:06}.ldb", missing.number));
        let (first, last) = (missing.first_user_key(), missing.last_user_key());
        let own = [&missing.smallest, &missing.largest].map(|key| sequence(key));
        let own = own.into_iter().max().unwrap_or(0);
        let order = &self.order;
        let is_heir = |table: &Table| {
            let (Some(span), Some((low, _))) = (table.span(), table.sequences) else {
                return false;
            };
            let overlaps =
                order.compare(span.0, last).is_le() && order.compare(first, span.1).is_le();
            let is_newer = table.role == Role::Unlisted && table.number > missing.number;
            is_newer && low <= own && overlaps
        };
        let heirs = self.tables.iter().enumerate();
        let heirs: Vec<usize> = heirs
            .filter(|(_, table)| is_heir(table))
            .map(|(at, _)| at)
            .collect();
        let holders = holders.get(&missing.number);
        if !heirs
            .iter()
            .any(|at| holders.is_some_and(|holders| holders.contains(at)))
        {
            let grade = if self.is_doubtful {
                Grade::Unproven
            } else {
                Grade::Lost
            };
            let keys = (Some(first.to_vec()), Some(last.to_vec()));
            let is_other = self
                .tables
                .iter()
                .any(|table| table.number == missing.number);
            let reason = if is_other {
                "the table is missing: the file of its name is another one"
            } else {
                "the table is missing"
            };
            return self.say(grade, name, reason.to_owned(), keys);
        }
        let mut spans: Vec<_> = heirs
            .iter()
            .filter_map(|&at| self.tables.get(at)?.span())
            .collect();
        spans.sort_by(|a, b| order.compare(a.0, b.0));
        let (mut at, mut gaps) = (first.to_vec(), Vec::new());
        for (start, end) in spans {
            if order.compare(&at, start).is_lt() {
                gaps.push((at.clone(), start.to_vec()));
            }
            if order.compare(&at, end).is_lt() {
                at = end.to_vec();
            }
        }
        if order.compare(&at, last).is_lt() {
            gaps.push((at, last.to_vec()));
        }
        for (from, to) in gaps {
            let reason = "the table is missing, and the tables that a compaction made of it do not span these keys";
            self.say(
                Grade::Unproven,
                name.clone(),
                reason.to_owned(),
                (Some(from), Some(to)),
            );
        }
        let keys = (Some(first.to_vec()), Some(last.to_vec()));
        self.replaced.push(Replaced {
            keys,
            level: *level,
            heirs,
        });
    }

    /// Reports what is lost by the damage of a table that counts.
    fn judge_damage(&mut self, at: usize, is_replacing: bool) {
        let Some(table) = self.tables.get_mut(at) else {
            return;
        };
        let grade = match table.role {
            Role::Listed => Grade::Lost,
            Role::Unlisted if self.is_doubtful || is_replacing => Grade::Unproven,
            _ => return,
        };
        let listed = self
            .manifest
            .and_then(|manifest| manifest.live.get(&table.number));
        let listed = listed
            .filter(|_| table.role == Role::Listed && !table.is_resorted)
            .map(|(_, file)| file);
        let ends = listed.map(|listed| (listed.first_user_key(), listed.last_user_key()));
        let name = table.name.clone();
        for Hole {
            range,
            reason,
            from,
            to,
        } in &table.holes
        {
            let (mut from, mut to) = (from.clone(), to.clone());
            if let Some((first, last)) = ends {
                if to.is_none() && from.as_deref() == Some(last) {
                    continue; // the lost part comes after the data
                }
                let is_beyond = |to: &Vec<u8>| self.order.compare(to, last).is_ge();
                from = from.or_else(|| Some(first.to_vec()));
                to = to
                    .filter(|to| !is_beyond(to))
                    .or_else(|| Some(last.to_vec()));
            }
            let (offset, bytes) = (Some(range.start), Some(range.end - range.start));
            if listed.is_some() {
                self.lost.push((from.clone(), to.clone()));
            }
            self.findings.push(RepairFinding {
                offset,
                bytes: bytes.filter(|&bytes| bytes > 0),
                ..RepairFinding::new(grade, Some(name.clone()), reason.clone(), (from, to))
            });
        }
    }

    /// Adds a finding. Lost keys of a listed table may be elsewhere.
    fn say(&mut self, grade: Grade, file: Option<String>, reason: String, keys: Keys) {
        if keys != (None, None) {
            self.lost.push(keys.clone());
        }
        self.findings
            .push(RepairFinding::new(grade, file, reason, keys));
    }

    /// The role of a version, if it counts.
    pub(super) fn role(&self, row: &Row, lost_sequences: &[Range<u64>]) -> Option<Role> {
        let (role, key) = (row.rank.0, row.user_key());
        let replaces = |(_, file): &(u32, TableMetadata)| {
            let (first, last) = (file.first_user_key(), file.last_user_key());
            is_within(key, Some(first), Some(last), &self.order)
        };
        let is_free = || !self.is_settled || self.missing.iter().any(replaces);
        if role > Role::Unlisted || role == Role::Unlisted && is_free() {
            return Some(role);
        }
        let was_lost = |lost: &Range<u64>| lost.contains(&row.sequence());
        let is_lost =
            |(from, to): &Keys| is_within(key, from.as_deref(), to.as_deref(), &self.order);
        let fills = self.lost.iter().any(is_lost)
            || row.table.is_some() && lost_sequences.iter().any(was_lost);
        fills.then_some(Role::Spare)
    }

    /// Whether a compaction dropped a key whose newest version is in this table alone: an heir of the table spans the key,
    /// and has no damage there.
    pub(super) fn was_dropped(&self, user_key: &[u8], table: usize) -> bool {
        if !self.is_doubtful && self.replaced.is_empty() {
            return false;
        }
        let mut heirs = self.heirs.get(&table).into_iter().flatten();
        heirs.any(|&heir| self.covers(heir, user_key))
    }

    /// Whether a key whose newest version is in this table alone may have been dropped by a compaction that read a missing table with a
    /// newer deletion: what it wrote then shares nothing with this table.
    pub(super) fn may_be_dropped(&self, user_key: &[u8], table: usize) -> bool {
        let number = self.tables.get(table).map_or(0, |table| table.number);
        let listed = self
            .manifest
            .and_then(|manifest| manifest.live.get(&number));
        let mut replaced = self.replaced.iter().filter(|_| !self.is_doubtful);
        replaced.any(|own| {
            let is_near = listed.is_none_or(|(level, _)| level.abs_diff(own.level) <= 1);
            let is_other = !own.heirs.contains(&table);
            let (from, to) = (own.keys.0.as_deref(), own.keys.1.as_deref());
            is_near
                && is_other
                && is_within(user_key, from, to, &self.order)
                && own.heirs.iter().any(|&heir| self.covers(heir, user_key))
        })
    }

    fn covers(&self, table: usize, user_key: &[u8]) -> bool {
        let table = self.tables.get(table);
        table.is_some_and(|table| table.covers(user_key, &self.order))
    }
}

fn sequence(key: &[u8]) -> u64 {
    let tag = key
        .get(user_key(key).len()..)
        .and_then(|tag| tag.first_chunk());
    tag.map_or(0, |tag| u64::from_le_bytes(*tag) >> 8)
}
