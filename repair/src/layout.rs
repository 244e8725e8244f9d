//! Where the parts of a table's file lie.

use std::ops::Range;

use bytes::Bytes;
use leveltable::format::{BlockHandle, Defect, Entries};
use leveltable::{Result, Section, Source};

use crate::file::File;

/// The parts of a table's file other than data, and where they lie; see [`layout`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The metaindex block, whose entries are [`named`](Layout::named).
    pub metaindex: NamedBlock,
    /// The index block, which has an entry for each data block.
    pub index: NamedBlock,
    /// The blocks that the metaindex lists: filter blocks, and any others that the writer added.
    pub named: Vec<NamedBlock>,
    /// Offset of the footer in bytes, 48 before the end of the file.
    pub footer_offset: u64,
}

/// A block of a [`Layout`] other than a data block; only its name says what it contains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedBlock {
    /// `metaindex`, `index`, or the name in the metaindex: `filter.` and the policy's name for a filter block, `about.prefixes.`
    /// and the extractor's name for a filter of prefixes.
    pub name: Bytes,
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Size in the file in bytes, with its trailer of five bytes.
    pub stored_bytes: u64,
}

impl NamedBlock {
    fn new(name: &[u8], range: &Range<u64>) -> NamedBlock {
        NamedBlock {
            name: Bytes::copy_from_slice(name),
            offset: range.start,
            stored_bytes: range.end - range.start,
        }
    }
}

/// Finds metaindex, index and footer, and the blocks that the metaindex lists. Reads footer and metaindex.
///
/// # Errors
///
/// - [`ErrorKind::NotATable`](leveltable::ErrorKind::NotATable) if there is no footer.
/// - [`ErrorKind::Corruption`](leveltable::ErrorKind::Corruption) if the footer or the metaindex is damaged.
/// - [`ErrorKind::Io`](leveltable::ErrorKind::Io).
///
/// ```
/// use leveltable::WriteOptions;
///
/// let mut builder = WriteOptions::new().build(Vec::new());
/// builder.add("apple", "red")?;
/// let (file, _) = builder.finish_into_writer()?;
///
/// let layout = leveltable_repair::layout(file)?;
/// assert!(layout.named.iter().any(|block| block.name == "filter.leveltable.Ribbon1"));
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn layout(source: impl Into<Source>) -> Result<Layout> {
    let file = File::new(source.into())?;
    layout_of(&file).map_err(|error| file.at_path(error))
}

fn layout_of(file: &File) -> Result<Layout> {
    let footer = file.footer()?;
    let named_by = (Section::Footer, file.footer_offset());
    let index = file.range_of(footer.index, Section::Index, named_by)?;
    let metaindex = file.range_of(footer.metaindex, Section::Metaindex, named_by)?;
    let names = file.read_block(metaindex.clone(), Section::Metaindex)?;
    let locate = |defect: Defect| defect.locate(Section::Metaindex, metaindex.start);
    let mut names = Entries::new(names).map_err(locate)?;
    let mut named = Vec::new();
    while names.advance().map_err(locate)? {
        let handle = BlockHandle::decode(names.value());
        let range = handle.and_then(|(handle, _)| handle.frame());
        named.extend(range.map(|range| NamedBlock::new(names.key(), &range)));
    }
    Ok(Layout {
        metaindex: NamedBlock::new(b"metaindex", &metaindex),
        index: NamedBlock::new(b"index", &index),
        named,
        footer_offset: file.footer_offset(),
    })
}
