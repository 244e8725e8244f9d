//! The end of a table: all that comes after the data blocks.

use super::{TableBuilder, encoded, too_large};
use crate::comparator::common_prefix;
use crate::error::Result;
use crate::filter::{FilterEntry, RibbonFilterPolicy};
use crate::format::block::BlockBuilder;
use crate::format::filter_block::FILTER_PREFIX;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::pieces::{PIECES_NAME, PiecesBuilder};
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::PROPERTIES_NAME;
use crate::trace;
use crate::write::new_file::Destination;
use crate::write::summary::Summary;

/// A block that the metaindex names.
type NamedPart = (Vec<u8>, BlockHandle);

impl<D: Destination> TableBuilder<D> {
    /// Writes everything after the last entry.
    ///
    /// A table with properties ends in the metaindex, which tells a reader of the file's end where everything is. Before it comes
    /// what says which parts of index and filters a lookup needs, and then, backwards, the filters' own ends. Without properties,
    /// the order is LevelDB's.
    pub(super) fn complete(mut self) -> Result<(D::Published, Summary)> {
        self.flush()?;
        if self.summary.entries > 0 {
            self.summary.last_key = Some(self.data.last_key().to_vec());
        }
        let data_end = self.file.offset();
        let index = self.properties.is_some().then(|| self.write_index());
        let index = index.transpose()?;
        let prefixes = self.write_prefixes()?;
        let filter = self.write_filter(data_end)?;
        let properties = self.write_properties()?;
        let pieces = self.write_pieces()?;
        let metaindex = self.write_metaindex([properties, pieces, prefixes, filter])?;
        let index = index.map_or_else(|| self.write_index(), Ok)?;
        self.file.append_footer(Footer { metaindex, index });
        self.summary.file_bytes = self.file.offset();
        let path = self.file.path.clone();
        let published = self.file.publish()?;
        let (entries, bytes) = (self.summary.entries, self.summary.file_bytes);
        trace::published(path.as_deref(), entries, bytes);
        Ok((published, self.summary))
    }

    /// Writes the index: raw, and divided into pieces, if the table gets properties and has entries.
    fn write_index(&mut self) -> Result<BlockHandle> {
        if self.pending.is_some() {
            let successor = self.separator(None)?;
            self.add_index_entry(&successor)?;
        }
        let offset = self.file.offset();
        let divides = self.properties.is_some() && self.summary.entries > 0;
        self.index.finish(|block| {
            if divides {
                self.pieces = PiecesBuilder::new(block, offset);
            }
            self.file.seal(block, self.pieces.is_some(), None)
        })
    }

    /// Writes the metaindex. `parts` come in the order of their names.
    fn write_metaindex(&mut self, parts: [Option<NamedPart>; 4]) -> Result<BlockHandle> {
        let mut metaindex = BlockBuilder::new(self.options.restart_interval);
        for (name, handle) in parts.into_iter().flatten() {
            let shared = common_prefix(metaindex.last_key(), &name);
            metaindex.add(&name, shared, &encoded(handle));
        }
        metaindex.finish(|block| self.file.seal(block, false, None))
    }

    /// Writes the properties block, if there is to be one.
    fn write_properties(&mut self) -> Result<Option<NamedPart>> {
        let Some(others) = self.properties.take() else {
            return Ok(None);
        };
        let properties = self.summary.properties(&self.options.order, others);
        let block = properties.encode();
        let block = block.ok_or_else(|| too_large("the properties do"))?;
        let handle = self.file.seal(&block, false, None)?;
        Ok(Some((PROPERTIES_NAME.to_vec(), handle)))
    }

    /// Writes what says how index and filters are divided, if they are.
    fn write_pieces(&mut self) -> Result<Option<NamedPart>> {
        let Some(pieces) = self.pieces.take() else {
            return Ok(None);
        };
        let handle = self.file.seal(&pieces.finish(), true, None)?;
        Ok(Some((PIECES_NAME.to_vec(), handle)))
    }

    /// Writes the prefix filter, if there is to be one.
    fn write_prefixes(&mut self) -> Result<Option<NamedPart>> {
        let Some(prefixes) = self.prefixes.take() else {
            return Ok(None);
        };
        let (policy, extractor) = (RibbonFilterPolicy::NAME, prefixes.name().to_owned());
        let (filter, part) = self.write_filter_block(prefixes.finish(), policy, Some(extractor))?;
        self.summary.prefix_filter = Some(filter);
        Ok(Some(part))
    }

    /// Writes the filter block of a table whose data blocks end at `data_end`, if there is to be one.
    fn write_filter(&mut self, data_end: u64) -> Result<Option<NamedPart>> {
        let (Some(block), Some(policy)) = (self.filter.take(), self.options.filter.clone()) else {
            return Ok(None);
        };
        let contents = block.finish(data_end);
        let (filter, part) = self.write_filter_block(contents, policy.name(), None)?;
        self.summary.filter = Some(filter);
        Ok(Some(part))
    }

    /// Writes a filter block, which is never compressed, and divides a ribbon into pieces.
    fn write_filter_block(
        &mut self,
        contents: Option<Vec<u8>>,
        policy: &str,
        prefixes: Option<String>,
    ) -> Result<(FilterEntry, NamedPart)> {
        let contents =
            contents.ok_or_else(|| too_large(&format!("the filters of {policy:?} do")))?;
        let handle = self.file.seal(&contents, true, None)?;
        if let Some(pieces) = &mut self.pieces
            && policy == RibbonFilterPolicy::NAME
        {
            pieces.add_filter(&contents, handle.offset);
        }
        let name = match &prefixes {
            Some(extractor) => [PREFIXES_NAME, extractor.as_bytes()].concat(),
            None => [FILTER_PREFIX, policy.as_bytes()].concat(),
        };
        let filter = FilterEntry {
            policy: policy.to_owned(),
            prefixes,
            bytes: handle.size,
            skipped: None,
        };
        Ok((filter, (name, handle)))
    }
}
