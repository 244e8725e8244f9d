//! Checks a whole table and reports everything that is wrong with it: footer, index, metaindex, filters, data, and
//! whether these parts cover the file.
//!
//! ```text
//! blocks.rs       reads a block by its handle, checks frame and structure
//! metaindex.rs    the metaindex, and the filters, properties and pieces that it names
//! data.rs         index and data blocks: the order of the keys, and each key against the filters
//! coverage.rs     what no handle leads to
//! report.rs       findings and figures
//! ```

mod blocks;
mod coverage;
mod data;
mod metaindex;
mod report;

use std::ops::ControlFlow;

use crate::comparator::Order;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Section};
use crate::format::block_check::KeyWork;
use crate::format::footer::Footer;
#[cfg(doc)]
use crate::format::internal_key::InternalKeyComparator;
use crate::format::internal_key::{internal_order, user_order};
use crate::format::properties::KeyKind;
use crate::read::file::TableFile;
use crate::read::options::OpenOptions;
use crate::read::recognise::Evidence;
use crate::read::source::Source;
use crate::repair::progress::{Callback, Progress, Reporter};
use crate::write::summary::Summary;

use blocks::Extent;
use metaindex::{Filter, Named};
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
    progress: Callback<'a>,
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
        self.progress = Callback::new(callback);
        self
    }
}

/// Checks the table in `source` and reports everything that is wrong with it, also if the table does not open.
///
/// The whole file is read: the footer, each block's checksum and structure, the order of keys in blocks and across
/// them, the index key of each data block against its neighbours, each filter of a known policy or prefix extractor against
/// each key, the properties against what was counted, `about.pieces` against what it divides, and whether blocks overlap or leave gaps. If the footer or the index is
/// damaged, `verify` searches for data blocks by their checksums and reports how much of the data is sound. It gives up a
/// search after 4 MiB without a block.
///
/// Unless the options say otherwise, a table is what its properties say. Without properties, a database's table is recognised
/// by its keys. It is checked in the order of internal keys, and every key must parse as one. If no comparator is named,
/// and keys are in neither order or the properties name another, the order is [unknown](VerifyReport::unknown_order): a state
/// of its own, since everything else is checked. If the index keys show that the order is bytewise, since they were shortened
/// in it, keys out of order are damage. If the keys fit either kind, a filter has to pass them as they are stored or their user
/// keys: otherwise it is [`Severity::Unchecked`].
///
/// Costs a read of the whole file (no block goes to the cache) and the memory of its largest block, of its index, and
/// of 24 bytes for each block. A file whose handles overlap is read at most twice over. A database's table without a
/// shortened index key may be read twice, too.
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
    let mut source = source.into();
    let path = source.path.take();
    let file = TableFile::new(source).map_err(|error| match &path {
        Some(path) => error.at_path(path),
        None => error,
    })?;
    let VerifyOptions {
        open,
        keys,
        progress,
    } = options;
    let mut progress = Reporter::new(file.size, progress);
    let mut run = |guess| Verifier::new(&file, &open, keys, guess, &mut progress).run();
    let first = run(None);
    let Some(kind) = first.other_kind.filter(|_| !first.report.cancelled) else {
        return Ok(first.report);
    };
    let second = run(Some(kind));
    // A filter that passes every key of the first kind and rejects some of the other speaks for the first. One that rejects keys of
    // either kind is damaged, and says nothing.
    let keys_decide = first.keys_decide && first.filters_reject_keys;
    Ok(if second.filters_reject_keys && !keys_decide {
        first.report
    } else {
        second.report
    })
}

/// What one run found.
struct Verified {
    report: VerifyReport,
    filters_reject_keys: bool,
    /// The kind of keys that the table should be checked for instead, and whether the keys themselves say so.
    other_kind: Option<KeyKind>,
    keys_decide: bool,
}

/// One run over one file.
struct Verifier<'a, 'p> {
    file: &'a TableFile,
    options: &'a OpenOptions,
    /// The kind of keys that the caller named.
    kind_named: Option<KeyKind>,
    /// Whether, without properties, nothing but the keys says of which kind they are.
    guesses_kind: bool,
    /// Whether the properties or the index keys decide what kind of keys is checked.
    chooses_kind: bool,
    /// The order in which the keys are checked.
    order: Order,
    report: VerifyReport,
    named: Named,
    /// What the properties are compared with.
    counted: Summary,
    /// Whether `counted` is of all data blocks: none of them is damaged, and nor is the index.
    counted_all: bool,
    /// What the keys say about their kind and order.
    evidence: Evidence,
    /// Keys out of order, as damage: until it is known whether the order that they were checked in is the table's.
    misordered: VerifyReport,
    /// Where all blocks lie that handles lead to.
    extents: Vec<Extent>,
    /// Bytes that handles may still ask for. A hostile file could name a large block again and again.
    budget: u64,
    work: KeyWork,
    progress: &'a mut Reporter<'p>,
}

