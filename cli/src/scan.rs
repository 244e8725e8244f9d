//! `leveltable scan`: prints the entries of tables, or a range of them.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use leveltable::prefix_bounds;
use leveltable::{Error, ErrorKind};
use leveltable_database::{FileKind, GapKind};
use serde_json::{Map, Value, json};

use crate::Answer;
use crate::database::records::{self, Record};
use crate::database::{self, NEEDS_DIRECTORY, complain_of_damage, note_part, order_beside};
use crate::failure::Failure;
use crate::notation::{Field, quoted, write_json};
use crate::open::{
    AnyTable, Keys, LookupArgs, Opened, SHOWN_AS_STORED, another_order, note_assumed_order,
    note_unknown_order, open_in_stored_order,
};
use crate::output::{Rows, complain, note};
use crate::path::{is_url, kind_of};
use crate::place::{copy_if_remote, each_file, expand};
use crate::remote;
use crate::row::{Bounds, Row, RowSource, ShowArgs, Style, Walk};
use crate::salvage::{Rescued, rescue};
use crate::sort::KeyOrder;

/// Show entries in order, one per line.
///
/// A line is `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value` in a table of a database. For a directory with CURRENT, which
/// is a database, shows the live contents, without its lock; for a log, `offset<TAB>` and the line of each change, with --from, --to
/// and --prefix in byte order; for a MANIFEST, the fields of each edit. Stops reading when its output is closed.
///
/// If the keys are neither in byte order nor in a database's, shows the entries in their stored order. To show a part, only reads
/// the index and the blocks of that part. A table that does not record its order, like LevelDB's, is then assumed to be in byte
/// order; standard error says so, and --check-order makes certain.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/scan.txt").trim_end())]
pub(crate) struct Args {
    /// Tables' files or URLs, databases, their logs and MANIFESTs, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// In a database, show all entries of its tables, one table after another
    #[arg(long = "files")]
    apart: bool,
    /// Show all versions that the files of a database still hold, and where: file, offset, state, key, sequence, type, value
    #[arg(long, conflicts_with = "apart")]
    history: bool,
    #[command(flatten)]
    lookup: LookupArgs,
    /// Start at this key, or at the first key after it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// Stop before this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Show only keys that begin with PREFIX
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// Show entries from the last to the first
    #[arg(long, short)]
    reverse: bool,
    /// Show at most N entries of each file
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// Leave out the values
    #[arg(long, short)]
    keys_only: bool,
    /// Cut values to N characters
    #[arg(long, value_name = "N", conflicts_with_all = ["raw", "json"])]
    width: Option<usize>,
    /// Continue after a damaged block
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let wanted = Wanted::new(args)?;
    let files = expand(&args.files, args.apart)?;
    let mut out = Rows::new();
    let mut is_first = true;
    let answer = each_file(&files, |path| {
        if files.len() > 1 && !args.show.json {
            out.heading(path, is_first)?;
            is_first = false;
        }
        let scanned = scan_file(path, args, &wanted, &mut out);
        if let (true, Err(failure @ Failure::Message(_))) = (args.show.json, &scanned) {
            let record = json!({"file": path.to_string_lossy(), "error": failure.to_string()});
            out.write(|out| writeln!(out, "{record}"))?;
        }
        out.flush()?;
        scanned
    })?;
    Ok(answer)
}

/// Prints the entries of a table, a database or a set, or the records of a log or a MANIFEST.
fn scan_file(path: &Path, args: &Args, wanted: &Wanted, out: &mut Rows) -> Result<Answer, Failure> {
    let mut printer = Printer {
        path,
        args,
        wanted,
        out,
        style: Style {
            show: args.show,
            keys_only: args.keys_only,
            width: args.width,
            file: Some(path.to_string_lossy().into_owned()),
        },
        shown: 0,
        last: None,
    };
    let is_bytewise = order_beside(path).is_none_or(|order| order == KeyOrder::Internal);
    if is_bytewise && args.keys() != Keys::Stored {
        wanted.check_ends()?;
    }
    if matches!(kind_of(path).0, FileKind::Log | FileKind::Manifest) && path.is_file() {
        return printer.show_records();
    }
    if !args.apart {
        note_part(path);
    }
    let opened = match args.lookup.open(path, args.skip_damaged) {
        Ok(opened) => opened,
        // The index is damaged, or the end of the file is missing.
        Err(failure) if args.skip_damaged && !path.is_dir() => {
            let Ok(rescued) = rescue(path, args.keys(), None) else {
                return Err(failure);
            };
            complain("damaged", &failure.to_string());
            return printer.show_rescued(&rescued);
        }
        Err(failure) => return Err(failure),
    };
    match opened {
        Opened::Database(db) => {
            let is_damaged = complain_of_damage(&db);
            // The user does not know the temporary file that holds the entry.
            printer.style.file = None;
            let order = KeyOrder::of_database(&db.comparator());
            let rows = wanted.select(order == Some(KeyOrder::Internal), |walk| {
                database::rows(&db, walk.bounds, walk.reverse, args.history)
            });
            printer.show_all(rows?, Answer::yes_if(!is_damaged))
        }
        _ if args.history => Err(Failure::of(path, NEEDS_DIRECTORY)),
        Opened::Set(_) if args.skip_damaged => {
            let what = "--skip-damaged needs a single table: scan those of the set";
            Err(Failure::of(path, what))
        }
        Opened::Set(set) => printer.show_all(set.rows(&wanted.walk), Answer::Yes),
        // A walk over an object's blocks would make a request for each.
        Opened::Table(table)
            if is_url(path) && table.database.is_some() && wanted.walk.is_whole =>
        {
            copy_if_remote(path)?;
            printer.show_table(args.lookup.open_table(path)?)
        }
        Opened::Table(table) => printer.show_table(table),
    }
}

