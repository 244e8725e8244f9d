//! Walks over entries, in chunks: the interpreter's lock is released once for thousands of entries.

use std::sync::{Mutex, PoisonError};

use arrow_array::builder::{ArrayBuilder as _, LargeBinaryBuilder};
use arrow_array::{Array as _, LargeBinaryArray};
use leveltable::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;

/// Entries of the first chunk, so that a short walk reads little; each chunk has twice as many as the one before.
const FIRST: usize = 16;
/// Most entries of a chunk, and most bytes, unless one entry alone has more.
const MOST: usize = 8192;
const MAX_BYTES: usize = 1 << 20;

/// Appends the next entry. Returns `false` at the end. It is not called again after that, or after an error.
pub(crate) type Step = Box<dyn FnMut(&mut Columns) -> Result<bool> + Send>;

/// Entries, in the columns that Arrow has.
pub(crate) struct Columns {
    keys: LargeBinaryBuilder,
    values: LargeBinaryBuilder,
}

impl Columns {
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.append_value(key);
        self.values.append_value(value);
    }
}

/// The entries of a range, one chunk after the other.
pub(crate) struct Walk {
    /// `None` after the end or an error.
    step: Option<Step>,
    /// Bytes of the keys and the values of the last chunk.
    last: [usize; 2],
}

impl Walk {
    pub(crate) fn new(step: Step) -> Walk {
        Walk {
            step: Some(step),
            last: [0; 2],
        }
    }

    /// Reads the next keys and values, until there are `most` or so many bytes; none at the end. Also returns what comes after them if
    /// that is an error.
    pub(crate) fn read(
        &mut self,
        most: usize,
        most_bytes: usize,
    ) -> ([LargeBinaryArray; 2], Option<Error>) {
        // As large as the last one, and somewhat larger.
        let [keys, values] = self
            .last
            .map(|bytes| LargeBinaryBuilder::with_capacity(most.min(MOST), bytes + bytes / 8));
        let mut columns = Columns { keys, values };
        let mut error = None;
        while let Some(step) = &mut self.step
            && columns.keys.len() < most
            && columns.keys.values_slice().len() + columns.values.values_slice().len() < most_bytes
        {
            match step(&mut columns) {
                Ok(true) => {}
                Ok(false) => self.step = None,
                Err(failed) => (self.step, error) = (None, Some(failed)),
            }
        }
        let read = [columns.keys.finish(), columns.values.finish()];
        self.last = read.each_ref().map(|column| column.value_data().len());
        (read, error)
    }
}

/// An iterator over entries, keys or values.
#[pyclass(module = "leveltable._native")]
pub(crate) struct Entries {
    /// Never waited for: an iterator has one user at a time.
    walk: Mutex<Walk>,
    /// What is returned of each entry: its key (0), its value (1), or both.
    column: Option<usize>,
    chunk: [LargeBinaryArray; 2],
    /// The next entry of the chunk.
    next: usize,
    /// What comes after the chunk.
    error: Option<PyErr>,
    /// Entries of the next chunk.
    wanted: usize,
}

impl Entries {
    pub(crate) fn new(walk: Walk, column: Option<usize>) -> Entries {
        let none = || LargeBinaryBuilder::new().finish();
        Entries {
            walk: Mutex::new(walk),
            column,
            chunk: [none(), none()],
            next: 0,
            error: None,
            wanted: FIRST,
        }
    }
}

#[pymethods]
impl Entries {
    fn __iter__(this: Py<Entries>) -> Py<Entries> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.next == self.chunk[0].len() && self.error.is_none() {
            let walk = self.walk.get_mut().unwrap_or_else(PoisonError::into_inner);
            let (chunk, error) = py.detach(|| walk.read(self.wanted, MAX_BYTES));
            (self.chunk, self.error) = (chunk, error.map(raise));
            (self.next, self.wanted) = (0, (2 * self.wanted).min(MOST));
        }
        let [keys, values] = &self.chunk;
        let i = self.next;
        if i == keys.len() {
            return self.error.take().map_or(Ok(None), Err);
        }
        self.next += 1;
        let bytes = |column: &LargeBinaryArray| PyBytes::new(py, column.value(i));
        Ok(Some(match self.column {
            Some(0) => bytes(keys).into_any(),
            Some(_) => bytes(values).into_any(),
            None => (bytes(keys), bytes(values)).into_pyobject(py)?.into_any(),
        }))
    }
}
