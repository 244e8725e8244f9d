//! What a table's metaindex names, as far as opening needs it.

use std::sync::Arc;

use crate::error::show_key;
use crate::filter::{
    FilterEntry, FilterPolicy, FilterSkipReason, PrefixExtractor, RibbonFilterPolicy,
};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FILTER_PREFIX;
use crate::format::footer::BlockHandle;
use crate::format::pieces::PIECES_NAME;
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::PROPERTIES_NAME;
use crate::read::options::OpenOptions;

/// The extractor and the handle of the first prefix filter of which the extractor is known.
pub(super) type NamedPrefixes = Result<Option<(Arc<dyn PrefixExtractor>, BlockHandle)>, Defect>;

/// What the metaindex names.
pub(super) struct Metaindex {
    /// Those that are known, the best first.
    pub(super) policies: Vec<Arc<dyn FilterPolicy>>,
    pub(super) properties: Option<BlockHandle>,
    /// What divides the index and filters.
    pub(super) pieces: Option<BlockHandle>,
    /// Which of `policies` to use, and its filter's handle: the first that there is a filter of.
    pub(super) filter: Result<Option<(usize, BlockHandle)>, Defect>,
    pub(super) prefixes: NamedPrefixes,
    /// All filters. Those that could be used are not yet marked as skipped.
    pub(super) filters: Vec<FilterEntry>,
    /// The handles of all filters.
    pub(super) handles: Vec<BlockHandle>,
}

impl Metaindex {
    /// An error if it cannot be told whether there are properties. One that concerns the filter alone is left to those who want
    /// it.
    pub(super) fn decode(block: &[u8], options: &OpenOptions) -> Result<Metaindex, Defect> {
        let mut found = Metaindex {
            policies: options.known_policies(),
            properties: None,
            pieces: None,
            filter: Ok(None),
            prefixes: Ok(None),
            filters: Vec::new(),
            handles: Vec::new(),
        };
        let mut room = NameRoom::new(block);
        let mut cursor = BlockCursor::new(Block::parse(block)?);
        loop {
            match cursor.next() {
                Ok(true) => {}
                Ok(false) => return Ok(found),
                Err(defect) if found.properties.is_some() => {
                    found.filter = found.filter.and(Err(defect));
                    return Ok(found);
                }
                Err(defect) => return Err(defect),
            }
            let (name, value) = (cursor.key(), cursor.value());
            let handle = BlockHandle::decode(value).map(|(handle, _)| handle);
            let usable = || handle.ok_or_else(|| bad_handle(&cursor));
            if name == PROPERTIES_NAME && found.properties.is_none() {
                found.properties = Some(usable()?);
            } else if name == PIECES_NAME && found.pieces.is_none() {
                found.pieces = Some(usable()?);
            } else if let Some(name) = name.strip_prefix(PREFIXES_NAME) {
                found.handles.extend(handle);
                let known = options.known_extractor(name);
                let is_first = matches!(found.prefixes, Ok(None));
                if room.takes(name) || (is_first && known.is_some()) {
                    found.filters.push(FilterEntry {
                        policy: RibbonFilterPolicy::NAME.to_owned(),
                        prefixes: Some(String::from_utf8_lossy(name).into_owned()),
                        bytes: handle.map_or(0, |handle| handle.size),
                        skipped: skip_reason(
                            handle,
                            known.is_some(),
                            FilterSkipReason::UnknownExtractor,
                        ),
                    });
                }
                if let Some(extractor) = known.filter(|_| is_first) {
                    found.prefixes = usable().map(|handle| Some((extractor, handle)));
                }
            } else if let Some(name) = name.strip_prefix(FILTER_PREFIX) {
                found.handles.extend(handle);
                let known = found
                    .policies
                    .iter()
                    .position(|p| p.name().as_bytes() == name);
                let best = match (known, &found.filter) {
                    (Some(i), Ok(best)) => best.is_none_or(|(best, _)| i < best).then_some(i),
                    _ => None,
                };
                if room.takes(name) || best.is_some() {
                    found.filters.push(FilterEntry {
                        policy: String::from_utf8_lossy(name).into_owned(),
                        prefixes: None,
                        bytes: handle.map_or(0, |handle| handle.size),
                        skipped: skip_reason(
                            handle,
                            known.is_some(),
                            FilterSkipReason::UnknownPolicy,
                        ),
                    });
                }
                if let Some(i) = best {
                    found.filter = usable().map(|handle| Some((i, handle)));
                }
            }
        }
    }

    /// The filters to use: that of the keys and, with `prefixes`, that of their prefixes.
    pub(super) fn filters_for(&self, prefixes: bool) -> impl Iterator<Item = BlockHandle> {
        let filter = self.filter.as_ref().ok().and_then(Option::as_ref);
        let prefixes = self.prefixes.as_ref().ok().filter(|_| prefixes);
        let prefixes = prefixes.and_then(Option::as_ref);
        let filter = filter.map(|(_, handle)| *handle);
        filter
            .into_iter()
            .chain(prefixes.map(|(_, handle)| *handle))
    }
}

/// Why the filter of this handle is not used, if that is certain already. `unknown` is what it is called if it is not known.
fn skip_reason(
    handle: Option<BlockHandle>,
    is_known: bool,
    unknown: FilterSkipReason,
) -> Option<FilterSkipReason> {
    match (handle, is_known) {
        (None, _) => Some(FilterSkipReason::Damaged),
        (_, false) => Some(unknown),
        _ => None,
    }
}

/// Bounds the filters that are listed. A table has one, seldom two or three.
struct NameRoom {
    filters: usize,
    bytes: usize,
}

impl NameRoom {
    fn new(block: &[u8]) -> NameRoom {
        NameRoom {
            filters: 64,
            bytes: block.len(),
        }
    }

    /// Whether there is room for one of this name. Sharing prefixes, names could take the square of the block.
    fn takes(&mut self, name: &[u8]) -> bool {
        let bytes = self.bytes.checked_sub(name.len());
        let filters = self.filters.checked_sub(1);
        self.bytes = bytes.unwrap_or(0);
        self.filters = filters.unwrap_or(0);
        bytes.is_some() && filters.is_some()
    }
}

#[cold]
fn bad_handle(cursor: &BlockCursor<&[u8]>) -> Defect {
    let value = cursor.value().get(..20).unwrap_or(cursor.value());
    Defect::new(
        format!("the handle of {}", show_key(cursor.key())),
        format!("{value:02x?}"),
    )
}
