//! `leveltable scan`: prints the entries of tables, or a range of them.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use leveltable::{Error, ErrorKind};
use serde_json::json;

use crate::Answer;
use crate::failure::Failure;
use crate::files::{each_file, expand};
use crate::notation::{Notation, NotationArgs, quoted};
use crate::open::{
    AnyTable, Bounds, JsonStyle, Keys, LookupArgs, Opened, Order, Row, RowIter, SHOWN_AS_STORED,
    another_order, note_assumed_order, note_unknown_order, open_in_stored_order,
};
use crate::output::{Rows, complain};
use crate::place::{copy_if_remote, is_url};
use crate::remote::{self, Direction};
use crate::salvage::rescue;

/// Show entries in order, one a line.
///
/// A line is `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value` in a table of a database. Stops reading
/// when its output is closed.
///
/// If the keys are neither in byte order nor in that of a database, shows the entries in the order in which they are
/// stored. To show a part, reads the index and the blocks of that part. A table that does not name its order, as those of LevelDB,
/// is then assumed to be in byte order; standard error says so, and --check-order makes certain.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable scan 000005.ldb | head               the first entries
  leveltable scan 000005.ldb --reverse --limit 1  the last entry
  leveltable scan 000005.ldb --prefix user: --keys-only
  leveltable scan 000005.ldb --from b --to d      keys that begin with b or c
  leveltable scan 000005.ldb --json | jq -r .key
  leveltable scan db --width 40                   all tables of a database, values cut

If a block is damaged, scan prints the entries before it and exits with status 2. With --skip-damaged it copies the \
readable part of the file to a temporary file, goes on with that, lists on standard error what is left out, and exits \
with status 1.

In JSON, a key or value that is not UTF-8 appears as key_hex or value_hex; with --hex, all of them do. Each entry has the \
field file, and a file that cannot be read to its end has a line with the fields file and error. On a terminal, the entries of \
several files have headings.")]
pub(crate) struct Args {
    /// The tables' files or URLs, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
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
    /// Go on after a damaged block
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    notation: NotationArgs,
    /// Show each entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Show a value that is a JSON object, array, number, true or false as such, and not as a string
    #[arg(long, requires = "json", conflicts_with = "hex")]
    json_values: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let wanted = Wanted::new(args)?;
    let files = expand(&args.files)?;
    let mut out = Rows::new();
    let mut is_first = true;
    let answer = each_file(&files, |path| {
        if files.len() > 1 && !args.json {
            out.heading(path, is_first)?;
            is_first = false;
        }
        let scanned = scan_file(path, args, &wanted, &mut out);
        if let (true, Err(failure @ Failure::Message(_))) = (args.json, &scanned) {
            let record = json!({"file": path.to_string_lossy(), "error": failure.to_string()});
            out.write(|out| writeln!(out, "{record}"))?;
        }
        out.flush()?;
        scanned
    })?;
    out.finish()?;
    Ok(answer)
}

/// Prints the entries of one table or set.
fn scan_file(path: &Path, args: &Args, wanted: &Wanted, out: &mut Rows) -> Result<Answer, Failure> {
    let notation = args.notation.shown();
    let style = JsonStyle {
        hex: notation == Notation::Hex,
        keys_only: args.keys_only,
        json_values: args.json_values,
    };
    let show = |row: &Row, out: &mut Rows| {
        out.write(|out| {
            if args.json {
                row.write_json(style, Some(path), out)
            } else {
                row.write_line(notation, args.keys_only, args.width, out)
            }
        })
    };
    let opened = args.lookup.open(path);
    if let Ok(Opened::Set(set)) = &opened {
        if args.skip_damaged {
            let what = "--skip-damaged needs a single table: scan those of the set";
            return Err(Failure::new(what).at(path.display()));
        }
        let rows = set.rows(wanted.bounds.clone(), wanted.direction);
        for row in rows.take(most(args)) {
            match row {
                Ok(row) => show(&row, out)?,
                Err(e) => {
                    out.flush()?;
                    return Err(e.into());
                }
            }
        }
        return Ok(Answer::Yes);
    }
    let opened = match opened {
        // A walk over an object's blocks makes a request for each.
        Ok(Opened::Table(table)) if is_url(path) && table.is_database() && args.limit.is_none() => {
            copy_if_remote(path)?;
            args.lookup.open(path)
        }
        opened => opened,
    };
    let mut walk = Walk::open(path, args, wanted, opened)?;
    for _ in 0..most(args) {
        let row = match walk.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(e) => {
                out.flush()?;
                walk.go_on_after(e)?;
                match walk.next()? {
                    Some(row) => row,
                    None => break,
                }
            }
        };
        show(&row, out)?;
        walk.shown += 1;
        walk.last = Some(row);
    }
    out.flush()?;
    Ok(walk.answer)
}

