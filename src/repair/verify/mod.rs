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

use crate::comparator::Order;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Section};
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::footer::Footer;
#[cfg(doc)]
use crate::format::internal_key::InternalKeyComparator;
use crate::format::internal_key::{internal_order, user_order};
use crate::format::pieces::Pieces;
use crate::format::properties::{KeyKind, Properties};
use crate::read::file::TableFile;
use crate::read::options::OpenOptions;
use crate::read::recognise::Evidence;
use crate::read::source::Source;
use crate::repair::progress::{Progress, Reporter};

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
/// use leveltable::repair::{VerifyOptions, verify};
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

    /// Says what kind of keys the table holds. By default that is guessed from the keys.
    pub fn keys(mut self, kind: KeyKind) -> VerifyOptions<'a> {
        self.keys = Some(kind);
        self
    }

    /// Calls `callback` after each data block, and after each part of the file that is searched for blocks. On
    /// [`ControlFlow::Break`] the run ends, and the report says that it was [cancelled](VerifyReport::cancelled).
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
/// the index is damaged, `verify` searches for data blocks by their checksums and reports how much of the data is sound. It
/// gives up a search after 4 MiB without a block.
///
/// Unless the options say otherwise, a table is what its properties say. Without properties, a database's table is recognised
/// by its keys. It is checked in the order of internal keys, and every key must parse as one. If no comparator is named,
/// and keys are in neither order or the properties name another, the order is [unknown](VerifyReport::unknown_order): a state
/// of its own, since everything else is checked. If the index keys show that the order is bytewise, since they were shortened
/// in it, keys out of order are damage. If the keys fit either kind, a filter has to pass them as they are stored or their user
/// keys.
///
/// Costs a read of the whole file (no block goes to the cache) and the memory of its largest block, of its index, and
/// of 24 bytes for each block. A file whose handles overlap is read at most twice over. If nothing but the keys
/// says of which kind they are, and they or a filter show that the index looks like the other one, all of this is done again.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the source cannot tell its size. Everything else is in the report: a read that fails is a
/// finding, and the rest is still checked.
///
/// ```
/// use leveltable::repair::{VerifyOptions, verify};
/// use leveltable::{Section, WriteOptions};
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
    let mut file = TableFile::new(source.into())?;
    // Errors name the file, findings do not.
    file.source.path = None;
    let mut first = Verifier::new(&file, options);
    let Some(other) = first.run() else {
        return Ok(first.report);
    };
    let options = std::mem::take(&mut first.options).keys(other);
    let mut second = Verifier::new(&file, options);
    second.run();
    // The keys say of which kind they are, unless a filter rejects some as of that kind and none as of the other: a database's
    // filter holds user keys.
    let keys_say_so = first.evidence.verdict() == Some(other);
    let is_second = !second.rejects || keys_say_so && first.rejects;
    Ok(if is_second { second } else { first }.report)
}

/// One run over one file, whose keys are taken for keys of one kind and in one order.
struct Verifier<'a> {
    file: &'a TableFile,
    options: VerifyOptions<'a>,
    /// The order of the keys as they are stored.
    order: Order,
    /// Keys out of order, as damage: until it is known whether this is the order of the table.
    misordered: VerifyReport,
    /// What the keys say about their kind and their order.
    evidence: Evidence,
    report: VerifyReport,
    /// Sound filters, of those that the metaindex names.
    filters: Vec<Filter>,
    /// Whether a filter rejects a key.
    rejects: bool,
    /// What divides the index and filters, and where that is.
    pieces: Option<(Pieces, Place)>,
    /// What the table says of itself, and where.
    properties: Option<(Properties, Place)>,
    /// What the properties are compared with.
    counted: Properties,
    /// Where all blocks lie that handles lead to.
    extents: Vec<Extent>,
    /// Bytes that handles may still ask for. A hostile file could name a large block again and again.
    budget: u64,
    work: KeyWork,
}

