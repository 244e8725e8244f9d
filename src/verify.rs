//! Checks a whole table, and tells all that is wrong with it: footer, index, metaindex, filters, data,
//! and last whether these parts tile the file.

use std::cmp::Ordering;
use std::fmt;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{BytewiseComparator, Order};
use crate::db_table::DbTable;
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::file::TableFile;
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame;
use crate::internal_key::{self, ChosenPolicy, InternalKey, InternalKeyComparator};
use crate::options::OpenOptions;
use crate::salvage::{self, Scanner};
use crate::source::Source;
use crate::table::Table;

/// Most findings that a report holds; the rest are counted. About a kilobyte each at worst.
const MOST_FINDINGS: usize = 1000;

/// How far a verification or a salvage has come, in bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes dealt with so far. Never falls; at the end of a sound table it is `total`.
    pub done: u64,
    /// Bytes to deal with: the size of the file.
    pub total: u64,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Unusual, and tolerated by readers: padding between blocks, a data block without a filter, bytes
    /// behind a handle.
    Warning,
    /// Nothing can be said of it: this build lacks its codec, the source failed to read it, or what would
    /// lead to it is damaged.
    Unchecked,
    /// Not what a writer writes. Entries are lost, or some reader may answer wrongly.
    Damage,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Unchecked => "unchecked",
            Severity::Damage => "damage",
        })
    }
}

/// One thing that [`Table::verify`] found: where, what a sound table has there, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    section: Section,
    offset: u64,
    expected: String,
    found: String,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The part of the file that is concerned.
    pub fn section(&self) -> Section {
        self.section
    }

    /// Offset in the file of that part's block, or of the gap.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What a sound table would have there.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// What is there.
    pub fn found(&self) -> &str {
        &self.found
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} at offset {}: expected {}, found {}",
            self.severity, self.section, self.offset, self.expected, self.found
        )
    }
}

/// What [`Table::verify`] saw.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each finding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Size of the file.
    pub file_bytes: u64,
    /// Bytes of the blocks that were read and checked, and of the footer.
    pub checked_bytes: u64,
    /// Data blocks that were sound enough to be walked.
    pub data_blocks: u64,
    /// Entries in them.
    pub entries: u64,
    /// How often a filter was asked for a key that is there: entries times filters.
    pub filter_checks: u64,
    /// Whether the keys were checked as internal keys of a database.
    pub internal_keys: bool,
    /// Whether the progress callback ended the run early.
    pub cancelled: bool,
    /// What was found, in the order of offsets: the first 1 000 that were met.
    pub findings: Vec<Finding>,
    /// How many findings there were of [`Severity::Damage`], those left out of the list included.
    pub damage: u64,
    /// The same of [`Severity::Unchecked`].
    pub unchecked: u64,
    /// The same of [`Severity::Warning`].
    pub warnings: u64,
}

impl VerifyReport {
    /// Whether everything was checked and nothing is damaged. Warnings are let pass.
    pub fn is_sound(&self) -> bool {
        self.damage == 0 && self.unchecked == 0 && !self.cancelled
    }

    /// Findings that the list has no room for.
    pub fn left_out(&self) -> u64 {
        let all = self.damage + self.unchecked + self.warnings;
        all.saturating_sub(self.findings.len() as u64)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries in {} data blocks; {} of {} bytes checked; {} damaged, {} unchecked, {} warnings",
            self.entries,
            self.data_blocks,
            self.checked_bytes,
            self.file_bytes,
            self.damage,
            self.unchecked,
            self.warnings
        )?;
        if self.cancelled {
            f.write_str("; cancelled")?;
        }
        for finding in &self.findings {
            write!(f, "\n{finding}")?;
        }
        match self.left_out() {
            0 => Ok(()),
            n => write!(f, "\nand {n} more"),
        }
    }
}

