//! Asking the prefix filter: whether a table can hold a key within some bounds.

use std::ops::Bound;
use std::sync::Arc;

use crate::comparator::Order;
use crate::filter::{PrefixExtractor, PrefixFilterInfo, prefix_end, prefix_of_all};
use crate::format::prefix_block::PrefixBlockReader;
use crate::read::stats::Counter;
use crate::read::table::Table;

/// The prefix filter in use. Only in a table whose keys, or user keys, are in bytewise order.
#[derive(Debug)]
pub(super) struct PrefixFilter {
    pub(super) extractor: Arc<dyn PrefixExtractor>,
    pub(super) block: PrefixBlockReader,
    pub(super) bytes: u64,
}

impl Table {
    /// Whether the table may hold a key that begins with `prefix`, by its filter [of prefixes](crate::WriteOptions::prefix_filter)
    /// and its index alone, without I/O. `false` is certain, as for [`may_contain`](Table::may_contain).
    ///
    /// In a table whose order is not known or not bytewise, always `true`. A [`DbTable`](crate::DbTable) has
    /// [its own](crate::DbTable::may_contain_prefix), for user keys.
    pub fn may_contain_prefix(&self, prefix: impl AsRef<[u8]>) -> bool {
        let prefix = prefix.as_ref();
        !matches!(self.order(), Ok(Order::Bytewise)) || self.may_contain_prefix_at(prefix, prefix)
    }

    /// As [`may_contain_prefix`](Self::may_contain_prefix), for keys, or user keys, in bytewise order. `first` is the lowest
    /// stored key that could begin with `prefix`.
    pub(crate) fn may_contain_prefix_at(&self, prefix: &[u8], first: &[u8]) -> bool {
        let Ok(order) = self.order() else {
            return true;
        };
        let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        !self.prefixes_exclude(&Bound::Included(prefix), &upper)
            && (self.index().seek(first, order).is_some() || !self.inner.last_block_checked())
    }

    /// Whether the prefix filter knows that no key is within these bounds; in a database's table, no user key.
    pub(crate) fn prefixes_exclude(
        &self,
        lower: &Bound<impl AsRef<[u8]>>,
        upper: &Bound<impl AsRef<[u8]>>,
    ) -> bool {
        let Some(filter) = &self.inner.prefixes else {
            return false;
        };
        let lower = lower.as_ref().map(AsRef::as_ref);
        let upper = upper.as_ref().map(AsRef::as_ref);
        let Some(prefix) = prefix_of_all(&*filter.extractor, lower, upper) else {
            return false;
        };
        let passes = filter.block.may_match(prefix);
        let counter = if passes {
            Counter::PrefixPassed
        } else {
            Counter::PrefixRejected
        };
        self.inner.file.counters.add(counter, 1);
        !passes
    }

    /// The filter of prefixes in use; `None` if the table has none that can be used. [`filters`](Table::filters) tells why.
    pub fn prefix_filter(&self) -> Option<PrefixFilterInfo> {
        self.inner.prefixes.as_ref().map(|filter| PrefixFilterInfo {
            extractor: filter.extractor.name().to_owned(),
            bytes: filter.bytes,
        })
    }
}
