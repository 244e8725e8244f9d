//! `leveltable get`: prints the values of keys.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::ErrorKind;
use leveltable::db::{MAX_SEQUENCE, ValueType};
use leveltable_database::{Database, HistoryEntry};
use serde_json::json;

use crate::Answer;
use crate::database::{NEEDS_DIRECTORY, note_part, origin};
use crate::failure::Failure;
use crate::input::BYTE_ORDER_MARK;
use crate::notation::{Notation, NotationArgs, quoted, write_json_field};
use crate::open::{
    AnyTable, Lead, LookupArgs, Opened, Order, Row, ShowArgs, TypedTable, Values, another_order,
    note_assumed_order, note_unknown_order,
};
use crate::output::{Rows, complain};
use crate::place::{check_order_of_arguments, is_url};

/// Show the values of keys.
///
/// Of one key, shows the value; of several, or of keys from standard input, lines as `scan` prints them. Shows the
/// newest version if it is a table of a database. Exits with status 1 if a key is absent or deleted, and with status 2
/// if damage makes the answer unknown.
///
/// Reads the index and the blocks that may hold the keys. A table that does not name its order, as those of LevelDB, is assumed
/// to be in byte order; standard error says so if a key is absent, and --check-order makes certain. If the keys are neither in byte
/// order nor in that of a database, searches by reading the whole table.
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

const NEEDS_DATABASE: &str =
    "--at needs a table of a database: the keys of this table have no sequence numbers";

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    // A key that cannot be read is an error before any answer is printed.
    let mut keys = Vec::new();
    for key in &args.key {
        keys.push(
            (key != "-")
                .then(|| args.show.notation.parse_key("KEY", key))
                .transpose()?,
        );
    }
    for key in &args.key {
        check_order_of_arguments(Path::new(key), &args.file)?;
    }
    note_part(&args.file);
    let mut answers = Answers::new(args, &keys);
    let opened = args.lookup.open(&args.file, false)?;
    let is_table = matches!(&opened, Opened::Table(table) if table.is_database());
    if args.at.is_some() && !is_table {
        return Err(Failure::new(NEEDS_DATABASE));
    }
    if args.history && !matches!(opened, Opened::Database(_)) {
        return Err(Failure::new(NEEDS_DIRECTORY));
    }
    let keys = all_keys(keys, args.show.notation);
    match &opened {
        Opened::Set(set) => look_up(
            &|keys| each_of(keys, &|keys| set.get_many(keys)),
            BATCH,
            keys,
            &mut answers,
        )?,
        Opened::Database(db) if args.history => show_history(db, keys, &mut answers)?,
        Opened::Database(db) if db.has_known_order() => {
            look_up(
                &|keys| each_of(keys, &|keys| db.get_many(keys)),
                BATCH,
                keys,
                &mut answers,
            )?;
        }
        Opened::Database(db) => {
            let rows = db
                .iter()
                .map(|entry| entry.map(|(key, value)| Row::plain(key, value)));
            search(rows, keys, &mut answers)?;
        }
        Opened::Table(table) if table.order == Order::Unknown => {
            let remedy = "searched by reading the whole table";
            note_unknown_order(&args.file, args.lookup.keys.keys, remedy);
            let rows = table.rows((Bound::Unbounded, Bound::Unbounded));
            search(rows, keys, &mut answers)?;
        }
        Opened::Table(table) => {
            answers.order = table.order;
            // Requests of a batch are on their way at the same time.
            let most = if is_url(&args.file) { BATCH } else { 1 };
            look_up(
                &|keys| find_batch(table, keys, args.at),
                most,
                keys,
                &mut answers,
            )?;
        }
    }
    answers.out.finish()?;
    Ok(answers.worst)
}

/// Number of keys that are looked up at once.
const BATCH: usize = 1024;

/// What was found of a key.
type Found = leveltable::Result<Option<Row>>;