impl OpenOptions {
    /// Checks the table at `path`, also one that [`open`](OpenOptions::open) refuses, and reports all
    /// that is wrong with it.
    ///
    /// Everything is read and walked: the footer, each block's checksum and structure, the order of keys in
    /// blocks and across them, the index key of each data block against its neighbours, each
    /// filter that has a known policy against each key, and whether blocks overlap or leave gaps.
    /// Where footer or index is damaged, what they would have led to is looked for by its checksums, so that
    /// the report says how much of the data is sound.
    ///
    /// Without a [`comparator`](OpenOptions::comparator), a database's table is recognised and checked
    /// in the order of internal keys; every key must then parse as one. For a database with a
    /// comparator of its own, name an [`InternalKeyComparator`] over it.
    ///
    /// Costs a read of the whole file (no block goes to the cache) and the memory of its largest block, of
    /// its index, and of 24 bytes for each block. A file whose handles overlap is read at most
    /// twice over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] where the file cannot be opened or its size not be told. All else is in the report:
    /// a read that fails is a finding, and the rest is still checked.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, Section, WriteOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("fruit.ldb");
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # builder.add(b"apple", b"red")?;
    /// # builder.finish()?;
    /// file[5] ^= 1; // in the first data block
    /// std::fs::write(&path, &file).unwrap();
    ///
    /// let report = OpenOptions::new().verify(&path)?;
    /// assert!(!report.is_sound());
    /// assert_eq!(report.findings[0].section(), Section::Data);
    /// println!("{report}");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<VerifyReport> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io("opening the table", e));
        file.and_then(|file| self.verify_source(file))
            .map_err(|e| e.at_path(path))
    }

    /// Checks a table in memory, an open file, or anything else to read from; see
    /// [`verify`](OpenOptions::verify).
    ///
    /// # Errors
    ///
    /// As [`verify`](OpenOptions::verify).
    pub fn verify_source(&self, source: impl Into<Source>) -> Result<VerifyReport> {
        self.verify_with(source, |_| ControlFlow::Continue(()))
    }

    /// The same, calling `progress` after each data block. On [`ControlFlow::Break`] the run ends, and
    /// the report says that it was [cancelled](VerifyReport::cancelled).
    ///
    /// # Errors
    ///
    /// As [`verify`](OpenOptions::verify).
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # WriteOptions::new().build(&mut file).finish()?;
    /// let report = OpenOptions::new().verify_with(file, |progress| {
    ///     eprint!("\r{} of {} bytes", progress.done, progress.total);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(report.is_sound());
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn verify_with(
        &self,
        source: impl Into<Source>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<VerifyReport> {
        let file = TableFile::new(source.into(), None)?;
        let verifier = Verifier {
            report: VerifyReport {
                file_bytes: file.size,
                ..VerifyReport::default()
            },
            order: self.order.clone().unwrap_or(Order::Bytewise),
            options: self,
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
            done: 0,
            progress: &mut progress,
            file: &file,
        };
        Ok(verifier.run())
    }
}

impl Table {
    /// Checks the whole table as it is in its source now, and reports all that is wrong with it; see
    /// [`OpenOptions::verify`]. Nothing that was read before is relied on, nor does it count in
    /// [`stats`](Table::stats).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] where the source does not tell its size. All else is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_| ControlFlow::Continue(()))
    }

    /// The same with a callback; see [`OpenOptions::verify_with`].
    ///
    /// # Errors
    ///
    /// As [`verify`](Table::verify).
    pub fn verify_with(
        &self,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<VerifyReport> {
        let mut options = OpenOptions::new();
        options.order = Some(self.order().clone());
        let policy = self.filter_in_use().map(|filter| filter.policy.clone());
        options.policies = policy.map(ChosenPolicy::fitted).into_iter().collect();
        options.verify_with(self.file().source.clone(), progress)
    }
}

impl DbTable {
    /// Checks the whole table, its keys as internal keys; see [`Table::verify`].
    ///
    /// # Errors
    ///
    /// As [`Table::verify`].
    pub fn verify(&self) -> Result<VerifyReport> {
        self.as_table().verify()
    }
}