impl Args {
    fn keys(&self) -> Keys {
        self.lookup.keys.keys
    }
}

/// Prints the entries of one file.
struct Printer<'a> {
    path: &'a Path,
    args: &'a Args,
    wanted: &'a Wanted,
    out: &'a mut Rows,
    style: Style,
    /// The number of rows printed, and the last row.
    shown: usize,
    last: Option<Row>,
}

impl Printer<'_> {
    fn has_all(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.shown >= limit)
    }

    /// Prints rows up to the limit; `answer` is then the result.
    fn show_all(&mut self, rows: RowSource, answer: Answer) -> Result<Answer, Failure> {
        let error = self.show_rows(rows)?;
        error.map_or(Ok(answer), |error| Err(error.into()))
    }

    /// Prints rows up to the limit. Returns the error that ends them, if any.
    fn show_rows(&mut self, mut rows: RowSource) -> Result<Option<Error>, Failure> {
        let mut ended = None;
        // Do not take one more row than is shown: it may be in another block.
        while !self.has_all()
            && ended.is_none()
            && let Some(row) = rows.next()
        {
            match row {
                Ok(row) => {
                    self.out.write(|out| row.write(&self.style, out))?;
                    self.shown += 1;
                    self.last = Some(row);
                }
                Err(e) => ended = Some(e),
            }
        }
        self.out.flush()?;
        Ok(ended)
    }

    /// Prints a table; in its stored order, if the keys turn out not to be in the assumed order. After damage, prints the
    /// readable part if the user asked for that.
    fn show_table(&mut self, mut table: AnyTable) -> Result<Answer, Failure> {
        let (is_bounded, is_remote) = (self.wanted.is_bounded(), is_url(self.path));
        if is_bounded && table.is_assumed {
            // In another order, keys within the bounds may be anywhere.
            note_assumed_order(self.path);
        }
        loop {
            let rows = self.entries(&table, is_remote)?;
            let Some(error) = self.show_rows(rows)? else {
                return Ok(Answer::Yes);
            };
            let is_database = table.database.is_some();
            if error.kind() == ErrorKind::Comparator && table.order.is_some() {
                // Within bounds, rows may have been shown or skipped wrongly.
                if is_bounded {
                    return Err(another_order(error));
                }
                table = open_in_stored_order(self.path, is_database)?;
            } else if self.args.skip_damaged && error.kind() != ErrorKind::Comparator {
                // The kind of keys stays the same.
                let (keys, order) = match (self.args.keys(), is_database) {
                    (Keys::Auto, true) => (Keys::Database, order_beside(self.path)),
                    (Keys::Auto, false) => (Keys::Plain, None),
                    (named, _) => (named, None),
                };
                return self.show_rescued(&rescue(self.path, keys, order)?);
            } else {
                return Err(error.into());
            }
        }
    }

    /// Prints the readable part of a table, and lists what is left out.
    fn show_rescued(&mut self, rescued: &Rescued) -> Result<Answer, Failure> {
        for part in &rescued.left_out {
            complain("left out", &format!("{}: {part}", self.path.display()));
        }
        let rows = self.entries(&rescued.table, false)?;
        self.show_all(rows, Answer::yes_if(rescued.left_out.is_empty()))
    }

    /// Returns the wanted entries of a table that have not been printed yet, from another view of it. The entries of an object are
    /// requested ahead.
    fn entries(&self, table: &AnyTable, is_remote: bool) -> Result<RowSource, Failure> {
        if table.order.is_none() {
            note_unknown_order(self.path, self.args.keys(), SHOWN_AS_STORED);
            if self.wanted.has_ends() {
                let what = "--from and --to need an order that is known: use --prefix, or scan the whole table";
                return Err(Failure::of(self.path, what));
            }
        }
        let mut rows = self.wanted.select(table.is_bytewise(), |walk| {
            if is_remote && table.order == Some(KeyOrder::Bytewise) {
                return remote::rows(self.path, &walk);
            }
            Ok(table.rows(walk.bounds, walk.reverse))
        })?;
        if let Some(last) = &self.last {
            let again = rows.nth(self.shown.saturating_sub(1)).transpose()?;
            if again.is_none_or(|row| row.stored_key() != last.stored_key()) {
                let what = "the readable entries are not those before the damage: use `leveltable salvage`";
                return Err(Failure::of(self.path, what));
            }
        }
        Ok(rows)
    }

    /// Prints the changes in a log, or the edits in a MANIFEST. Damage is an error, or is left out if the user asked for
    /// that.
    fn show_records(&mut self) -> Result<Answer, Failure> {
        let mut answer = Answer::Yes;
        records::read(self.path, |offset, record| {
            match record {
                Record::Change(row) if !self.wanted.includes(&row.key) => return Ok(true),
                Record::Change(row) => self.out.write(|out| row.write(&self.style, out))?,
                Record::Edit(fields) => self.show_edit(offset, &fields)?,
                Record::No(GapKind::Damaged, what) => {
                    let fault = Failure::of(self.path, what);
                    if !self.args.skip_damaged {
                        return Err(fault);
                    }
                    complain("left out", &fault.to_string());
                    answer = Answer::No;
                    return Ok(true);
                }
                Record::No(_, what) => {
                    note(self.path, format!("no record in {what}"));
                    return Ok(true);
                }
            }
            self.shown += 1;
            self.out.flush()?;
            Ok(!self.has_all())
        })?;
        Ok(answer)
    }

    fn show_edit(&mut self, offset: u64, fields: &Map<String, Value>) -> Result<(), Failure> {
        let is_json = self.args.show.json;
        let file = self.style.file.as_deref().map(Field::Text);
        let lead = [("file", file), ("offset", Some(Field::Json(json!(offset))))];
        let lead = lead
            .into_iter()
            .filter(|_| is_json)
            .filter_map(|(name, field)| Some((name, field?)));
        let fields = fields
            .iter()
            .map(|(name, value)| (&name[..], Field::Json(value.clone())));
        self.out.write(|out| {
            if !is_json {
                write!(out, "{offset}\t")?;
            }
            write_json(lead.chain(fields), false, out)
        })
    }
}

