//! The same entries as inputs of a merge of every kind.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::Entry;
use leveltable::db::{DbRange, InternalKeyComparator};
use leveltable::{
    BytewiseComparator, Comparator, DbTable, Error, ErrorKind, Result, SortedCursor, SortedInput,
    SortedMap, SortedSlice, Table, TableRange, TableRun,
};

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A kind of sorted input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Slice,
    /// Bytewise only; a slice in other orders.
    Map,
    /// Tables of some entries each.
    Run,
    /// A table's cursor, by its trait.
    Cursor,
    /// A merge, by its trait.
    Merge,
}

pub(crate) const FORMS: [Form; 6] = [
    Form::Table,
    Form::Slice,
    Form::Map,
    Form::Run,
    Form::Cursor,
    Form::Merge,
];

/// Tables with their first and last keys.
struct Run {
    keys: Vec<(Vec<u8>, Vec<u8>)>,
    tables: Vec<Table>,
    order: Arc<dyn Comparator>,
}

impl TableRun for Run {
    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn keys(&self, i: usize) -> (&[u8], &[u8]) {
        (&self.keys[i].0, &self.keys[i].1)
    }

    fn open(&self, i: usize) -> Result<Table> {
        Ok(self.tables[i].clone())
    }

    fn comparator(&self) -> Arc<dyn Comparator> {
        self.order.clone()
    }
}

/// Entries in order, as a run of tables of three each.
fn run_of(
    entries: &[Entry],
    order: &Arc<dyn Comparator>,
    table: &dyn Fn(&[Entry]) -> Table,
) -> Run {
    let ends = |chunk: &[Entry]| (chunk[0].0.clone(), chunk[chunk.len() - 1].0.clone());
    Run {
        keys: entries.chunks(3).map(ends).collect(),
        tables: entries.chunks(3).map(table).collect(),
        order: order.clone(),
    }
}

/// Sorted entries within bounds. `table` makes a table of some of them.
pub(crate) fn plain(
    form: Form,
    entries: &[Entry],
    order: &Arc<dyn Comparator>,
    bounds: Bounds,
    table: &dyn Fn(&[Entry]) -> Table,
) -> TableRange {
    let is_bytewise = order.name() == BytewiseComparator.name();
    match form {
        Form::Table => table(entries).range(bounds),
        Form::Map if is_bytewise => {
            let map: BTreeMap<_, _> = entries.iter().cloned().collect();
            TableRange::of(SortedMap::new(Arc::new(map)), bounds)
        }
        Form::Slice | Form::Map => {
            let slice = SortedSlice::new(entries.to_vec());
            TableRange::of(slice.with_comparator(order.clone()), bounds)
        }
        Form::Run => TableRange::of_run(run_of(entries, order, table), bounds),
        Form::Cursor => TableRange::of(table(entries).cursor(), bounds),
        Form::Merge => {
            let (some, others) = entries.split_at(entries.len() / 2);
            let both = Table::merge([&table(some), &table(others)]);
            TableRange::of(both.unwrap(), bounds)
        }
    }
}

/// Sorted entries with stored keys, whose user keys are in `order` and within bounds.
pub(crate) fn database(
    form: Form,
    entries: &[Entry],
    order: &Arc<dyn Comparator>,
    bounds: Bounds,
    table: &dyn Fn(&[Entry]) -> DbTable,
) -> DbRange {
    let internal: Arc<dyn Comparator> = Arc::new(InternalKeyComparator::new(order.clone()));
    let stored = |entries: &[Entry]| table(entries).as_table().clone();
    match form {
        Form::Table => table(entries).range(bounds),
        Form::Slice | Form::Map => {
            let slice = SortedSlice::new(entries.to_vec());
            DbRange::of(slice.with_comparator(internal), bounds)
        }
        Form::Run => DbRange::of_run(run_of(entries, &internal, &stored), bounds),
        Form::Cursor => DbRange::of(table(entries).cursor(), bounds),
        Form::Merge => {
            let (some, others) = entries.split_at(entries.len() / 2);
            let both = DbTable::merge([&table(some), &table(others)]);
            DbRange::of(both.unwrap(), bounds)
        }
    }
}

/// Fails at one of its moves.
#[derive(Debug, Clone)]
pub(crate) struct Failing<C> {
    pub(crate) cursor: C,
    /// How many moves succeed before it.
    pub(crate) left: usize,
}

impl<C> Failing<C> {
    fn step(&mut self, go: impl FnOnce(&mut C) -> Result<bool>) -> Result<bool> {
        let is_due = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        match is_due {
            true => Err(Error::new(ErrorKind::Io, "a move that fails")),
            false => go(&mut self.cursor),
        }
    }
}

impl<C: SortedInput> SortedInput for Failing<C> {
    fn advance(&mut self) -> Result<bool> {
        self.step(C::advance)
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}

impl<C: SortedCursor> SortedCursor for Failing<C> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.step(|cursor| cursor.seek(key))
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        self.step(C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.step(C::seek_to_last)
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(C::prev)
    }
}
