//! Walks over entries, in chunks: the interpreter's lock is released once for thousands of entries.

use std::sync::Mutex;

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
const MOST_BYTES: usize = 1 << 20;

/// Entries one after the other. Each is lent until the next move. After an error, a walk is not moved on.
pub(crate) trait Walk: Send {
    /// Moves to the next entry, to the first at the first call. Returns `false` at the end.
    fn advance(&mut self) -> Result<bool>;
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];
    /// The sequence number, in a database.
    fn sequence(&self) -> Option<u64> {
        None
    }
}

impl Walk for MergeCursor {
    fn advance(&mut self) -> Result<bool> {
        self.next()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}

/// From the last entry to the first.
pub(crate) struct Backward {
    cursor: MergeCursor,
    has_begun: bool,
}

impl Backward {
    pub(crate) fn new(cursor: MergeCursor) -> Backward {
        Backward {
            cursor,
            has_begun: false,
        }
    }
}

impl Walk for Backward {
    fn advance(&mut self) -> Result<bool> {
        if self.has_begun {
            return self.cursor.prev();
        }
        self.has_begun = true;
        self.cursor.seek_to_last()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}

impl Walk for (AsyncRange, Runtime) {
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

impl Walk for (SetRange, Runtime) {
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
    error: Option<PyErr>,
    /// Entries of the next chunk.
    wanted: usize,
}

/// Entries that are not taken yet.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Where the key and the value of each entry end.
    ends: Vec<(usize, usize)>,
    /// The next entry, and where it starts.
    next: usize,
    start: usize,
}

impl Entries {
    pub(crate) fn new(walk: Box<dyn Walk>, yields: Yield) -> Entries {
        Entries {
            walk: Mutex::new(Some(walk)),
            yields,
            chunk: Chunk::default(),
            error: None,
            wanted: FIRST,
        }
    }

    /// Reads the next chunk, which is empty at the end.
    fn refill(&mut self, py: Python<'_>) {
        let walk = match self.walk.get_mut() {
            Ok(walk) => walk,
            Err(poisoned) => poisoned.into_inner(),
        };
        let (chunk, wanted) = (&mut self.chunk, self.wanted);
        let ended = py.detach(|| match walk {
            Some(walk) => chunk.fill(&mut **walk, wanted),
            None => Ok(true),
        });
        self.wanted = (2 * wanted).min(MOST);
        if !matches!(ended, Ok(false)) {
            *walk = None;
        }
        self.error = ended.err().map(raise);
    }
}

#[pymethods]
impl Entries {
    fn __iter__(this: Py<Entries>) -> Py<Entries> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.chunk.is_empty() && self.error.is_none() {
            self.refill(py);
        }
        let Some((key, value)) = self.chunk.take() else {
            return self.error.take().map_or(Ok(None), Err);
        };
        Ok(Some(match self.yields {
            Yield::Keys => PyBytes::new(py, key).into_any(),
            Yield::Values => PyBytes::new(py, value).into_any(),
            Yield::Items => (PyBytes::new(py, key), PyBytes::new(py, value))
                .into_pyobject(py)?
                .into_any(),
        }))
    }
}

impl Chunk {
    fn is_empty(&self) -> bool {
        self.next == self.ends.len()
    }

    /// Fills an empty chunk. Returns whether the walk has ended; what was read before an error is kept.
    fn fill(&mut self, walk: &mut dyn Walk, wanted: usize) -> Result<bool> {
        self.bytes.clear();
        self.ends.clear();
        (self.next, self.start) = (0, 0);
        while self.ends.len() < wanted && self.bytes.len() < MOST_BYTES {
            if !walk.advance()? {
                return Ok(true);
            }
            self.bytes.extend_from_slice(walk.key());
            let key_end = self.bytes.len();
            self.bytes.extend_from_slice(walk.value());
            self.ends.push((key_end, self.bytes.len()));
        }
        Ok(false)
    }

    fn take(&mut self) -> Option<(&[u8], &[u8])> {
        let &(key_end, end) = self.ends.get(self.next)?;
        let key = self.bytes.get(self.start..key_end)?;
        let value = self.bytes.get(key_end..end)?;
        (self.next, self.start) = (self.next + 1, end);
        Some((key, value))
    }
}
