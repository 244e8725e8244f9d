//! Keys, values and bounds as Python gives them.

use std::borrow::Cow;
use std::ops::Bound as Limit;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::errors::wrong_type;

/// A range of keys.
pub(crate) type Bounds = (Limit<Vec<u8>>, Limit<Vec<u8>>);

/// The bytes of a key or a value: those of `bytes`, the UTF-8 of `str`, a copy of what may change.
pub(crate) fn bytes_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Cow::Borrowed(text.to_str()?.as_bytes()));
    }
    if let Ok(array) = value.cast::<PyByteArray>() {
        return Ok(Cow::Owned(array.to_vec()));
    }
    if let Ok(view) = value.cast::<PyMemoryView>() {
        return Ok(Cow::Owned(view.call_method0("tobytes")?.extract()?));
    }
    Err(wrong_type("a key or a value", "bytes or str", value))
}

/// The keys from `start` on that come before `stop` and begin with `prefix`.
pub(crate) fn bounds(
    start: Option<&Bound<'_, PyAny>>,
    stop: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Bound<'_, PyAny>>,
) -> PyResult<Bounds> {
    let owned = |key: Option<&Bound<'_, PyAny>>| match key {
        Some(key) => bytes_of(key).map(|key| Some(key.into_owned())),
        None => Ok(None),
    };
    let (mut start, mut stop) = (owned(start)?, owned(stop)?);
    if let Some(prefix) = owned(prefix)? {
        let end = successor(&prefix);
        start = start.max(Some(prefix));
        stop = match (stop, end) {
            (Some(stop), Some(end)) => Some(stop.min(end)),
            (stop, end) => stop.or(end),
        };
    }
    let lower = start.map_or(Limit::Unbounded, Limit::Included);
    let upper = stop.map_or(Limit::Unbounded, Limit::Excluded);
    Ok((lower, upper))
}

/// The first key after all that begin with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let (last, _) = prefix.iter().enumerate().rfind(|(_, byte)| **byte < 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// Bounds as Python has them: the first key of a part, and the first after it.
pub(crate) fn half_open(bounds: (Limit<bytes::Bytes>, Limit<bytes::Bytes>)) -> Ends {
    let next = |key: bytes::Bytes| {
        let mut key = key.to_vec();
        key.push(0);
        key
    };
    let start = match bounds.0 {
        Limit::Unbounded => None,
        Limit::Included(key) => Some(key.to_vec()),
        Limit::Excluded(key) => Some(next(key)),
    };
    let stop = match bounds.1 {
        Limit::Unbounded => None,
        Limit::Included(key) => Some(next(key)),
        Limit::Excluded(key) => Some(key.to_vec()),
    };
    (start, stop)
}

/// The first key of a range, and the first after it.
pub(crate) type Ends = (Option<Vec<u8>>, Option<Vec<u8>>);
