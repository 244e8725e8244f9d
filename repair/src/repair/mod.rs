//! Writes what is left of a damaged database as a new one.
//!
//! ```text
//! manifest.rs   what MANIFESTs state, and which one counts
//! survey.rs     every table, read once, and the order of keys
//!   table.rs      which blocks of a table are read, and what is lost between them; the versions of many, merged
//! log.rs        what logs hold, and what is lost of them
//! judge.rs      which files count, and what is lost or unproven
//! write.rs      the newest version of each key, into the new database
//! report.rs     what is said of all that
//! ```

mod judge;
mod log;
mod manifest;
mod report;
mod survey;
mod table;
mod write;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use leveltable::sister_crates::Order;
use leveltable::{BytewiseComparator, Comparator, Compression, Error, ErrorKind, OpenOptions};
use leveltable::{Result, WriteOptions};
use leveltable_database::sister_crates::{
    Directory, FileSystem, NewDirectory, build, check_outside, check_space, holds_lock, new_like,
    settings_of, usual_table_bytes,
};
use leveltable_database::{DatabaseBuildOptions, FileKind};

use crate::progress::{Progress, Reporter};
use judge::Case;
use log::{Log, Logged};
use manifest::Manifests;
use survey::{survey, unknown_order};
use table::{Role, Table};
use write::write;

pub use report::{Grade, RepairFinding, RepairReport, RepairedFile};

/// Options of [`repair`].
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use leveltable_database::IndexedDbComparator;
/// use leveltable_repair::{RepairOptions, repair};
///
/// let options = RepairOptions::new()
///     .comparator(IndexedDbComparator)
///     .ignore_space(true)
///     .on_temporary(|path| println!("writing to {}", path.display()))
///     .progress(|progress| {
///         eprint!("\r{} of {} bytes", progress.done, progress.total);
///         ControlFlow::Continue(())
///     });
/// let report = repair("https_example.org_0.indexeddb.leveldb", "new", options)?;
/// println!("complete: {}", report.is_complete());
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct RepairOptions<'a> {
    comparator: Option<Arc<dyn Comparator>>,
    progress: Reporter<'a>,
    ignores_space: bool,
    on_temporary: Option<Learn<'a>>,
}

/// Receives the path of the temporary directory.
type Learn<'a> = Box<dyn FnOnce(&Path) + 'a>;

impl fmt::Debug for RepairOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepairOptions")
            .field("comparator", &self.comparator)
            .finish_non_exhaustive()
    }
}

impl<'a> RepairOptions<'a> {
    /// The order that the MANIFEST names, if it is a built-in one.
    pub fn new() -> RepairOptions<'a> {
        RepairOptions::default()
    }

    /// The order of the keys: for one that is not built in, or if no MANIFEST is left to name it. By default, the order that the
    /// MANIFEST names, or, without one, that of the keys.
    pub fn comparator(mut self, comparator: impl Comparator) -> RepairOptions<'a> {
        self.comparator = Some(Arc::new(comparator));
        self
    }

    /// Calls `callback` as files are read and written. On [`ControlFlow::Break`] the run ends with an error of kind
    /// [`std::io::ErrorKind::Interrupted`], and nothing is left.
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> RepairOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }

    /// With `true`, starts even if the disk has less free space than the old database takes. `false` by default.
    pub fn ignore_space(mut self, yes: bool) -> RepairOptions<'a> {
        self.ignores_space = yes;
        self
    }

    /// Calls `learn` with the temporary directory before the work begins: a program that may be ended by a signal removes it
    /// itself. Calls nothing by default.
    pub fn on_temporary(mut self, learn: impl FnOnce(&Path) + 'a) -> RepairOptions<'a> {
        self.on_temporary = Some(Box::new(learn));
        self
    }
}

