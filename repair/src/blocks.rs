//! Statistics of a table's data blocks.

use bytes::Bytes;
use leveltable::format::{BlockHandle, Defect, Entries, Properties, codec_name};
use leveltable::{Corruption, Error, Result, Section, Source};

use crate::file::{File, open_sound};

/// Statistics of a data block; see [`blocks`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Size in the file in bytes: compressed, with its trailer of five bytes.
    pub stored_bytes: u64,
    /// Size in bytes without compression and trailer.
    pub bytes: u64,
    /// As [`Compression::name`](leveltable::Compression::name) has it.
    pub codec: &'static str,
    /// Number of entries.
    pub entries: u64,
    /// Total length of the entries' keys in bytes, shared prefixes counted each time.
    pub key_bytes: u64,
    /// Total length of the entries' values in bytes.
    pub value_bytes: u64,
    /// The first key and the last; `None` in a block without entries.
    pub key_range: Option<(Bytes, Bytes)>,
}

/// Describes each data block that the index lists, in its order. Afterwards [`Blocks::totals`] has the sums.
///
/// Reads each block completely, and verifies its checksum. Works in any order of keys.
///
/// # Errors
///
/// Errors of [`layout`](crate::layout()), and of a damaged index.
///
/// ```
/// use leveltable::WriteOptions;
///
/// let mut builder = WriteOptions::new().block_size(1).build(Vec::new());
/// for key in ["apple", "banana", "cherry"] {
///     builder.add(key, "fruit")?;
/// }
/// let (file, _) = builder.finish_into_writer()?;
///
/// let mut blocks = leveltable_repair::blocks(file)?;
/// for block in &mut blocks {
///     let block = block?;
///     println!("{:6} {:6} {}", block.offset, block.stored_bytes, block.codec);
/// }
/// assert_eq!(blocks.totals().entries, 3);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn blocks(source: impl Into<Source>) -> Result<Blocks> {
    let file = File::new(source.into())?;
    let open = || {
        let named_by = (Section::Footer, file.footer_offset());
        let range = file.range_of(file.footer()?.index, Section::Index, named_by)?;
        let place = (Section::Index, range.start);
        let index = Entries::new(file.read_block(range, Section::Index)?);
        Ok((
            index.map_err(|defect| defect.locate(place.0, place.1))?,
            place,
        ))
    };
    let (index, place) = open().map_err(|error| file.at_path(error))?;
    Ok(Blocks {
        file,
        index,
        place,
        totals: Properties::default(),
    })
}

/// A walk over a table's data blocks, made by [`blocks`].
///
/// A block that cannot be read is an error of its own, and the walk continues after it.
#[derive(Debug)]
#[must_use = "blocks are read as they are asked for"]
pub struct Blocks {
    file: File,
    index: Entries,
    /// The index, and where it is.
    place: (Section, u64),
    totals: Properties,
}

impl Blocks {
    /// Sums over the blocks read so far, with the first key and the last, as [`blocks`] shows. All other fields are empty: sequence
    /// numbers, deletions, filters, names.
    pub fn totals(&self) -> &Properties {
        &self.totals
    }

    /// Reads the next block, as the iterator does, and passes its entries to `each`. `None` after the last block.
    ///
    /// ```
    /// # let mut builder = leveltable::WriteOptions::new().build(Vec::new());
    /// # builder.add("apple", "red")?;
    /// # let (file, _) = builder.finish_into_writer()?;
    /// let mut blocks = leveltable_repair::blocks(file)?;
    /// let mut longest = 0;
    /// while let Some(block) = blocks.next_with(|_, value| longest = longest.max(value.len())) {
    ///     block?;
    /// }
    /// assert_eq!(longest, 3);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The block cannot be read, or is damaged. `each` may then have got only some of its entries.
    pub fn next_with(&mut self, each: impl FnMut(&[u8], &[u8])) -> Option<Result<BlockInfo>> {
        let read = match self.index.advance() {
            Ok(false) => return None,
            Ok(true) => self.read(each),
            Err(defect) => Err(defect.locate(self.place.0, self.place.1)),
        };
        Some(read.map_err(|error| self.file.at_path(error)))
    }

    fn read(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Result<BlockInfo> {
        let value = self.index.value();
        let Some((handle, _)) = BlockHandle::decode(value) else {
            let found = format!("{:02x?}", value.get(..20).unwrap_or(value));
            let corruption = Corruption::new(self.place.0, self.place.1, "a handle", found);
            return Err(Error::corrupt(corruption));
        };
        let range = self.file.range_of(handle, Section::Data, self.place)?;
        let frame = self.file.read(range)?;
        let locate = |defect: Defect| defect.locate(Section::Data, handle.offset);
        let block = open_sound(&frame).map_err(locate)?;
        let bytes = block.len() as u64;
        let mut entries = Entries::new(block).map_err(locate)?;
        let mut info = BlockInfo {
            offset: handle.offset,
            stored_bytes: frame.len() as u64,
            bytes,
            codec: codec_name(&frame).map_err(locate)?,
            ..BlockInfo::default()
        };
        let (mut first, mut last) = (None, Vec::new());
        while entries.advance().map_err(locate)? {
            let (key, value) = (entries.key(), entries.value());
            info.entries += 1;
            info.key_bytes += key.len() as u64;
            info.value_bytes += value.len() as u64;
            first.get_or_insert_with(|| key.to_vec());
            key.clone_into(&mut last);
            each(key, value);
        }
        let totals = &mut self.totals;
        totals.entries += info.entries;
        totals.key_bytes += info.key_bytes;
        totals.value_bytes += info.value_bytes;
        totals.data_blocks += 1;
        totals.data_bytes += info.stored_bytes;
        if let Some(first) = first {
            totals.first_key.get_or_insert_with(|| first.clone());
            totals.last_key = Some(last.clone());
            info.key_range = Some((first.into(), last.into()));
        }
        Ok(info)
    }
}

impl Iterator for Blocks {
    type Item = Result<BlockInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|_, _| ())
    }
}
