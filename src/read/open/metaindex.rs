//! The entries of a table's metaindex that opening needs.

use std::sync::Arc;

use crate::error::show_key;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::{Defect, Named};
use crate::read::open::settings::Settings;
use crate::read::parts::filter::FilterContents;

/// The contents of a metaindex.
#[derive(Debug, Default)]
pub(crate) struct Metaindex {
    pub(crate) properties: Option<BlockHandle>,
    /// The block that divides index and filters.
    pub(crate) pieces: Option<BlockHandle>,
    /// The filters whose policy or extractor is known, the best policy first.
    pub(crate) filters: Vec<NamedFilter>,
}

/// A filter that the metaindex lists.
#[derive(Debug)]
pub(crate) struct NamedFilter {
    pub(crate) of: FilterContents,
    pub(crate) handle: BlockHandle,
    /// The rank of its policy among the known ones, the best first.
    rank: usize,
}

impl Metaindex {
    pub(crate) fn decode(block: &[u8], settings: &Settings) -> Result<Metaindex, Defect> {
        let policies = settings.known_policies();
        let mut found = Metaindex::default();
        let mut cursor = BlockCursor::new(Block::parse(block)?);
        while cursor.next()? {
            let (name, value) = (cursor.key(), cursor.value());
            let handle = BlockHandle::decode(value).map(|(handle, _)| handle);
            let expected = || format!("the handle of {}", show_key(name));
            let handle = handle.ok_or_else(|| BlockHandle::missing(expected(), value));
            match Named::of(name) {
                Named::Properties => found.properties = Some(handle?),
                Named::Pieces => found.pieces = Some(handle?),
                Named::Filter(name) => {
                    let mut known = policies.iter().enumerate();
                    let known = known.find(|(_, policy)| policy.name().as_bytes() == name);
                    if let Some((rank, policy)) = known {
                        let (of, handle) = (FilterContents::Keys(Arc::clone(policy)), handle?);
                        found.filters.push(NamedFilter { of, handle, rank });
                    }
                }
                Named::Prefixes(name) => {
                    if let Some(extractor) = settings.known_extractor(name) {
                        let (of, handle, rank) = (FilterContents::Prefixes(extractor), handle?, 0);
                        found.filters.push(NamedFilter { of, handle, rank });
                    }
                }
                Named::Other => {}
            }
        }
        found.filters.sort_by_key(|filter| filter.rank);
        Ok(found)
    }
}
