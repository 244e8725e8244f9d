//! The list of the policies that are built in: readers, the tool and the Python package take them from here.

use std::sync::Arc;

use super::{BloomFilterPolicy, FilterPolicy, OldBloomFilterPolicy, RibbonFilterPolicy};

/// A policy that is built in.
pub struct BuiltIn {
    /// What users call it; `None` if it is only read.
    pub option: Option<&'static str>,
    /// What it is, for the tool's help.
    pub about: &'static str,
    /// Makes the policy, with this many bits per key.
    pub make: fn(f64) -> Arc<dyn FilterPolicy>,
    /// Whether one filter covers the whole table, or each 2 KiB of it have one.
    pub whole_table: bool,
}

/// The policies that are built in, the best first: a reader uses the first for which the table has a filter.
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
        about: "The Bloom filter of LevelDB's first versions",
        make: |_| Arc::new(OldBloomFilterPolicy),
        whole_table: false,
    },
];

impl BuiltIn {
    /// The policy as readers need it: a filter says itself how many bits it has.
    pub(crate) fn reader(&self) -> Arc<dyn FilterPolicy> {
        (self.make)(10.0)
    }
}
