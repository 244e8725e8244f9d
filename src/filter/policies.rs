//! The built-in policies: readers, the tool and the Python package take them from this list.

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