impl<'a, 'p> Verifier<'a, 'p> {
    /// Prepares a run. `keys` is the kind of keys that the caller named, `guess` what an earlier run came to.
    fn new(
        file: &'a TableFile,
        options: &'a OpenOptions,
        keys: Option<KeyKind>,
        guess: Option<KeyKind>,
        progress: &'a mut Reporter<'p>,
    ) -> Verifier<'a, 'p> {
        let order = options.order.clone().unwrap_or(Order::Bytewise);
        let (order, kind) = match keys.or(guess) {
            Some(KeyKind::Database) => (internal_order(order), KeyKind::Database),
            None if order.shortens_filter_keys() => (order, KeyKind::Database),
            _ => (order, KeyKind::Plain),
        };
        Verifier {
            report: VerifyReport {
                file_bytes: file.size,
                keys: kind,
                ..VerifyReport::default()
            },
            order,
            kind_named: keys,
            guesses_kind: keys.is_none() && options.order.is_none(),
            chooses_kind: keys.is_none() && guess.is_none() && options.order.is_none(),
            file,
            options,
            named: Named::default(),
            counted: Summary::default(),
            counted_all: false,
            evidence: Evidence::default(),
            misordered: VerifyReport::default(),
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
            work: KeyWork::of_file(),
            progress,
        }
    }

    fn run(mut self) -> Verified {
        // Whether an index vouches that it leads to all data blocks.
        let footer = self.check_footer();
        let is_complete = footer.is_some_and(|footer| self.check_blocks(footer));
        let is_guessed = self.guesses_kind && self.named.properties.is_none();
        let by_keys = self.evidence.verdict();
        let fits_both = is_guessed && by_keys.is_none();
        if fits_both {
            // Readers do not ask the filter, which may hold user keys or stored ones.
            self.named.filters.retain(Filter::rejects_either_kind);
        }
        let rejects_keys = self.named.filters.iter().any(Filter::rejects_keys);
        let filters_reject_keys = rejects_keys && !fits_both;
        // A database's filter holds user keys, and rejects stored ones. The filter of a plain table rejects user keys.
        let by_filters = filters_reject_keys.then_some(match self.report.keys {
            KeyKind::Plain => KeyKind::Database,
            KeyKind::Database => KeyKind::Plain,
        });
        let by_keys = by_keys.filter(|kind| *kind != self.report.keys);
        let other_kind = by_keys.or(by_filters).filter(|_| is_guessed);
        self.settle_order();
        if !self.progress.is_cancelled() {
            self.report_filters(fits_both);
            self.compare_properties();
            self.check_coverage(is_complete);
        }
        if !is_complete && !self.progress.is_cancelled() {
            self.count_what_is_left();
        }
        if !self.progress.is_cancelled() {
            self.check_that_it_opens();
            self.progress.complete();
        }
        self.report.cancelled = self.progress.is_cancelled();
        self.report.sort();
        Verified {
            report: self.report,
            filters_reject_keys,
            other_kind,
            keys_decide: by_keys.is_some(),
        }
    }

    /// Checks all blocks that the footer leads to. Returns whether the index is what was written.
    fn check_blocks(&mut self, footer: Footer) -> bool {
        let named_by = Some((Section::Footer, self.file.footer_offset()));
        let index = self.load_entries(footer.index, Section::Index, named_by);
        let metaindex = self.load_entries(footer.metaindex, Section::Metaindex, named_by);
        if let Some((metaindex, is_sound)) = metaindex {
            self.check_metaindex(footer.metaindex.offset, metaindex, is_sound);
        }
        let sound_index = index.as_ref().filter(|(_, is_sound)| *is_sound);
        self.compare_pieces(footer.index, sound_index.map(|(index, _)| index));
        let Some((index, is_sound)) = index else {
            return false;
        };
        self.read_index_keys(index.clone());
        // A database's filter holds user keys, of which an order of stored keys does not know.
        let kind = self.stated_kind().unwrap_or(self.evidence.kind());
        let is_of_user_keys = kind == KeyKind::Database;
        if self.kind_named.is_none() && self.report.keys == KeyKind::Plain && is_of_user_keys {
            self.named.filters.clear();
        }
        let _ = self.check_data(footer.index.offset, index, is_sound);
        is_sound
    }

    /// The kind of keys that the table says it holds.
    fn stated_kind(&self) -> Option<KeyKind> {
        let stated = self.named.properties.as_ref();
        stated.map(|(properties, _)| properties.key_kind)
    }

    /// Reports keys out of order, now that all keys were seen.
    fn settle_order(&mut self) {
        let order = user_order(&self.order).unwrap_or(&self.order);
        let stated = self.named.properties.as_ref();
        let stated = stated.map(|(properties, _)| &*properties.comparator);
        let is_known = self.options.order.is_some()
            || match stated {
                Some(name) => name == order.comparator().name(),
                None => self.evidence.order_is_evident(),
            };
        let misordered = std::mem::take(&mut self.misordered);
        if is_known {
            self.report.add_damage(misordered);
        } else if !self.options.stored_order {
            // What shows that the order is another one.
            self.report.order_clue = match (stated, misordered.findings.first()) {
                (Some(name), _) => Some(format!("the table names the comparator {name:?}")),
                (None, Some(first)) => Some(format!(
                    "keys ascend neither bytewise nor as a database's, first in the {} at offset {}",
                    first.section(),
                    first.offset()
                )),
                (None, None) => None,
            };
            self.report.unknown_order = self.report.order_clue.is_some();
        }
    }

    /// Reports a finding if the table does not open although nothing else is wrong.
    fn check_that_it_opens(&mut self) {
        if !self.report.is_sound() {
            return;
        }
        let mut options = self.options.clone().no_cache();
        if !options.stored_order {
            options.order = Some(self.order.clone());
        }
        if let Err(error) = options.open_source(self.file.source.clone()) {
            self.report.find_error((Section::Index, 0), &error);
        }
    }
}
