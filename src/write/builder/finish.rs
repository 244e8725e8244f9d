//! The end of a table: everything after the data blocks.

use std::collections::BTreeMap;

use super::{TableBuilder, too_large};
use crate::comparator::common_prefix;
use crate::error::Result;
use crate::filter::{FilterEntry, FilterPolicy, RibbonFilterPolicy};
use crate::format::block::BlockBuilder;
use crate::format::filter_block::FILTER_PREFIX;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::pieces::{PIECES_NAME, PiecesBuilder};
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::PROPERTIES_NAME;
use crate::write::new_file::Destination;
use crate::write::summary::Summary;

/// The entries of the metaindex: filters, properties and pieces.
type Named = BTreeMap<Vec<u8>, BlockHandle>;

impl<D: Destination> TableBuilder<D> {
    /// Writes everything after the last entry.
    ///
    /// A table with properties ends with the metaindex, which tells a reader of the file's end where everything is. Before it
    /// comes the description of the pieces of index and filters, and before that the ends of the filters. Without properties, the
    /// order is LevelDB's.
    pub(super) fn complete(mut self) -> Result<(D::Published, Summary)> {
        self.flush()?;
        if self.entries() > 0 {
            self.summary.properties.last_key = Some(self.data.last_key.clone());
        }
        let data_end = self.file.offset();
        let index = self.options.properties.then(|| self.write_index());
        let index = index.transpose()?;
        let mut named = self.write_filters(data_end)?;
        if self.options.properties {
            let block = self.summary.properties.encode();
            let block = block.ok_or_else(|| too_large("the properties do"))?;
            let handle = self.file.seal(&block, false, None)?;
            named.insert(PROPERTIES_NAME.to_vec(), handle);
        }
        if let Some(pieces) = self.pieces.take() {
            let handle = self.file.seal(&pieces.finish(), true, None)?;
            named.insert(PIECES_NAME.to_vec(), handle);
        }
        let metaindex = self.write_metaindex(named)?;
        let index = index.map_or_else(|| self.write_index(), Ok)?;
        let footer = Footer { metaindex, index };
        self.file.buffer.extend(&footer.encode());
        self.summary.file_bytes = self.file.offset();
        Ok((self.file.publish()?, self.summary))
    }

    /// Writes the index: uncompressed and divided into pieces, if the table gets properties and has entries.
    fn write_index(&mut self) -> Result<BlockHandle> {
        if self.pending.is_some() {
            let successor = self.separator(None)?;
            self.add_index_entry(&successor)?;
        }
        let offset = self.file.offset();
        let divides = self.options.properties && self.entries() > 0;
        self.index.finish(|block| {
            if divides {
                self.pieces = PiecesBuilder::new(block, offset);
            }
            self.file.seal(block, self.pieces.is_some(), None)
        })
    }

    fn write_metaindex(&mut self, named: Named) -> Result<BlockHandle> {
        let mut metaindex = BlockBuilder::new(self.options.restart_interval);
        for (name, handle) in named {
            let shared = common_prefix(&metaindex.last_key, &name);
            metaindex.add(&name, shared, &handle.encode());
        }
        metaindex.finish(|block| self.file.seal(block, false, None))
    }

    /// Writes the filters of a table whose data blocks end at `data_end`, if it has any: that of prefixes, then that of keys.
    fn write_filters(&mut self, data_end: u64) -> Result<Named> {
        let mut named = Named::new();
        if let Some(prefixes) = self.prefixes.take() {
            let (policy, extractor) = (&RibbonFilterPolicy::DEFAULT, prefixes.extractor);
            // No data block comes before it: lg(base) is 0.
            let contents = prefixes.block.finish(0);
            let filter = self.write_filter(contents, policy, Some(extractor.name()), &mut named)?;
            self.summary.prefix_filter = Some(filter);
        }
        if let (Some(filter), Some(policy)) = (self.filter.take(), self.options.filter.clone()) {
            let contents = filter.finish(data_end);
            let filter = self.write_filter(contents, &*policy, None, &mut named)?;
            self.summary.properties.filter_bytes = Some(filter.bytes);
            self.summary.properties.filter_policy = Some(filter.policy.clone());
            self.summary.filter = Some(filter);
        }
        Ok(named)
    }

    /// Writes a filter block, which is never compressed, and divides it into pieces if its policy allows that.
    fn write_filter(
        &mut self,
        contents: Option<Vec<u8>>,
        policy: &dyn FilterPolicy,
        prefixes: Option<&str>,
        named: &mut Named,
    ) -> Result<FilterEntry> {
        let divided = self.pieces.as_mut().filter(|_| policy.is_divided());
        let policy = policy.name();
        let contents =
            contents.ok_or_else(|| too_large(&format!("the filters of {policy:?} do")))?;
        let handle = self.file.seal(&contents, true, None)?;
        if let Some(pieces) = divided {
            pieces.add_filter(&contents, handle.offset);
        }
        let name = match prefixes {
            Some(extractor) => [PREFIXES_NAME, extractor.as_bytes()].concat(),
            None => [FILTER_PREFIX, policy.as_bytes()].concat(),
        };
        named.insert(name, handle);
        Ok(FilterEntry {
            policy: policy.to_owned(),
            prefixes: prefixes.map(str::to_owned),
            bytes: handle.size,
        })
    }
}
