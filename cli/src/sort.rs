//! Sorts entries that may not fit in memory: writes sorted runs to temporary tables and merges them.

use std::fmt::Display;
use std::fs::File;
use std::sync::Arc;

use leveltable::{
    BytewiseComparator, Comparator, OpenOptions, Table, TableRange, WriteOptions,
    db::{InternalKey, InternalKeyComparator},
};
use leveltable_database::IndexedDbComparator;

use crate::failure::Failure;
use crate::notation::quoted;

/// The order of a table's stored keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    Bytewise,
    /// That of a database: ascending by user key, then descending by sequence number.
    Internal,
    /// That of a database whose user keys are Chrome's IndexedDB's.
    IndexedDb,
}

impl KeyOrder {
    /// Returns the order of tables that do not name another one.
    pub(crate) fn of(is_database: bool) -> KeyOrder {
        if is_database {
            KeyOrder::Internal
        } else {
            KeyOrder::Bytewise
        }
    }

    /// Returns the order of the tables of a database whose MANIFEST names this comparator, if it is known.
    pub(crate) fn of_database(comparator: &str) -> Option<KeyOrder> {
        let mut orders = [KeyOrder::Internal, KeyOrder::IndexedDb].into_iter();
        orders.find(|order| order.of_user_keys().name() == comparator)
    }

    pub(crate) fn is_database(self) -> bool {
        self != KeyOrder::Bytewise
    }

    /// Returns the order of the user keys of a database, or of all keys of another table.
    pub(crate) fn of_user_keys(self) -> Arc<dyn Comparator> {
        match self {
            KeyOrder::Bytewise | KeyOrder::Internal => Arc::new(BytewiseComparator),
            KeyOrder::IndexedDb => Arc::new(IndexedDbComparator),
        }
    }

    /// Returns the order of the keys as they are stored.
    pub(crate) fn comparator(self) -> Arc<dyn Comparator> {
        if self.is_database() {
            Arc::new(InternalKeyComparator::new(self.of_user_keys()))
        } else {
            self.of_user_keys()
        }
    }

    /// Returns a stored key as text, for messages.
    pub(crate) fn show(self, key: &[u8]) -> String {
        match InternalKey::parse(key).filter(|_| self.is_database()) {
            Some(key) => {
                let user_key = quoted(key.user_key, 100);
                format!("{user_key} at sequence {}", key.sequence)
            }
            None => quoted(key, 100),
        }
    }
}

/// An entry in memory.
type RunEntry = (Box<[u8]>, Box<[u8]>);

/// Memory of an entry in addition to its key and value: the `RunEntry`, half of it again for the buffer of the
/// stable sort, and what the allocator adds to both.
const ENTRY_OVERHEAD: usize = size_of::<RunEntry>() * 3 / 2 + 32;

/// Block size of temporary tables. Large, because they are read once from beginning to end.
const RUN_BLOCK: usize = 64 << 10;

/// Takes entries in any order and returns them in the order of a table.
pub(crate) struct Sorter {
    order: KeyOrder,
    /// Keep the last of several entries with the same key, instead of failing.
    keep_last: bool,
    /// Maximum size in bytes of the run in memory, and its size.
    memory: usize,
    used: usize,
    run: Vec<RunEntry>,
    /// The runs in temporary files. Those of a level were merged from [`FAN_IN`] runs of the level before; they come
    /// before all runs of lower levels, and in each level from first to last.
    spilled: Vec<Vec<TableRange>>,
}

/// Number of runs of a level that are merged into one. A table of this many times `memory` is written once to temporary
/// files, one of the square of that twice, and so on; so many files are open for each level.
const FAN_IN: usize = 32;

