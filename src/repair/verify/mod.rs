//! Checks a whole table, and tells all that is wrong with it: footer, index, metaindex, filters, data,
//! and last whether these parts tile the file.

mod blocks;
mod coverage;
mod data;
mod filters;
mod report;

use std::ops::ControlFlow;
use std::path::Path;

use crate::comparator::Order;
#[cfg(doc)]
use crate::db::key::InternalKeyComparator;
use crate::db::table::DbTable;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Section};
use crate::format::block_check::KeyWork;
use crate::format::footer::Footer;
use crate::read::file::TableFile;
use crate::read::options::OpenOptions;
use crate::read::source::Source;
use crate::read::table::Table;
use crate::repair::progress::{Progress, Reporter};

use blocks::Extent;
use data::evidence;
pub use report::{Finding, Severity, VerifyReport};

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
        self.verify_source(Source::open(path)?)
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

    /// The same, calling `progress` after each data block, and after each window that is searched for blocks. On
    /// [`ControlFlow::Break`] the run ends, and the report says that it was
    /// [cancelled](VerifyReport::cancelled).
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
        let file = TableFile::new(source.into())?;
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let verifier = Verifier {
            report: VerifyReport {
                file_bytes: file.size,
                internal_keys: order.shortens_filter_keys(),
                ..VerifyReport::default()
            },
            order,
            options: self,
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
            work: KeyWork::of_file(),
            progress: Reporter::new(file.size, &mut progress),
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
        options.order = self.order().ok().cloned();
        let policy = self.filter_in_use().map(|filter| filter.policy.clone());
        options.policies = policy.into_iter().collect();
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
    work: KeyWork,
    progress: Reporter<'a>,
}

impl Verifier<'_> {
    fn run(mut self) -> VerifyReport {
        // Whether an index vouches that there are no blocks but those it leads to.
        let complete = match self.check_footer() {
            Some(footer) => self.check_blocks(footer),
            None => false,
        };
        if !self.progress.is_cancelled() {
            self.check_coverage(complete);
        }
        if !complete && !self.progress.is_cancelled() {
            self.count_what_is_left();
        }
        if !self.progress.is_cancelled() {
            self.check_that_it_opens();
            self.progress.complete();
        }
        self.report.cancelled = self.progress.is_cancelled();
        self.report.sort();
        self.report
    }

    /// Checks all blocks that the footer leads to. Answers whether the index is what was written.
    fn check_blocks(&mut self, footer: Footer) -> bool {
        let index = self.load_block(footer.index, Section::Index);
        if let Some(index) = &index {
            self.recognise_database(index);
        }
        let metaindex = self.load_block(footer.metaindex, Section::Metaindex);
        let mut filters = match metaindex {
            Some(metaindex) => self.check_metaindex(footer.metaindex.offset, &metaindex),
            None => Vec::new(),
        };
        let Some(index) = index else { return false };
        if !self.options.filter_knows_keys(|| evidence(&index)) {
            filters.clear();
        }
        let walked = self.check_data(footer.index.offset, &index, &mut filters);
        if walked.is_continue() {
            self.report_filters(filters);
        }
        index.trusted
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
            self.report.find_error((Section::Index, 0), &error);
        }
    }
}