/// One run over one file.
struct Verifier<'a> {
    file: &'a TableFile,
    options: &'a OpenOptions,
    order: Order,
    report: VerifyReport,
    /// Where all blocks lie that handles lead to.
    extents: Vec<Extent>,
    /// Bytes that handles may still ask for: hostile ones could name a large block time and again.
    budget: u64,
    /// What the callback was told last.
    done: u64,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

/// A block's place in the file, trailer included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    offset: u64,
    end: u64,
    section: Section,
}

/// The content of a block, and whether its checksum vouches for it.
struct Loaded {
    payload: Bytes,
    trusted: bool,
}

/// A filter block whose policy is known.
struct Filter {
    policy: Arc<dyn FilterPolicy>,
    reader: FilterBlockReader,
    offset: u64,
    trusted: bool,
    /// Keys that it hides, and data blocks that it leaves out.
    hidden: Tally,
    unfiltered: Tally,
}

/// Findings of one kind that could be as many as keys: the first is told, the rest are counted.
#[derive(Default)]
struct Tally {
    count: u64,
    first: Option<(String, String)>,
}

impl Tally {
    /// Counts one; `words` are what was expected and what was found.
    fn note(&mut self, words: impl FnOnce() -> (String, String)) {
        self.count += 1;
        self.first.get_or_insert_with(words);
    }
}

/// A data block's first and last key.
struct Ends {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Verifier<'_> {
    fn run(mut self) -> VerifyReport {
        let footer = self.check_footer();
        let footer_place = (Section::Footer, self.file.footer_offset());
        let index = footer.and_then(|footer| {
            Some((
                footer,
                self.load(footer.index, Section::Index, footer_place)?,
            ))
        });
        let metaindex = footer.and_then(|footer| {
            Some((
                footer,
                self.load(footer.metaindex, Section::Metaindex, footer_place)?,
            ))
        });
        let index = index
            .and_then(|(footer, loaded)| self.parse(footer.index.offset, loaded, Section::Index));
        self.recognise_database(index.as_ref());
        let filters = metaindex.and_then(|(footer, loaded)| {
            let metaindex = self.parse(footer.metaindex.offset, loaded, Section::Metaindex)?;
            Some(self.check_metaindex(footer.metaindex.offset, &metaindex))
        });
        let complete = index.as_ref().is_some_and(|index| index.trusted);
        if let (Some(index), Some(footer)) = (index, footer) {
            let mut filters = filters.unwrap_or_default();
            if self
                .check_data(footer.index.offset, &index, &mut filters)
                .is_break()
            {
                self.report.cancelled = true;
                return self.finish();
            }
            self.report_filters(filters);
        }
        self.check_coverage(complete);
        if !complete {
            self.count_what_is_left();
        }
        self.check_that_it_opens();
        self.finish()
    }

    fn finish(mut self) -> VerifyReport {
        self.report
            .findings
            .sort_by_key(|finding| (finding.offset, finding.section));
        self.report
    }

    /// Records a finding: in full while there is room.
    fn find(
        &mut self,
        severity: Severity,
        (section, offset): (Section, u64),
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        match severity {
            Severity::Damage => self.report.damage += 1,
            Severity::Unchecked => self.report.unchecked += 1,
            Severity::Warning => self.report.warnings += 1,
        }
        if self.report.findings.len() < MOST_FINDINGS {
            self.report.findings.push(Finding {
                severity,
                section,
                offset,
                expected: expected.into(),
                found: found.into(),
            });
        }
    }

    fn find_defect(&mut self, place: (Section, u64), defect: Defect) {
        self.find_error(place, &defect.locate(place.0, place.1));
    }

