//! What a table's file is made of, block by block.

use std::ops::Range;

use bytes::Bytes;

use crate::error::{Error, Result, Section};
use crate::filter::FilterLayout;
use crate::format::Defect;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::internal_key::user_order;
use crate::format::properties::Properties;
use crate::inspect::sample::{AbsentKeys, FilterRate};
use crate::read::filter::TableFilter;
use crate::read::table::Table;

/// Where the parts of a table's file lie that are not data; see [`Table::layout`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The metaindex block, whose entries are [`named`](Layout::named).
    pub metaindex: NamedBlock,
    /// The index block, which has an entry for each data block.
    pub index: NamedBlock,
    /// The blocks that the metaindex names: filter blocks, and whatever else a writer put there.
    pub named: Vec<NamedBlock>,
    /// Offset of the footer in bytes, which is 48 before the end of the file.
    pub footer_offset: u64,
}

/// A block that is no data block; nothing but the name says what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedBlock {
    /// `metaindex`, `index`, or the name in the metaindex: `filter.` and the policy's for a filter block, `about.prefixes.` and the
    /// extractor's for a filter of prefixes.
    pub name: Bytes,
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Bytes that it takes in the file, the five of its trailer included.
    pub stored_bytes: u64,
}

impl NamedBlock {
    fn new(name: &[u8], handle: BlockHandle) -> NamedBlock {
        NamedBlock {
            name: Bytes::copy_from_slice(name),
            offset: handle.offset,
            stored_bytes: handle.size.saturating_add(TRAILER_LEN as u64),
        }
    }
}

/// Statistics of a block of sorted entries; see [`Table::blocks`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Bytes that it takes in the file, compressed, the five of its trailer included.
    pub stored_bytes: u64,
    /// Bytes without compression, and without a trailer.
    pub bytes: u64,
    /// `"none"`, `"snappy"`, `"zstd"`, `"zlib"` or `"deflate"`.
    pub codec: &'static str,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of the entries' keys, shared prefixes counted each time.
    pub key_bytes: u64,
    /// Bytes of the entries' values.
    pub value_bytes: u64,
    /// The first key and the last; `None` in a block without entries.
    pub key_range: Option<(Bytes, Bytes)>,
}

impl Table {
    /// Where metaindex, index and footer lie, and what the metaindex names. Reads the metaindex once more, and keeps nothing of it.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`](crate::OpenOptions::open), for the metaindex.
    pub fn layout(&self) -> Result<Layout> {
        let (file, footer) = (&self.inner.file, self.inner.index.footer);
        let named_by = (Section::Footer, file.footer_offset());
        let frame = file.read_sound_frame(footer.metaindex, Section::Metaindex, named_by)?;
        let locate = |defect| file.locate(defect, Section::Metaindex, footer.metaindex.offset);
        let names = frame::open(&frame).and_then(|names| KeyWork::of_file().open(names));
        let mut names = BlockCursor::new(names.map_err(locate)?);
        let (mut named, mut names_len) = (Vec::new(), 0);
        while let Ok(true) = names.next() {
            names_len += names.key().len() as u64;
            if names_len > file.size {
                // Sharing prefixes, they could be the square of that.
                let expected = "names that take less than the file, all together";
                return Err(locate(Defect::new(expected, format!("{names_len} bytes"))));
            }
            if let Some((handle, _)) = BlockHandle::decode(names.value())
                && handle.end().is_some()
            {
                named.push(NamedBlock::new(names.key(), handle));
            }
        }
        Ok(Layout {
            metaindex: NamedBlock::new(b"metaindex", footer.metaindex),
            index: NamedBlock::new(b"index", footer.index),
            named,
            footer_offset: file.footer_offset(),
        })
    }

    /// The layout of the filter block in use; `None` without one. Reads the filter, if it was not needed before.
    ///
    /// # Errors
    ///
    /// Those of reading the filter.
    pub fn filter_layout(&self) -> Result<Option<FilterLayout>> {
        Ok(self.whole_filter()?.and_then(TableFilter::layout))
    }

