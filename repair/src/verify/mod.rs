//! Checks a whole table and reports everything that is wrong with it: footer, index, metaindex, filters, data, and
//! whether these parts cover the file.
//!
//! ```text
//! blocks.rs       reads a block by its handle, checks frame and structure; finds what no handle leads to
//! metaindex.rs    the metaindex, and the filters, properties and pieces that it names
//! data.rs         index and data blocks: the order of the keys, and each key against the filters
//! report.rs       findings and figures
//! ```

mod blocks;
mod data;
mod metaindex;
mod report;

use std::ops::ControlFlow;

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
#[cfg(doc)]
use leveltable::db::InternalKeyComparator;
use leveltable::db::KeyKind;
use leveltable::format::{Entries, Footer, Pieces, Properties};
use leveltable::sister_crates::{
    Evidence, Order, internal_order, is_in_stored_order, named_order, user_order,
};
use leveltable::{OpenOptions, Result, Section, Source};

use crate::file::{File, handles};
use crate::progress::{Progress, Reporter};
use blocks::Extent;
use data::walk;
use metaindex::Filter;
use report::Place;
pub use report::{Finding, Severity, VerifyReport};

/// How [`verify`] checks a table.
///
/// ```
/// use std::ops::ControlFlow;
/// use leveltable::WriteOptions;
/// use leveltable_repair::{VerifyOptions, verify};
///
/// # let mut file = Vec::new();
/// # WriteOptions::new().build(&mut file).finish()?;
/// let options = VerifyOptions::new().progress(|progress| {
///     eprint!("\r{} of {} bytes", progress.done, progress.total);
///     ControlFlow::Continue(())
/// });
/// assert!(verify(file, options)?.is_sound());
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct VerifyOptions<'a> {
    open: OpenOptions,
    keys: Option<KeyKind>,
    progress: Reporter<'a>,
}

impl<'a> VerifyOptions<'a> {
    /// Bytewise order, or that of a database if the table looks like one's; the built-in filter policies.
    pub fn new() -> VerifyOptions<'a> {
        VerifyOptions::default()
    }

    /// How the table would be opened: its [comparator](OpenOptions::comparator), filter policies and prefix extractors.
    ///
    /// Keys that do not ascend in the order of the comparator are damage. For a database's table this is the order of user keys
    /// if [`keys`](VerifyOptions::keys) says so. Otherwise it is the order of the keys as they are stored, such as an
    /// [`InternalKeyComparator`]. With [`stored_order`](OpenOptions::stored_order), the order of the keys is not checked.
    pub fn open_options(mut self, options: OpenOptions) -> VerifyOptions<'a> {
        self.open = options;
        self
    }

    /// Says what kind of keys the table holds. By default that is what the table says, or else what its index and first block look like.
    pub fn keys(mut self, kind: KeyKind) -> VerifyOptions<'a> {
        self.keys = Some(kind);
        self
    }

    /// Calls `callback` after each data block. On [`ControlFlow::Break`] the run ends, and the report says that it was
    /// [cancelled](VerifyReport::cancelled).
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> VerifyOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }
}