/// What looks up many keys at once.
type GetMany<'a> = &'a dyn Fn(&[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>>;

/// Looks up keys with `find`, up to `most` at a time.
fn look_up(
    find: &dyn Fn(&[Vec<u8>]) -> Vec<Found>,
    most: usize,
    mut keys: impl Iterator<Item = Result<Vec<u8>, Failure>>,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    loop {
        let batch: Vec<Vec<u8>> = keys.by_ref().take(most).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        for (key, found) in batch.iter().zip(find(&batch)) {
            match found {
                Ok(row) => {
                    // In another order, the table may hold the key elsewhere.
                    if row.is_none() && answers.order == Order::Assumed {
                        note_assumed_order(&answers.args.file);
                        answers.order = Order::Certain;
                    }
                    answers.show(key, row.as_ref())?;
                }
                // Nothing that was not found is certain.
                Err(e) if e.kind() == ErrorKind::Comparator => {
                    answers.out.flush()?;
                    return Err(another_order(e));
                }
                Err(e) if answers.is_single && !answers.args.show.json => return Err(e.into()),
                Err(e) => answers.fail(key, &e.into())?,
            }
        }
    }
}

/// Looks for all keys in one walk over `rows`, whose order is not known. The newest version of a key not newer than --at counts.
fn search(
    rows: impl Iterator<Item = leveltable::Result<Row>>,
    keys: impl Iterator<Item = Result<Vec<u8>, Failure>>,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    let at = answers.args.at.unwrap_or(MAX_SEQUENCE);
    let keys: Vec<Vec<u8>> = keys.collect::<Result<_, _>>()?;
    let mut found: HashMap<&[u8], Option<Row>> = keys.iter().map(|key| (&key[..], None)).collect();
    for row in rows {
        let row = row?;
        let sequence = row.tag.map(|(sequence, _)| sequence);
        if let Some(best) = found.get_mut(&row.key[..])
            && sequence.is_none_or(|sequence| sequence <= at)
        {
            let so_far = best.as_ref().and_then(|best| best.tag);
            if best.is_none() || so_far.map(|(so_far, _)| so_far) < sequence {
                *best = Some(row);
            }
        }
    }
    for key in &keys {
        answers.show(key, found.get(&key[..]).and_then(Option::as_ref))?;
    }
    Ok(())
}

/// Prints all versions of each key that the files of a database still hold.
fn show_history(
    db: &Database,
    keys: impl Iterator<Item = Result<Vec<u8>, Failure>>,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    for key in keys {
        let key = key?;
        let versions = db.history(&key)?;
        if versions.is_empty() {
            answers.no("not found", &key)?;
        }
        for version in versions {
            answers.show_version(version)?;
        }
    }
    Ok(())
}

/// Returns the keys of the command line, with those of standard input in place of each `-`.
fn all_keys(
    keys: Vec<Option<Vec<u8>>>,
    notation: NotationArgs,
) -> impl Iterator<Item = Result<Vec<u8>, Failure>> {
    let keys = keys.into_iter();
    keys.flat_map(move |key| -> Box<dyn Iterator<Item = _>> {
        match key {
            Some(key) => Box::new(std::iter::once(Ok(key))),
            None => Box::new(keys_of_stdin(notation)),
        }
    })
}

/// Returns the keys on the lines of standard input. Empty lines are skipped.
fn keys_of_stdin(notation: NotationArgs) -> impl Iterator<Item = Result<Vec<u8>, Failure>> {
    let mut lines = io::stdin().lock();
    let mut number = 0;
    let mut is_empty = true;
    std::iter::from_fn(move || {
        loop {
            let mut line = Vec::new();
            number += 1;
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => {
                    if is_empty {
                        complain("note", "standard input has no keys");
                    }
                    return None;
                }
                Ok(_) => {}
                Err(e) => return Some(Err(Failure::new(format!("reading standard input: {e}")))),
            }
            line.pop_if(|last| *last == b'\n');
            line.pop_if(|last| *last == b'\r');
            let is_marked = number == 1 && line.starts_with(BYTE_ORDER_MARK);
            if is_marked && notation.shown() != Notation::Raw {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if !line.is_empty() {
                is_empty = false;
                let place = format!("standard input, line {number}");
                return Some(notation.parse_key_bytes(&place, &line));
            }
        }
    })
}

/// Returns the entry of each key. In a table of a database that is its newest entry not newer than `at`.
fn find_batch(table: &AnyTable, keys: &[Vec<u8>], at: Option<u64>) -> Vec<Found> {
    match &table.keys {
        TypedTable::Plain(table) => each_of(keys, &|keys| table.get_many(keys)),
        TypedTable::Database(table) => {
            let snapshot = table.at(at.unwrap_or(MAX_SEQUENCE));
            let find = |key| Ok(snapshot.get_entry(key)?.map(Row::from));
            keys.iter().map(find).collect()
        }
    }
}

/// Returns the entry of each key by `get_many`. If damage fails that, it finds out of which; a request that failed is not made again
/// for each key.
fn each_of(keys: &[Vec<u8>], get_many: GetMany<'_>) -> Vec<Found> {
    let row = |(key, value): (&Vec<u8>, Option<Bytes>)| {
        Ok(value.map(|value| Row::plain(key.clone().into(), value)))
    };
    match get_many(keys) {
        Ok(values) => keys.iter().zip(values).map(row).collect(),
        Err(e) if keys.len() == 1 || e.kind() == ErrorKind::Io => {
            keys.iter().map(|_| Err(e.clone())).collect()
        }
        Err(_) => {
            let keys = keys.iter().map(std::slice::from_ref);
            keys.flat_map(|key| each_of(key, get_many)).collect()
        }
    }
}

/// Prints the answers, and remembers the worst.
struct Answers<'a> {
    args: &'a Args,
    /// Whether there is one key on the command line, whose value is printed alone.
    is_single: bool,
    /// What is known of the order in which keys are looked up.
    order: Order,
    out: Rows,
    worst: Answer,
}

impl Answers<'_> {
    fn new<'a>(args: &'a Args, keys: &[Option<Vec<u8>>]) -> Answers<'a> {
        Answers {
            args,
            is_single: matches!(keys, [Some(_)]),
            order: Order::Certain,
            out: Rows::new(),
            worst: Answer::Yes,
        }
    }

    fn show(&mut self, key: &[u8], row: Option<&Row>) -> Result<(), Failure> {
        let (show, notation) = (self.args.show, self.args.show.notation.shown());
        let Some(row) = row else {
            if show.json {
                self.write_no_value(key, None)?;
            }
            return self.no("not found", key);
        };
        match row.tag {
            Some((_, ValueType::Deletion)) if !show.json => {}
            _ if self.is_single && !show.json => self.out.write(|out| {
                notation.write(&row.value, out)?;
                match notation {
                    Notation::Raw => Ok(()),
                    _ => out.write_all(b"\n"),
                }
            })?,
            _ => {
                let lead = Lead::default();
                self.out
                    .write(|out| row.write(show, Values::All, &lead, out))?;
            }
        }
        match row.tag {
            Some((sequence, ValueType::Deletion)) => {
                self.no(&format!("deleted at sequence {sequence}"), key)
            }
            _ => Ok(()),
        }
    }

    /// Prints a version of a key, the file that holds it, and what became of it.
    fn show_version(&mut self, version: HistoryEntry) -> Result<(), Failure> {
        let (show, lead) = (self.args.show, origin(&version));
        let row = Row::of_version(version.user_key, version.sequence, version.version);
        self.out
            .write(|out| row.write(show, Values::All, &lead, out))
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
        if self.args.show.json {
            self.write_no_value(key, Some(&failure.to_string()))?;
        }
        self.out.flush()?;
        complain("error", &format!("key {}: {failure}", quoted(key, 100)));
        self.worst = Answer::Unknown;
        Ok(())
    }

    fn write_no_value(&mut self, key: &[u8], error: Option<&str>) -> Result<(), Failure> {
        let is_hex = self.args.show.notation.shown() == Notation::Hex;
        self.out.write(|out| {
            out.write_all(b"{")?;
            write_json_field("key", key, is_hex, out)?;
            out.write_all(b",\"value\":null")?;
            if let Some(error) = error {
                write!(out, ",\"error\":{}", json!(error))?;
            }
            out.write_all(b"}\n")
        })
    }
}
