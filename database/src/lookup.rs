//! Looking keys up in a database's logs and tables.

use std::collections::BTreeMap;
use std::ops::Bound;

use leveltable::db::{DbEntry, MAX_SEQUENCE};
use leveltable::{BytewiseComparator, Comparator, Result};

use crate::state::{Listed, Run, State};

/// The bounds of a walk.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl State {
    /// Returns the newest version of `key`: that of the logs and of level 0 with the highest sequence number (in a repaired
    /// database, all tables are there, and their numbers say nothing), or else the first in the other levels.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<DbEntry>> {
        let order = &**self.known_order()?;
        let mut newest = self.memtable.get_at(key, MAX_SEQUENCE);
        for run in &self.runs {
            if run.level > 0 && newest.is_some() {
                break;
            }
            for table in self.candidates(run, order, key) {
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
            // The tables, and the keys to ask each for, with their places.
            let mut wanted: BTreeMap<u64, (&Listed, Vec<(usize, &[u8])>)> = BTreeMap::new();
            for (at, (key, found)) in keys.iter().zip(&newest).enumerate() {
                if run.level == 0 || found.is_none() {
                    for table in self.candidates(run, order, key) {
                        let asked = wanted.entry(table.file.number);
                        asked.or_insert((table, Vec::new())).1.push((at, key));
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

    /// The tables of a run that may hold `key`: one, or neighbours that share it.
    fn candidates<'r>(&self, run: &'r Run, order: &dyn Comparator, key: &[u8]) -> &'r [Listed] {
        let is_below = |other: &[u8]| order.compare(other, key).is_lt();
        let is_above = |other: &[u8]| order.compare(other, key).is_gt();
        self.select(run, is_below, is_above)
    }

    /// The tables of a run that may hold keys within bounds.
    pub(crate) fn within<'r>(
        &self,
        run: &'r Run,
        order: &dyn Comparator,
        bounds: &Bounds,
    ) -> &'r [Listed] {
        let is_below = |key: &[u8]| is_below(order, key, &bounds.0);
        let is_above = |key: &[u8]| is_above(order, key, &bounds.1);
        self.select(run, is_below, is_above)
    }

    /// The tables of a run that do not lie below or above what is wanted. A table of level 0 that is in another order than the
    /// database may hold keys outside of what the MANIFEST lists as its ends.
    fn select<'r>(
        &self,
        run: &'r Run,
        is_below: impl Fn(&[u8]) -> bool,
        is_above: impl Fn(&[u8]) -> bool,
    ) -> &'r [Listed] {
        if run.level == 0 && self.order_name != BytewiseComparator.name() {
            return &run.tables;
        }
        let start = { &run.tables }.partition_point(|table| is_below(table.file.last_user_key()));
        let rest = run.tables.get(start..).unwrap_or_default();
        let end = { rest.iter() }.position(|table| is_above(table.file.first_user_key()));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }
}

/// Keeps the version with the highest sequence number.
fn keep_newest(newest: &mut Option<DbEntry>, found: Option<DbEntry>) {
    let sequence = |entry: &Option<DbEntry>| entry.as_ref().map(|entry| entry.sequence);
    if sequence(&found) > sequence(newest) {
        *newest = found;
    }
}

/// Whether `key` is below a lower bound.
pub(crate) fn is_below(order: &dyn Comparator, key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(lower) => order.compare(key, lower).is_lt(),
        Bound::Excluded(lower) => order.compare(key, lower).is_le(),
    }
}

/// Whether `key` is above an upper bound.
pub(crate) fn is_above(order: &dyn Comparator, key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => order.compare(key, upper).is_gt(),
        Bound::Excluded(upper) => order.compare(key, upper).is_ge(),
    }
}
