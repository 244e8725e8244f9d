//! Prefixes of keys: which part of a key a prefix filter holds, and which scans it can answer.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

/// Says which leading part of a key is its *prefix*, such as the tenant in `tenant/user/42`.
///
/// A table that is written with [`WriteOptions::prefix_filter`](crate::WriteOptions::prefix_filter) has a filter of the
/// prefixes of its keys. A scan within one prefix checks it, and reads nothing if no key has the prefix.
///
/// [`FixedPrefix`] and [`DelimitedPrefix`] are built in, and readers know them by their stored names. An application can have
/// its own, which readers must be given with [`OpenOptions::prefix_extractor`](crate::OpenOptions::prefix_extractor).
///
/// # The one rule
///
/// If `p` is the prefix of a key, then **every key that begins with `p` has the prefix `p`**, in this process and in any other.
/// So the prefix of `p` itself is `p`. Neither the end of a key nor anything after the prefix may matter.
///
/// For example, "up to the first slash" obeys the rule. "Up to the last slash" does not: `a/b` has the prefix `a/`, but `a/b/c`,
/// which begins with `a/`, has the prefix `a/b/`. A scan of `a/` would miss it. A builder rejects keys that show that the rule is broken,
/// but not every set of keys does.
///
/// Keys without a prefix are fine. They are not in the filter, and no scan that may meet them uses it.
///
/// ```
/// use leveltable::filter::PrefixExtractor;
///
/// /// The first 4 bytes of a key that begins with `m`, the first 8 of any other.
/// #[derive(Debug)]
/// struct Mixed;
///
/// impl PrefixExtractor for Mixed {
///     fn name(&self) -> &str {
///         "example.Mixed(m,4,8)"
///     }
///
///     fn prefix_len(&self, key: &[u8]) -> Option<usize> {
///         let len = if key.first()? == &b'm' { 4 } else { 8 };
///         (key.len() >= len).then_some(len)
///     }
/// }
///
/// assert_eq!(Mixed.prefix_len(b"message"), Some(4));
/// assert_eq!(Mixed.prefix_len(b"short"), None);
/// ```
pub trait PrefixExtractor: Debug + Send + Sync {
    /// Name of the rule with all its parameters, such as `leveltable.FixedPrefix(8)`.
    ///
    /// A reader uses a prefix filter only if it has an extractor of the same name. Change the name whenever the prefix of any
    /// key changes.
    fn name(&self) -> &str;

    /// Number of bytes at the front of `key` that are its prefix; `None` if it has none. A number above the length of the key
    /// counts as none.
    ///
    /// `key` can be any bytes, or none: it comes from callers, and in `verify` of the crate `leveltable-repair` from a file.
    fn prefix_len(&self, key: &[u8]) -> Option<usize>;

    /// Checks the parameters, as [`FilterPolicy::check`](super::FilterPolicy::check) does. Called when a table is started, which
    /// fails if the check does.
    ///
    /// # Errors
    ///
    /// A message that names the parameter and its allowed range.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The first `len` bytes of a key. Shorter keys have no prefix.
///
/// It obeys [the rule](PrefixExtractor#the-one-rule): a key that begins with these bytes is long enough, and its first bytes are
/// these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPrefix {
    len: usize,
    name: String,
}

impl FixedPrefix {
    const NAME: &str = "leveltable.FixedPrefix";

    /// Prefixes of `len` bytes, at least 1. A table cannot be started with 0. See
    /// [`WriteOptions::prefix_filter`](crate::WriteOptions::prefix_filter).
    pub fn new(len: usize) -> FixedPrefix {
        FixedPrefix {
            len,
            name: format!("{}({len})", Self::NAME),
        }
    }
}

impl PrefixExtractor for FixedPrefix {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        (key.len() >= self.len).then_some(self.len)
    }

    fn check(&self) -> Result<(), String> {
        match self.len {
            0 => Err("its length must be at least 1, not 0".into()),
            _ => Ok(()),
        }
    }
}

