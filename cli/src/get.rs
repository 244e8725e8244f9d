//! `leveltable get`: prints the values of keys.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use leveltable::ErrorKind;
use leveltable_database::Database;
use serde_json::{Value, json};

use crate::Answer;
use crate::database::{NEEDS_DIRECTORY, note_part};
use crate::failure::Failure;
use crate::input::{Lines, standard_input};
use crate::notation::{Field, Notation, quoted, write_json};
use crate::open::{LookupArgs, Opened, another_order, note_assumed_order, note_unknown_order};
use crate::output::{Rows, complain};
use crate::path::is_url;
use crate::place::check_order_of_arguments;
use crate::row::{Row, ShowArgs, Style};

/// Show the values of keys.
///
/// For one key, shows the value; for several, or for keys from standard input, lines as `scan` prints them. In a table
/// of a database, shows the newest version. Exits with status 1 if a key is absent or deleted, and with status 2 if
/// damage makes the answer unknown.
///
/// Reads the index and the blocks that may hold the keys. A table that does not record its order, like LevelDB's, is assumed to be
/// in byte order; standard error says so if a key is absent, and --check-order makes certain. If the keys are neither in byte order
/// nor in a database's, searches the whole table.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/get.txt").trim_end())]
pub(crate) struct Args {
    /// The table's file or URL, the directory of a database, or the manifest of a set
    file: PathBuf,
    #[command(flatten)]
    lookup: LookupArgs,
    /// The keys, as text with escapes; - for lines of standard input
    #[arg(required = true)]
    key: Vec<OsString>,
    /// The value as of this sequence number, in a table of a database
    #[arg(long, value_name = "SEQUENCE")]
    at: Option<u64>,
    /// Show all versions that the files of a database still hold, and where: file, offset, state, key, sequence, type, value
    #[arg(long, conflicts_with = "at")]
    history: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// A key to look up, or why it cannot be read.
type Key = Result<Vec<u8>, Failure>;

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    // Checked first: a path of Windows is not a key, since `\` begins an escape.
    for key in &args.key {
        check_order_of_arguments(Path::new(key), &args.file)?;
    }
    // A key that cannot be parsed is an error before any answer is printed.
    let parse = |key: &OsString| {
        let key = key.as_encoded_bytes();
        (key != b"-").then(|| args.show.parse_key("KEY", key))
    };
    let given = args.key.iter().map(|key| parse(key).transpose());
    let given = given.collect::<Result<Vec<_>, _>>()?;
    note_part(&args.file);
    let opened = args.lookup.open(&args.file, false)?;
    let has_versions = matches!(&opened, Opened::Table(table) if table.database.is_some());
    if args.at.is_some() && !has_versions {
        let this = match opened {
            Opened::Database(_) => "this is all of one, of which --history shows the versions",
            _ => "the keys of this table have no sequence numbers",
        };
        let what = format!("--at needs a table of a database: {this}");
        return Err(Failure::new(what));
    }
    let mut answers = Answers {
        args,
        is_single: matches!(given[..], [Some(_)]) && !args.show.json,
        style: Style {
            show: args.show,
            ..Style::default()
        },
        out: Rows::new(),
        worst: Answer::Yes,
    };
    // Replaces each `-` by the keys from standard input.
    let keys = given.into_iter().flat_map(|key| {
        let lines = key.is_none().then(|| keys_of_stdin(args.show));
        key.map(Ok).into_iter().chain(lines.into_iter().flatten())
    });
    match &opened {
        Opened::Database(db) if args.history => {
            for key in keys {
                answers.show_history(&key?, db)?;
            }
        }
        _ if args.history => return Err(Failure::new(NEEDS_DIRECTORY)),
        _ => answers.look_up(&opened, keys)?,
    }
    answers.out.flush()?;
    Ok(answers.worst)
}

/// Number of keys that are looked up at once.
const BATCH: usize = 1024;

/// Returns the keys on the lines of standard input. Empty lines are skipped.
fn keys_of_stdin(show: ShowArgs) -> impl Iterator<Item = Key> {
    let is_raw = show.notation() == Notation::Raw;
    let mut lines = Lines::new(standard_input(), is_raw);
    let mut is_empty = true;
    std::iter::from_fn(move || match lines.next() {
        Ok(true) => {
            is_empty = false;
            let place = format!("standard input, line {}", lines.number);
            let key = lines.line.strip_suffix(b"\r").unwrap_or(&lines.line);
            Some(show.parse_key(&place, key))
        }
        Ok(false) => {
            if is_empty {
                complain("note", "standard input has no keys");
            }
            None
        }
        Err(e) => Some(Err(Failure::new(format!("reading standard input: {e}")))),
    })
}

/// The result of looking up a key.
type Found = leveltable::Result<Option<Row>>;

