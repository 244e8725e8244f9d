//! Copies the readable part of a damaged table into a new one.
//!
//! ```text
//! scan.rs         frames whose checksums are right, where no handle leads
//!   checksums.rs    the same after damage, where no block is known to begin
//! find.rs         the blocks: what footer and index lead to, what a scan finds between, and what they are
//! copy.rs         which data is copied, and in which order; what is lost
//! report.rs       counts and lost ranges
//! ```

pub(crate) mod checksums;
pub(crate) mod copy;
pub(crate) mod find;
mod report;
mod scan;

use std::ops::ControlFlow;

#[cfg(doc)]
use leveltable::DbTableBuilder;
use leveltable::db::KeyKind;
use leveltable::format::{Entries, Properties};
use leveltable::sister_crates::{Evidence, Order, imitate, order_of, user_order};
use leveltable::{Destination, Error, ErrorKind, Result, Source, TableBuilder};

use crate::file::File;
use crate::progress::{Progress, Reporter};
use copy::{Copier, Plan, plan};
use find::Blocks;
pub use report::{IndexState, LostRange, SalvageReport};
use scan::SECTOR;

/// Options of [`salvage`].
///
/// ```
/// use std::ops::ControlFlow;
/// use leveltable::WriteOptions;
/// use leveltable_repair::{SalvageOptions, salvage};
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
    progress: Reporter<'a>,
}

impl<'a> SalvageOptions<'a> {
    /// The kind of keys is taken from the table's properties, or else guessed from the keys.
    pub fn new() -> SalvageOptions<'a> {
        SalvageOptions::default()
    }

    /// Sets the kind of the damaged table's keys, like [`VerifyOptions::keys`](crate::VerifyOptions::keys). By default, it is taken from
    /// the table's properties, or else guessed. The caller is trusted.
    pub fn keys(mut self, kind: KeyKind) -> SalvageOptions<'a> {
        self.keys = Some(kind);
        self
    }

    /// Calls `callback` after each block that was examined or copied, and after each part of the file that was searched.
    /// On [`ControlFlow::Break`] the run ends, and the report says that it was [cancelled](SalvageReport::cancelled).
    /// Entries copied until then stay in the builder.
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> SalvageOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }
}

/// Copies the readable part of the damaged table in `source` to `builder`, in order, and reports what is lost. The caller finishes
/// the builder. For a database's table, pass [`DbTableBuilder::table_mut`].
///
/// 1. An intact footer is trusted. If the index that it leads to is sound, the index decides: each block that it lists is copied
///    if its checksum is correct and its keys ascend between those of the index. Nothing else is copied. Damage to one block
///    costs that block only.
/// 2. Otherwise blocks are found by their checksums, and through the rest of a damaged index. A block is recognised by its contents: a
///    metaindex by names and handles, properties by their names, an index by the handles of blocks that follow each other from the start
///    of the file. If that index is sound, the first rule applies.
/// 3. Without an index, data is copied in the order of the file. A block whose keys do not come after those of the previous block is
///    left out, and so is one that would exclude its successor.
///
/// **Nothing is invented**: nothing is copied without a correct checksum, and metadata is not mistaken for data. Everything left
/// out is [reported](SalvageReport::lost), including sound blocks that have no place by these rules. Two kinds of blocks look
/// alike: a data block whose one value is the handle of a block at offset 0, and the index of a table of one block. Without a
/// footer, both are [set aside](SalvageReport::set_aside), unless the other block is the only data that was found. And without an
/// index, blocks that were stored in a value of a damaged block count as data if their keys come after the last ones.
///
/// Except where its options say otherwise, the new table is like the damaged one, as far as that is known: it has its codec; its filter, if
/// the policy is built in; blocks that end where the old ones did; and the application's properties that the caller has not set.
///
/// A part of the source that cannot be read is lost like a damaged one, and the [reason](LostRange::reason) quotes the
/// source's error. When a read fails during a search, smaller parts are tried, down to 4 KiB.
///
/// # Cost
///
/// Reads each data block twice, and three times without an index. After damage, blocks are found by their checksums, in windows of 4 MiB: a
/// block larger than 2 MiB is found by the index, after another block and at the start of the file, but not right after damage. The end of
/// a damaged block is searched for up to the end of the file. Once these searches have read four times the file's size, each is limited to
/// 64 KiB. Memory: the largest blocks, some 100 bytes for each block, and up to 120 MB while windows are searched.
///
/// # Errors
///
/// - Errors of [`TableBuilder::add`].
/// - [`ErrorKind::TooLarge`] if the keys in the new table's index would take more than 64 times the file's size plus a
///   megabyte.
/// - [`ErrorKind::Io`] if nothing of the source can be read.
/// - [`ErrorKind::NotATable`] for the table of another program, such as RocksDB, by the magic number at its end.
/// - [`ErrorKind::DatabaseTable`] for a database's table, or what may be one, with the builder of a plain table.
/// - [`ErrorKind::Comparator`] if the keys are not in the builder's order: the table names another comparator, its index does not
///   ascend, or most blocks do not; also for a plain table with the builder of a database's.
///
/// With the last four, nothing was added.
///
/// ```
/// use leveltable::WriteOptions;
/// use leveltable_repair::{SalvageOptions, salvage};
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
pub fn salvage<D: Destination>(
    source: impl Into<Source>,
    builder: &mut TableBuilder<D>,
    options: SalvageOptions<'_>,
) -> Result<SalvageReport> {
    let file = File::new(source.into())?;
    let at_path = |error| file.at_path(error);
    file.refuse_foreign().map_err(at_path)?;
    let order = order_of(builder).clone();
    let mut progress = options.progress;
    progress.total = file.size.saturating_mul(2);
    let mut blocks = Blocks::find(&file, &order, &mut progress);
    if blocks.found.is_empty() && file.size > 0 {
        // If nothing can be read, the source's error says why.
        file.read(0..file.size.min(SECTOR)).map_err(at_path)?;
    }
    let mut report = SalvageReport::of(&blocks);
    report.cancelled = progress.is_cancelled;
    if report.cancelled {
        return Ok(report);
    }
    let index = blocks.index.take();
    let entries = index
        .as_ref()
        .and_then(|index| Entries::new(index.block.clone()).ok());
    let planned = index.is_none().then(|| plan(&blocks));
    blocks
        .check_keys(options.keys, entries, planned.as_ref())
        .map_err(at_path)?;
    // If no data block is compressed, the index may be.
    let codecs = blocks.found.values().filter_map(|found| found.codec);
    let codec = codecs.min_by_key(|codec| *codec == "none");
    blocks.style.codec = codec;
    if let (Some(properties), None) = (&blocks.style.properties, &blocks.style.filter) {
        blocks.style.filter = Some(properties.filter_policy.clone());
    }
    let keeps_blocks = imitate(builder, &blocks.style);
    let copier = Copier {
        blocks,
        builder,
        keeps_blocks,
        report,
        progress,
        last_key: Vec::new(),
        done: file.size,
        room: file.size.saturating_mul(64).saturating_add(1 << 20),
    };
    match (index, planned) {
        (Some(index), _) => copier.copy_listed(&index.block),
        (None, Some(planned)) => copier.copy_planned(planned),
        (None, None) => Ok(copier.report),
    }
}