/// Reads what is left of the LevelDB database in `directory`, and writes it as a new one at `new`. Never writes to the old one, and does
/// not touch its lock.
///
/// **No key differs from the old database, except within the reported ranges**, which are [lost](Grade::Lost) or
/// [unproven](Grade::Unproven). Everything that is used has a correct checksum.
///
/// - The MANIFEST that `CURRENT` names, or else the newest one, says which tables and logs count. If it is damaged, lost, or older than
///   other files, all tables that it does not delete count; keys that a compaction dropped are recognised and left out.
/// - From each table, everything with a correct checksum is read, as by [`salvage`](crate::salvage()), and from each log every batch. The
///   newest version of each key counts, by its sequence number, whatever file it is in. It is written unless it is a deletion.
/// - A lost block costs the keys between its neighbours; a gap in a log may concern any key.
/// - Comparator, codec, filter and size of tables are those of the old database, as far as they are known. The directory appears complete,
///   or not at all, as by [`DatabaseBuilder`](leveltable_database::DatabaseBuilder), with the owner and the permissions of the old one
///   where the system allows that.
///
/// Two losses cannot be detected, since a crash leaves the same: the newest log of two is missing, or a log was cut between two
/// records. The newest version in a lost block may have been a deletion.
///
/// # Cost
///
/// Reads all tables twice, and three times if there is no MANIFEST, or a damaged one. Memory: the changes in the logs, up to 64 KiB for
/// each of the overlapping tables at one place, and some 16 bytes for each block; for a table without its index, the same as
/// [`salvage`](crate::salvage()).
///
/// # Errors
///
/// - [`ErrorKind::NotADatabase`] if there is neither a MANIFEST nor a table nor a log; [`ErrorKind::NotATable`] and
///   [`ErrorKind::Unsupported`] for files of RocksDB and Pebble.
/// - [`ErrorKind::Comparator`] if the order of keys is not known: see [`RepairOptions::comparator`].
/// - [`ErrorKind::InvalidState`] if a program has the database open (on Linux and Windows), and [`ErrorKind::Replaced`] if files changed
///   meanwhile: close the program, or repair a copy. Also `InvalidState` if `new` lies within `directory`, or two tables have the same
///   number.
/// - [`ErrorKind::Io`] if something is at `new`, the disk has less free space than the old database takes, or reading or writing failed. A
///   part of a table or log that cannot be read is not an error, but lost.
///
/// ```
/// use leveltable_repair::{RepairOptions, repair};
/// # use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let mut builder = DatabaseBuilder::create(&old, DatabaseBuildOptions::new())?;
/// # for key in ["apple", "banana"] { builder.put(key, "fruit")?; }
/// # builder.finish()?;
/// # std::fs::remove_file(old.join("CURRENT")).unwrap();
/// let report = repair(&old, &new, RepairOptions::new())?;
/// for finding in &report.findings {
///     println!("{finding}");
/// }
/// assert!(report.is_complete());
/// assert_eq!(report.written.entries, 2);
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// In LevelDB, `RepairDB` does this in place: without the MANIFEST, and including data with wrong checksums.
pub fn repair(
    directory: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: RepairOptions<'_>,
) -> Result<RepairReport> {
    let (directory, new) = (directory.as_ref(), new.as_ref());
    check_outside(directory, new)?;
    let dir = Arc::new(FileSystem(directory.to_owned()));
    let files = list(&*dir)?;
    let data = files
        .keys()
        .find(|name| FileKind::of(name).0 != FileKind::Other);
    let new = new_like(directory, data.map(String::as_str), new)?;
    repair_in(dir, new, options)
}

