//! Asking the prefix filter: whether a table can hold a key within some bounds.

use crate::error::Result;
use crate::filter::prefix_of_all;
use crate::read::bounds::Bounds;
use crate::read::filter::FilterOf;
use crate::read::parts::LAYERS;
use crate::read::stats::Counter;
use crate::read::table::Table;

impl Table {
    /// Whether the prefix filter knows that no key is within these bounds; in a database's table, no user key.
    pub(crate) fn prefixes_exclude(&self, bounds: &Bounds) -> Result<bool> {
        let inner = &*self.inner;
        let (Some(filter), Some(prefix)) = (&inner.prefixes, self.prefix_to_ask(bounds)) else {
            return Ok(false);
        };
        let missing = || inner.missing_for_prefix(prefix, LAYERS);
        let passes = inner.ask(|| filter.ask(prefix, 0).map_err(|_| missing()))?;
        let counters = &inner.file.counters;
        counters.add_answer(passes, Counter::PrefixPassed, Counter::PrefixRejected);
        Ok(!passes)
    }

    /// The prefix of all keys within these bounds that the filter of prefixes is asked for, if there are both.
    pub(super) fn prefix_to_ask<'k>(&self, (lower, upper): &'k Bounds) -> Option<&'k [u8]> {
        let FilterOf::Prefixes(extractor) = &self.inner.prefixes.as_ref()?.of else {
            return None;
        };
        let [lower, upper] = [lower, upper].map(|bound| bound.as_ref().map(Vec::as_slice));
        prefix_of_all(&**extractor, lower, upper)
    }
}