/// The entries to show, and their direction.
struct Wanted {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    /// The three options as bounds, in byte order.
    walk: Walk,
}

impl Wanted {
    fn new(args: &Args) -> Result<Wanted, Failure> {
        let key = |option: &str, written: &Option<OsString>| {
            let parse = |key: &OsString| args.show.parse_key(option, key.as_encoded_bytes());
            written.as_ref().map(parse).transpose()
        };
        let (from, to) = (key("--from", &args.from)?, key("--to", &args.to)?);
        let prefix = key("--prefix", &args.prefix)?;
        if prefix.is_some() && args.keys() == Keys::Stored {
            return Err(Failure::new(
                "--prefix cannot be used with --keys stored: keys with the same prefix may be apart in that order",
            ));
        }
        let after_prefix = match prefix.as_deref().map(prefix_bounds) {
            Some((_, Bound::Excluded(end))) => Some(end),
            _ => None,
        };
        // `None` sorts before all keys, which is correct for `max` here, but not for `min` below.
        let lower = from.clone().max(prefix.clone());
        let upper = to.clone().into_iter().chain(after_prefix).min();
        Ok(Wanted {
            from,
            to,
            prefix,
            walk: Walk {
                bounds: bounds(lower, upper),
                reverse: args.reverse,
                is_whole: args.limit.is_none(),
            },
        })
    }

    /// Fails if --from comes after --to in byte order.
    fn check_ends(&self) -> Result<(), Failure> {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) if from > to => {
                let (from, to) = (quoted(from, 100), quoted(to, 100));
                let what = format!("--from {from} comes after --to {to}: no key lies between them");
                Err(Failure::new(what))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a key is wanted, in byte order.
    fn includes(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key)
            && self.to.as_deref().is_none_or(|to| key < to)
            && key.starts_with(self.prefix.as_deref().unwrap_or_default())
    }

    fn has_ends(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn is_bounded(&self) -> bool {
        self.has_ends() || self.prefix.is_some()
    }

    /// Returns the wanted rows. If the order is not byte order, keys with the same prefix may be apart, so `rows` is asked for all
    /// keys between --from and --to.
    fn select(
        &self,
        is_bytewise: bool,
        rows: impl FnOnce(Walk) -> leveltable::Result<RowSource>,
    ) -> leveltable::Result<RowSource> {
        let mut walk = self.walk.clone();
        if is_bytewise {
            return rows(walk);
        }
        walk.bounds = bounds(self.from.clone(), self.to.clone());
        let prefix = self.prefix.clone().unwrap_or_default();
        let is_wanted = move |row: &leveltable::Result<Row>| {
            row.as_ref()
                .map_or(true, |row| row.key.starts_with(&prefix))
        };
        Ok(Box::new(rows(walk)?.filter(is_wanted)))
    }
}

fn bounds(from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Bounds {
    (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    )
}
