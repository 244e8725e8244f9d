//! Walks over entries in chunks: the interpreter's lock is released once for thousands of entries.

use std::mem;
use std::sync::{Mutex, PoisonError};

use arrow_array::builder::{ArrayBuilder as _, LargeBinaryBuilder};
use arrow_array::{Array as _, LargeBinaryArray};
use bytes::Bytes;
use leveltable::Result;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors::raise;

/// Number of entries in the first chunk, so that a short walk reads little; each chunk has twice as many as the one
/// before.
const FIRST: usize = 16;
/// Maximum number of entries of a chunk, and of bytes, unless a single entry is larger.
const MOST: usize = 8192;
const MAX_BYTES: usize = 1 << 20;

/// Appends the next entries while there is room; room is left only at the end. It is not called again after that, or after an
/// error.
pub(crate) type Step = Box<dyn FnMut(&mut Chunk) -> Result<()> + Send>;

/// The step of an iterator.
pub(crate) fn step_of(
    mut entries: impl Iterator<Item = Result<(Bytes, Bytes)>> + Send + 'static,
) -> Step {
    Box::new(move |chunk| {
        while chunk.has_room()
            && let Some(entry) = entries.next()
        {
            let (key, value) = entry?;
            chunk.push(&key, &value);
        }
        Ok(())
    })
}

/// Entries, in Arrow's columns.
pub(crate) struct Chunk {
    keys: LargeBinaryBuilder,
    values: LargeBinaryBuilder,
    /// Maximum number of entries, and the number of bytes at which it is full.
    most: usize,
    full: usize,
}

impl Chunk {
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let bytes = self.keys.values_slice().len() + self.values.values_slice().len();
        self.keys.len() < self.most && bytes < self.full
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.append_value(key);
        self.values.append_value(value);
    }
}

/// The entries of a range, one chunk after another: the next step, the end, or an error.
pub(crate) struct Walk(Result<Option<Step>>);

impl Walk {
    pub(crate) fn new(step: Step) -> Walk {
        Walk(Ok(Some(step)))
    }

    /// Reads the next keys and values, until there are `most` entries or `full` bytes; `None` at the end.
    pub(crate) fn read(
        &mut self,
        most: usize,
        full: usize,
    ) -> Result<Option<[LargeBinaryArray; 2]>> {
        let Some(mut step) = mem::replace(&mut self.0, Ok(None))? else {
            return Ok(None);
        };
        // Unused memory costs nothing.
        let column =
            || LargeBinaryBuilder::with_capacity(most.min(MOST), full.min(most.saturating_mul(64)));
        let mut chunk = Chunk {
            keys: column(),
            values: column(),
            most,
            full,
        };
        self.0 = step(&mut chunk).map(|()| (!chunk.has_room()).then_some(step));
        let read = [chunk.keys.finish(), chunk.values.finish()];
        if read[0].is_empty() {
            return mem::replace(&mut self.0, Ok(None)).map(|_| None);
        }
        Ok(Some(read))
    }
}

/// An iterator over lists of entries.
#[pyclass(module = "leveltable._native")]
pub(crate) struct Lists {
    /// Never contended: an iterator has one user at a time.
    walk: Mutex<Walk>,
    /// Number of entries of the next list.
    entries: usize,
}

impl Lists {
    pub(crate) fn new(walk: Walk) -> Lists {
        let (walk, entries) = (Mutex::new(walk), FIRST);
        Lists { walk, entries }
    }
}

#[pymethods]
impl Lists {
    fn __iter__(this: Py<Lists>) -> Py<Lists> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let walk = self.walk.get_mut().unwrap_or_else(PoisonError::into_inner);
        let read = py.detach(|| walk.read(self.entries, MAX_BYTES));
        self.entries = MOST.min(2 * self.entries);
        let list =
            |[keys, values]: [LargeBinaryArray; 2]| PyList::new(py, keys.iter().zip(&values));
        read.map_err(raise)?.map(list).transpose()
    }
}