impl<'a> Verifier<'a> {
    fn new(file: &'a TableFile, mut options: VerifyOptions<'a>) -> Verifier<'a> {
        options.progress.total = file.size;
        let order = options.open.order.clone().unwrap_or(Order::Bytewise);
        Verifier {
            report: VerifyReport::default(),
            file,
            options,
            order,
            misordered: VerifyReport::default(),
            evidence: Evidence::default(),
            filters: Vec::new(),
            rejects: false,
            pieces: None,
            properties: None,
            counted: Properties::default(),
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
            work: KeyWork::of_file(),
        }
    }

    /// Returns the other kind of keys, if nothing says of which kind they are, but the keys or a filter speak for that.
    fn run(&mut self) -> Option<KeyKind> {
        let footer = self.check_footer();
        let index = footer.and_then(|footer| self.check_metadata(footer));
        let is_certain = self.choose_kind(index.as_ref().map(|(index, _)| index));
        // Whether an index vouches that it leads to all data blocks.
        let is_complete = index.is_some();
        if let Some((index, place)) = index {
            self.check_data(index, place);
        }
        self.report.entries = self.counted.entries;
        self.report.data_blocks = self.counted.data_blocks;
        self.report_order();
        if !self.options.progress.is_cancelled {
            self.report_filters();
            self.compare_properties();
            self.check_coverage(is_complete);
            if !is_complete {
                let left = self.count_what_is_left();
                // A file without a footer is no table, whatever blocks it has.
                if footer.is_some() {
                    (self.report.entries, self.report.data_blocks) = left;
                }
            }
        }
        if !self.options.progress.is_cancelled {
            self.check_that_it_opens();
        }
        self.report.file_bytes = self.file.size;
        self.report.cancelled = self.options.progress.is_cancelled;
        let findings = &mut self.report.findings;
        findings.sort_by_key(|finding| (finding.offset(), finding.section()));
        let other = match self.report.keys {
            KeyKind::Plain => KeyKind::Database,
            KeyKind::Database => KeyKind::Plain,
        };
        let may_be = self.rejects || self.evidence.verdict() == Some(other);
        let is_unclear = may_be && !is_certain && !self.report.cancelled;
        if !is_unclear {
            self.options.progress.complete();
        }
        is_unclear.then_some(other)
    }

    /// Checks the metaindex and what it names. Returns the index, if it is sound, and its place.
    fn check_metadata(&mut self, footer: Footer) -> Option<(Block<Bytes>, Place)> {
        let named_by = (Section::Footer, self.file.footer_offset());
        let (index_at, at) = (footer.index, footer.metaindex);
        let index = self.load(index_at, Section::Index, named_by, KeyWork::open);
        let metaindex = self.load(at, Section::Metaindex, named_by, KeyWork::open);
        if let Some(metaindex) = metaindex {
            let place = (Section::Metaindex, at.offset);
            self.check_metaindex(metaindex, place);
        }
        if let Some((pieces, place)) = &self.pieces {
            let check = |index: &Block<Bytes>| pieces.index.check_block(&index.data);
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

    /// Chooses the kind of keys that the table is checked for, and returns whether the caller, the comparator or the properties say it.
    /// Otherwise it is what the index looks like.
    fn choose_kind(&mut self, index: Option<&Block<Bytes>>) -> bool {
        let is_internal = self.options.keys.is_none() && self.order.shortens_filter_keys();
        let of_order = match &self.options.open.order {
            Some(_) if is_internal => Some(KeyKind::Database),
            order => order.as_ref().map(|_| KeyKind::Plain),
        };
        let stated = self.stated().map(|stated| stated.key_kind);
        let kind = self.options.keys.or(of_order).or(stated);
        self.report.keys = kind.unwrap_or_else(|| {
            let mut evidence = Evidence::default();
            if let Some(index) = index.cloned() {
                walk(index, &Order::Bytewise, |before, key, _| {
                    evidence.add_index_key(before, key)
                });
            }
            evidence.verdict().unwrap_or_default()
        });
        if self.report.keys == KeyKind::Database && !is_internal {
            self.order = internal_order(self.order.clone());
        }
        kind.is_some()
    }

    /// Reports keys out of order, now that all were seen: as damage if the table is in the order that they were checked in.
    fn report_order(&mut self) {
        if self.options.open.stored_order {
            return;
        }
        let order = user_order(&self.order).unwrap_or(&self.order);
        let stated = self.stated().map(|stated| &*stated.comparator);
        let is_known = self.options.open.order.is_some()
            || match stated {
                Some(name) => name == order.comparator().name(),
                None => self.evidence.order_is_evident(),
            };
        if is_known {
            return self.report.add_damage(std::mem::take(&mut self.misordered));
        }
        // What shows that the order is another one.
        let first = self.misordered.findings.first();
        let out_of_order = first.map(|first| {
            let (section, offset) = (first.section(), first.offset());
            format!("keys ascend neither bytewise nor as a database's, first in the {section} at offset {offset}")
        });
        let named = stated.map(|name| format!("the table names the comparator {name:?}"));
        self.report.order_clue = named.or(out_of_order);
        self.report.unknown_order = self.report.order_clue.is_some();
    }

    /// Reports a finding if the table does not open although nothing else is wrong.
    fn check_that_it_opens(&mut self) {
        if !self.report.is_sound() {
            return;
        }
        let mut options = self.options.open.clone().no_cache();
        if !options.stored_order {
            options.order = Some(self.order.clone());
        }
        if let Err(error) = options.open_source(self.file.source.clone()) {
            self.report.find_error((Section::Index, 0), &error);
        }
    }
}
