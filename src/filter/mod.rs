//! Filters: a few bits for each key that rule out most absent keys, so that no block is read for them.

pub(crate) mod bloom;
mod prefix;
pub(crate) mod ribbon;

pub(crate) use bloom::{BloomFilterPolicy, OldBloomFilterPolicy};
pub use prefix::{DelimitedPrefix, FixedPrefix, PrefixExtractor};
pub(crate) use prefix::{built_in_extractor, prefix_end, prefix_of, prefix_of_all};
pub(crate) use ribbon::{Layout as RibbonLayout, Probe as RibbonProbe, RibbonFilterPolicy};

use std::fmt::Debug;

/// The built-in policies: readers, the tool and the Python package take them from this list.
pub(crate) mod policies {
    use std::sync::Arc;

    use super::{BloomFilterPolicy, FilterPolicy, OldBloomFilterPolicy, RibbonFilterPolicy};

    /// A built-in policy.
    pub struct BuiltIn {
        /// Its name in options; `None` if no option names it.
        pub option: Option<&'static str>,
        /// Description for the tool's help.
        pub about: &'static str,
        /// Makes the policy, with this many bits per key.
        pub make: fn(f64) -> Arc<dyn FilterPolicy>,
        /// Whether one filter covers the whole table, rather than each 2 KiB of it.
        pub whole_table: bool,
    }

    /// The built-in policies, the best first: a reader uses the first one for which the table has a filter.
    pub static POLICIES: [BuiltIn; 3] = [
        BuiltIn {
            option: Some("ribbon"),
            about: "One ribbon filter for the whole table: an eighth of the wasted reads. LevelDB ignores it",
            make: |bits| Arc::new(RibbonFilterPolicy::new(bits)),
            whole_table: true,
        },
        BuiltIn {
            option: Some("bloom"),
            about: "LevelDB's Bloom filter",
            make: |bits| Arc::new(BloomFilterPolicy::new(bits as u32)),
            whole_table: false,
        },
        BuiltIn {
            option: None,
            about: "The Bloom filter of LevelDB's first versions, and of goleveldb",
            make: |bits| Arc::new(OldBloomFilterPolicy(BloomFilterPolicy::new(bits as u32))),
            whole_table: false,
        },
    ];

    impl BuiltIn {
        /// The policy for readers: a filter itself says how many bits it has.
        pub fn reader(&self) -> Arc<dyn FilterPolicy> {
            (self.make)(10.0)
        }
    }
}

/// Makes filters of keys, and looks keys up in filters.
///
/// A filter is a short summary of a set of keys. For a key of the set it always says "perhaps". For most other keys it says
/// "certainly not", and a lookup ends there.
///
/// An application can implement its own policy: see `examples/custom_filter.rs`. A table stores the policy's name, and a
/// reader uses a filter only if it has a policy of the same name. So change the name whenever the encoding changes.
///
/// The one rule is: **no false negatives**. [`key_may_match`](FilterPolicy::key_may_match) must return `true` for every key
/// that was passed to [`FilterBuilder::add_key`] before [`FilterBuilder::finish`] made the filter. If the comparator calls
/// different byte strings equal, the same holds for every key that is equal to one of them: see
/// [`Comparator`](crate::Comparator#comparators-and-filters).
///
/// ```
/// use leveltable::{BloomFilterPolicy, filter::FilterPolicy};
///
/// let policy = BloomFilterPolicy::new(10);
/// assert_eq!(policy.name(), "leveldb.BuiltinBloomFilter2");
/// assert!(policy.check().is_ok());
/// let (mut builder, mut filter) = (policy.builder(), Vec::new());
/// builder.add_key(b"apple");
/// builder.finish(&mut filter);
/// assert!(policy.key_may_match(b"apple", &filter));
/// ```
pub trait FilterPolicy: Debug + Send + Sync {
    /// Name of the policy and its encoding, such as `leveldb.BuiltinBloomFilter2`.
    fn name(&self) -> &str;

    /// A builder for the filters of one table.
    fn builder(&self) -> Box<dyn FilterBuilder>;

    /// Whether `key` may be in the set of keys that `filter` was built from. Returns `true` for every key of the set, and for as
    /// few others as possible.
    ///
    /// `filter` comes from a file and can be any bytes, or none. It must not cause a panic. Return `true` for an invalid
    /// filter.
    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool;

    /// Whether `about.pieces` divides a filter of the whole table, as it does ribbons.
    #[doc(hidden)]
    fn is_divided(&self) -> bool {
        false
    }

    /// Checks the policy's parameters. Called when a table is started, which fails if the check does.
    ///
    /// A constructor can accept any number, and leave it to this method to report one that it cannot use, such as NaN. The
    /// default accepts everything.
    ///
    /// # Errors
    ///
    /// A message that names the parameter and its allowed range. It becomes part of the error of starting the table.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A filter that lookups use; see [`Table::filter`](crate::Table::filter).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterEntry {
    /// Name of the policy, as in the metaindex. Bytes that are not UTF-8 are replaced.
    pub policy: String,
    /// Name of the [`PrefixExtractor`], parameters included, if it is a filter of prefixes; `None` for a filter of keys.
    pub prefixes: Option<String>,
    /// Size of the filter block in bytes, as in its handle.
    pub bytes: u64,
}

impl FilterEntry {
    /// Bytes of memory that it takes, apart from the structure itself.
    pub(crate) fn weight(&self) -> usize {
        self.policy.capacity() + self.prefixes.as_ref().map_or(0, String::capacity)
    }
}

/// Collects keys and makes filters of them, one after another; see [`FilterPolicy`].
///
/// A builder keeps its own copy of what it needs of each key: a hash, or the whole key.
pub trait FilterBuilder: Send {
    /// Adds a key to the current filter, as [`FilterPolicy`] shows. Keys come in the table's order, and may repeat.
    fn add_key(&mut self, key: &[u8]);

    /// Appends the filter of the keys added since the last `finish` to `dst`, and starts the next filter.
    ///
    /// A table calls this only if keys were added. See [`FilterPolicy`].
    fn finish(&mut self, dst: &mut Vec<u8>);
}

/// Appends the filter that `policy` builds from `keys` to `dst`.
#[cfg(test)]
pub(crate) fn create_filter<K: AsRef<[u8]>>(
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
