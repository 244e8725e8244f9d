//! Options for writing a table.

use std::path::Path;
use std::sync::Arc;

use crate::comparator::{Comparator, Order};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
#[cfg(doc)]
use crate::filter::{BloomFilterPolicy, RibbonFilterPolicy};
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::format::codec::Compression;
use crate::write::builder::TableBuilder;
use crate::write::new_file::{Destination, NewFile};
use crate::write::settings::Settings;

/// Options for writing a table.
///
/// [`new`](WriteOptions::new) uses this crate's best format, which every LevelDB can read;
/// [`leveldb`](WriteOptions::leveldb) writes the same bytes as LevelDB.
///
/// ```
/// use leveltable::{Compression, WriteOptions};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new()
///     .compression(Compression::None)
///     .block_size(16 << 10)
///     .build(&mut file);
/// builder.add(b"key", b"value")?;
/// builder.finish()?;
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// An option out of range is an error of kind [`InvalidState`](crate::ErrorKind::InvalidState), which names the option:
/// from [`create`](WriteOptions::create), or from the first call of a builder made with [`build`](WriteOptions::build).
#[derive(Debug, Clone)]
#[must_use = "options do nothing until `create` or `build`"]
pub struct WriteOptions(pub(crate) Settings);

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions::new()
    }
}

impl WriteOptions {
    /// Snappy, blocks of 4 KiB, a restart every 16 keys, and one [`RibbonFilterPolicy`] filter at 10 bits per key for
    /// the whole table: it causes an eighth of the unnecessary reads of a LevelDB filter of the same size.
    ///
    /// LevelDB reads the table, but ignores the filter, so each of its lookups reads a block. For tables in which
    /// LevelDB itself looks up keys, start from [`leveldb`](WriteOptions::leveldb).
    ///
    /// This is version 1 of [the format](crate::guide::format#version-1). Later versions of this crate read it, and write the same bytes
    /// before compression.
    pub fn new() -> WriteOptions {
        WriteOptions(Settings::new())
    }

    /// The options of C++ LevelDB with Snappy and its Bloom filter at 10 bits per key. With [`Compression::None`] the files
    /// are the same to the last byte; `snap` and the C++ Snappy library compress some blocks differently.
    pub fn leveldb() -> WriteOptions {
        WriteOptions(Settings::leveldb())
    }

    /// Ends a data block when its uncompressed size reaches `bytes`: the unit of a lookup's read, and of the cache. The default is
    /// 4096. At least 1, which gives each entry a block of its own. With [`block_align`](WriteOptions::block_align), a block may be
    /// somewhat smaller or larger.
    pub fn block_size(mut self, bytes: usize) -> WriteOptions {
        self.0.block_size = bytes;
        self.0.chose_blocks = true;
        self
    }

    /// Number of keys between restarts, at least 1; the default is 16. A restart stores its key whole, as a target of the binary
    /// search: more keys between restarts make the file smaller and lookups slower. See also [`block_size`](WriteOptions::block_size).
    pub fn restart_interval(mut self, keys: usize) -> WriteOptions {
        self.0.restart_interval = keys;
        self
    }

