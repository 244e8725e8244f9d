//! What the format shows to those who take a file apart by themselves.

use bytes::Bytes;

use super::Defect;
use super::block::Block;
use super::block_cursor::BlockCursor;
use super::filter_block::FILTER_PREFIX;
use super::pieces::PIECES_NAME;
use super::prefix_block::PREFIXES_NAME;
use super::properties::PROPERTIES_NAME;

/// The entries of a data block, an index, a metaindex or a properties block, from the first on.
///
/// ```
/// use leveltable::WriteOptions;
/// use leveltable::format::{BlockHandle, Entries, Footer, Named, open_frame, verify_frame};
///
/// let mut builder = WriteOptions::new().build(Vec::new());
/// builder.add("apple", "red")?;
/// let (file, _) = builder.finish_into_writer()?;
///
/// let file = bytes::Bytes::from(file);
/// let footer = Footer::decode(&file[file.len() - Footer::LEN..]).unwrap();
/// let range = footer.metaindex.frame().unwrap();
/// let frame = file.slice(range.start as usize..range.end as usize);
/// verify_frame(&frame).unwrap();
/// let mut names = Entries::new(open_frame(&frame).unwrap()).unwrap();
/// assert!(names.advance().unwrap());
/// assert_eq!(names.key(), b"about.leveltable");
/// assert_eq!(Named::of(names.key()), Named::Properties);
/// assert!(BlockHandle::decode(names.value()).is_some());
/// assert!(names.block().len() < frame.len());
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug)]
pub struct Entries(BlockCursor<Bytes>);

impl Entries {
    /// The entries of `block`, before the first one.
    ///
    /// # Errors
    ///
    /// Restarts and entries do not have the form of a block, or the keys take more than 64 MiB and 256 times the block together.
    pub fn new(block: Bytes) -> Result<Entries, Defect> {
        Ok(Entries(BlockCursor::new(Block::open(block)?)))
    }

    /// The entries of a block that may be damaged, up to the first that cannot be decoded. Checks nothing else, where
    /// [`new`](Entries::new) checks all.
    ///
    /// # Errors
    ///
    /// The number of restarts at the end of the block does not fit it.
    pub fn of_damaged(block: Bytes) -> Result<Entries, Defect> {
        Ok(Entries(BlockCursor::new(Block::parse(block)?)))
    }

    /// Moves to the next entry. Returns `false` past the last.
    ///
    /// # Errors
    ///
    /// The next entry cannot be decoded.
    pub fn advance(&mut self) -> Result<bool, Defect> {
        self.0.next()
    }

    /// The key of the current entry.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The value of the current entry.
    pub fn value(&self) -> &[u8] {
        self.0.value()
    }

    /// The block.
    pub fn block(&self) -> &Bytes {
        &self.0.block.data
    }
}

/// What an entry of a metaindex names. Its value is the [handle](super::BlockHandle) of a block, unless it is [`Named::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A filter of keys, by the policy of this name.
    Filter(&'a [u8]),
    /// A filter of the prefixes that the extractor of this name finds.
    Prefixes(&'a [u8]),
    /// What the table says of itself.
    Properties,
    /// What divides index and filters into pieces.
    Pieces,
    /// Anything else: a block of another program, or any bytes.
    Other,
}

impl Named<'_> {
    /// Tells by its name what an entry of a metaindex names; see [`Entries`].
    pub fn of(name: &[u8]) -> Named<'_> {
        if name == PROPERTIES_NAME {
            Named::Properties
        } else if name == PIECES_NAME {
            Named::Pieces
        } else if let Some(extractor) = name.strip_prefix(PREFIXES_NAME) {
            Named::Prefixes(extractor)
        } else if let Some(policy) = name.strip_prefix(FILTER_PREFIX) {
            Named::Filter(policy)
        } else {
            Named::Other
        }
    }
}