/// Returns the number of entries to show of each file.
fn most(args: &Args) -> usize {
    args.limit.unwrap_or(usize::MAX)
}

/// A walk through a table that can change to another view of it: to its stored order, if the keys turn out not to be in
/// the order that was assumed, and to its readable part.
struct Walk<'a> {
    path: &'a Path,
    args: &'a Args,
    wanted: &'a Wanted,
    rows: RowSource,
    /// `None` before a table is open.
    is_database: Option<bool>,
    order_is_known: bool,
    is_rescued: bool,
    /// The number of rows printed, and the last of them.
    shown: usize,
    last: Option<Row>,
    answer: Answer,
}

type RowSource = Box<dyn Iterator<Item = Result<Row, Error>>>;

impl Walk<'_> {
    /// Starts a walk through the table that was `opened` at `path`, if it could be.
    fn open<'a>(
        path: &'a Path,
        args: &'a Args,
        wanted: &'a Wanted,
        opened: Result<Opened, Failure>,
    ) -> Result<Walk<'a>, Failure> {
        let mut walk = Walk {
            path,
            args,
            wanted,
            rows: Box::new(std::iter::empty()),
            is_database: None,
            order_is_known: true,
            is_rescued: false,
            shown: 0,
            last: None,
            answer: Answer::Yes,
        };
        match opened {
            Ok(Opened::Table(table)) => {
                // In another order, keys within the bounds may lie anywhere.
                if wanted.is_bounded() && table.order == Order::Assumed {
                    note_assumed_order(path);
                }
                walk.turn_to(&table)?;
            }
            Ok(Opened::Set(_)) => {}
            // The index is damaged, or the end of the file is missing.
            Err(failure) if args.skip_damaged => match walk.rescue() {
                Ok(()) => complain("damaged", &failure.to_string()),
                Err(_) => return Err(failure),
            },
            Err(failure) => return Err(failure),
        }
        Ok(walk)
    }

    fn next(&mut self) -> Result<Option<Row>, Error> {
        self.rows.next().transpose()
    }

    fn turn_to(&mut self, table: &AnyTable) -> Result<(), Failure> {
        let order_is_known = table.order != Order::Unknown;
        if !order_is_known && self.order_is_known {
            note_unknown_order(self.path, self.args.lookup.keys.keys, SHOWN_AS_STORED);
        }
        self.is_database = Some(table.is_database());
        self.order_is_known = order_is_known;
        let is_plain = !table.is_database() && self.args.lookup.keys.keys != Keys::Stored;
        self.rows = if is_url(self.path) && is_plain && order_is_known && !self.is_rescued {
            let bounds = self.wanted.bounds.clone();
            Box::new(remote::rows(self.path, bounds, self.wanted.direction)?)
        } else {
            self.wanted.rows(table, self.path)?
        };
        Ok(())
    }

    /// Finds a view of the table in which the walk can go on where it ended with `error`.
    fn go_on_after(&mut self, error: Error) -> Result<(), Failure> {
        let is_comparator = error.kind() == ErrorKind::Comparator;
        // Within bounds, other rows than in the stored order may have been shown or passed over.
        if is_comparator && self.order_is_known && self.wanted.is_bounded() {
            return Err(another_order(error));
        } else if is_comparator && self.order_is_known {
            let table = open_in_stored_order(self.path, self.is_database == Some(true))?;
            self.turn_to(&table)?;
        } else if self.args.skip_damaged && !self.is_rescued && !is_comparator {
            self.rescue()?;
        } else {
            return Err(error.into());
        }
        self.pass_shown_rows()
    }

    /// Turns to what can be read of the table, and says what is left out.
    fn rescue(&mut self) -> Result<(), Failure> {
        // What the keys were taken for so far, they are still.
        let keys = match (self.args.lookup.keys.keys, self.is_database) {
            (Keys::Auto, Some(true)) => Keys::Database,
            (Keys::Auto, Some(false)) => Keys::Plain,
            (named, _) => named,
        };
        let rescued = rescue(self.path, keys)?;
        for part in &rescued.left_out {
            complain("left out", &format!("{}: {part}", self.path.display()));
        }
        if !rescued.left_out.is_empty() {
            self.answer = Answer::No;
        }
        self.is_rescued = true;
        self.turn_to(&rescued.table)
    }

    /// Passes over the rows that were printed before the walk changed to another view.
    fn pass_shown_rows(&mut self) -> Result<(), Failure> {
        let Some(last) = &self.last else {
            return Ok(());
        };
        let again = self.rows.nth(self.shown.saturating_sub(1)).transpose()?;
        match again {
            Some(row) if row.key == last.key && row.tag == last.tag => Ok(()),
            _ => {
                let what = "the readable entries are not those before the damage: use `leveltable salvage`";
                Err(Failure::new(what).at(self.path.display()))
            }
        }
    }
}

