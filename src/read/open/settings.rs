//! The values of the options for opening a table.

use std::sync::Arc;

use crate::comparator::Order;
use crate::filter::policies::{BuiltIn, POLICIES};
use crate::filter::{FilterPolicy, PrefixExtractor, built_in_extractor};
use crate::read::store::ReadOptions;
use crate::read::store::cache::BlockCache;

/// The values of an [`OpenOptions`](crate::OpenOptions).
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `None` if the caller did not say: bytewise, and a database's table is recognised and rejected.
    pub(crate) order: Option<Order>,
    /// Opens a table of any order for walking.
    pub(crate) stored_order: bool,
    /// Whether opening checks the order of all keys.
    pub(crate) check_order: bool,
    pub(crate) policies: Vec<Arc<dyn FilterPolicy>>,
    pub(crate) extractors: Vec<Arc<dyn PrefixExtractor>>,
    pub(crate) filters: bool,
    /// Whether opening reads all of index and filters.
    pub(crate) preload: bool,
    pub(crate) cache: Option<BlockCache>,
    /// Whether the caller chose the cache: every block that is read is then kept in it.
    pub(crate) chose_cache: bool,
    pub(crate) read: ReadOptions,
}

impl Settings {
    pub(crate) fn new() -> Settings {
        Settings {
            order: None,
            stored_order: false,
            check_order: false,
            policies: Vec::new(),
            extractors: Vec::new(),
            filters: true,
            preload: false,
            cache: Some(BlockCache::shared()),
            chose_cache: false,
            read: ReadOptions::new(),
        }
    }

    /// The filter policies that are known, the best first.
    pub(crate) fn known_policies(&self) -> Vec<Arc<dyn FilterPolicy>> {
        let built_in = POLICIES.iter().map(BuiltIn::reader);
        self.policies.iter().cloned().chain(built_in).collect()
    }

    /// The extractor of this name, if it is known.
    pub(crate) fn known_extractor(&self, name: &[u8]) -> Option<Arc<dyn PrefixExtractor>> {
        let mut given = self.extractors.iter().rev();
        let given = given.find(|extractor| extractor.name().as_bytes() == name);
        given.cloned().or_else(|| built_in_extractor(name))
    }

    /// Whether the table is not opened if its metaindex is damaged.
    pub(crate) fn needs_metaindex(&self) -> bool {
        self.filters && !self.stored_order
    }
}