    /// Describes each data block, in the file's order; those of a database's table hold internal keys, and its filter is measured on
    /// user keys. Afterwards [`Blocks::totals`] has the sums, and
    /// [`Blocks::filter_rate`] the filter's false-positive rate.
    ///
    /// Reads each block completely, bypassing the cache, and verifies its checksum.
    pub fn blocks(&self) -> Blocks {
        Blocks {
            table: self.clone(),
            left: 0..self.data_blocks(),
            totals: Properties::default(),
            last_key: None,
            absent: AbsentKeys::default(),
            work: KeyWork::of_file(),
        }
    }
}

/// A walk over a table's data blocks, made by [`Table::blocks`].
///
/// A block that cannot be read is an error of its own, and the walk continues after it.
///
/// ```
/// # use leveltable::{OpenOptions, WriteOptions};
/// let mut builder = WriteOptions::new().block_size(1).build(Vec::new());
/// for key in ["apple", "banana", "cherry"] {
///     builder.add(key, "fruit")?;
/// }
/// let (file, summary) = builder.finish_into_writer()?;
///
/// let table = OpenOptions::new().open_source(file)?;
/// let mut blocks = table.blocks();
/// for block in &mut blocks {
///     let block = block?;
///     println!("{:6} {:6} {}", block.offset, block.stored_bytes, block.codec);
/// }
/// assert_eq!(blocks.totals().entries, summary.properties.entries);
/// assert!(blocks.filter_rate()?.is_some_and(|rate| rate.false_positive_rate() < 0.5));
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "blocks are read as they are asked for"]
pub struct Blocks {
    table: Table,
    /// The blocks that were not read yet.
    left: Range<usize>,
    /// Sums over the blocks that were read.
    totals: Properties,
    /// The last key of the previous block, if that was read.
    last_key: Option<Vec<u8>>,
    absent: AbsentKeys,
    work: KeyWork,
}

impl Blocks {
    /// Sums over the blocks read so far, with the first and the last key. After the last one, if none was an error, they are what
    /// [`TableBuilder::finish`](crate::TableBuilder::finish) returned. The rest is empty.
    pub fn totals(&self) -> Properties {
        self.totals.clone()
    }

    /// Asks the filter for up to 32,000 absent keys, taken from between the keys of the blocks read so far. `None`
    /// without a filter in use, and where no key lies between two neighbours.
    ///
    /// Reads the filter, if it is not there.
    ///
    /// # Errors
    ///
    /// Those of reading the filter.
    pub fn filter_rate(&self) -> Result<Option<FilterRate>> {
        let (Some(filter), Ok(order)) = (self.table.whole_filter()?, self.table.order()) else {
            return Ok(None);
        };
        Ok(self.absent.measure(order, filter))
    }

    fn read(&mut self, i: usize) -> Result<BlockInfo> {
        let (table, totals) = (&self.table, &mut self.totals);
        let found = table.inner.block(i)?;
        let offset = found.handle.offset;
        let mut below = self.last_key.take();
        let frame = table.inner.file.read_frame(found.handle)?;
        let mut open = || {
            frame::verify(&frame)?;
            let block = self.work.open(frame::open(&frame)?)?;
            Ok((frame::codec_name(&frame)?, BlockCursor::new(block)))
        };
        let (codec, mut cursor) = open().map_err(|defect| table.inner.locate(found, defect))?;
        let mut block = BlockInfo {
            offset,
            stored_bytes: frame.len() as u64,
            bytes: cursor.block.data.len() as u64,
            codec,
            ..BlockInfo::default()
        };
        let order = table.order().ok();
        let is_database = order.is_some_and(|order| user_order(order).is_some());
        let mut first = None;
        while let Ok(true) = cursor.next() {
            let key = cursor.key();
            if is_database {
                totals.add_version(key);
            }
            if let (Some(below), Some(order)) = (&below, order) {
                let n = totals.entries + block.entries;
                self.absent.offer(n, below, key, offset, order);
            }
            let last = below.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            first.get_or_insert_with(|| Bytes::copy_from_slice(key));
            block.entries += 1;
            block.key_bytes += key.len() as u64;
            block.value_bytes += cursor.value().len() as u64;
        }
        totals.entries += block.entries;
        totals.key_bytes += block.key_bytes;
        totals.value_bytes += block.value_bytes;
        totals.data_blocks += 1;
        totals.data_bytes += block.stored_bytes;
        if let (Some(first), Some(last)) = (first, &below) {
            totals.first_key.get_or_insert_with(|| first.to_vec());
            totals.last_key = Some(last.clone());
            block.key_range = Some((first, Bytes::copy_from_slice(last)));
        }
        self.last_key = below;
        Ok(block)
    }
}

