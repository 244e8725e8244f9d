//! Copies what can be read of a damaged table into a new one.
//!
//! Three steps. A *survey* finds blocks whose checksums are right: by the index if that is sound, else by scanning the
//! file. A *plan* decides which of them are the table's data, and in which order. *Copying* reads those once more and
//! adds their entries to the builder.
//!
//! ```text
//! survey.rs       what footer and index lead to, and what is found in the gaps
//!   scan.rs         blocks in a part of the file that no handle leads to
//!   checksums.rs    the same after damage, where no block is known to begin
//!   found.rs        one block, and what is in it
//!   recognise.rs    index and metaindex told from data
//! plan.rs         which blocks are copied, in which order, and what is lost
//! copy.rs         their entries into the builder
//! ```

mod checksums;
mod copy;
mod found;
mod plan;
mod recognise;
mod scan;
mod survey;

use std::fmt;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::builder::DbTableBuilder;
use crate::db::key::internal_order;
use crate::db::recognise::KeyKind;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, Section};
use crate::format::properties::Properties;
use crate::read::file::TableFile;
use crate::read::source::Source;
use crate::repair::progress::{Callback, Progress, Reporter};
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;

use copy::Copier;
use plan::Target;
pub(crate) use scan::{Patience, Scanner};
use survey::Survey;

/// What [`salvage`] copied, and what is lost.
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
    /// Those of them whose block the index led to. The rest was found by scanning.
    pub entries_by_index: u64,
    /// Data blocks copied.
    pub data_blocks: u64,
    /// Number of entries that the damaged table had by its [`Properties`], if those were found.
    pub stated_entries: Option<u64>,
    /// Number of data blocks that it had by its [`Properties`], if those were found.
    pub stated_data_blocks: Option<u64>,
    /// State of the index.
    pub index: IndexState,
    /// Entries that could be read but were not written since they are out of order. They may come from blocks that an
    /// older table left behind.
    pub entries_out_of_order: u64,
    /// Whether entries were copied in the order in which they are stored, since they do not ascend in the builder's;
    /// see [`SalvageOptions::stored_order`].
    pub stored_order: bool,
    /// The ranges of the file from which nothing was copied although there was data, or may have been, in the order of
    /// the keys around them.
    pub lost: Vec<LostRange>,
    /// Sound blocks that hold no data, and what they were taken for.
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
    /// The last key copied before it: all lost keys come after this one. `None` if nothing was copied before.
    pub after: Option<Bytes>,
    /// The first key copied after it: all lost keys come before this one. `None` if nothing was copied after.
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
#[derive(Default)]
#[must_use]
pub struct SalvageOptions<'a> {
    keys: Option<KeyKind>,
    stored_order: bool,
    progress: Option<Callback<'a>>,
}

impl fmt::Debug for SalvageOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SalvageOptions")
            .field("keys", &self.keys)
            .field("stored_order", &self.stored_order)
            .finish_non_exhaustive()
    }
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

    /// Copies a table whose keys do not ascend in the builder's order in the order in which they are stored. It needs a sound
    /// index, and a builder without entries; by default, such a table is refused with [`ErrorKind::Comparator`].
    ///
    /// For a table whose comparator is not at hand. The new table can be opened only with that comparator, as the old one.
    /// Its index keys are not shortened.
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
        self.progress = Some(Box::new(callback));
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
        DbTableBuilder::table_mut(self)
    }
}