    fn find_error(&mut self, place: (Section, u64), error: &Error) {
        match (error.corruption(), error.kind()) {
            (Some(corruption), _) => self.find(
                Severity::Damage,
                (corruption.section(), corruption.offset()),
                corruption.expected(),
                corruption.found(),
            ),
            (None, ErrorKind::Unsupported | ErrorKind::Io) => {
                self.find(
                    Severity::Unchecked,
                    place,
                    "a block that can be read",
                    error.to_string(),
                );
            }
            (None, _) => self.find(Severity::Damage, place, "a sound table", error.to_string()),
        }
    }

    fn find_tally(&mut self, severity: Severity, place: (Section, u64), tally: Tally) {
        if let Some((expected, mut found)) = tally.first {
            if tally.count > 1 {
                found.push_str(&format!(" (and {} more such)", tally.count - 1));
            }
            self.find(severity, place, expected, found);
        }
    }

    fn check_footer(&mut self) -> Option<Footer> {
        let place = (Section::Footer, self.file.footer_offset());
        match self.file.footer() {
            Ok(footer) => {
                self.account(Extent {
                    offset: place.1,
                    end: self.file.size,
                    section: Section::Footer,
                });
                Some(footer)
            }
            Err(error) if error.kind() == ErrorKind::NotATable => {
                let expected = format!("{FOOTER_LEN} bytes that end in LevelDB's magic number");
                self.find(Severity::Damage, place, expected, error.to_string());
                None
            }
            Err(error) => {
                self.find_error(place, &error);
                None
            }
        }
    }

    fn account(&mut self, extent: Extent) {
        self.report.checked_bytes += extent.end - extent.offset;
        self.extents.push(extent);
    }

