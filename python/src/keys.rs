//! Keys, values and bounds as Python gives them.

use std::borrow::Cow;
use std::ops::Bound as Limit;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::errors::wrong_type;

/// A range of keys.
pub(crate) type Bounds = (Limit<Vec<u8>>, Limit<Vec<u8>>);

/// The first key of a range, and the first after it.
pub(crate) type Ends = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A key or a value: the bytes of `bytes`, the UTF-8 of `str`, a copy of what may change.
pub(crate) struct Data<'a>(pub(crate) Cow<'a, [u8]>);

/// What may be left out.
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
        Err(wrong_type("a key or a value", "bytes or str", &value))
    }
}

impl AsRef<[u8]> for Data<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The keys from `start` on that come before `stop` and begin with `prefix`.
pub(crate) fn bounds([start, stop, prefix]: [Key<'_>; 3]) -> Bounds {
    let owned = |key: Data<'_>| key.0.into_owned();
    let (mut start, mut stop) = (start.map(owned), stop.map(owned));
    if let Some(prefix) = prefix.map(owned) {
        let end = successor(&prefix);
        start = start.max(Some(prefix));
        stop = stop.into_iter().chain(end).min();
    }
    let lower = start.map_or(Limit::Unbounded, Limit::Included);
    (lower, stop.map_or(Limit::Unbounded, Limit::Excluded))
}

/// The first key after all that begin with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// Bounds as Python has them: the first key of a part, and the first after it.
pub(crate) fn half_open((lower, upper): (Limit<Bytes>, Limit<Bytes>)) -> Ends {
    // The first key after `key` is `key` and a zero.
    let end = |limit: Limit<Bytes>, after: fn(&Limit<Bytes>) -> bool| {
        let more: &[u8] = if after(&limit) { &[0] } else { &[] };
        match limit {
            Limit::Unbounded => None,
            Limit::Included(key) | Limit::Excluded(key) => Some([&key, more].concat()),
        }
    };
    (
        end(lower, |limit| matches!(limit, Limit::Excluded(_))),
        end(upper, |limit| matches!(limit, Limit::Included(_))),
    )
}
