//! The values of a table's options, for its builder.

use std::sync::Arc;

use crate::comparator::Order;
use crate::filter::{BloomFilterPolicy, FilterPolicy, PrefixExtractor, RibbonFilterPolicy};
use crate::format::codec::{Compression, Compressor};
use crate::format::filter_block::FilterBlockBuilder;
use crate::format::internal_key::user_order;

/// The options of a table; see [`WriteOptions`](crate::WriteOptions).
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) block_size: usize,
    /// Whether the caller set the size of blocks or the filter: a copy of a table then does not follow its source.
    pub(crate) chose_blocks: bool,
    pub(crate) chose_filter: bool,
    pub(crate) restart_interval: usize,
    pub(crate) block_align: bool,
    /// `None` if the caller named no codec: Snappy, or the codec of the copied table.
    pub(crate) compression: Option<Compression>,
    pub(crate) filter: Option<Arc<dyn FilterPolicy>>,
    pub(crate) whole_table: bool,
    pub(crate) prefixes: Option<Arc<dyn PrefixExtractor>>,
    pub(crate) order: Order,
    pub(crate) replace: bool,
    pub(crate) sync: bool,
    pub(crate) properties: bool,
}

impl Settings {
    /// Those of [`WriteOptions::new`](crate::WriteOptions::new).
    pub(super) fn new() -> Settings {
        Settings {
            filter: Some(Arc::new(RibbonFilterPolicy::DEFAULT)),
            whole_table: true,
            properties: true,
            ..Settings::leveldb()
        }
    }

    /// Those of [`WriteOptions::leveldb`](crate::WriteOptions::leveldb).
    pub(super) fn leveldb() -> Settings {
        Settings {
            block_size: 4096,
            chose_blocks: false,
            chose_filter: false,
            restart_interval: 16,
            block_align: false,
            compression: None,
            filter: Some(Arc::new(BloomFilterPolicy::new(10))),
            whole_table: false,
            prefixes: None,
            order: Order::Bytewise,
            replace: true,
            sync: true,
            properties: false,
        }
    }

    /// Whether every option is in its range; `Err` names one that is not.
    pub(super) fn check(&self) -> Result<(), String> {
        let at_least_1 = |option, value| match value {
            0 => Err(format!("{option} must be at least 1, not 0")),
            _ => Ok(()),
        };
        at_least_1("block_size", self.block_size)?;
        at_least_1("restart_interval", self.restart_interval)?;
        let codec = self.compression.unwrap_or_default();
        codec.check().map_err(|why| format!("compression: {why}"))?;
        if let Some(policy) = &self.filter {
            let check = policy.check();
            check.map_err(|why| format!("filter_policy {:?}: {why}", policy.name()))?;
        }
        let Some(extractor) = &self.prefixes else {
            return Ok(());
        };
        let check = match user_order(&self.order).unwrap_or(&self.order) {
            Order::Bytewise => extractor.check(),
            Order::Custom(other) => Err(format!(
                "it needs keys in bytewise order, not in the order {:?}",
                other.name()
            )),
        };
        check.map_err(|why| format!("prefix_filter {:?}: {why}", extractor.name()))
    }

    pub(super) fn compressor(&self) -> Compressor {
        Compressor::new(self.compression.unwrap_or_default())
    }

    pub(super) fn filter_builder(&self) -> Option<FilterBlockBuilder> {
        // A policy whose parameters are out of range must not build anything.
        let policy = self.filter.as_ref().filter(|policy| policy.check().is_ok());
        policy.map(|policy| FilterBlockBuilder::new(policy.builder(), self.whole_table))
    }
}