    /// Reads the block at `handle`, which stands in `named_by`, and checks its frame. Answers the content
    /// even where the checksum is wrong: some of it may be right.
    fn load(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Option<Loaded> {
        let most = self.file.footer_offset();
        let Some(end) = handle.end().filter(|&end| end <= most) else {
            self.find(
                Severity::Damage,
                named_by,
                format!("a handle to the {section}, which ends at or before the footer at {most}"),
                format!(
                    "one to {} bytes and a trailer at {}",
                    handle.size, handle.offset
                ),
            );
            return None;
        };
        let place = (section, handle.offset);
        let Some(budget) = self.budget.checked_sub(end - handle.offset) else {
            self.find(
                Severity::Unchecked,
                place,
                "handles that lead to each byte of the file once",
                "that they ask for twice the file so far: this block was not read",
            );
            return None;
        };
        self.budget = budget;
        let frame = self.file.read_frame(handle);
        let frame = frame.map_err(|e| self.find_error(place, &e)).ok()?;
        self.account(Extent {
            offset: handle.offset,
            end,
            section,
        });
        let verified = frame::verify(&frame);
        let trusted = verified.is_ok();
        if let Err(defect) = verified {
            self.find_defect(place, defect);
        }
        match frame::open(&frame) {
            Ok(payload) => Some(Loaded { payload, trusted }),
            // One finding a block says enough: what comes of a wrong checksum is no news.
            Err(_) if !trusted => None,
            Err(defect) => {
                self.find_defect(place, defect);
                None
            }
        }
    }

    /// Checks the structure of a block. Answers it if its entries can be walked, be it not to the end.
    fn parse(&mut self, offset: u64, loaded: Loaded, section: Section) -> Option<Parsed> {
        let Loaded { payload, trusted } = loaded;
        let parsed = Block::parse(payload).map_err(|defect| {
            if trusted {
                self.find_defect((section, offset), defect);
            }
        });
        let block = parsed.ok()?;
        let checked = block.check_restarts().and_then(|()| block.check_entries());
        let well_formed = checked.is_ok();
        if let Err(defect) = checked
            && trusted
        {
            self.find_defect((section, offset), defect);
        }
        Some(Parsed {
            block,
            trusted,
            well_formed,
        })
    }

    /// Turns to the order of internal keys if the caller named none and the table looks like a database's:
    /// all its index keys, and the keys of the first data block that can be read.
    fn recognise_database(&mut self, index: Option<&Parsed>) {
        if self.options.order.is_some() {
            self.report.internal_keys = internal_key::is_internal(&self.order);
            return;
        }
        let Some(index) = index else { return };
        let mut cursor = BlockCursor::new(index.block.clone());
        let mut handles = 0;
        let mut confirmed = false;
        while let Ok(true) = cursor.next() {
            handles += 1;
            if !internal_key::is_plausible(cursor.key()) {
                return;
            }
            let first_few = handles <= 16;
            if first_few && !confirmed {
                match self.keys_are_plausible(cursor.value()) {
                    Some(true) => confirmed = true,
                    Some(false) => return,
                    None => {}
                }
            }
        }
        if handles > 0 {
            self.order = Order::of(InternalKeyComparator::new(BytewiseComparator));
            self.report.internal_keys = true;
        }
    }

    /// Whether all keys of the data block at the handle `value` could be internal keys; `None` where it
    /// cannot be read.
    fn keys_are_plausible(&self, value: &[u8]) -> Option<bool> {
        let (handle, _) = BlockHandle::decode(value)?;
        handle
            .end()
            .filter(|&end| end <= self.file.footer_offset())?;
        let frame = self.file.read_frame(handle).ok()?;
        frame::verify(&frame).ok()?;
        let block = Block::parse(frame::open(&frame).ok()?).ok()?;
        let mut cursor = BlockCursor::new(block);
        let mut any = false;
        while cursor.next().ok()? {
            any = true;
            if !internal_key::is_plausible(cursor.key()) {
                return Some(false);
            }
        }
        any.then_some(true)
    }

    /// Checks the metaindex and loads what it leads to. Answers the filters that can be asked.
    fn check_metaindex(&mut self, offset: u64, metaindex: &Parsed) -> Vec<Filter> {
        let place = (Section::Metaindex, offset);
        let policies = self.options.policies_for(&self.order);
        let mut filters: Vec<Filter> = Vec::new();
        let mut budget_of_others = self.file.size;
        let mut order = Tally::default();
        let mut previous: Option<Vec<u8>> = None;
        let mut cursor = BlockCursor::new(metaindex.block.clone());
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            if let Some(previous) = previous.filter(|previous| name <= &previous[..]) {
                order.note(|| not_ascending(&previous, name));
            }
            previous = Some(name.to_vec());
            let handle = BlockHandle::decode(cursor.value()).map(|(handle, _)| handle);
            match (name.strip_prefix(b"filter."), handle) {
                (Some(_), None) if metaindex.trusted => self.find(
                    Severity::Damage,
                    place,
                    format!("the handle of {}", show_key(name)),
                    show_key(cursor.value()),
                ),
                (Some(policy), Some(handle)) => {
                    let known = policies.iter().find(|p| p.name().as_bytes() == policy);
                    let filter = self.load_filter(handle, known, place, metaindex.trusted);
                    filters.extend(filter);
                }
                // Other entries may hold anything; if it is the handle of a block, that block is no gap.
                (None, Some(handle)) => self.account_if_sound(handle, &mut budget_of_others),
                (_, None) => {}
            }
        }
        if metaindex.trusted {
            self.find_tally(Severity::Damage, place, order);
        }
        filters
    }

    fn load_filter(
        &mut self,
        handle: BlockHandle,
        policy: Option<&Arc<dyn FilterPolicy>>,
        named_by: (Section, u64),
        named_surely: bool,
    ) -> Option<Filter> {
        if !named_surely {
            let mut budget = self.budget;
            // The handle may be rubbish: only a sound block shows that it is not.
            self.sound_frame(handle, &mut budget)?;
        }
        let Loaded { payload, trusted } = self.load(handle, Section::Filter, named_by)?;
        let policy = policy?.clone();
        let place = (Section::Filter, handle.offset);
        let reader = FilterBlockReader::new(payload)
            .and_then(|reader| reader.check_offsets().map(|()| reader))
            .map_err(|defect| {
                if trusted {
                    self.find_defect(place, defect);
                }
            });
        Some(Filter {
            policy,
            reader: reader.ok()?,
            offset: handle.offset,
            trusted,
            hidden: Tally::default(),
            unfiltered: Tally::default(),
        })
    }

