//! Copies what can be read of a damaged table into a new one.
//!
//! Three steps: a *survey* finds blocks whose checksums are right, by the index where that is sound and by
//! scanning where it is not; a *plan* decides which of them are the table's data, and in which order;
//! *copying* reads those once more and adds their entries to the builder.
//!
//! ```text
//! survey.rs       what footer and index lead to, and what is found in the gaps
//!   scan.rs         blocks in a part of the file that nothing leads to
//!   checksums.rs    the same behind damage, where no beginning is known
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
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Section};
use crate::read::file::TableFile;
use crate::read::source::Source;
use crate::repair::progress::{Progress, Reporter};
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;

use copy::Copier;
use plan::Piece;
pub(crate) use scan::Scanner;
use survey::Survey;

/// What [`salvage`] copied, and what is lost.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each range that is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Size of the damaged file.
    pub file_bytes: u64,
    /// Entries copied.
    pub entries: u64,
    /// Those of them whose block the index led to; the rest was found by scanning.
    pub entries_by_index: u64,
    /// Data blocks copied.
    pub data_blocks: u64,
    /// What became of the index.
    pub index: IndexState,
    /// Entries that could be read, but were not written since they are out of order: of blocks that some
    /// older table left behind, say.
    pub entries_out_of_order: u64,
    /// The ranges of the file from which nothing was copied although there was, or may have been, data,
    /// in the order of the keys around them.
    pub lost: Vec<LostRange>,
    /// Sound blocks without data that were set aside, and what they were taken for.
    pub set_aside: Vec<(Section, Range<u64>)>,
    /// Whether the progress callback ended the run early: what would have come then is not in this report.
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
    /// How many entries it has, where that can be told.
    pub entries: Option<u64>,
    /// The last key copied before it: all lost keys lie behind this one. `None`: it is in front of all.
    pub after: Option<Bytes>,
    /// The first key copied after it: all lost keys lie before this one. `None`: it is behind all.
    pub before: Option<Bytes>,
}