/// A key up to and including the first byte of a certain value. Keys without such a byte have no prefix.
///
/// It obeys [the rule](PrefixExtractor#the-one-rule): a prefix has the delimiter at its end and nowhere else, so it ends at the
/// first delimiter of every key that begins with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelimitedPrefix {
    delimiter: u8,
    name: String,
}

impl DelimitedPrefix {
    const NAME: &str = "leveltable.DelimitedPrefix";

    /// Prefixes that end with the first `delimiter`, such as `b'/'`. See
    /// [`WriteOptions::prefix_filter`](crate::WriteOptions::prefix_filter).
    pub fn new(delimiter: u8) -> DelimitedPrefix {
        DelimitedPrefix {
            delimiter,
            name: format!("{}({delimiter:02x})", Self::NAME),
        }
    }
}

impl PrefixExtractor for DelimitedPrefix {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        let at = key.iter().position(|&byte| byte == self.delimiter)?;
        Some(at + 1)
    }
}

/// The built-in extractor that has exactly this name, which comes from a file.
pub(crate) fn built_in_extractor(name: &[u8]) -> Option<Arc<dyn PrefixExtractor>> {
    let name = str::from_utf8(name).ok()?;
    let (rule, parameter) = name.strip_suffix(')')?.split_once('(')?;
    let extractor: Arc<dyn PrefixExtractor> = match rule {
        FixedPrefix::NAME => Arc::new(FixedPrefix::new(parameter.parse().ok()?)),
        DelimitedPrefix::NAME => {
            let delimiter = u8::from_str_radix(parameter, 16).ok()?;
            Arc::new(DelimitedPrefix::new(delimiter))
        }
        _ => return None,
    };
    (extractor.name() == name && extractor.check().is_ok()).then_some(extractor)
}

/// The prefix of `key`.
pub(crate) fn prefix_of<'k>(extractor: &dyn PrefixExtractor, key: &'k [u8]) -> Option<&'k [u8]> {
    key.get(..extractor.prefix_len(key)?)
}

/// The first key after all keys that begin with `prefix`, in bytewise order. `None` if all keys from `prefix` on begin with
/// it.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    // The prefix without its 0xff tail, its last byte incremented.
    let mut past = prefix.to_vec();
    while past.pop_if(|last| *last == 0xff).is_some() {}
    *past.last_mut()? += 1;
    Some(past)
}

/// The prefix that every key within these bounds has, in bytewise order. `None` if a key within them can have another
/// prefix, or none: a filter of prefixes cannot answer then.
///
/// Let `p` be the prefix of the lower bound, so that the bound begins with `p`. All keys that begin with `p` lie together: they
/// are those from `p` up to [`prefix_end`]. A key within the bounds is at or after the lower bound, and so after `p`. If the upper
/// bound begins with `p`, or is that end and excluded, the key is before the end. So it begins with `p`, and by the rule of
/// [`PrefixExtractor`] its prefix is `p`. In particular, it is not too short to have a prefix: keys that are shorter than `p` and
/// agree with it come before `p`.
///
/// A lower bound without a prefix never qualifies, even if the bounds are close: with prefixes of four bytes, `abc` lies between
/// `ab` and `abcd`.
pub(crate) fn prefix_of_all<'k>(
    extractor: &dyn PrefixExtractor,
    lower: Bound<&'k [u8]>,
    upper: Bound<&[u8]>,
) -> Option<&'k [u8]> {
    let (Bound::Included(first) | Bound::Excluded(first)) = lower else {
        return None;
    };
    let prefix = prefix_of(extractor, first)?;
    let is_alone = match upper {
        Bound::Included(last) => last.starts_with(prefix),
        Bound::Excluded(last) => {
            last.starts_with(prefix) || prefix_end(prefix).is_some_and(|end| end == last)
        }
        Bound::Unbounded => prefix_end(prefix).is_none(),
    };
    is_alone.then_some(prefix)
}