/// Which entries to show, and in which direction.
struct Wanted {
    bounds: Bounds,
    prefix: Option<Vec<u8>>,
    /// Whether there is --from or --to.
    has_ends: bool,
    direction: Direction,
}

impl Wanted {
    /// Takes the intersection of `--from`, `--to` and `--prefix`.
    fn new(args: &Args) -> Result<Wanted, Failure> {
        let key = |option: &str, written: &Option<OsString>| {
            let written = written.as_ref();
            let key = written.map(|written| args.notation.parse_key(option, written));
            key.transpose()
        };
        let (from, to) = (key("--from", &args.from)?, key("--to", &args.to)?);
        let prefix = key("--prefix", &args.prefix)?;
        if prefix.is_some() && args.lookup.keys.keys == Keys::Stored {
            return Err(Failure::new(
                "--prefix cannot be used with --keys stored: keys with the same prefix may be apart in that order",
            ));
        }
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
            && args.lookup.keys.keys != Keys::Stored
        {
            let (from, to) = (quoted(from, 100), quoted(to, 100));
            let what = format!("--from {from} comes after --to {to}: no key lies between them");
            return Err(Failure::new(what));
        }
        let has_ends = from.is_some() || to.is_some();
        let after_prefix = prefix.as_deref().and_then(after);
        // `None` sorts before all keys, which is right for `max` here, but not for `min` below.
        let lower = from.max(prefix.clone());
        let upper = match (to, after_prefix) {
            (Some(to), Some(after)) => Some(to.min(after)),
            (to, after) => to.or(after),
        };
        Ok(Wanted {
            bounds: (
                lower.map_or(Bound::Unbounded, Bound::Included),
                upper.map_or(Bound::Unbounded, Bound::Excluded),
            ),
            prefix,
            has_ends,
            direction: Direction {
                reverse: args.reverse,
                is_whole: args.limit.is_none(),
            },
        })
    }

    fn is_bounded(&self) -> bool {
        self.has_ends || self.prefix.is_some()
    }

    fn rows(&self, table: &AnyTable, path: &Path) -> Result<RowSource, Failure> {
        let directed = |rows: RowIter| -> RowSource {
            if self.direction.reverse {
                Box::new(rows.rev())
            } else {
                rows
            }
        };
        if table.order != Order::Unknown {
            return Ok(directed(table.rows(self.bounds.clone())));
        }
        if self.has_ends {
            let what = "--from and --to need an order that is known: use --prefix, or scan the whole table";
            return Err(Failure::new(what).at(path.display()));
        }
        // Keys with the same prefix may be apart.
        let rows = directed(table.rows((Bound::Unbounded, Bound::Unbounded)));
        Ok(match self.prefix.clone() {
            Some(prefix) => Box::new(rows.filter(move |row| match row {
                Ok(row) => row.key.starts_with(&prefix),
                Err(_) => true,
            })),
            None => rows,
        })
    }
}

/// Returns the first key after all keys that begin with `prefix`, if there is one.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut after = prefix.get(..=at)?.to_vec();
    *after.last_mut()? += 1;
    Some(after)
}
