//! Walks over entries, in chunks: the interpreter's lock is released once for thousands of entries.

use std::sync::{Mutex, PoisonError};

use leveltable::Result;
use leveltable::merge::MergeCursor;
use leveltable::remote::AsyncRange;
use leveltable_object_store::set::SetRange;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;
use crate::runtime::Runtime;

/// Entries of the first chunk, so that a short walk reads little; each chunk has twice as many as the one before.
const FIRST: usize = 16;
/// Most entries of a chunk, and most bytes, unless one entry alone has more.
const MOST: usize = 8192;
const MAX_BYTES: usize = 1 << 20;

/// Entries one after the other. Each is lent until the next move. After the end or an error, a walk is not moved on.
pub(crate) trait Walk: Send {
    /// Moves to the next entry, to the first at the first call. Returns `false` at the end.
    fn advance(&mut self) -> Result<bool>;
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];

    /// Appends entries to `chunk`, until it has `most` or many bytes. Returns whether the walk goes on; what was read before an
    /// error is kept.
    fn fill(&mut self, chunk: &mut Chunk, most: usize, most_bytes: usize) -> Result<bool> {
        while chunk.key_ends.len() <= most && chunk.keys.len() + chunk.values.len() < most_bytes {
            if !self.advance()? {
                return Ok(false);
            }
            chunk.keys.extend_from_slice(self.key());
            chunk.key_ends.push(chunk.keys.len() as i64);
            chunk.values.extend_from_slice(self.value());
            chunk.value_ends.push(chunk.values.len() as i64);
        }
        Ok(true)
    }
}

/// Entries, in the columns that Arrow has.
pub(crate) struct Chunk {
    pub(crate) keys: Vec<u8>,
    /// Where each key ends, after a zero.
    pub(crate) key_ends: Vec<i64>,
    pub(crate) values: Vec<u8>,
    pub(crate) value_ends: Vec<i64>,
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk {
            keys: Vec::new(),
            key_ends: vec![0],
            values: Vec::new(),
            value_ends: vec![0],
        }
    }
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        self.key_ends.len() - 1
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.truncate(1);
        self.values.clear();
        self.value_ends.truncate(1);
    }

    fn key(&self, i: usize) -> Option<&[u8]> {
        let (start, end) = (*self.key_ends.get(i)?, *self.key_ends.get(i + 1)?);
        self.keys.get(start as usize..end as usize)
    }

    fn value(&self, i: usize) -> Option<&[u8]> {
        let (start, end) = (*self.value_ends.get(i)?, *self.value_ends.get(i + 1)?);
        self.values.get(start as usize..end as usize)
    }
}

/// A walk over a local table, either way.
pub(crate) struct Local {
    pub(crate) cursor: MergeCursor,
    pub(crate) reverse: bool,
    pub(crate) has_begun: bool,
}

impl Walk for Local {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if !self.reverse {
            return self.cursor.next();
        }
        if self.has_begun {
            return self.cursor.prev();
        }
        self.has_begun = true;
        self.cursor.seek_to_last()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}

/// Walks that wait for requests.
macro_rules! waiting {
    ($range:ty) => {
        impl Walk for ($range, Runtime) {
            fn advance(&mut self) -> Result<bool> {
                self.1.wait(self.0.advance())
            }

            fn key(&self) -> &[u8] {
                self.0.key()
            }

            fn value(&self) -> &[u8] {
                self.0.value()
            }
        }
    };
}

waiting!(AsyncRange);
waiting!(SetRange);

/// What a walk yields of each entry.
#[derive(Clone, Copy)]
pub(crate) enum Yield {
    Keys,
    Values,
    Items,
}

/// An iterator over entries, keys or values.
#[pyclass(module = "leveltable")]
pub(crate) struct Entries {
    /// Until its end or an error. Never waited for: an iterator has one user at a time.
    walk: Mutex<Option<Box<dyn Walk>>>,
    yields: Yield,
    chunk: Chunk,
    /// The next entry of the chunk.
    next: usize,
    /// What comes after the chunk.
    error: Option<PyErr>,
    /// Entries of the next chunk.
    wanted: usize,
}

impl Entries {
    pub(crate) fn new(walk: Box<dyn Walk>, yields: Yield) -> Entries {
        Entries {
            walk: Mutex::new(Some(walk)),
            yields,
            chunk: Chunk::default(),
            next: 0,
            error: None,
            wanted: FIRST,
        }
    }

    /// Reads the next chunk, which is empty at the end.
    fn refill(&mut self, py: Python<'_>) {
        let walk = self.walk.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (chunk, wanted) = (&mut self.chunk, self.wanted);
        let goes_on = py.detach(|| {
            chunk.clear();
            match walk {
                Some(walk) => walk.fill(chunk, wanted, MAX_BYTES),
                None => Ok(false),
            }
        });
        self.next = 0;
        self.wanted = (2 * wanted).min(MOST);
        if !matches!(goes_on, Ok(true)) {
            *walk = None;
        }
        self.error = goes_on.err().map(raise);
    }
}

#[pymethods]
impl Entries {
    fn __iter__(this: Py<Entries>) -> Py<Entries> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.next == self.chunk.len() && self.error.is_none() {
            self.refill(py);
        }
        let i = self.next;
        let (Some(key), Some(value)) = (self.chunk.key(i), self.chunk.value(i)) else {
            return self.error.take().map_or(Ok(None), Err);
        };
        self.next += 1;
        Ok(Some(match self.yields {
            Yield::Keys => PyBytes::new(py, key).into_any(),
            Yield::Values => PyBytes::new(py, value).into_any(),
            Yield::Items => (PyBytes::new(py, key), PyBytes::new(py, value))
                .into_pyobject(py)?
                .into_any(),
        }))
    }
}