impl Blocks<'_> {
    /// Rejects a builder for another kind of keys, or another order. `named` is the kind that the caller named.
    fn check_keys(
        &self,
        named: Option<KeyKind>,
        index: Option<Entries>,
        plan: Option<&Plan>,
    ) -> Result<()> {
        let has_index = index.is_some();
        let (mut evidence, mut ascends) = (Evidence::default(), true);
        if let Some(mut index) = index {
            let mut previous: Option<Vec<u8>> = None;
            while let Ok(true) = index.advance() {
                let key = index.key();
                evidence.add_index_key(previous.as_deref(), key);
                let is_below = |previous: &Vec<u8>| self.order.compare(previous, key).is_lt();
                ascends &= previous.as_ref().is_none_or(is_below);
                key.clone_into(previous.get_or_insert_default());
            }
        }
        evidence.add(&self.evidence);
        let misordered = self.data().filter(|found| !found.ascends).count();
        ascends &= 2 * misordered <= self.data().count();
        ascends &= plan.is_none_or(|plan| !plan.is_misordered);
        let stated = self.style.properties.as_ref();
        let kind = named
            .or(stated.map(|stated| stated.key_kind))
            .or(evidence.verdict());
        self.check_kind(
            kind,
            kind.is_none() && !has_index && evidence.may_hold_internal_keys(),
        )?;
        self.check_order(stated, ascends)
    }

    /// Rejects a builder for another kind than these keys; a plain one also if they may be a database's.
    fn check_kind(&self, kind: Option<KeyKind>, may_be_database: bool) -> Result<()> {
        let is_plain = matches!(self.order, Order::Bytewise);
        if is_plain && (kind == Some(KeyKind::Database) || may_be_database) {
            return Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database, or may do so (its keys end in what may be a sequence number and \
                 a type): salvage it with a DbTableBuilder, or say that its keys are plain",
            ));
        }
        if kind == Some(KeyKind::Plain) && self.order.shortens_filter_keys() {
            return Err(Error::new(
                ErrorKind::Comparator,
                "the keys of this table are not a database's: salvage it with a TableBuilder",
            ));
        }
        Ok(())
    }

    fn check_order(&self, stated: Option<&Properties>, ascends: bool) -> Result<()> {
        let order = user_order(self.order).unwrap_or(self.order);
        let name = order.comparator().name();
        if ascends && stated.is_none_or(|stated| stated.comparator == name) {
            return Ok(());
        }
        let own = stated.map_or_else(
            || "not named".into(),
            |stated| format!("{:?}", stated.comparator),
        );
        let message = format!("this table is not in the order of {name:?} (its own: {own})");
        let hint = "build the new one with the comparator that it was written with";
        Err(Error::new(ErrorKind::Comparator, message).with_hint(hint))
    }
}