impl Sorter {
    /// Uses about `memory` bytes, and temporary files for the rest.
    pub(crate) fn new(order: KeyOrder, keep_last: bool, memory: usize) -> Sorter {
        Sorter {
            order,
            keep_last,
            memory,
            used: 0,
            run: Vec::new(),
            spilled: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let needed = key.len() + value.len() + ENTRY_OVERHEAD;
        if self.used + needed > self.memory && !self.run.is_empty() {
            self.spill()?;
        }
        self.used += needed;
        self.run.push((key.into(), value.into()));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.run.is_empty() && self.spilled.is_empty()
    }

    /// Passes all entries to `take`, in order.
    pub(crate) fn drain<E: Into<Failure>>(
        mut self,
        take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), Failure> {
        if self.spilled.is_empty() {
            return self.drain_run(take);
        }
        self.spill()?;
        let runs = self.spilled.into_iter().rev().flatten().collect();
        merge(self.order, self.keep_last, runs, take)
    }

    /// Passes the entries in memory to `take`, in order.
    fn drain_run<E: Into<Failure>>(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let mut run = std::mem::take(&mut self.run);
        self.used = 0;
        let order = self.order.comparator();
        // The sort is stable, so of equal keys the last one added stays last.
        run.sort_by(|a, b| order.compare(&a.0, &b.0));
        let mut entries = run.iter().peekable();
        while let Some((key, value)) = entries.next() {
            if entries.peek().is_none_or(|(next, _)| next != key) {
                take(key, value).map_err(E::into)?;
            } else if !self.keep_last {
                return Err(repeated(self.order, key));
            }
        }
        Ok(())
    }

    /// Moves the entries in memory to a temporary table, and merges each level that is full then.
    fn spill(&mut self) -> Result<(), Failure> {
        let (order, keep_last) = (self.order, self.keep_last);
        let mut run = write_run(order, |add| self.drain_run(add))?;
        for level in 0.. {
            if self.spilled.len() == level {
                self.spilled.push(Vec::new());
            }
            let Some(runs) = self.spilled.get_mut(level) else {
                break;
            };
            runs.push(run);
            if runs.len() < FAN_IN {
                break;
            }
            let runs = std::mem::take(runs);
            run = write_run(order, |add| merge(order, keep_last, runs, add))?;
        }
        Ok(())
    }
}

/// Writes the entries that `fill` passes on to a temporary table. Its file has no name, so it cannot be left behind.
fn write_run(
    order: KeyOrder,
    fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<(), Failure>) -> Result<(), Failure>,
) -> Result<TableRange, Failure> {
    let fail = |e: &dyn Display| temporary_failure("sorting", e);
    let file: File = tempfile::tempfile().map_err(|e| fail(&e))?;
    let options = WriteOptions::new().no_filter().block_size(RUN_BLOCK);
    let mut builder = options.comparator(order.comparator()).build(&file);
    fill(&mut |key, value| builder.add(key, value).map_err(|e| fail(&e)))?;
    builder.finish().map_err(|e| fail(&e))?;
    let options = OpenOptions::new().no_cache().comparator(order.comparator());
    let table = options.open_source(file).map_err(|e| fail(&e))?;
    Ok(table.iter())
}

/// Returns the failure of `work` in a temporary file, which may need more room than its directory has.
pub(crate) fn temporary_failure(work: &str, error: &dyn Display) -> Failure {
    let directory = std::env::temp_dir();
    Failure::new(format!(
        "{work} in a temporary file in {}: {error}; TMPDIR names another directory",
        directory.display()
    ))
}

/// Passes the entries of all `inputs`, which are in one order, to `take`. Of several entries with one key, `keep_last` takes that of
/// the last input; without it they are an error.
pub(crate) fn merge<E: Into<Failure>>(
    order: KeyOrder,
    keep_last: bool,
    inputs: Vec<TableRange>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), Failure> {
    // Of equal keys, the merge returns that of the first input first.
    let mut merged = Table::merge(inputs.into_iter().rev())?;
    let mut last: Option<Vec<u8>> = None;
    while merged.next()? {
        let key = merged.key();
        if last.as_deref() != Some(key) {
            take(key, merged.value()).map_err(E::into)?;
        } else if !keep_last {
            return Err(repeated(order, key));
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(())
}

#[cold]
fn repeated(order: KeyOrder, key: &[u8]) -> Failure {
    Failure::new(format!(
        "duplicate key {}: remove all but one, or use --keep-last",
        order.show(key)
    ))
}