/// Checks the table in `source` and reports everything that is wrong with it, also if the table does not open.
///
/// The whole file is read: the footer, each block's checksum and structure, the order of keys in blocks and across them, the
/// index key of each data block against its neighbours, the first filter of each known policy against each key, the properties
/// against what was counted, `about.pieces` against what it divides, and whether blocks overlap or leave gaps. If the footer or
/// the index is damaged, no data block is checked.
///
/// The kind and the order of the keys are what the options say, or else the properties. Without properties, index and first block
/// decide: if keys ascend neither bytewise nor as a database's do, the order is [unknown](VerifyReport::unknown_order), and so it is
/// if the properties name a comparator that the options do not. That is a state of its own, since everything else is
/// checked. Keys that are out of order later are damage. Where nothing says of which kind keys are that fit both, a filter
/// has to pass them as they are stored or their user keys.
///
/// Costs a read of the whole file, and of the first block again (no block goes to the cache), and the memory of its largest block, of its
/// index, and of 24 bytes for each block. A file whose handles overlap is read at most twice over.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the source cannot tell its size. Everything else is in the report: a read that fails is a
/// finding, and the rest is still checked.
///
/// ```
/// use leveltable::{Section, WriteOptions};
/// use leveltable_repair::{VerifyOptions, verify};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build(&mut file);
/// builder.add(b"apple", b"red")?;
/// builder.finish()?;
/// file[5] ^= 1; // in the first data block
///
/// let report = verify(file, VerifyOptions::new())?;
/// assert!(!report.is_sound());
/// assert_eq!(report.findings[0].section(), Section::Data);
/// println!("{report}");
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn verify(source: impl Into<Source>, options: VerifyOptions<'_>) -> Result<VerifyReport> {
    let file = File::new(source.into())?;
    let mut verifier = Verifier::new(&file, options);
    verifier.run();
    Ok(verifier.report)
}

/// A run over one file.
struct Verifier<'a> {
    file: &'a File,
    options: VerifyOptions<'a>,
    /// The order of the keys as they are stored, if it is known.
    order: Option<Order>,
    /// Whether the first keys fit both kinds; and if so, whether nothing else says of which kind they are.
    fits_both_kinds: bool,
    is_kind_guessed: bool,
    report: VerifyReport,
    /// Sound filters, of those that the metaindex names.
    filters: Vec<Filter>,
    /// What divides the index and filters, and where that is.
    pieces: Option<(Pieces, Place)>,
    /// What the table says of itself, and where.
    properties: Option<(Properties, Place)>,
    /// What the properties are compared with.
    counted: Properties,
    /// Where data must end: before metaindex and index.
    data_end: u64,
    /// Where all blocks lie that handles lead to.
    extents: Vec<Extent>,
    /// Bytes that handles may still ask for. A hostile file could name a large block again and again.
    budget: u64,
}

