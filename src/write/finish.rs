//! The end of a table: everything after the data blocks.

use std::collections::BTreeMap;

use crate::comparator::common_prefix;
use crate::error::Result;
use crate::filter::{FilterPolicy, RibbonFilterPolicy};
use crate::format::block::BlockBuilder;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockBuilder};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::pieces::{PIECES_NAME, PiecesBuilder};
use crate::format::prefix_block::{PREFIXES_NAME, PrefixBlockBuilder};
use crate::format::properties::PROPERTIES_NAME;
use crate::write::new_file::Destination;
use crate::write::output::{Output, too_large};
use crate::write::settings::Settings;
use crate::write::summary::Summary;

/// A table whose data blocks are written.
pub(super) struct Tail<'b, D> {
    file: &'b mut Output<D>,
    index: BlockBuilder,
    /// The pieces of index and filters, once the index is written, if it is divided.
    pieces: Option<PiecesBuilder>,
    /// The entries of the metaindex: filters, properties and pieces.
    named: BTreeMap<Vec<u8>, BlockHandle>,
}

impl<'b, D: Destination> Tail<'b, D> {
    pub(super) fn new(file: &'b mut Output<D>, index: BlockBuilder) -> Tail<'b, D> {
        Tail {
            file,
            index,
            pieces: None,
            named: BTreeMap::new(),
        }
    }

    /// Writes everything after the data blocks, and completes the summary.
    ///
    /// A table with properties ends with the metaindex, which tells a reader of the file's end where everything is. Before it
    /// comes the description of the pieces of index and filters, and before that the ends of the filters. Without properties, the
    /// order is LevelDB's.
    pub(super) fn write(
        mut self,
        settings: &Settings,
        prefixes: Option<PrefixBlockBuilder>,
        filter: Option<FilterBlockBuilder>,
        summary: &mut Summary,
    ) -> Result<()> {
        let data_end = self.file.offset();
        let divides = settings.properties && summary.properties.entries > 0;
        let index = settings.properties.then(|| self.write_index(divides));
        let index = index.transpose()?;
        if let (Some(prefixes), Some(extractor)) = (prefixes, &settings.prefixes) {
            let policy = &RibbonFilterPolicy::DEFAULT;
            self.write_filter(prefixes.finish(), policy, Some(extractor.name()))?;
        }
        if let (Some(filter), Some(policy)) = (filter, &settings.filter) {
            let handle = self.write_filter(filter.finish(data_end), &**policy, None)?;
            summary.properties.filter_bytes = Some(handle.size);
            summary.properties.filter_policy = Some(policy.name().to_owned());
        }
        if settings.properties {
            let block = summary.properties.encode();
            let block = block.ok_or_else(|| too_large("the properties do"))?;
            self.write_named(PROPERTIES_NAME.to_vec(), &block, false)?;
        }
        if let Some(pieces) = self.pieces.take() {
            self.write_named(PIECES_NAME.to_vec(), &pieces.finish(), true)?;
        }
        let metaindex = self.write_metaindex(settings.restart_interval)?;
        let index = index.map_or_else(|| self.write_index(false), Ok)?;
        self.file.append(&Footer { metaindex, index }.encode());
        summary.file_bytes = self.file.offset();
        Ok(())
    }

    /// Writes the index; uncompressed and divided into pieces, if it should be.
    fn write_index(&mut self, divides: bool) -> Result<BlockHandle> {
        let offset = self.file.offset();
        self.index.finish(|block| {
            if divides {
                self.pieces = PiecesBuilder::new(block, offset);
            }
            self.file.seal(block, self.pieces.is_some(), None)
        })
    }

    fn write_metaindex(&mut self, restart_interval: usize) -> Result<BlockHandle> {
        let mut metaindex = BlockBuilder::new(restart_interval);
        for (name, handle) in &self.named {
            let shared = common_prefix(&metaindex.last_key, name);
            metaindex.add(name, shared, &handle.encode());
        }
        metaindex.finish(|block| self.file.seal(block, false, None))
    }

    /// Writes a block that the metaindex names.
    fn write_named(&mut self, name: Vec<u8>, block: &[u8], is_raw: bool) -> Result<BlockHandle> {
        let handle = self.file.seal(block, is_raw, None)?;
        self.named.insert(name, handle);
        Ok(handle)
    }

    /// Writes a filter block, which is never compressed, and divides it into pieces if its policy allows that.
    fn write_filter(
        &mut self,
        block: Option<Vec<u8>>,
        policy: &dyn FilterPolicy,
        prefixes: Option<&str>,
    ) -> Result<BlockHandle> {
        let name = policy.name();
        let block = block.ok_or_else(|| too_large(&format!("the filters of {name:?} do")))?;
        let key = match prefixes {
            Some(extractor) => [PREFIXES_NAME, extractor.as_bytes()].concat(),
            None => [FILTER_PREFIX, name.as_bytes()].concat(),
        };
        let handle = self.write_named(key, &block, true)?;
        if let Some(pieces) = self.pieces.as_mut().filter(|_| policy.is_divided()) {
            pieces.add_filter(&block, handle.offset);
        }
        Ok(handle)
    }
}