    /// With `true`, no data block touches more pages of 4,096 bytes than its length needs. The default is `false`.
    ///
    /// A disk and the page cache read whole pages, and a block of 4 KiB usually lies in two. In an aligned table a lookup
    /// reads one: half the bytes from disk, and half the page cache. Use it for tables that are larger than memory and
    /// looked up by key. A scan gains nothing. Every reader of LevelDB's tables reads them.
    ///
    /// - Blocks end where pages do. A block of up to 4 KiB ends before the entry that would cross into the next page, and
    ///   also takes the rest of a page that is too small for another block. A larger one likewise fills its last page.
    /// - A block that would still touch one page more than necessary, such as one with a large entry, begins at the next
    ///   page, after zeros. With 100-byte values they are 1.8 % of the file, half an entry per page. Entries of more than
    ///   half a page can make the file nearly twice as large, since no two of them share a page.
    /// - Compressed blocks end according to their expected length, from how much the last blocks shrank. A page then
    ///   holds one or more whole blocks, each of about the [`block_size`](WriteOptions::block_size) before compression,
    ///   give or take a third. A wrong guess costs zeros. With Snappy, blocks of 4 KiB and 100-byte values of which half
    ///   repeats, a lookup reads 1.0 pages instead of 1.56, and the file grows by 1.0 %; with text, 1.0 instead of 2.03,
    ///   for 3.3 %. At a block size of 1,024, 14 to 22 % of blocks deviate by more than a third. Where 300 random entries
    ///   alternate with 300 repetitive ones, 6 % of the file is padding.
    ///
    /// Filter, index and the other parts after the data are not aligned: opening reads them at once.
    ///
    /// ```
    /// use leveltable::{Compression, OpenOptions, WriteOptions};
    ///
    /// let options = WriteOptions::new().compression(Compression::None).block_align(true);
    /// let mut builder = options.build(Vec::new());
    /// for i in 0..1000 {
    ///     builder.add(format!("{i:08}"), [7; 100])?;
    /// }
    /// let (file, _) = builder.finish_into_writer()?;
    /// let table = OpenOptions::new().open_source(file)?;
    /// assert!(table.data_blocks() >= 25); // none is longer than a page
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn block_align(mut self, yes: bool) -> WriteOptions {
        self.0.block_align = yes;
        self.0.chose_blocks |= yes;
        self
    }

    /// The codec of blocks. The default is [`Compression::Snappy`]. A copy by `salvage` of the crate `leveltable-repair` keeps the codec of
    /// its source unless this is called; its filter and blocks are like the source's unless an option sets them.
    pub fn compression(mut self, compression: Compression) -> WriteOptions {
        self.0.compression = Some(compression);
        self
    }

    /// Sets the filter policy. A reader uses the filter if it knows a policy of the same name. The default is [`RibbonFilterPolicy`]
    /// at 10 bits per key, and [`BloomFilterPolicy`] at 10 in [`leveldb`](WriteOptions::leveldb).
    ///
    /// `policy` gets the keys as stored; in a database's table, the user keys. If the comparator treats different byte
    /// strings as equal, the policy must [agree with it](Comparator#comparators-and-filters).
    pub fn filter_policy(mut self, policy: impl FilterPolicy + 'static) -> WriteOptions {
        self.0.filter = Some(Arc::new(policy));
        self.0.chose_filter = true;
        self
    }

    /// Writes no filter block. By default there is one, made by the [policy](WriteOptions::filter_policy). Each lookup of an absent key
    /// then reads a block.
    pub fn no_filter(mut self) -> WriteOptions {
        self.0.filter = None;
        self.0.chose_filter = true;
        self
    }

    /// With `true`, one filter covers the whole table, which is the default of [`new`](WriteOptions::new). With `false`, each 2 KiB of the
    /// file has its own, as in LevelDB.
    ///
    /// One filter takes fewer bits (filters are not rounded up, and there is one offset), and a reader of this crate
    /// checks it before it searches the index. LevelDB reads such a table correctly, since the file says how many bytes a
    /// filter covers. The filter is made in memory by `finish`. Until then the builder keeps 4 bytes for each key
    /// ([`BloomFilterPolicy`]) or 8 ([`RibbonFilterPolicy`], and 10 while it finishes).
    ///
    /// Do not use it with [`BloomFilterPolicy`] in a large table of structured keys: with its 32-bit hash, the
    /// false-positive rate between a million decimal numbers is a seventh ([`guide::filters`](crate::guide::filters)).
    pub fn whole_table_filter(mut self, yes: bool) -> WriteOptions {
        self.0.whole_table = yes;
        self.0.chose_filter = true;
        self
    }