/// Repairs the database in a directory of any kind.
pub(crate) fn repair_in(
    dir: Arc<dyn Directory>,
    new: Box<dyn NewDirectory>,
    mut options: RepairOptions<'_>,
) -> Result<RepairReport> {
    let dir = &*dir;
    check_writer(dir)?;
    let files = list(dir)?;
    if let (Some(learn), Some(path)) = (options.on_temporary.take(), new.temporary_path()) {
        learn(path);
    }
    let bytes: u64 = files.values().sum();
    if !options.ignores_space {
        check_space(&*new, bytes)?;
    }
    options.progress.total = 3 * bytes;
    let manifests = Manifests::read(dir, &names(&files, FileKind::Manifest))?;
    let surveyed = survey(
        dir,
        &files,
        &manifests,
        options.comparator.as_ref(),
        &mut options.progress,
    )?;
    let mut logs = logs(&files);
    let mut case = Case::new(
        manifests.chosen(),
        surveyed.order,
        surveyed.tables,
        &mut logs,
    );
    let mut logged = read_logs(dir, &case, &mut logs)?;
    let has_keys = !logged.is_empty() || case.tables.iter().any(|table| table.versions > 0);
    if surveyed.is_guess && has_keys && logged.are_keys_of_indexed_db() {
        let what = "no MANIFEST names the order of keys, which may be that of IndexedDB or not";
        return Err(unknown_order(dir, what));
    }
    case.findings.append(&mut logged.findings);
    case.judge_logs(&logs);
    case.judge_tables(dir, &mut options.progress)?;
    let builder = build(new, settings(dir, &case, &manifests, &logged))?;
    let lost = std::mem::take(&mut logged.lost);
    let mut rows = vec![logged.into_rows(Role::Log, &case.order)];
    if !case.lost.is_empty() {
        rows.push(read_old_logs(dir, &mut logs)?.into_rows(Role::Spare, &case.order));
    }
    let comparator = case.order.comparator().name().to_owned();
    let builder = write(
        dir,
        &mut case,
        (rows, &lost),
        builder,
        &mut options.progress,
    )?;
    if list(dir)? != files || Manifests::read(dir, &names(&files, FileKind::Manifest))? != manifests
    {
        return Err(at_work(
            dir,
            ErrorKind::Replaced,
            "files changed while they were read",
        ));
    }
    check_writer(dir)?;
    let written = builder.finish()?;
    options.progress.complete();
    let mut findings = manifests.findings();
    findings.append(&mut case.findings);
    findings.sort_by_key(|finding| finding.grade);
    Ok(RepairReport {
        findings,
        files: describe(&files, &manifests, &case, &logs),
        written,
        comparator,
    })
}

/// Names and sizes of a database's files.
fn list(dir: &dyn Directory) -> Result<BTreeMap<String, u64>> {
    let files = dir
        .list()
        .map_err(|e| Error::io("listing the directory", e).at_path(dir.path()));
    let mut files = files?;
    files.retain(|name, _| FileKind::of(name).0 != FileKind::Other);
    if files
        .keys()
        .all(|name| FileKind::of(name).0 == FileKind::Current)
    {
        let what = "there is neither a MANIFEST nor a table nor a log of a database here";
        return Err(Error::new(ErrorKind::NotADatabase, what).at_path(dir.path()));
    }
    Ok(files)
}

/// The files of a kind.
fn names(files: &BTreeMap<String, u64>, kind: FileKind) -> Vec<String> {
    let names = files.keys().filter(|name| FileKind::of(name).0 == kind);
    names.cloned().collect()
}

fn check_writer(dir: &dyn Directory) -> Result<()> {
    if holds_lock(dir.path()) {
        return Err(at_work(
            dir,
            ErrorKind::InvalidState,
            "another program has this database open",
        ));
    }
    Ok(())
}

fn at_work(dir: &dyn Directory, kind: ErrorKind, what: &str) -> Error {
    let message =
        format!("{what}: close the program that uses this database, or repair a copy of it");
    Error::new(kind, message).at_path(dir.path())
}

/// The logs, in ascending order.
fn logs(files: &BTreeMap<String, u64>) -> Vec<Log> {
    let log = |(name, &bytes): (&String, &u64)| match FileKind::of(name) {
        (FileKind::Log, Some(number)) => Some(Log::new(name, number, bytes)),
        _ => None,
    };
    let mut logs: Vec<Log> = files.iter().filter_map(log).collect();
    logs.sort_by_key(|log| log.number);
    logs
}