    /// The frame at `handle`, if it lies in the file and its checksum is right.
    fn sound_frame(&self, handle: BlockHandle, budget: &mut u64) -> Option<(Bytes, Extent)> {
        let end = handle
            .end()
            .filter(|&end| end <= self.file.footer_offset())?;
        *budget = budget.checked_sub(end - handle.offset)?;
        let frame = self.file.read_frame(handle).ok()?;
        frame::verify(&frame).ok()?;
        let extent = Extent {
            offset: handle.offset,
            end,
            section: Section::Data,
        };
        Some((frame, extent))
    }

    fn account_if_sound(&mut self, handle: BlockHandle, budget: &mut u64) {
        if let Some((_, extent)) = self.sound_frame(handle, budget) {
            let section = Section::Metaindex;
            self.account(Extent { section, ..extent });
        }
    }

    /// Walks the index and all data blocks that it leads to.
    fn check_data(
        &mut self,
        index_offset: u64,
        index: &Parsed,
        filters: &mut [Filter],
    ) -> ControlFlow<()> {
        let place = (Section::Index, index_offset);
        let (mut order, mut trailing) = (Tally::default(), Tally::default());
        let mut separator: Option<Vec<u8>> = None;
        let mut last_key: Option<Vec<u8>> = None;
        let mut cursor = BlockCursor::new(index.block.clone());
        let mut blocks = 0u64;
        // Where entries stop making sense, the defect was found when the structure was checked.
        while let Ok(true) = cursor.next() {
            let (i, key, value) = (blocks, cursor.key(), cursor.value());
            blocks += 1;
            if let Some(before) = &separator
                && self.order.compare(before, key) != Ordering::Less
            {
                order.note(|| not_ascending(before, key));
            }
            let decoded = BlockHandle::decode(value);
            if let Some((_, len)) = decoded
                && len < value.len()
            {
                trailing.note(|| {
                    (
                        format!("nothing behind the handle of data block {i}"),
                        format!("{} bytes more", value.len() - len),
                    )
                });
            }
            let ends = match decoded {
                Some((handle, _)) if index.trusted => {
                    let loaded = self.load(handle, Section::Data, place);
                    loaded.and_then(|loaded| self.check_block(handle.offset, loaded, filters))
                }
                // Of an index that is damaged itself, only handles that lead to sound blocks count.
                Some((handle, _)) => {
                    let mut budget = self.budget;
                    let sound = self.sound_frame(handle, &mut budget);
                    self.budget = budget;
                    sound.and_then(|(frame, extent)| {
                        let (payload, trusted) = (frame::open(&frame).ok()?, true);
                        self.account(extent);
                        self.check_block(handle.offset, Loaded { payload, trusted }, filters)
                    })
                }
                None => {
                    if index.trusted {
                        let expected = format!("a handle for data block {i}");
                        self.find(Severity::Damage, place, expected, show_key(value));
                    }
                    None
                }
            };
            if let Some(ends) = ends {
                let offset = decoded.map_or(0, |(handle, _)| handle.offset);
                let before = (separator.as_deref(), last_key.as_deref());
                if index.trusted {
                    self.check_separators((i, offset), before, key, &ends);
                }
                last_key = Some(ends.last);
            }
            separator = Some(key.to_vec());
            if self
                .tell(decoded.and_then(|(handle, _)| handle.end()))
                .is_break()
            {
                return ControlFlow::Break(());
            }
        }
        if index.trusted {
            self.find_tally(Severity::Damage, place, order);
            self.find_tally(Severity::Warning, place, trailing);
        }
        ControlFlow::Continue(())
    }