    /// Adds a filter of the prefixes of the keys, at 10 bits for each distinct prefix: [`Table::prefix`](crate::Table::prefix),
    /// and a [`range`](crate::Table::range) within one prefix, then read nothing if no key has the prefix. None by default.
    ///
    /// Lookups of single keys do not use it. Keys without a prefix, such as those that are too short, are not in the filter, and
    /// scans that may meet them do not use it. In a database's table, prefixes are those of user keys. Readers use the filter if
    /// they know an extractor of the same name; [`FixedPrefix`](crate::filter::FixedPrefix) and
    /// [`DelimitedPrefix`](crate::filter::DelimitedPrefix) are built in. LevelDB ignores the filter.
    ///
    /// Only for keys, or user keys, in bytewise order: with another [`comparator`](WriteOptions::comparator), the table cannot be
    /// started. Until the table is finished, the builder keeps 8 bytes for each distinct prefix.
    ///
    /// The filter is read when it is first needed, and then kept in memory.
    ///
    /// The false-positive rate is 0.11 %, and with few prefixes up to 0.27 %. A scan then reads one block.
    ///
    /// ```
    /// use leveltable::filter::DelimitedPrefix;
    /// use leveltable::{OpenOptions, WriteOptions};
    ///
    /// let options = WriteOptions::new().prefix_filter(DelimitedPrefix::new(b'/'));
    /// let mut builder = options.build(Vec::new());
    /// builder.add("fruit/apple", "red")?;
    /// builder.add("vegetable/carrot", "orange")?;
    /// let (file, _) = builder.finish_into_writer()?;
    ///
    /// let table = OpenOptions::new().open_source(file)?;
    /// assert_eq!(table.prefix("fruit/").count(), 1);
    /// assert_eq!(table.prefix("meat/").count(), 0); // reads no block
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn prefix_filter(mut self, extractor: impl PrefixExtractor + 'static) -> WriteOptions {
        self.0.prefixes = Some(Arc::new(extractor));
        self
    }

    /// Sets the order of the keys; bytewise by default. Readers must use the same one. See [`Comparator`].
    pub fn comparator(mut self, comparator: impl Comparator) -> WriteOptions {
        self.0.order = Order::of(comparator);
        self
    }

    /// Whether a table [created](WriteOptions::create) at a path replaces an existing file. The default is `true`.
    ///
    /// With `false`, `create` fails if something is at the path, and `finish` if something has appeared there since. The
    /// error's [`io_error`](crate::Error::io_error) is of the kind [`AlreadyExists`](std::io::ErrorKind::AlreadyExists).
    /// Nothing is ever replaced, even if another process makes a file there at the same moment.
    pub fn replace_existing(mut self, yes: bool) -> WriteOptions {
        self.0.replace = yes;
        self
    }

    /// Whether `finish` syncs a table [created](WriteOptions::create) at a path: the file before it is renamed, and its directory
    /// afterwards. The default is `true`. Other destinations are always synced by the caller.
    ///
    /// With `false`, the table still appears complete or not at all to every process, even if this one is killed. But a crash of
    /// the *system*, such as a power failure, before it has written its cached data (up to about 30 seconds) may lose the new name:
    /// then the old file is there, or none. Or the new name may stay with bytes missing: a file that is empty, shorter, or zero in
    /// places. The replaced file is then lost. Opening or reading such a table fails; `verify` of the crate `leveltable-repair`
    /// finds all of the damage. Use it for tables that can be rebuilt: temporary files, tests, or many tables that are synced
    /// together before anything refers to them (`syncfs`).
    ///
    /// Saves two waits for the disk, often some milliseconds each. C++ LevelDB syncs each table, but not its directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("run.ldb");
    /// let mut builder = leveltable::WriteOptions::new().sync(false).create(&path)?;
    /// builder.add("apple", "red")?;
    /// builder.finish()?; // visible, but perhaps not on disk yet
    /// assert!(path.exists());
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn sync(mut self, yes: bool) -> WriteOptions {
        self.0.sync = yes;
        self
    }

