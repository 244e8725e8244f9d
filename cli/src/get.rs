//! `leveltable get`: prints the values of keys.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::ErrorKind;
use leveltable::db::{MAX_SEQUENCE, ValueType};
use serde_json::json;

use crate::Answer;
use crate::failure::Failure;
use crate::input::BYTE_ORDER_MARK;
use crate::notation::{Notation, NotationArgs, quoted, write_json_field};
use crate::open::{
    AnyTable, JsonStyle, LookupArgs, Opened, Order, Row, TypedTable, another_order,
    note_assumed_order, note_unknown_order,
};
use crate::output::{Rows, complain};
use crate::place::{check_order_of_arguments, is_url};
use crate::remote::Set;

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
#[command(after_help = "\
Examples:
  leveltable get 000005.ldb user:17
  leveltable get 000005.ldb 'b\\x00\\x00\\x01'       a key of arbitrary bytes
  leveltable get 000005.ldb --hex 62000001        the same, in hexadecimal
  leveltable get 000005.ldb thumbnail --raw > thumbnail.png
  leveltable get 000005.ldb - < keys.txt          a key on each line

With --json, every key has a line. The value of an absent one is null, and so is that of one that damage hides, whose \
line also has the field error.")]
pub(crate) struct Args {
    /// The table's file or URL, or the manifest of a set
    file: PathBuf,
    #[command(flatten)]
    lookup: LookupArgs,
    /// The keys, as text with escapes; - for lines of standard input
    #[arg(required = true)]
    key: Vec<OsString>,
    /// The value as of this sequence number, in a table of a database
    #[arg(long, value_name = "SEQUENCE")]
    at: Option<u64>,
    #[command(flatten)]
    notation: NotationArgs,
    /// Show each entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Show a value that is a JSON object, array, number, true or false as such, and not as a string
    #[arg(long, requires = "json", conflicts_with = "hex")]
    json_values: bool,
}

const NEEDS_DATABASE: &str =
    "--at needs a table of a database: the keys of this table have no sequence numbers";

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    // A key that cannot be read is an error before any answer is printed.
    let mut keys = Vec::new();
    for key in &args.key {
        keys.push(
            (key != "-")
                .then(|| args.notation.parse_key("KEY", key))
                .transpose()?,
        );
    }
    for key in &args.key {
        check_order_of_arguments(Path::new(key), &args.file)?;
    }
    let table = match args.lookup.open(&args.file)? {
        Opened::Set(set) => return get_from_set(&set, args, keys),
        Opened::Table(table) => table,
    };
    if args.at.is_some() && !table.is_database() {
        return Err(Failure::new(NEEDS_DATABASE));
    }
    let mut answers = Answers::new(args, &keys);
    let keys = all_keys(keys, args.notation);
    if table.order == Order::Unknown {
        search(&table, args, keys, &mut answers)?;
    } else {
        look_up(&table, args, keys, &mut answers)?;
    }
    answers.out.finish()?;
    Ok(answers.worst)
}

/// Looks up each key by itself.
fn look_up(
    table: &AnyTable,
    args: &Args,
    keys: impl Iterator<Item = Result<Vec<u8>, Failure>>,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    let mut is_noted = table.order == Order::Certain;
    // Requests of a batch are on their way at the same time.
    let most = if is_url(&args.file) { BATCH } else { 1 };
    let mut keys = keys.peekable();
    let found = std::iter::from_fn(|| {
        keys.peek()?;
        let batch: Result<Vec<Vec<u8>>, Failure> = keys.by_ref().take(most).collect();
        Some(batch.map(|batch| {
            let found = find_batch(table, &batch, args.at);
            batch.into_iter().zip(found).collect::<Vec<_>>()
        }))
    });
    for batch in found {
        look_at(batch?, args, &mut is_noted, answers)?;
    }
    Ok(())
}

/// Shows what was found of each key.
fn look_at(
    found: Vec<(Vec<u8>, leveltable::Result<Option<Row>>)>,
    args: &Args,
    is_noted: &mut bool,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    for (key, found) in found {
        match found {
            Ok(row) => {
                // In another order, the table may hold the key elsewhere.
                if row.is_none() && !*is_noted {
                    note_assumed_order(&args.file);
                    *is_noted = true;
                }
                answers.show(&key, row.as_ref())?;
            }
            // Nothing that was not found is certain.
            Err(e) if e.kind() == ErrorKind::Comparator => {
                answers.out.flush()?;
                return Err(another_order(e));
            }
            Err(e) if answers.is_single && !args.json => return Err(e.into()),
            Err(e) => answers.fail(&key, &e.into())?,
        }
    }
    Ok(())
}

/// Looks for all keys in one walk over a table whose order is not known.
fn search(
    table: &AnyTable,
    args: &Args,
    keys: impl Iterator<Item = Result<Vec<u8>, Failure>>,
    answers: &mut Answers<'_>,
) -> Result<(), Failure> {
    let remedy = "searched by reading the whole table";
    note_unknown_order(&args.file, args.lookup.keys.keys, remedy);
    let keys: Vec<Vec<u8>> = keys.collect::<Result<_, _>>()?;
    let found = find_all(table, &keys, args.at)?;
    for key in &keys {
        answers.show(key, found.get(&key[..]).and_then(Option::as_ref))?;
    }
    Ok(())
}

