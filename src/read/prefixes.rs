//! Asking the prefix filter: whether a table can hold a key within some bounds.

use std::ops::Bound;

use crate::comparator::Order;
use crate::error::Result;
use crate::filter::{prefix_end, prefix_of_all};
use crate::read::bounds::Bounds;
use crate::read::filter::FilterOf;
use crate::read::parts::LAYERS;
use crate::read::stats::Counter;
use crate::read::table::Table;

impl Table {
    /// Whether the table may hold a key that begins with `prefix`, by its filter [of prefixes](crate::WriteOptions::prefix_filter)
    /// and the last key of its index. Reads no data block. `false` is certain, as for [`may_contain`](Table::may_contain).
    ///
    /// In a table whose order is not known or not bytewise, always `true`. A [`DbTable`](crate::DbTable) has
    /// [its own](crate::DbTable::may_contain_prefix), for user keys.
    ///
    /// # Errors
    ///
    /// Those of reading the filter.
    pub fn may_contain_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<bool> {
        let prefix = prefix.as_ref();
        if !matches!(self.order(), Ok(Order::Bytewise)) {
            return Ok(true);
        }
        self.may_contain_prefix_at(prefix, prefix)
    }

    /// As [`may_contain_prefix`](Self::may_contain_prefix), for keys, or user keys, in bytewise order. `first` is the lowest
    /// stored key that could begin with `prefix`.
    pub(crate) fn may_contain_prefix_at(&self, prefix: &[u8], first: &[u8]) -> Result<bool> {
        let (Ok(order), index) = (self.order(), &self.inner.index) else {
            return Ok(true);
        };
        let end = prefix_end(prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(!self.prefixes_exclude(&(Bound::Included(prefix), upper))?
            && (index.seek_piece(first, order).is_some() || !index.is_end_checked()))
    }

    /// Whether the prefix filter knows that no key is within these bounds; in a database's table, no user key.
    pub(crate) fn prefixes_exclude(&self, bounds: &Bounds<impl AsRef<[u8]>>) -> Result<bool> {
        let inner = &*self.inner;
        let (Some(filter), Some(prefix)) = (&inner.prefixes, self.prefix_to_ask(bounds)) else {
            return Ok(false);
        };
        let missing = || inner.missing_for_prefix(prefix, LAYERS);
        let passes = inner.ask(|| filter.ask(prefix, 0), missing)?;
        let counters = &inner.file.counters;
        counters.add_answer(passes, Counter::PrefixPassed, Counter::PrefixRejected);
        Ok(!passes)
    }

    /// The prefix of all keys within these bounds that the filter of prefixes is asked for, if there are both.
    pub(super) fn prefix_to_ask<'k>(
        &self,
        (lower, upper): &'k Bounds<impl AsRef<[u8]>>,
    ) -> Option<&'k [u8]> {
        let FilterOf::Prefixes(extractor) = &self.inner.prefixes.as_ref()?.of else {
            return None;
        };
        let lower = lower.as_ref().map(AsRef::as_ref);
        let upper = upper.as_ref().map(AsRef::as_ref);
        prefix_of_all(&**extractor, lower, upper)
    }
}