    /// Whether the table gets a properties block, which describes it: the name of its order, plain or a database's
    /// keys, number of entries, first and last key, and so on. See [`Properties`](crate::format::Properties).
    ///
    /// By default, [`new`](WriteOptions::new) writes the block, which takes some 300 bytes, and [`leveldb`](WriteOptions::leveldb) does
    /// not. LevelDB ignores it.
    ///
    /// A table with properties and entries also gets a block that divides index and ribbon filters into pieces of some 16 KiB, each
    /// with a checksum, so that opening reads the end of the file and a lookup the pieces that it needs. It takes some 15 bytes and
    /// a part of a key for each piece, and LevelDB ignores it. The index is then not compressed. If a piece would end with an index
    /// key of more than 4,096 bytes, there are no pieces, and index and filters are read whole.
    pub fn properties(mut self, yes: bool) -> WriteOptions {
        self.0.properties = yes;
        self
    }

    /// Starts a table that appears at `path` when it is finished: complete, synced to disk, with ordinary permissions,
    /// replacing a file that was there; or not at all. A symbolic link at `path` is replaced, not followed. A relative
    /// path is resolved now.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidState`] if an option is out of its range.
    /// - [`ErrorKind::Io`] if `path` cannot be published, for example because its name is too long or ends in a
    ///   separator; if something is there that must not be [replaced](WriteOptions::replace_existing), or is not a
    ///   regular file; or if no temporary file can be made in its directory.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<TableBuilder<NewFile>> {
        TableBuilder::create_with(&self.0, path.as_ref())
    }

    /// Starts a table that is written to `writer`, from its current position; offsets count from there.
    ///
    /// Accepts any [`io::Write`](std::io::Write), including `&mut Vec<u8>`. Writes are large, so it need not be buffered. `finish`
    /// flushes it; [`finish_into_writer`](TableBuilder::finish_into_writer) also gives it back. Syncing is up to the
    /// caller.
    ///
    /// If an option is out of its range, the builder's first call fails with [`ErrorKind::InvalidState`].
    pub fn build<D: Destination>(&self, writer: D) -> TableBuilder<D> {
        TableBuilder::new(&self.0, writer, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, RibbonFilterPolicy};

    /// Options that are out of range, and words of the error.
    fn refused() -> Vec<(WriteOptions, &'static str)> {
        let new = WriteOptions::new;
        vec![
            (new().block_size(0), "block_size must be at least 1, not 0"),
            (
                WriteOptions::leveldb().restart_interval(0),
                "restart_interval must be at least 1, not 0",
            ),
            (
                new().filter_policy(RibbonFilterPolicy::new(f64::NAN)),
                "filter_policy \"leveltable.Ribbon1\": its bits per key must be from 5 to 33, not NaN",
            ),
            (
                new().filter_policy(RibbonFilterPolicy::new(f64::INFINITY)),
                "filter_policy \"leveltable.Ribbon1\": its bits per key must be from 5 to 33, not inf",
            ),
            #[cfg(feature = "zstd")]
            (
                new().compression(Compression::Zstd(99)),
                "compression: zstd has levels from -131072 to 22, not 99",
            ),
            #[cfg(feature = "zlib")]
            (
                new().compression(Compression::Zlib(10)),
                "compression: zlib has levels from 0 to 9, not 10",
            ),
        ]
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        for (options, expected) in refused() {
            let mut file = Vec::new();
            let mut builder = options.build(&mut file);
            let mut db_builder = options.build_db(Vec::new());
            for error in [
                builder.add("key", "value").unwrap_err(),
                builder.flush().unwrap_err(),
                builder.finish().unwrap_err(),
                db_builder.put("key", 1, "value").unwrap_err(),
                db_builder.finish_into_writer().unwrap_err(),
                options.create(directory.path().join("table")).unwrap_err(),
                options
                    .create_db(directory.path().join("table"))
                    .unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidState);
                assert!(error.to_string().contains(expected), "{error}");
            }
            assert!(file.is_empty());
            assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        }
    }

    #[test]
    fn the_smallest_values_are_in_range() {
        let options = WriteOptions::new().block_size(1).restart_interval(1);
        let mut builder = options.build(Vec::new());
        builder.add("a", "1").unwrap();
        builder.add("b", "2").unwrap();
        assert_eq!(builder.finish().unwrap().properties.data_blocks, 2);
    }
}