impl Iterator for Blocks {
    type Item = Result<BlockInfo, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let i = self.left.next()?;
        Some(self.read(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BloomFilterPolicy, Compression, OpenOptions, WriteOptions, db::ValueType};

    fn key(i: u32) -> Vec<u8> {
        format!("key-{:07}", i * 3).into_bytes()
    }

    /// Values of which every other block's compress.
    fn value(i: u32) -> Vec<u8> {
        match i / 50 % 2 {
            0 => vec![b'v'; 60],
            _ => (0..60u32)
                .map(|j| (i * 31 + j * j * 7 + i * j) as u8)
                .collect(),
        }
    }

    /// The table, and what its blocks add up to.
    fn write(options: WriteOptions, entries: u32) -> (Vec<u8>, Properties) {
        let mut file = Vec::new();
        let mut builder = options.build(&mut file);
        for i in 0..entries {
            builder.add(key(i), value(i)).unwrap();
        }
        let written = builder.finish().unwrap().properties;
        (file, counted(written))
    }

    /// What can be counted in blocks.
    fn counted(written: Properties) -> Properties {
        let Properties {
            entries,
            first_key,
            last_key,
            key_bytes,
            value_bytes,
            data_blocks,
            data_bytes,
            sequences,
            deletions,
            ..
        } = written;
        Properties {
            entries,
            first_key,
            last_key,
            key_bytes,
            value_bytes,
            data_blocks,
            data_bytes,
            sequences,
            deletions,
            ..Properties::default()
        }
    }

    /// Counted once while writing and once while reading.
    #[test]
    fn the_totals_of_all_blocks_are_the_builders_summary() {
        for options in [
            WriteOptions::new(),
            WriteOptions::new().no_filter().block_size(1),
            WriteOptions::leveldb().filter_policy(BloomFilterPolicy::new(2)),
        ] {
            for entries in [0, 1, 5_000] {
                let (file, written) = write(options.clone(), entries);
                let table = OpenOptions::new().open_source(file).unwrap();
                let mut blocks = table.blocks();
                assert_eq!(table.data_blocks() as u64, written.data_blocks);
                for block in &mut blocks {
                    block.unwrap();
                }
                assert_eq!(blocks.totals(), written);
            }
        }
    }

    #[test]
    fn a_databases_table_is_measured_on_user_keys() {
        let mut file = Vec::new();
        let mut builder = WriteOptions::leveldb().build_db(&mut file);
        for i in 0..3000 {
            builder.put(key(i), 7, b"").unwrap();
        }
        let written = counted(builder.finish().unwrap().properties);
        let table = OpenOptions::new().open_db_source(file).unwrap();
        let mut blocks = table.as_table().blocks();
        let first = blocks.next().unwrap().unwrap().key_range.unwrap().0;
        let parsed = crate::db::InternalKey::parse(&first).unwrap();
        assert_eq!(
            (parsed.user_key, parsed.value_type),
            (&key(0)[..], ValueType::Value)
        );
        assert!(blocks.all(|block| block.is_ok()));
        assert_eq!(blocks.totals(), written);
        let rate = blocks.filter_rate().unwrap().unwrap();
        assert!(rate.sampled_keys > 1000, "{rate:?}");
        // With their tags, absent keys would all be rejected.
        let passed = rate.passed_keys * 1000 / rate.sampled_keys;
        assert!((1..100).contains(&passed), "{rate:?}");
    }

    /// Blocks, sections and footer tile the file, and the blocks' keys are the table's.
    #[test]
    fn parts_tile_the_file() {
        let (file, _) = write(WriteOptions::new(), 2_000);
        let len = file.len() as u64;
        let table = OpenOptions::new().open_source(file).unwrap();
        let mut end = 0;
        let mut entries = table.iter().map(|entry| entry.unwrap().0);
        let mut codecs = std::collections::BTreeSet::new();
        for block in table.blocks() {
            let block = block.unwrap();
            assert_eq!(block.offset, end);
            end += block.stored_bytes;
            codecs.insert(block.codec);
            assert!(block.codec != "none" || block.stored_bytes == block.bytes + 5);
            let (first, last) = block.key_range.unwrap();
            assert_eq!(entries.next().unwrap(), first);
            assert_eq!(entries.nth(block.entries as usize - 2).unwrap(), last);
        }
        assert_eq!(entries.next(), None);
        assert_eq!(codecs.into_iter().collect::<Vec<_>>(), ["none", "snappy"]);

        let layout = table.layout().unwrap();
        let [properties, pieces, filter] = &layout.named[..] else {
            panic!("{:?}", layout.named)
        };
        assert_eq!(layout.index.offset, end);
        let end = layout.index.offset + layout.index.stored_bytes;
        assert_eq!(filter.name, "filter.leveltable.Ribbon1");
        assert_eq!(filter.offset, end);
        assert_eq!(filter.stored_bytes, table.filter().unwrap().bytes + 5);
        assert_eq!(properties.name, "about.leveltable");
        assert_eq!(properties.offset, end + filter.stored_bytes);
        let end = properties.offset + properties.stored_bytes;
        assert_eq!(pieces.name, "about.pieces");
        assert_eq!(pieces.offset, end);
        let end = end + pieces.stored_bytes;
        assert_eq!(layout.metaindex.offset, end);
        assert_eq!(layout.footer_offset, end + layout.metaindex.stored_bytes);
        assert_eq!(layout.footer_offset + 48, len);
    }

    #[test]
    fn a_damaged_block_is_an_error_of_its_own() {
        let options = WriteOptions::new().compression(Compression::None);
        let (mut file, written) = write(options, 1_000);
        file[5_000] ^= 1;
        let table = OpenOptions::new().open_source(file).unwrap();
        let mut blocks = table.blocks();
        let results: Vec<_> = blocks.by_ref().collect();
        let damaged: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        assert_eq!(damaged.len(), 1);
        let corruption = damaged[0].corruption().unwrap();
        assert_eq!(corruption.section, Section::Data);
        assert!((1..=5_000).contains(&corruption.offset));
        let summary = blocks.totals();
        assert_eq!(summary.data_blocks, written.data_blocks - 1);
        assert!(summary.entries < written.entries);
    }

    /// Each data block is read once, and the cache is left alone.
    #[test]
    fn a_walk_reads_each_block_once() {
        let (file, written) = write(WriteOptions::new(), 2_000);
        let disk = std::sync::Arc::new(Bytes::from(file));
        let table = OpenOptions::new().open_source(disk).unwrap();
        let opening = table.stats().source_reads;
        assert_eq!(table.blocks().count() as u64, written.data_blocks);
        let stats = table.stats();
        assert_eq!(stats.source_reads - opening, written.data_blocks);
        assert_eq!(stats.cache_misses, 0);
    }
}
