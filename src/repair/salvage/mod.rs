//! Copies what can be read of a damaged table into a new one.
//!
//! Four steps. Finding *frames* whose checksums are right: by the footer's and the index's handles, else by scanning.
//! Telling their *kinds* apart: data, metadata, index. *Choosing*: the blocks that a usable index lists, each from its place
//! or from where one was found that fits its index key; or else all data, sorted by its keys. *Copying* the entries of these
//! to the builder.
//!
//! ```text
//! survey.rs       the frames of the file: where handles lead, and in the parts between
//!   checksums.rs    the same after damage, where no block is known to begin
//!   found.rs        one frame, and what is in it
//! kinds.rs        data, metadata and index; whether the builder is one for such a table
//!   index.rs        the blocks that an index lists, each where it lies
//! plan.rs         which blocks are copied, in which order, and what is lost
//! copy.rs         entries into the builder
//! ```

mod checksums;
mod copy;
mod found;
mod index;
mod kinds;
mod plan;
mod survey;

use std::fmt;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::builder::DbTableBuilder;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, Section};
use crate::format::internal_key::internal_order;
use crate::format::properties::KeyKind;
use crate::format::properties::Properties;
use crate::read::file::TableFile;
use crate::read::source::Source;
use crate::repair::progress::{Progress, Reporter};
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;

use kinds::Kinds;
use plan::Plan;
use survey::SECTOR;
pub(crate) use survey::Survey;

/// Counts of what [`salvage`] copied, and the ranges that are lost.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each range that is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SalvageReport {
    /// Size of the damaged file.
    pub file_bytes: u64,
    /// Entries copied.
    pub entries: u64,
    /// Data blocks copied.
    pub data_blocks: u64,
    /// Number of entries that the damaged table had by its [`Properties`], if those were found.
    pub stated_entries: Option<u64>,
    /// Number of data blocks that it had by its [`Properties`], if those were found.
    pub stated_data_blocks: Option<u64>,
    /// State of the index.
    pub index: IndexState,
    /// Entries that could be read but were not written, since they are out of order or their blocks have no place in the table.
    /// They may come from blocks that another table left behind.
    pub entries_out_of_order: u64,
    /// Whether entries were copied in the order in which they are stored, since they do not ascend in the builder's;
    /// see [`SalvageOptions::stored_order`].
    pub stored_order: bool,
    /// The ranges of the file from which nothing was copied although there was data, or may have been, in the order of
    /// the keys around them; blocks without a place among them come last.
    pub lost: Vec<LostRange>,
    /// Where blocks were copied that may have been no blocks of the table, offsets in the file: they lie between bytes that
    /// belong to no sound block, and may have been stored in a value of one that is damaged; or their one value is the handle of a
    /// block at offset 0, as in the index of a table of one block. Always empty with an index.
    pub uncertain: Vec<Range<u64>>,
    /// Sound blocks that were not taken for data, and what they were taken for.
    pub set_aside: Vec<(Section, Range<u64>)>,
    /// Whether the progress callback ended the run early. This report then lacks what would have followed.
    pub cancelled: bool,
}

/// Part of a file whose entries are lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Offsets in the file.
    pub range: Range<u64>,
    /// Why it could not be copied.
    pub reason: String,
    /// Number of its entries, if it is known.
    pub entries: Option<u64>,
    /// The last key copied before it: all lost keys come after this one. `None` if nothing was copied before, or if it has no place
    /// among the keys.
    pub after: Option<Bytes>,
    /// The first key copied after it: all lost keys come before this one. `None` if nothing was copied after, or if it has no
    /// place among the keys.
    pub before: Option<Bytes>,
}

/// State of a damaged table's index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// The footer led to it, and it is sound: it lists all data blocks.
    Sound,
    /// It is sound, but was not where a footer says. Its blocks may be elsewhere, too.
    Found,
    /// There is none, or it is damaged: all data blocks were found by scanning.
    #[default]
    Lost,
}

