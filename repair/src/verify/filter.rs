//! A filter of the table, and its answers.

use std::sync::Arc;

use leveltable::filter::{FilterPolicy, PrefixExtractor};
use leveltable::format::FilterBlock;

use super::report::Tally;

/// A sound filter block, the first one of a known policy.
pub(super) struct Filter {
    pub(super) of: FilterOf,
    pub(super) block: FilterBlock,
    pub(super) offset: u64,
    /// Present keys that it rejects.
    pub(super) hidden: Tally,
}

/// The contents of a filter.
pub(super) enum FilterOf {
    Keys(Arc<dyn FilterPolicy>),
    Prefixes(Arc<dyn PrefixExtractor>),
}

impl FilterOf {
    /// Name of the policy, or of the extractor.
    pub(super) fn name(&self) -> &str {
        match self {
            FilterOf::Keys(policy) => policy.name(),
            FilterOf::Prefixes(extractor) => extractor.name(),
        }
    }

    /// Whether readers use only one of the two.
    pub(super) fn is_like(&self, other: &FilterOf) -> bool {
        match (self, other) {
            (FilterOf::Keys(own), FilterOf::Keys(other)) => own.name() == other.name(),
            (FilterOf::Prefixes(_), FilterOf::Prefixes(_)) => true,
            _ => false,
        }
    }
}

impl Filter {
    /// Whether it passes a key of the data block at `offset`. `None` if it does not cover that block.
    pub(super) fn ask(&self, offset: u64, key: &[u8]) -> Option<bool> {
        match &self.of {
            FilterOf::Keys(policy) => {
                let passes = || self.block.key_may_match(&**policy, offset, key);
                self.block.has_filter(offset).then(passes)
            }
            FilterOf::Prefixes(extractor) => {
                let prefix = extractor.prefix_len(key).and_then(|len| key.get(..len));
                Some(prefix.is_none_or(|prefix| self.block.prefix_may_match(prefix)))
            }
        }
    }
}