impl SalvageReport {
    /// Bytes of all ranges that are lost.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
            .iter()
            .map(|lost| lost.range.end - lost.range.start)
            .sum()
    }

    /// Whether the run came to its end and nothing is known to be lost.
    ///
    /// Without a [sound](IndexState::Sound) index, as much must have been copied as the table's properties
    /// state, if they were found.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty()
            && self.entries_out_of_order == 0
            && !self.cancelled
            && (self.index == IndexState::Sound || self.is_as_stated())
    }

    /// Whether as many entries and data blocks were copied as the table's properties state. True if none were found.
    pub fn is_as_stated(&self) -> bool {
        self.stated_entries.is_none_or(|n| n == self.entries)
            && self
                .stated_data_blocks
                .is_none_or(|n| n == self.data_blocks)
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries copied from {} data blocks, {} of them by the index; {} of {} bytes lost; \
             {} entries out of order",
            self.entries,
            self.data_blocks,
            self.entries_by_index,
            self.lost_bytes(),
            self.file_bytes,
            self.entries_out_of_order
        )?;
        if let (Some(entries), Some(blocks), false) = (
            self.stated_entries,
            self.stated_data_blocks,
            self.is_as_stated(),
        ) {
            write!(
                f,
                "; the properties state {entries} entries in {blocks} data blocks"
            )?;
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
        if let Some(key) = &self.after {
            write!(f, ", after key \"{}\"", key.escape_ascii())?;
        }
        if let Some(key) = &self.before {
            write!(f, ", before key \"{}\"", key.escape_ascii())?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Copies every readable entry of the damaged table in `source` to `builder`, in order, and reports what is lost. The
/// caller finishes the builder.
///
/// A sound index says which blocks there are. If the index is damaged, or the footer that leads to it, the file is scanned
/// for blocks with valid checksums. Damage to one block costs that block only. A block whose checksum is wrong is not
/// copied at all: nobody knows which of its bytes are right. Of a sound table nothing is lost.
///
/// **Nothing is invented.** Index, metaindex and filter blocks are not taken for data, even without the footer that names
/// them: an index is recognised by its values, by the sizes of the blocks before it and by its keys, which separate theirs;
/// a metaindex by the filters that it names. If no index is found, blocks that do not fit into the order of the rest
/// are left out, so that as many entries as possible are copied, and reported. Some blocks cannot be told from data:
///
/// - blocks of an older table that the file still holds *and* whose keys fit in;
/// - tables or blocks stored as values in a block that is damaged itself, in a file without an index or one in which the
///   index has moved. In a tiny table, the order may then seem to be another, which is an error;
/// - blocks that a metaindex names under other names than filters', such as RocksDB's properties, if the footer or the index
///   is damaged;
/// - without the footer, an index that comes right after its first block, everything between them cut out.
///
/// A table's kind is guessed from its keys, and a builder of the wrong kind is refused. So is the table of another order
/// than the builder's, unless [`SalvageOptions::stored_order`] is set.
///
/// Properties of an application are kept, if the new table gets properties and the caller has not set them.
///
/// A part of the source that cannot be read is lost like a damaged one, and the [reason](LostRange::reason) quotes
/// the source's error. When a read fails during a search, smaller parts are tried, down to 4 KiB.
///
/// # Cost
///
/// Two reads of each data block that the index leads to, three of a block that is found after another. After damage, blocks
/// are searched for by their checksums, in windows that begin at 256 KiB and grow to 4 MiB; likewise in a file without an
/// index whose blocks are compressed with anything but Snappy. Blocks
/// larger than 2 MiB are found by the index, and raw and Snappy ones also after other blocks and at the front of the
/// file, but not right after damage. Memory: the largest block; the first and last key and some 250 bytes for each block;
/// up to 120 MB while windows of 4 MiB are searched.
///
/// # Errors
///
/// Those of [`TableBuilder::add`]; [`ErrorKind::Io`] if nothing of the source can be read; [`ErrorKind::NotATable`] for the
/// table of another program, such as RocksDB, by the magic number at its end; [`ErrorKind::DatabaseTable`] for a database's
/// table and the builder of a plain one; [`ErrorKind::Comparator`] if the builder's order does not fit;
/// [`ErrorKind::InvalidState`] where entries are to be copied in their stored order and the builder holds others. In all
/// cases but the first, nothing was added.
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
    let path = source.take_path();
    // Not the builder's errors: they are about another file.
    let at_path = |error: Error| match &path {
        Some(path) => error.at_path(path),
        None => error,
    };
    let file = TableFile::new(source).map_err(at_path)?;
    file.refuse_foreign().map_err(at_path)?;
    let builder = builder.table_mut();
    let target = Target {
        order: builder.order().clone(),
        keys: options.keys,
        stored_order: options.stored_order,
    };
    let mut progress = Reporter::new(file.size.saturating_mul(2), options.progress);
    let mut survey = Survey::new(&file, &target.order, Patience::Endless);
    if survey.run(&mut progress).is_break() {
        let cancelled = true;
        return Ok(SalvageReport {
            cancelled,
            ..survey.report()
        });
    }
    let plan = survey.plan(&target).map_err(at_path)?;
    let properties = survey.properties.take();
    if plan.stored_order {
        let comparator = properties
            .as_ref()
            .map(|properties| &*properties.comparator);
        builder.keep_stored_order(comparator)?;
    }
    for (name, value) in properties.iter().flat_map(Properties::user_properties) {
        builder.keep_property(name, value);
    }
    let report = SalvageReport {
        entries_out_of_order: plan.left_out,
        stored_order: plan.stored_order,
        stated_entries: properties.as_ref().map(|properties| properties.entries),
        stated_data_blocks: properties.as_ref().map(|properties| properties.data_blocks),
        ..survey.report()
    };
    Copier::new(&file, builder, report).run(plan.pieces, &mut progress)
}

/// How much [`salvage`] would copy.
#[derive(Debug, Default)]
pub(crate) struct Recoverable {
    pub(crate) entries: u64,
    pub(crate) blocks: u64,
}

/// Returns how much [`salvage`] would copy of `file`, in `order` or, for a database's table, in the order of internal keys.
/// Ignores entries that are out of order within a block. `progress` covers one pass over the file. If it ends the run,
/// counts the blocks found until then.
pub(crate) fn recoverable(
    file: &TableFile,
    order: &Order,
    progress: &mut Reporter<'_>,
) -> Recoverable {
    if file.refuse_foreign().is_err() {
        return Recoverable::default();
    }
    let mut survey = Survey::new(file, order, Patience::Limited);
    let _ = survey.run(progress);
    if matches!(order, Order::Bytewise) && survey.kind() == KeyKind::Database {
        let order = internal_order(Order::Bytewise);
        let mut survey = Survey::new(file, &order, Patience::Limited);
        let _ = survey.run(progress);
        return survey.recoverable();
    }
    survey.recoverable()
}
