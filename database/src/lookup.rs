//! Looking keys up in a database's logs and tables.

use std::collections::BTreeMap;
use std::ops::Bound;

use leveltable::db::{DbEntry, MAX_SEQUENCE};
use leveltable::{BytewiseComparator, Comparator, Result};

use crate::state::{Listed, Run, State};

/// The bounds of a walk.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Keys with their places among all that are wanted.
type Asked<'k> = Vec<(usize, &'k [u8])>;

impl State {
    /// Returns the newest version of `key`: that of the logs and of level 0 with the highest sequence number (in a repaired
    /// database, all tables are there, and their numbers say nothing), or else the first in the other levels.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<DbEntry>> {
        let order = &**self.known_order()?;
        let mut newest = None;
        if !self.memtable.is_empty() {
            newest = self.memtable.get_at(key, MAX_SEQUENCE);
        }
        for run in &self.runs {
            if run.level > 0 && newest.is_some() {
                break;
            }
            for table in self.within(run, order, &only(key)) {
                let found = self.table(table)?.at(MAX_SEQUENCE).get_entry(key)?;
                keep_newest(&mut newest, found);
            }
        }
        Ok(newest)
    }

    /// Returns the newest versions of many keys, as [`find`](State::find) does.
    pub(crate) fn find_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<DbEntry>>> {
        let order = &**self.known_order()?;
        let logged = |key: &&[u8]| self.memtable.get_at(key, MAX_SEQUENCE);
        let mut newest: Vec<Option<DbEntry>> = keys.iter().map(logged).collect();
        for run in &self.runs {
            // The tables, and what to ask each for.
            let mut wanted: BTreeMap<u64, (&Listed, Asked<'_>)> = BTreeMap::new();
            for (at, (key, found)) in keys.iter().zip(&newest).enumerate() {
                if run.level == 0 || found.is_none() {
                    for table in self.within(run, order, &only(key)) {
                        let asked = wanted.entry(table.file.number);
                        asked
                            .or_insert_with(|| (table, Asked::new()))
                            .1
                            .push((at, key));
                    }
                }
            }
            for (table, asked) in wanted.into_values() {
                let (places, keys): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
                let found = self.table(table)?.at(MAX_SEQUENCE).get_entries(&keys)?;
                for (at, found) in places.into_iter().zip(found) {
                    if let Some(newest) = newest.get_mut(at) {
                        keep_newest(newest, found);
                    }
                }
            }
        }
        Ok(newest)
    }

    /// The tables of a run that may hold keys within bounds; for one key, these are one, or neighbours that share it. A table of
    /// level 0 that is in another order than the database may hold keys outside of what the MANIFEST lists as its ends, and so may
    /// any if the order is not known.
    pub(crate) fn within<'r, K: AsRef<[u8]>>(
        &self,
        run: &'r Run,
        order: &dyn Comparator,
        (lower, upper): &(Bound<K>, Bound<K>),
    ) -> &'r [Listed] {
        if self.order.is_none() || run.level == 0 && self.order_name != BytewiseComparator.name() {
            return &run.tables;
        }
        let ends_below = |table: &Listed| is_below(order, table.file.last_user_key(), lower);
        let begins_above = |table: &Listed| is_above(order, table.file.first_user_key(), upper);
        let start = run.tables.partition_point(ends_below);
        let rest = run.tables.get(start..).unwrap_or_default();
        let end = rest.iter().position(begins_above).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }
}

/// Keeps the version with the highest sequence number.
fn keep_newest(newest: &mut Option<DbEntry>, found: Option<DbEntry>) {
    let sequence = |entry: &Option<DbEntry>| entry.as_ref().map(|entry| entry.sequence);
    if sequence(&found) > sequence(newest) {
        *newest = found;
    }
}

fn only(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(key), Bound::Included(key))
}

/// Whether `key` is below a lower bound.
pub(crate) fn is_below<K: AsRef<[u8]>>(
    order: &dyn Comparator,
    key: &[u8],
    lower: &Bound<K>,
) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(lower) => order.compare(key, lower.as_ref()).is_lt(),
        Bound::Excluded(lower) => order.compare(key, lower.as_ref()).is_le(),
    }
}

/// Whether `key` is above an upper bound.
pub(crate) fn is_above<K: AsRef<[u8]>>(
    order: &dyn Comparator,
    key: &[u8],
    upper: &Bound<K>,
) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => order.compare(key, upper.as_ref()).is_gt(),
        Bound::Excluded(upper) => order.compare(key, upper.as_ref()).is_ge(),
    }
}
