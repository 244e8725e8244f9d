//! The public interface of the format, for programs that take a file apart.

use bytes::Bytes;

use super::Defect;
use super::block::Block;
use super::block_check;
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
    /// Restarts or entries are malformed, or the keys together take more than 64 MiB plus 256 times the block.
    pub fn new(block: Bytes) -> Result<Entries, Defect> {
        Ok(Entries(BlockCursor::new(block_check::open(block)?)))
    }

    /// The entries of a block that may be damaged, up to the first that cannot be decoded. Checks nothing else, unlike
    /// [`new`](Entries::new).
    ///
    /// # Errors
    ///
    /// The number of restarts at the end does not fit the block.
    pub fn of_damaged(block: Bytes) -> Result<Entries, Defect> {
        Ok(Entries(BlockCursor::new(Block::parse(block)?)))
    }

    /// Moves to the next entry. Returns `false` after the last.
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

/// The kind of thing that an entry of a metaindex names. Its value is the [handle](super::BlockHandle) of a block, unless it is
/// [`Named::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A filter of keys; the name of its policy.
    Filter(&'a [u8]),
    /// A filter of prefixes; the name of its extractor.
    Prefixes(&'a [u8]),
    /// The table's properties.
    Properties,
    /// The block that divides index and filters into pieces.
    Pieces,
    /// Anything else: a block of another program, or any bytes.
    Other,
}

impl Named<'_> {
    /// Returns the kind of an entry of a metaindex, given its key; see [`Entries`].
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