/// Number of keys that are looked up in a set at once.
const BATCH: usize = 1024;

fn get_from_set(set: &Set, args: &Args, keys: Vec<Option<Vec<u8>>>) -> Result<Answer, Failure> {
    if args.at.is_some() {
        return Err(Failure::new(NEEDS_DATABASE));
    }
    let mut answers = Answers::new(args, &keys);
    let mut keys = all_keys(keys, args.notation);
    loop {
        let batch: Vec<Vec<u8>> = keys.by_ref().take(BATCH).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        let found = each_of(&batch, &|keys| set.get_many(keys));
        let found = batch.into_iter().zip(found).collect();
        look_at(found, args, &mut true, &mut answers)?;
    }
    answers.out.finish()?;
    Ok(answers.worst)
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

/// Returns what [`find`] returns of each key.
fn find_batch(
    table: &AnyTable,
    keys: &[Vec<u8>],
    at: Option<u64>,
) -> Vec<leveltable::Result<Option<Row>>> {
    match &table.keys {
        TypedTable::Plain(table) => each_of(keys, &|keys| table.get_many(keys)),
        TypedTable::Database(_) => keys.iter().map(|key| find(table, key, at)).collect(),
    }
}

/// Returns the entry of each key by `get_many`. If damage fails that, it finds out of which; a request that failed is not made again
/// for each key.
fn each_of(
    keys: &[Vec<u8>],
    get_many: &dyn Fn(&[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>>,
) -> Vec<leveltable::Result<Option<Row>>> {
    let row = |(key, value): (&Vec<u8>, Option<Bytes>)| {
        let key = key.clone().into();
        Ok(value.map(|value| Row {
            key,
            tag: None,
            value,
        }))
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

/// Returns the entry of `key`. In a table of a database that is its newest entry not newer than `at`.
fn find(table: &AnyTable, key: &[u8], at: Option<u64>) -> leveltable::Result<Option<Row>> {
    match &table.keys {
        TypedTable::Plain(table) => Ok(table.get(key)?.map(|value| Row {
            key: key.to_vec().into(),
            tag: None,
            value,
        })),
        TypedTable::Database(table) => {
            let snapshot = table.at(at.unwrap_or(MAX_SEQUENCE));
            Ok(snapshot.get_entry(key)?.map(Row::from))
        }
    }
}

/// Looks for all of `keys` in one walk over the table. In a table of a database, the newest entry not newer than `at`
/// counts.
fn find_all<'k>(
    table: &AnyTable,
    keys: &'k [Vec<u8>],
    at: Option<u64>,
) -> Result<HashMap<&'k [u8], Option<Row>>, Failure> {
    let at = at.unwrap_or(MAX_SEQUENCE);
    let mut found: HashMap<&[u8], Option<Row>> = keys.iter().map(|key| (&key[..], None)).collect();
    for row in table.rows((Bound::Unbounded, Bound::Unbounded)) {
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
    Ok(found)
}

/// Prints the answers, and remembers the worst.
struct Answers<'a> {
    args: &'a Args,
    /// Whether there is one key on the command line, whose value is printed alone.
    is_single: bool,
    out: Rows,
    worst: Answer,
}

impl Answers<'_> {
    fn new<'a>(args: &'a Args, keys: &[Option<Vec<u8>>]) -> Answers<'a> {
        Answers {
            args,
            is_single: matches!(keys, [Some(_)]),
            out: Rows::new(),
            worst: Answer::Yes,
        }
    }

    fn show(&mut self, key: &[u8], row: Option<&Row>) -> Result<(), Failure> {
        let notation = self.args.notation.shown();
        let is_json = self.args.json;
        let style = JsonStyle {
            hex: notation == Notation::Hex,
            keys_only: false,
            json_values: self.args.json_values,
        };
        let Some(row) = row else {
            if is_json {
                self.write_no_value(key, None)?;
            }
            return self.no("not found", key);
        };
        match row.tag {
            _ if is_json => self.out.write(|out| row.write_json(style, None, out))?,
            Some((_, ValueType::Deletion)) => {}
            _ if self.is_single => self.out.write(|out| {
                notation.write(&row.value, out)?;
                match notation {
                    Notation::Raw => Ok(()),
                    _ => out.write_all(b"\n"),
                }
            })?,
            _ => self
                .out
                .write(|out| row.write_line(notation, false, None, out))?,
        }
        match row.tag {
            Some((sequence, ValueType::Deletion)) => {
                self.no(&format!("deleted at sequence {sequence}"), key)
            }
            _ => Ok(()),
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
        if self.args.json {
            self.write_no_value(key, Some(&failure.to_string()))?;
        }
        self.out.flush()?;
        complain("error", &format!("key {}: {failure}", quoted(key, 100)));
        self.worst = Answer::Unknown;
        Ok(())
    }

    fn write_no_value(&mut self, key: &[u8], error: Option<&str>) -> Result<(), Failure> {
        let is_hex = self.args.notation.shown() == Notation::Hex;
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