/// How [`salvage`] treats a table.
///
/// ```
/// use std::ops::ControlFlow;
/// use leveltable::WriteOptions;
/// use leveltable::repair::{SalvageOptions, salvage};
///
/// # let mut damaged = Vec::new();
/// # WriteOptions::new().build(&mut damaged).finish()?;
/// let options = SalvageOptions::new().progress(|progress| {
///     eprint!("\r{} of {} bytes", progress.done, progress.total);
///     ControlFlow::Continue(())
/// });
/// let mut rescued = Vec::new();
/// let mut builder = WriteOptions::new().build(&mut rescued);
/// let report = salvage(damaged, &mut builder, options)?;
/// assert!(!report.cancelled);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct SalvageOptions<'a> {
    keys: Option<KeyKind>,
    stored_order: bool,
    progress: Reporter<'a>,
}

impl<'a> SalvageOptions<'a> {
    /// The kind of keys is guessed, and the builder's order has to fit.
    pub fn new() -> SalvageOptions<'a> {
        SalvageOptions::default()
    }

    /// Says what kind of keys the damaged table holds. By default that is guessed from the keys.
    pub fn keys(mut self, kind: KeyKind) -> SalvageOptions<'a> {
        self.keys = Some(kind);
        self
    }

    /// Where keys do not ascend in the builder's order, entries are copied in the order in which they are stored, and the new
    /// table's properties say so: they name the table's comparator, or `leveltable.StoredOrder` if nobody knows it. It needs a
    /// builder without entries. Opening such a table takes [`OpenOptions::stored_order`](crate::OpenOptions::stored_order) or a
    /// comparator, and then checks the whole. Its index keys are not shortened.
    ///
    /// With this option, a table without properties is written so, too, which cannot say it; by default, that is an error of
    /// [`ErrorKind::Comparator`]. And where no index was found, blocks whose keys overlap are all copied in the order of the file.
    pub fn stored_order(mut self) -> SalvageOptions<'a> {
        self.stored_order = true;
        self
    }

    /// Calls `callback` after each block that was examined or copied, and after each part of the file that was searched.
    /// On [`ControlFlow::Break`] the run ends, and the report says that it was [cancelled](SalvageReport::cancelled). What
    /// was copied until then stays in the builder.
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> SalvageOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }
}

/// A builder that [`salvage`] copies to: a [`TableBuilder`] for a plain table, a [`DbTableBuilder`] for that of a database.
pub trait SalvageTarget: sealed::HasTable {}

impl<D: Destination> SalvageTarget for TableBuilder<D> {}
impl<D: Destination> SalvageTarget for DbTableBuilder<D> {}

mod sealed {
    use super::{Destination, TableBuilder};

    pub trait HasTable {
        type Destination: Destination;

        /// The builder that takes keys as they are stored.
        fn table_mut(&mut self) -> &mut TableBuilder<Self::Destination>;
    }
}

impl<D: Destination> sealed::HasTable for TableBuilder<D> {
    type Destination = D;

    fn table_mut(&mut self) -> &mut TableBuilder<D> {
        self
    }
}

impl<D: Destination> sealed::HasTable for DbTableBuilder<D> {
    type Destination = D;

    fn table_mut(&mut self) -> &mut TableBuilder<D> {
        &mut self.table
    }
}

impl SalvageReport {
    /// What is known before anything is copied.
    fn of(kinds: &Kinds<'_>) -> SalvageReport {
        let frames = kinds.survey.frames.values();
        let set_aside = frames.filter(|found| found.section.get() != Section::Data);
        let set_aside = set_aside.map(|found| (found.section.get(), found.range.clone()));
        let properties = kinds.properties.as_ref();
        SalvageReport {
            file_bytes: kinds.survey.file.size,
            index: match &kinds.index {
                Some(index) if index.is_in_place => IndexState::Sound,
                Some(_) => IndexState::Found,
                None => IndexState::Lost,
            },
            stated_entries: properties.map(|properties| properties.entries),
            stated_data_blocks: properties.map(|properties| properties.data_blocks),
            set_aside: set_aside.collect(),
            ..SalvageReport::default()
        }
    }

    /// Bytes of all ranges that are lost.
    pub fn lost_bytes(&self) -> u64 {
        let lost = self.lost.iter();
        let lens = lost.map(|lost| lost.range.end - lost.range.start);
        lens.fold(0, u64::saturating_add)
    }

    /// Whether the run came to its end and the whole table was copied, as its index or its properties say what the whole is.
    ///
    /// False if neither was found, or if data was found that was not copied or may be another table's.
    pub fn is_complete(&self) -> bool {
        let says_all = self.index != IndexState::Lost || self.stated_entries.is_some();
        (self.index == IndexState::Sound || says_all && self.is_as_stated())
            && self.lost.is_empty()
            && self.uncertain.is_empty()
            && self.entries_out_of_order == 0
            && !self.cancelled
    }