impl<'a> Verifier<'a> {
    fn new(file: &'a File, mut options: VerifyOptions<'a>) -> Verifier<'a> {
        options.progress.total = file.size;
        Verifier {
            report: VerifyReport::default(),
            file,
            options,
            order: None,
            fits_both_kinds: false,
            is_kind_guessed: false,
            filters: Vec::new(),
            pieces: None,
            properties: None,
            counted: Properties::default(),
            data_end: 0,
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
        }
    }

    fn run(&mut self) {
        let index = self
            .check_footer()
            .and_then(|footer| self.check_metadata(footer));
        let block = index.as_ref().map(|(index, _)| index.block().clone());
        self.choose_order(block.as_ref());
        // Whether an index vouches that there are no other data blocks.
        let is_complete = index.is_some();
        if let Some((index, place)) = index {
            self.check_data(index, place);
        }
        self.report.entries = self.counted.entries;
        self.report.data_blocks = self.counted.data_blocks;
        if !self.options.progress.is_cancelled {
            self.report_filters();
            self.compare_properties();
            self.check_coverage(is_complete);
        }
        self.report.file_bytes = self.file.size;
        self.report.cancelled = self.options.progress.is_cancelled;
        let findings = &mut self.report.findings;
        findings.sort_by_key(|finding| (finding.offset(), finding.section()));
        self.options.progress.complete();
    }

    /// Checks the metaindex and what it names. Returns the index, if it is sound, and its place.
    fn check_metadata(&mut self, footer: Footer) -> Option<(Entries, Place)> {
        let named_by = (Section::Footer, self.file.footer_offset());
        let (index_at, at) = (footer.index, footer.metaindex);
        self.data_end = at.offset.min(index_at.offset);
        let index = self.load(index_at, Section::Index, named_by, Entries::new);
        if let Some(metaindex) = self.load(at, Section::Metaindex, named_by, Entries::new) {
            self.check_metaindex(metaindex, (Section::Metaindex, at.offset));
        }
        if let Some((pieces, place)) = &self.pieces {
            let check = |index: &Entries| pieces.check_index_block(index.block());
            let checked = pieces.check_index(index_at);
            let checked = checked.and_then(|()| index.as_ref().map_or(Ok(()), check));
            self.accept(*place, checked);
        }
        Some((index?, (Section::Index, index_at.offset)))
    }

    /// What the table says of itself.
    fn stated(&self) -> Option<&Properties> {
        self.properties.as_ref().map(|(stated, _)| stated)
    }

    /// Chooses the kind of keys, and their order: what the options say, or the properties, or else the keys of the index and of
    /// the first block.
    fn choose_order(&mut self, index: Option<&Bytes>) {
        let named = named_order(&self.options.open).cloned();
        let is_internal = named.as_ref().is_some_and(Order::shortens_filter_keys);
        let of_order = named.as_ref().map(|_| match is_internal {
            true => KeyKind::Database,
            false => KeyKind::Plain,
        });
        let stated = self.stated().map(|stated| stated.key_kind);
        let kind = self.options.keys.or(of_order).or(stated);
        let first = index.map(|index| first_blocks(self.file, index));
        let first = first.unwrap_or_default();
        let evidence = evidence_of(&first);
        self.fits_both_kinds = evidence.may_hold_internal_keys();
        self.is_kind_guessed = kind.is_none() && self.fits_both_kinds;
        self.report.keys = kind.or(evidence.verdict()).unwrap_or_default();
        let order = named.clone().unwrap_or(Order::Bytewise);
        let is_wrapped = self.report.keys == KeyKind::Database && user_order(&order).is_none();
        let order = if is_wrapped {
            internal_order(order)
        } else {
            order
        };
        if is_in_stored_order(&self.options.open) {
            return;
        }
        let name = user_order(&order).unwrap_or(&order).comparator().name();
        let clue = match self.stated() {
            _ if named.is_some() => None,
            Some(stated) if stated.comparator == name => None,
            Some(stated) => Some(format!(
                "the table names the comparator {:?}",
                stated.comparator
            )),
            None => {
                let is_misordered =
                    |block: &&(_, Bytes)| walk_block(&block.1, Some(&order), |_, _, _| ());
                first.iter().find(is_misordered).map(|(section, _)| {
                    format!(
                        "keys ascend neither bytewise nor as a database's, first in the {section}"
                    )
                })
            }
        };
        self.report.unknown_order = clue.is_some();
        self.report.order_clue = clue;
        self.order = Some(order).filter(|_| !self.report.unknown_order);
    }
}

/// The index and the first data block, whose keys tell of which kind all are.
fn first_blocks(file: &File, index: &Bytes) -> Vec<(Section, Bytes)> {
    let mut blocks = vec![(Section::Index, index.clone())];
    let first = handles(index).next();
    if let Some(range) = first.filter(|range| range.end <= file.footer_offset())
        && let Ok(block) = file.read_block(range, Section::Data)
    {
        blocks.push((Section::Data, block));
    }
    blocks
}

/// What the keys of the first blocks say about their kind.
fn evidence_of(blocks: &[(Section, Bytes)]) -> Evidence {
    let mut evidence = Evidence::default();
    for (section, block) in blocks {
        walk_block(block, None, |before, key, value| match section {
            Section::Index => evidence.add_index_key(before, key),
            _ => evidence.add_entry(before, key, value),
        });
    }
    evidence
}

/// Walks a block, if it has the form of one. Returns whether keys are not in this order.
fn walk_block(
    block: &Bytes,
    order: Option<&Order>,
    each: impl FnMut(Option<&[u8]>, &[u8], &[u8]),
) -> bool {
    let entries = Entries::new(block.clone());
    entries.is_ok_and(|entries| walk(entries, order, each).disorder.is_some())
}
