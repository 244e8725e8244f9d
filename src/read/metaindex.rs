//! What a table's metaindex names, as far as opening needs it.

use std::sync::Arc;

use crate::error::show_key;
use crate::filter::{FilterEntry, FilterSkipReason, RibbonFilterPolicy};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FILTER_PREFIX;
use crate::format::footer::BlockHandle;
use crate::format::pieces::PIECES_NAME;
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::PROPERTIES_NAME;
use crate::read::filter::FilterOf;
use crate::read::options::OpenOptions;

/// So many filters are listed beside those that are used, with so many bytes of their names. A table has one, seldom two or three.
const MAX_LISTED: usize = 64;
const MAX_NAME: usize = 256;

/// What the metaindex names.
#[derive(Debug, Default)]
pub(crate) struct Metaindex {
    pub(crate) properties: Option<BlockHandle>,
    /// What divides the index and filters.
    pub(crate) pieces: Option<BlockHandle>,
    pub(crate) filters: Vec<NamedFilter>,
    /// The handles of all filters.
    pub(crate) handles: Vec<BlockHandle>,
}

/// A filter that the metaindex names.
#[derive(Debug)]
pub(crate) struct NamedFilter {
    /// Says that it is not used if that is certain already.
    pub(crate) entry: FilterEntry,
    pub(crate) handle: Result<BlockHandle, Defect>,
    /// What it holds, if that is known; and a number, which is lower the better the filter is.
    pub(crate) of: Option<(usize, FilterOf)>,
}

impl Metaindex {
    pub(crate) fn decode(block: &[u8], options: &OpenOptions) -> Result<Metaindex, Defect> {
        let policies = options.known_policies();
        let policy_of = |name: &[u8]| {
            let mut known = policies.iter().enumerate();
            let found = known.find(|(_, policy)| policy.name().as_bytes() == name);
            found.map(|(rank, policy)| (rank, FilterOf::Keys(Arc::clone(policy))))
        };
        let mut found = Metaindex::default();
        let mut cursor = BlockCursor::new(Block::parse(block)?);
        while cursor.next()? {
            let (name, value) = (cursor.key(), cursor.value());
            let handle = BlockHandle::decode(value).map(|(handle, _)| handle);
            let expected = || format!("the handle of {}", show_key(name));
            let handle = handle.ok_or_else(|| BlockHandle::missing(expected(), value));
            if name == PROPERTIES_NAME {
                found.properties = found.properties.or(Some(handle?));
            } else if name == PIECES_NAME {
                found.pieces = found.pieces.or(Some(handle?));
            } else if let Some(name) = name.strip_prefix(PREFIXES_NAME) {
                let of = options.known_extractor(name);
                let of = of.map(|extractor| (0, FilterOf::Prefixes(extractor)));
                found.add_filter(RibbonFilterPolicy::NAME.as_bytes(), Some(name), handle, of);
            } else if let Some(name) = name.strip_prefix(FILTER_PREFIX) {
                found.add_filter(name, None, handle, policy_of(name));
            }
        }
        Ok(found)
    }

    fn add_filter(
        &mut self,
        policy: &[u8],
        prefixes: Option<&[u8]>,
        handle: Result<BlockHandle, Defect>,
        of: Option<(usize, FilterOf)>,
    ) {
        self.handles.extend(handle.as_ref().ok());
        // Sharing prefixes, names could take the square of the block.
        let listed = |name: &[u8]| {
            let name = name.get(..MAX_NAME).unwrap_or(name);
            String::from_utf8_lossy(name).into_owned()
        };
        let skipped = match (&handle, &of, prefixes) {
            (Err(_), ..) => Some(FilterSkipReason::Damaged),
            (_, None, None) => Some(FilterSkipReason::UnknownPolicy),
            (_, None, Some(_)) => Some(FilterSkipReason::UnknownExtractor),
            _ => None,
        };
        let place = self.filters.len();
        self.filters.push(NamedFilter {
            entry: FilterEntry {
                policy: listed(policy),
                prefixes: prefixes.map(listed),
                bytes: handle.as_ref().map_or(0, |handle| handle.size),
                skipped,
            },
            handle,
            of,
        });
        if place >= MAX_LISTED && !self.best().contains(&Some(place)) {
            self.filters.pop();
        }
    }

    /// Which filter of keys to use, and which of prefixes: the best of those that are known, and the first.
    pub(crate) fn best(&self) -> [Option<usize>; 2] {
        let best = |of_prefixes| {
            let filters = self.filters.iter().enumerate();
            let ranks = filters.filter_map(|(i, filter)| match &filter.of {
                Some((rank, of)) if matches!(of, FilterOf::Prefixes(_)) == of_prefixes => {
                    Some((*rank, i))
                }
                _ => None,
            });
            ranks.min().map(|(_, i)| i)
        };
        [best(false), best(true)]
    }
}