/// What became of a damaged table's index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// The footer led to it, and it is sound: it says which blocks there are.
    Sound,
    /// It is sound, but was not where a footer says; its blocks may be elsewhere, too.
    Found,
    /// There is none, or it is damaged: all data blocks were found by scanning.
    #[default]
    Lost,
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
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty() && self.entries_out_of_order == 0 && !self.cancelled
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
            write!(f, ", behind key \"{}\"", key.escape_ascii())?;
        }
        if let Some(key) = &self.before {
            write!(f, ", before key \"{}\"", key.escape_ascii())?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Copies every readable entry of the damaged table in `source` to `builder`, in order, and reports what
/// is lost. The caller finishes the builder.
///
/// The index says which blocks there are, where it is sound. Where it, or the footer that leads to it, is
/// damaged, the file is scanned for blocks with valid checksums. Damage to one block costs
/// that block only, and one whose checksum is wrong is not copied at all: of what it still seems to hold,
/// nobody knows which bytes are right.
///
/// **Nothing is invented.** Index, metaindex and filter blocks are told from data, also without the footer
/// that names them: an index by its values, the sizes of the blocks before it, and its keys,
/// which separate theirs; a metaindex by the filters that it names. If no index is found, blocks that do not
/// fit into the order of the rest are left out, so that as many entries as can be are copied, and
/// reported. What no program can tell: blocks of an older table that the file still holds *and* whose
/// keys fit in; tables or blocks stored as values in a block that is damaged itself, in a file without an index or
/// one in which it has moved (and if the table is tiny, the order may then seem to be another, which is an error);
/// blocks that a metaindex names by other names than filters', as RocksDB's does with its properties, where footer or index
/// is damaged; and, without the footer, an index that stands right behind its first block, all between them cut out.
///
/// The order is the builder's. A builder in the wrong one is noticed; for a database's table use
/// [`salvage_db`]. (To treat a plain table whose keys look like a database's as what it is,
/// give its builder the comparator `Arc::new(BytewiseComparator)`.)
///
/// A part of the source that cannot be read is lost like a damaged one, and the [reason](LostRange::reason) quotes
/// the source's error. Where blocks are searched for, a read that fails is tried in smaller parts, down to 4 KiB.
///
/// # Cost
///
/// Two reads of each data block that the index leads to, three of one that is found behind another. Where damage has
/// to be searched for what comes behind, about 100 ns for each byte, in windows that begin at 256 KiB (so some
/// 20 ms for each damaged place) and grow to 4 MiB; so for each byte of a file without an index whose blocks are
/// compressed otherwise than with Snappy. Blocks larger than 2 MiB are found by the index, and raw and Snappy ones also
/// behind other blocks and at the front of the file, but not right behind damage. Memory: the largest block; the first and
/// last key and some 150 bytes for each block; up to 120 MB while windows of 4 MiB are searched.
///
/// # Errors
///
/// Those of [`TableBuilder::add`]; [`ErrorKind::Io`] where nothing of the source can be read;
/// [`ErrorKind::NotATable`] for the table of another program, RocksDB say, by the magic number that it ends with;
/// [`ErrorKind::DatabaseTable`] and [`ErrorKind::Comparator`] where the builder's order does not fit. Nothing
/// was added in the latter three cases.
///
/// ```
/// use leveltable::{WriteOptions, salvage};
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
/// let report = salvage(file, &mut builder)?;
/// builder.finish()?;
/// assert!(report.entries > 90);
/// assert_eq!(report.lost[0].range.start, 0);
/// println!("{report}");
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn salvage<D: Destination>(
    source: impl Into<Source>,
    builder: &mut TableBuilder<D>,
) -> Result<SalvageReport> {
    salvage_with(source, builder, |_| ControlFlow::Continue(()))
}

/// Like [`salvage`], calling `progress` after each block that was looked at or copied, and after each window that was
/// searched. On [`ControlFlow::Break`] the run ends, and the report says that it was
/// [cancelled](SalvageReport::cancelled); what was copied until then stays in the builder.
///
/// # Errors
///
/// As [`salvage`].
///
/// ```
/// # use std::ops::ControlFlow;
/// # use leveltable::{WriteOptions, salvage_with};
/// # let mut damaged = Vec::new();
/// # WriteOptions::new().build(&mut damaged).finish()?;
/// # let mut rescued = Vec::new();
/// # let mut builder = WriteOptions::new().build(&mut rescued);
/// let report = salvage_with(damaged, &mut builder, |progress| {
///     eprint!("\r{} of {} bytes", progress.done, progress.total);
///     ControlFlow::Continue(())
/// })?;
/// assert!(!report.cancelled);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn salvage_with<D: Destination>(
    source: impl Into<Source>,
    builder: &mut TableBuilder<D>,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<SalvageReport> {
    let file = TableFile::new(source.into())?;
    let order = builder.order().clone();
    let mut progress = Reporter::new(file.size.saturating_mul(2), &mut progress);
    let mut survey = Survey::new(&file, &order)?;
    if survey.run(&mut progress).is_break() {
        let cancelled = true;
        return Ok(SalvageReport {
            cancelled,
            ..survey.report(0)
        });
    }
    let plan = survey.plan()?;
    let report = survey.report(plan.left_out);
    Copier::new(&file, builder, report).run(plan.pieces, &mut progress)
}

/// Like [`salvage`], for a table of a LevelDB database. Stored keys are copied as they are.
///
/// # Errors
///
/// As [`salvage`].
pub fn salvage_db<D: Destination>(
    source: impl Into<Source>,
    builder: &mut DbTableBuilder<D>,
) -> Result<SalvageReport> {
    salvage(source, builder.table_mut())
}

/// Like [`salvage_db`], with a callback as [`salvage_with`] has it.
///
/// # Errors
///
/// As [`salvage`].
pub fn salvage_db_with<D: Destination>(
    source: impl Into<Source>,
    builder: &mut DbTableBuilder<D>,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<SalvageReport> {
    salvage_with(source, builder.table_mut(), progress)
}

/// How many entries [`salvage`] would copy, from how many blocks; but for what an order of blocks' keys
/// within themselves costs. `progress` is over the file once; where it ends the run, these are the blocks found
/// until then.
pub(crate) fn recoverable(
    file: &TableFile,
    order: &Order,
    progress: &mut Reporter<'_>,
) -> Result<(u64, u64)> {
    let mut survey = Survey::new(file, order)?;
    let _ = survey.run(progress);
    let plan = survey.plan()?;
    let blocks = plan
        .pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Copy { .. }));
    Ok((plan.entries, blocks.count() as u64))
}
