//! Filter policies: a few bits a key that say "certainly not here", so that no block is read.

mod bloom;
mod ribbon;

pub use bloom::BloomFilterPolicy;
pub(crate) use bloom::OldBloomFilterPolicy;
pub use ribbon::RibbonFilterPolicy;

use std::fmt::Debug;
use std::sync::Arc;

/// How a set of keys becomes a filter, and how a filter is asked.
///
/// An application may implement its own; see `examples/custom_filter.rs`. The policy's name is
/// written to the table, and a reader uses a filter only if it has a policy of that name, so a
/// change of encoding needs a new name.
///
/// The one rule: **no false negatives**. For every key given to
/// [`FilterBuilder::add_key`] before [`FilterBuilder::finish`], `key_may_match` must answer `true`
/// on what `finish` appended. With a comparator that calls different byte strings equal, that
/// extends to every equal key: see [`Comparator`](crate::Comparator).
pub trait FilterPolicy: Debug + Send + Sync {
    /// Name of the policy and its encoding, such as `leveldb.BuiltinBloomFilter2`.
    fn name(&self) -> &str;

    /// A builder for one table's filters.
    fn builder(&self) -> Box<dyn FilterBuilder>;

    /// Whether `key` may be among the keys that `filter` was made from. May err only towards `true`.
    ///
    /// `filter` comes from a file: any bytes at all, none included, must be answered without a
    /// panic. Answer `true` for what cannot be understood.
    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool;

    /// Whether the policy's parameters make sense; `Err` names the wrong one and the allowed range.
    ///
    /// Asked when a table is begun, which then fails. A policy whose constructor takes any number can so report one
    /// that it cannot use, such as NaN. The default accepts.
    ///
    /// # Errors
    ///
    /// The text of the error that the table's builder returns.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What the filter of a table is; see [`Table::filter`](crate::Table::filter) and
/// [`Summary::filter`](crate::Summary::filter).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterInfo {
    /// Name of the policy, as in the metaindex.
    pub policy: String,
    /// Bytes of the filter block, which an open table holds in memory.
    pub bytes: u64,
    /// Number of filters, empty ones included.
    pub filters: usize,
    /// Whether one filter covers the whole table. Lookups then ask it before they search the index.
    pub whole_table: bool,
}

impl FilterInfo {
    /// What the filter costs in bits a key in a table of `entries` entries; 0 without entries.
    pub fn bits_per_key(&self, entries: u64) -> f64 {
        if entries == 0 {
            0.0
        } else {
            self.bytes as f64 * 8.0 / entries as f64
        }
    }
}

/// Gathers keys and makes filters of them, one after another.
///
/// It owns what it needs of a key: a hash, or a whole copy.
pub trait FilterBuilder: Send {
    /// Adds a key to the filter under way. Keys come in the table's order, and may repeat.
    fn add_key(&mut self, key: &[u8]);

    /// Appends the filter of the keys added since the last `finish` to `dst` (whose contents stay)
    /// and starts anew. A table calls it only when keys were added; [`create_filter`] also for none.
    fn finish(&mut self, dst: &mut Vec<u8>);
}

impl<P: FilterPolicy + ?Sized> FilterPolicy for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        (**self).builder()
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        (**self).key_may_match(key, filter)
    }

    fn check(&self) -> Result<(), String> {
        (**self).check()
    }
}

/// The message of a policy whose `parameter` is NaN or infinite.
fn not_finite(parameter: &str, range: &str) -> String {
    format!("its {parameter} must be a finite number {range}")
}

/// Appends to `dst` the filter that `policy` makes of `keys`, in one call.
///
/// ```
/// use leveltable::{BloomFilterPolicy, filter::{FilterPolicy, create_filter}};
///
/// let policy = BloomFilterPolicy::new(10);
/// let mut filter = Vec::new();
/// create_filter(&policy, [b"apple", b"grape"], &mut filter);
/// assert!(policy.key_may_match(b"apple", &filter));
/// assert!(!policy.key_may_match(b"lemon", &filter));
/// ```
pub fn create_filter<K: AsRef<[u8]>>(
    policy: &(impl FilterPolicy + ?Sized),
    keys: impl IntoIterator<Item = K>,
    dst: &mut Vec<u8>,
) {
    let mut builder = policy.builder();
    for key in keys {
        builder.add_key(key.as_ref());
    }
    builder.finish(dst);
}