/// Returns the entry of each key. If damage makes this fail, finds out for which keys; a failed request is not repeated for each key.
fn find(opened: &Opened, keys: &[Vec<u8>], at: Option<u64>) -> Result<Vec<Found>, Failure> {
    match opened.get_many(keys, at) {
        Ok(rows) => Ok(rows.into_iter().map(Ok).collect()),
        Err(e) if opened.is_unordered() => Err(e.into()),
        Err(e) if keys.len() == 1 || e.kind() == ErrorKind::Io => Ok(vec![Err(e); keys.len()]),
        Err(_) => {
            let keys = keys.iter().map(std::slice::from_ref);
            let found: Result<Vec<_>, _> = keys.map(|key| find(opened, key, at)).collect();
            Ok(found?.into_iter().flatten().collect())
        }
    }
}

/// Prints the answers, and remembers the worst.
struct Answers<'a> {
    args: &'a Args,
    /// Whether there is one key on the command line, whose value is printed alone.
    is_single: bool,
    style: Style,
    out: Rows,
    worst: Answer,
}

impl Answers<'_> {
    /// Looks up keys and prints the results.
    fn look_up(
        &mut self,
        opened: &Opened,
        mut keys: impl Iterator<Item = Key>,
    ) -> Result<(), Failure> {
        let file = &self.args.file;
        let mut is_assumed = matches!(opened, Opened::Table(table) if table.is_assumed);
        let is_unordered = opened.is_unordered();
        let most = match opened {
            _ if is_unordered => usize::MAX,
            Opened::Table(_) if !is_url(file) => 1,
            // The requests of a batch are in flight at the same time.
            _ => BATCH,
        };
        if is_unordered && matches!(opened, Opened::Table(_)) {
            let remedy = "searched by reading the whole table";
            note_unknown_order(file, self.args.lookup.keys.keys, remedy);
        }
        loop {
            let batch: Vec<Vec<u8>> = keys.by_ref().take(most).collect::<Result<_, _>>()?;
            if batch.is_empty() {
                return Ok(());
            }
            for (key, found) in batch.iter().zip(find(opened, &batch, self.args.at)?) {
                match found {
                    Ok(row) => {
                        // If the order is another one, the key may be elsewhere in the table.
                        if row.is_none() && std::mem::take(&mut is_assumed) {
                            note_assumed_order(file);
                        }
                        self.show(key, row.as_ref())?;
                    }
                    // No absence is certain.
                    Err(e) if e.kind() == ErrorKind::Comparator => {
                        self.out.flush()?;
                        return Err(another_order(e));
                    }
                    Err(e) if self.is_single => return Err(e.into()),
                    Err(e) => self.fail(key, &e.into())?,
                }
            }
        }
    }

    /// Prints all versions of a key that the files of a database still hold.
    fn show_history(&mut self, key: &[u8], db: &Database) -> Result<(), Failure> {
        let versions = db.history(key)?;
        if versions.is_empty() {
            self.no("not found", key)?;
        }
        for version in versions {
            self.write(&Row::from(version))?;
        }
        Ok(())
    }

    fn write(&mut self, row: &Row) -> Result<(), Failure> {
        self.out.write(|out| row.write(&self.style, out))
    }

    fn show(&mut self, key: &[u8], row: Option<&Row>) -> Result<(), Failure> {
        let Some(row) = row else {
            self.write_no_value(key, None)?;
            return self.no("not found", key);
        };
        let (deleted_at, notation) = (row.deleted_at(), self.args.show.notation());
        if self.is_single && deleted_at.is_none() {
            let end = if notation == Notation::Raw { "" } else { "\n" };
            self.out.write(|out| {
                notation.write(&row.value, out)?;
                out.write_all(end.as_bytes())
            })?;
        } else if self.args.show.json || deleted_at.is_none() {
            self.write(row)?;
        }
        match deleted_at {
            Some(sequence) => self.no(&format!("deleted at sequence {sequence}"), key),
            None => Ok(()),
        }
    }

    /// Prints to standard error that `key` has no value.
    fn no(&mut self, what: &str, key: &[u8]) -> Result<(), Failure> {
        self.out.flush()?;
        let file = self.args.file.display();
        complain(what, &format!("key {} in {file}", quoted(key, 100)));
        self.worst = self.worst.max(Answer::No);
        Ok(())
    }

    /// Prints why the value of `key` is unknown.
    fn fail(&mut self, key: &[u8], failure: &Failure) -> Result<(), Failure> {
        self.write_no_value(key, Some(&failure.to_string()))?;
        self.out.flush()?;
        complain("error", &format!("key {}: {failure}", quoted(key, 100)));
        self.worst = Answer::Unknown;
        Ok(())
    }

    /// Prints the JSON object of a key without a value.
    fn write_no_value(&mut self, key: &[u8], error: Option<&str>) -> Result<(), Failure> {
        let show = self.args.show;
        if !show.json {
            return Ok(());
        }
        let value = [
            ("key", Field::Bytes(key)),
            ("value", Field::Json(Value::Null)),
        ];
        let error = error.map(|error| ("error", Field::Json(json!(error))));
        self.out
            .write(|out| write_json(value.into_iter().chain(error), show.hex, out))
    }
}
