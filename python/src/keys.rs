//! Keys, values and bounds from Python.

use std::borrow::Cow;
use std::ops::Bound as Limit;

use bytes::Bytes;
use leveltable::prefix_bounds;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

/// A range of keys.
pub(crate) type Bounds = (Limit<Vec<u8>>, Limit<Vec<u8>>);

/// The first key of a part, and the first key after it.
pub(crate) type Ends = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A key or a value: the bytes of `bytes`, the UTF-8 of `str`, or a copy of a mutable buffer.
pub(crate) struct Data<'a>(Cow<'a, [u8]>);

/// An optional key.
pub(crate) type Key<'a> = Option<Data<'a>>;

impl<'a, 'py> FromPyObject<'a, 'py> for Data<'a> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Data<'a>> {
        if let Ok(bytes) = value.extract::<&'a [u8]>() {
            return Ok(Data(Cow::Borrowed(bytes)));
        }
        if value.is_instance_of::<PyString>() {
            let text: &'a str = value.extract()?;
            return Ok(Data(Cow::Borrowed(text.as_bytes())));
        }
        if value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>() {
            let copy = value.py().get_type::<PyBytes>().call1((value,))?;
            return Ok(Data(Cow::Owned(copy.extract()?)));
        }
        let found = value.get_type().name()?;
        let what = format!("a key or a value must be bytes or str, not {found}");
        Err(PyTypeError::new_err(what))
    }
}

impl AsRef<[u8]> for Data<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The keys at or after `start` and before `stop` that begin with `prefix`.
pub(crate) fn bounds(keys: [Key<'_>; 3]) -> Bounds {
    let [mut start, mut stop, prefix] = keys.map(|key| Some(key?.0.into_owned()));
    if let Some(prefix) = prefix {
        if let (_, Limit::Excluded(end)) = prefix_bounds(&prefix) {
            stop = stop.into_iter().chain([end]).min();
        }
        start = start.max(Some(prefix));
    }
    let lower = start.map_or(Limit::Unbounded, Limit::Included);
    (lower, stop.map_or(Limit::Unbounded, Limit::Excluded))
}

/// The ends of a part of a table, which begins after a key and ends with one. The first key after `key` is `key` and a
/// zero byte.
pub(crate) fn ends((lower, upper): (Limit<Bytes>, Limit<Bytes>)) -> Ends {
    let after = |limit: Limit<Bytes>| match limit {
        Limit::Unbounded => None,
        Limit::Included(key) | Limit::Excluded(key) => Some([&key[..], &[0]].concat()),
    };
    (after(lower), after(upper))
}
