//! The entries of a table's metaindex that opening needs.

use std::sync::Arc;

use crate::error::show_key;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::{Defect, Named};
use crate::read::open::options::OpenOptions;
use crate::read::parts::filter::FilterContents;

/// The contents of a metaindex.
#[derive(Debug, Default)]
pub(crate) struct Metaindex {
    pub(crate) properties: Option<BlockHandle>,
    /// The block that divides index and filters.
    pub(crate) pieces: Option<BlockHandle>,
    /// The best filter of keys whose policy is known.
    pub(crate) filter: Option<NamedFilter>,
    /// The first filter of prefixes whose extractor is known.
    pub(crate) prefixes: Option<NamedFilter>,
    /// The handles of all filters.
    pub(crate) handles: Vec<BlockHandle>,
}

/// A filter that the metaindex lists.
#[derive(Debug)]
pub(crate) struct NamedFilter {
    pub(crate) of: FilterContents,
    pub(crate) handle: Result<BlockHandle, Defect>,
    /// The rank of its policy among the known ones, the best first.
    pub(crate) rank: usize,
}

impl Metaindex {
    pub(crate) fn decode(block: &[u8], options: &OpenOptions) -> Result<Metaindex, Defect> {
        let policies = options.known_policies();
        let mut found = Metaindex::default();
        let mut cursor = BlockCursor::new(Block::parse(block)?);
        while cursor.next()? {
            let (name, value) = (cursor.key(), cursor.value());
            let handle = BlockHandle::decode(value).map(|(handle, _)| handle);
            let expected = || format!("the handle of {}", show_key(name));
            let handle = handle.ok_or_else(|| BlockHandle::missing(expected(), value));
            match Named::of(name) {
                Named::Properties => found.properties = found.properties.or(Some(handle?)),
                Named::Pieces => found.pieces = found.pieces.or(Some(handle?)),
                Named::Filter(name) => {
                    found.handles.extend(handle.as_ref().ok());
                    let best = found
                        .filter
                        .as_ref()
                        .map_or(policies.len(), |best| best.rank);
                    let mut better = policies.iter().enumerate().take(best);
                    let better = better.find(|(_, policy)| policy.name().as_bytes() == name);
                    if let Some((rank, policy)) = better {
                        let of = FilterContents::Keys(Arc::clone(policy));
                        found.filter = Some(NamedFilter { of, handle, rank });
                    }
                }
                Named::Prefixes(name) => {
                    found.handles.extend(handle.as_ref().ok());
                    let known = options.known_extractor(name);
                    if let Some(extractor) = known.filter(|_| found.prefixes.is_none()) {
                        let (of, rank) = (FilterContents::Prefixes(extractor), 0);
                        found.prefixes = Some(NamedFilter { of, handle, rank });
                    }
                }
                Named::Other => {}
            }
        }
        Ok(found)
    }
}