    /// Whether as many entries and data blocks were copied as the table's properties state. True if none were found.
    pub fn is_as_stated(&self) -> bool {
        let stated = self.stated_entries.zip(self.stated_data_blocks);
        stated.is_none_or(|stated| stated == (self.entries, self.data_blocks))
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries copied from {} data blocks; {} of {} bytes lost; {} entries out of order",
            self.entries,
            self.data_blocks,
            self.lost_bytes(),
            self.file_bytes,
            self.entries_out_of_order
        )?;
        if let Some((entries, blocks)) = self.stated_entries.zip(self.stated_data_blocks)
            && !self.is_as_stated()
        {
            let stated = format!("{entries} entries in {blocks} data blocks");
            write!(f, "; the properties state {stated}")?;
        }
        if self.cancelled {
            f.write_str("; cancelled")?;
        }
        self.lost.iter().try_for_each(|lost| write!(f, "\n{lost}"))
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(f, "lost: bytes {start} to {end}")?;
        for (place, key) in [("after", &self.after), ("before", &self.before)] {
            if let Some(key) = key {
                write!(f, ", {place} key \"{}\"", key.escape_ascii())?;
            }
        }
        write!(f, ": {}", self.reason)
    }
}

/// Copies every readable entry of the damaged table in `source` to `builder`, in order, and reports what is lost. The
/// caller finishes the builder.
///
/// A usable index says which blocks there are, wherever it lies in the file and in whatever order its keys are. A block that it
/// lists and that is not in its place is taken from wherever one of its size fits: by its last key, which is its index key, or
/// since it lies between its index keys. Without an index, blocks are found by their checksums and sorted by their keys; of
/// those that overlap, as many entries as possible are copied. Damage to one block costs that block only. A block whose
/// checksum is wrong is not copied at all: nobody knows which of its bytes are right. Of a sound table nothing is lost. Of several
/// tables in a file the last with a whole index is copied. What is left out is [reported](SalvageReport::lost).
///
/// **Nothing is invented.** Index, metaindex, properties and filter blocks are not taken for data, even without the footer that
/// names them: an index by its handles, of blocks that follow each other from the front of a file, a metaindex by its names and
/// by what it leads to. Some blocks cannot be told from data:
///
/// - tables or blocks stored as values in a block that is damaged, in a file without an index: they are copied, and the report
///   says where they are [uncertain](SalvageReport::uncertain). If a whole table was stored so, and nothing after it is left, it
///   is the last with an index;
/// - the index of a table of one block, where that block is gone: it is [set aside](SalvageReport::set_aside), or copied as
///   uncertain. A data block whose only value is the handle of a block at offset 0 may be mistaken for such an index, and set aside;
/// - blocks of an older table whose keys fit in.
///
/// A table's kind is guessed from its keys, and a builder of the wrong kind is refused. A table in another order than the
/// builder's is copied in the order in which it is stored: [`SalvageOptions::stored_order`] says more.
///
/// Properties of an application are kept, if the new table gets properties and the caller has not set them. So is the codec, unless
/// [`WriteOptions::compression`](crate::WriteOptions::compression) was called.
///
/// A part of the source that cannot be read is lost like a damaged one, and the [reason](LostRange::reason) quotes
/// the source's error. When a read fails during a search, smaller parts are tried, down to 4 KiB.
///
/// # Cost
///
/// Two reads of each data block that the index leads to, three of a block that is found after another, whatever its size and
/// codec. After damage, blocks are searched for by their checksums, in windows of 4 MiB: one larger than 2 MiB is found by
/// the index, after another block and at the front of the file, but not right after damage. The end of a damaged block is
/// looked for up to the end of the file, in all over four times the file, and then over 64 KiB each. Memory: the largest
/// block; the first and last key and some 300 bytes for each block; up to 120 MB while windows are searched.
///
/// # Errors
///
/// Those of [`TableBuilder::add`]; [`ErrorKind::TooLarge`] if the new table's index would hold more than 64 times the file's size
/// and a megabyte of keys, which takes long keys that share nearly all that they have; [`ErrorKind::Io`] if nothing of the source can be read; [`ErrorKind::NotATable`] for the
/// table of another program, such as RocksDB, by the magic number at its end; [`ErrorKind::DatabaseTable`] for a database's
/// table and the builder of a plain one; [`ErrorKind::Comparator`] if the order is not the builder's, and the new table has no
/// properties to say so; [`ErrorKind::InvalidState`] where entries are to be copied in their stored order and the builder holds
/// others. In all cases but the first two, nothing was added.
///
/// ```
/// use leveltable::WriteOptions;
/// use leveltable::repair::{SalvageOptions, salvage};
///
/// let mut file = Vec::new();
/// let options = WriteOptions::new().block_size(64);
/// let mut builder = options.build(&mut file);
/// for i in 0..100 {
///     builder.add(format!("key {i:02}").as_bytes(), b"value")?;
/// }
/// builder.finish()?;
/// file[5] ^= 1; // in the first data block
/// let end = file.len();
/// file[end - 300..].fill(0); // footer, index and more
///
/// let mut rescued = Vec::new();
/// let mut builder = options.build(&mut rescued);
/// let report = salvage(file, &mut builder, SalvageOptions::new())?;
/// builder.finish()?;
/// assert!(report.entries > 90);
/// assert_eq!(report.lost[0].range.start, 0);
/// println!("{report}");
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn salvage(
    source: impl Into<Source>,
    builder: &mut impl SalvageTarget,
    options: SalvageOptions<'_>,
) -> Result<SalvageReport> {
    let mut source = source.into();
    let path = source.path.take();
    // Not the builder's errors: they are about another file.
    let at_path = |error: Error| match &path {
        Some(path) => error.at_path(path),
        None => error,
    };
    let file = TableFile::new(source).map_err(at_path)?;
    file.refuse_foreign().map_err(at_path)?;
    let builder = builder.table_mut();
    let order = builder.options.order.clone();
    let mut progress = options.progress;
    progress.total = file.size.saturating_mul(2);
    let mut survey = Survey::new(&file, &order, true);
    let _ = survey.run(&mut progress);
    let kinds = Kinds::of(&survey);
    if survey.frames.is_empty() && file.size > 0 {
        // Nothing at all. If nothing can be read, the source's error says why.
        let len = file.size.min(SECTOR) as usize;
        file.read(0, len).map_err(at_path)?;
    }
    let mut report = SalvageReport::of(&kinds);
    report.cancelled = progress.is_cancelled;
    if report.cancelled {
        return Ok(report);
    }
    kinds.check_kind(options.keys).map_err(at_path)?;
    let plan = Plan::of(&kinds, options.stored_order);
    if plan.stored_order && !options.stored_order && !builder.options.properties {
        return Err(at_path(kinds.order_cannot_be_said()));
    }
    let properties = kinds.properties;
    if plan.stored_order {
        let comparator = properties.as_ref();
        builder.keep_stored_order(comparator.map(|properties| &*properties.comparator))?;
    }
    if let Some(codec) = plan.codec() {
        builder.keep_codec(codec);
    }
    for (name, value) in properties.iter().flat_map(Properties::user_properties) {
        builder.keep_property(name, value);
    }
    report.entries_out_of_order = plan.left_out;
    report.stored_order = plan.stored_order;
    copy::copy(plan.parts, &file, builder, report, &mut progress)
}

/// Returns how many entries in how many blocks [`salvage`] would copy of `file`, in `order` or, for a database's table, in the
/// order of internal keys. Counts entries that are out of order within a block. `progress` covers one pass over the file. If it
/// ends the run, counts the blocks found until then.
pub(crate) fn recoverable(
    file: &TableFile,
    order: &Order,
    progress: &mut Reporter<'_>,
) -> (u64, u64) {
    if file.refuse_foreign().is_err() {
        return (0, 0);
    }
    let mut survey = Survey::new(file, order, false);
    let _ = survey.run(progress);
    let kinds = Kinds::of(&survey);
    let kind = kinds.stated_kind().or_else(|| kinds.evidence().verdict());
    if matches!(order, Order::Bytewise) && kind == Some(KeyKind::Database) {
        return recoverable(file, &internal_order(Order::Bytewise), progress);
    }
    let plan = Plan::of(&kinds, false);
    let entries = plan.blocks().map(|block| block.found.digest.entries);
    entries.fold((0, 0), |(sum, blocks), entries| (sum + entries, blocks + 1))
}