    /// Checks a data block's keys against the index keys around it and the block before.
    fn check_separators(
        &mut self,
        (i, offset): (u64, u64),
        (separator_before, last_before): (Option<&[u8]>, Option<&[u8]>),
        separator: &[u8],
        ends: &Ends,
    ) {
        let place = (Section::Data, offset);
        if self.order.compare(&ends.last, separator) == Ordering::Greater {
            self.find(
                Severity::Damage,
                place,
                format!(
                    "the last key of data block {i} at or before its index key {}",
                    show_key(separator)
                ),
                show_key(&ends.last),
            );
        }
        if let Some(before) = separator_before
            && self.order.compare(before, &ends.first) != Ordering::Less
        {
            self.find(
                Severity::Damage,
                place,
                format!(
                    "the first key of data block {i} behind the index key before, {}",
                    show_key(before)
                ),
                show_key(&ends.first),
            );
        }
        if let Some(before) = last_before
            && self.order.compare(before, &ends.first) != Ordering::Less
        {
            self.find(
                Severity::Damage,
                place,
                format!(
                    "the first key of data block {i} behind the last of the block before, {}",
                    show_key(before)
                ),
                show_key(&ends.first),
            );
        }
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters.
    fn check_block(&mut self, offset: u64, loaded: Loaded, filters: &mut [Filter]) -> Option<Ends> {
        if !loaded.trusted {
            return None;
        }
        let place = (Section::Data, offset);
        let Parsed {
            block, well_formed, ..
        } = self.parse(offset, loaded, Section::Data)?;
        for filter in filters.iter_mut() {
            if !filter.reader.has_filter(offset) {
                filter.unfiltered.note(|| {
                    (
                        format!("a filter for the data block at {offset}"),
                        "none: lookups in it read the block".into(),
                    )
                });
            }
        }
        let (mut order, mut form) = (Tally::default(), Tally::default());
        let mut ends: Option<Ends> = None;
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let key = cursor.key();
            self.report.entries += 1;
            if self.report.internal_keys && InternalKey::parse(key).is_none() {
                form.note(|| {
                    (
                        "internal keys: at least 8 bytes, of type 0 or 1".into(),
                        show_key(key),
                    )
                });
            }
            for filter in filters.iter_mut().filter(|filter| filter.trusted) {
                self.report.filter_checks += 1;
                if !filter.reader.key_may_match(&*filter.policy, offset, key) {
                    filter.hidden.note(|| {
                        (
                            format!("that {} passes each key of the table", filter.policy.name()),
                            format!(
                                "{} rejected, which is in the data block at {offset}",
                                show_key(key)
                            ),
                        )
                    });
                }
            }
            match &mut ends {
                None => {
                    ends = Some(Ends {
                        first: key.to_vec(),
                        last: key.to_vec(),
                    });
                }
                Some(Ends { last, .. }) => {
                    if self.order.compare(last, key) != Ordering::Less {
                        order.note(|| not_ascending(last, key));
                    }
                    last.clear();
                    last.extend_from_slice(key);
                }
            }
        }
        self.report.data_blocks += 1;
        if !well_formed {
            return None;
        }
        self.find_tally(Severity::Damage, place, order);
        self.find_tally(Severity::Damage, place, form);
        ends
    }

    fn report_filters(&mut self, filters: Vec<Filter>) {
        for filter in filters {
            let place = (Section::Filter, filter.offset);
            self.find_tally(Severity::Damage, place, filter.hidden);
            self.find_tally(Severity::Warning, place, filter.unfiltered);
        }
    }

    /// Tells the callback that all is done up to `end`.
    fn tell(&mut self, end: Option<u64>) -> ControlFlow<()> {
        let total = self.file.size;
        self.done = self.done.max(end.unwrap_or_default().min(total));
        let done = self.done;
        (self.progress)(Progress { done, total })
    }