/// Reads the logs that count.
fn read_logs(dir: &dyn Directory, case: &Case<'_>, logs: &mut [Log]) -> Result<Logged> {
    let named = case.manifest.and_then(|manifest| manifest.log);
    let is_missing = |named: &u64| *named > 0 && logs.iter().all(|log| log.number != *named);
    let missing = named.filter(is_missing);
    let (mut logged, mut lacks_first) = (Logged::default(), false);
    for log in logs.iter_mut().filter(|log| log.counts) {
        lacks_first |= missing.is_some_and(|missing| log.number > missing);
        logged.read(dir, log, lacks_first.then(|| case.tables_end()))?;
        lacks_first |= log.versions == 0;
    }
    Ok(logged)
}

/// Reads the other logs, whose changes may replace lost ones.
fn read_old_logs(dir: &dyn Directory, logs: &mut [Log]) -> Result<Logged> {
    let mut old = Logged::default();
    for log in logs.iter_mut().filter(|log| !log.counts) {
        old.read_old(dir, log)?;
    }
    Ok(old)
}

/// Settings for the new database: those of the largest table that opens.
fn settings(
    dir: &dyn Directory,
    case: &Case<'_>,
    manifests: &Manifests,
    logged: &Logged,
) -> DatabaseBuildOptions {
    let mut tables: Vec<&Table> = case.tables.iter().collect();
    tables.sort_by_key(|table| Reverse((table.role, table.bytes, table.number)));
    let order: Arc<dyn Comparator> = match &case.order {
        Order::Bytewise => Arc::new(BytewiseComparator),
        Order::Custom(order) => order.clone(),
    };
    let open = |table: &&Table| {
        let source = dir.open_table(&table.name).ok()?;
        let options = OpenOptions::new().comparator(order.clone());
        settings_of(&options.open_db_source(source).ok()?).ok()
    };
    let sound = tables
        .iter()
        .filter(|table| table.has_index && table.versions > 0);
    let like = sound.take(3).find_map(open);
    let codec = tables
        .iter()
        .find_map(|table| table.codec?.parse::<Compression>().ok());
    let like = like.unwrap_or_else(|| {
        // Without a table, it is unknown which codecs the database's programs read; all read uncompressed blocks.
        WriteOptions::leveldb().compression(codec.unwrap_or(Compression::None))
    });
    let sizes = match case.manifest {
        Some(manifest) => manifest.compacted().collect(),
        None => tables.iter().map(|table| table.bytes).collect(),
    };
    let sequences = case
        .tables
        .iter()
        .filter_map(|table| Some(table.sequences?.1));
    let stated = manifests.all.iter().map(|manifest| manifest.last_sequence);
    let last = sequences.chain(stated).max().unwrap_or(0);
    DatabaseBuildOptions::new()
        .comparator(order)
        .tables(like)
        .table_bytes(usual_table_bytes(sizes))
        .expected_bytes(0)
        .last_sequence(last.max(logged.last_sequence))
}

/// Describes the files that were read, and their states.
fn describe(
    files: &BTreeMap<String, u64>,
    manifests: &Manifests,
    case: &Case<'_>,
    logs: &[Log],
) -> Vec<RepairedFile> {
    let describe = |(name, &bytes): (&String, &u64)| {
        let kind = FileKind::of(name).0;
        let table = case.tables.iter().find(|table| table.name == *name);
        let log = logs.iter().find(|log| log.name == *name);
        let (versions, state) = match (table, log) {
            (Some(table), _) => (table.versions, table.state()),
            (_, Some(log)) => (log.versions, log.state()),
            _ => manifests.state(name),
        };
        let (name, state, bytes) = (name.clone(), state.to_owned(), Some(bytes));
        RepairedFile {
            name,
            kind,
            bytes,
            versions,
            state,
        }
    };
    files.iter().map(describe).collect()
}