    /// Sees whether the blocks that were reached tile the file. `complete`: whether an index vouches that
    /// there are no others.
    fn check_coverage(&mut self, complete: bool) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable();
        // Two names may lead to one filter.
        extents.dedup_by(|b, a| a == b && a.section == Section::Filter);
        let mut before = Extent {
            offset: 0,
            end: 0,
            section: Section::Data,
        };
        let footer_offset = self.file.footer_offset();
        let has_footer = extents
            .last()
            .is_some_and(|last| last.section == Section::Footer);
        let end = Extent {
            offset: if has_footer {
                self.file.size
            } else {
                footer_offset
            },
            end: self.file.size,
            section: Section::Footer,
        };
        for extent in extents.into_iter().chain([end]) {
            match extent.offset.cmp(&before.end) {
                Ordering::Less => self.find(
                    Severity::Damage,
                    (extent.section, extent.offset),
                    "blocks that do not overlap",
                    format!(
                        "bytes {} to {}, which the {} at {} also claims",
                        extent.offset,
                        extent.end.min(before.end),
                        before.section,
                        before.offset
                    ),
                ),
                Ordering::Equal => {}
                Ordering::Greater => self.check_gap(before.end, extent, complete),
            }
            if extent.end > before.end {
                before = extent;
            }
        }
        let _ = self.tell(Some(self.file.size));
    }

    /// Says what the bytes from `start` up to `next` hold, to which nothing led.
    fn check_gap(&mut self, start: u64, next: Extent, complete: bool) {
        let len = next.offset - start;
        let mut found = format!(
            "{len} bytes before the {} that no handle leads to",
            next.section
        );
        let (severity, section) = match complete {
            false => (Severity::Unchecked, Section::Data),
            true => {
                let blocks = Scanner::new(self.file, &self.order).scan(start..next.offset);
                let entries: u64 = blocks.iter().map(|block| block.entries()).sum();
                let severity = match entries {
                    0 => Severity::Warning,
                    _ => {
                        found.push_str(&format!(", with {entries} entries in sound blocks"));
                        Severity::Damage
                    }
                };
                (severity, next.section)
            }
        };
        let expected = "each block right behind the one before";
        self.find(severity, (section, start), expected, found);
    }

    /// Where no sound index says what there is: how much of it is sound.
    fn count_what_is_left(&mut self) {
        let recoverable = salvage::recoverable(self.file, &self.order);
        let (entries, blocks) = recoverable.unwrap_or_else(|error| match error.kind() {
            ErrorKind::DatabaseTable => {
                let order = Order::of(InternalKeyComparator::new(BytewiseComparator));
                salvage::recoverable(self.file, &order).unwrap_or_default()
            }
            _ => (0, 0),
        });
        if blocks > 0 {
            self.find(
                Severity::Unchecked,
                (Section::Data, 0),
                "a sound index that leads to all data blocks",
                format!("{entries} entries in {blocks} sound blocks, which salvage would copy"),
            );
        }
    }

    /// What verifies must open: if it does not, and nothing else was found, that is a finding.
    fn check_that_it_opens(&mut self) {
        if self.report.damage > 0 || self.report.unchecked > 0 {
            return;
        }
        let mut options = self.options.clone().no_cache();
        options.order = Some(self.order.clone());
        options.filters = true;
        if let Err(error) = options.open_source(self.file.source.clone()) {
            self.find_error((Section::Index, 0), &error);
        }
    }
}

/// A block whose entries can be walked.
struct Parsed {
    block: Block<Bytes>,
    trusted: bool,
    /// Whether restarts and entries are as they must be: if not, that was found, and what comes of it is
    /// no news.
    well_formed: bool,
}

fn not_ascending(before: &[u8], key: &[u8]) -> (String, String) {
    (
        format!("keys that ascend, one after {}", show_key(before)),
        show_key(key),
    )
}
