//! Reads entries for `build`: lines of text, CSV, or JSON lines.

mod csv;
mod json;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use clap::{Args, ValueEnum};
use leveltable::db::{MAX_SEQUENCE, ValueType};

use self::csv::CsvRecords;
pub(crate) use self::json::parse_change;
use self::json::parse_json;
use crate::failure::Failure;
use crate::notation::Notation;
use crate::row::{Tag, stored_key, type_name};
use crate::write::parse_character;

/// The format of the input.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Key, tab, value on each line, with escapes; with --keys database: key, sequence, type (value or deletion), value
    #[value(alias = "tab")]
    Text,
    /// Comma-separated fields, in quotes where necessary: the first is the key, the second the value
    Csv,
    /// A JSON object on each line, as `scan --json` prints it: key or key_hex, value or value_hex
    #[value(alias = "json")]
    Jsonl,
}

/// The kind of the input's keys.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
enum EntryKeys {
    /// Plain keys
    Plain,
    /// Keys of a database: entries also have a sequence number and a type, value or deletion
    Database,
}

/// How the input is read.
#[derive(Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputOptions {
    /// The format of the input
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
    /// The fields that make up the key: names, or in CSV numbers from 1 [default: key; in CSV: 1]
    #[arg(long, value_name = "FIELD,..", value_delimiter = ',')]
    key_field: Vec<String>,
    /// What is between the fields of a key
    #[arg(long, value_name = "TEXT", default_value = ":")]
    key_separator: String,
    /// Fill numbers in keys with zeros to N digits: they then sort by size
    #[arg(long, value_name = "N", conflicts_with = "hex", value_parser = clap::value_parser!(u8).range(1..))]
    pad: Option<u8>,
    /// The field that holds the value [default: value; in CSV: 2]
    #[arg(long, value_name = "FIELD")]
    value_field: Option<String>,
    /// The value is the whole record, as JSON
    #[arg(long, conflicts_with = "value_field")]
    whole_record: bool,
    /// The first record of CSV holds the names of the fields
    #[arg(long)]
    header: bool,
    /// The character between the fields of CSV
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
    /// The kind of the keys
    #[arg(long, value_enum, default_value_t = EntryKeys::Plain, value_name = "KIND")]
    keys: EntryKeys,
    /// Keys and values are in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Keys and values in lines of text have no escapes: a backslash stands for itself
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

/// Parses the character between fields, which must be one byte.
fn parse_delimiter(written: &str) -> Result<u8, String> {
    parse_character(written)
        .ok()
        .filter(|byte| !matches!(byte, b'"' | b'\n' | b'\r' | 0))
        .ok_or_else(|| r"expected one character, such as , or ; or \t".into())
}

impl InputOptions {
    fn check(&self) -> Result<(), Failure> {
        let (is_text, is_csv) = (self.format == Format::Text, self.format == Format::Csv);
        let (keys, value) = (self.key_names(), self.value_name());
        let what = if self.whole_record && self.has_versions() {
            "--whole-record cannot be used with --keys database: a record has a sequence and a type as well"
        } else if self.names_fields() && is_text {
            "--key-field, --value-field and --whole-record need --format csv or --format jsonl"
        } else if (self.header || self.delimiter != b',') && !is_csv {
            "--header and --delimiter need --format csv"
        } else if self.raw && !is_text {
            "--raw needs --format text: CSV and JSON lines have no such escapes"
        } else if self.format == Format::Jsonl && !self.whole_record && keys == [value] {
            return Err(Failure::new(self.same_field(value)));
        } else {
            return Ok(());
        };
        Err(Failure::new(what))
    }

    /// Whether entries have a sequence number and a type.
    pub(crate) fn has_versions(&self) -> bool {
        self.keys == EntryKeys::Database
    }

    fn notation(&self) -> Notation {
        Notation::of(self.hex, self.raw)
    }

    fn names_fields(&self) -> bool {
        !self.key_field.is_empty() || self.value_field.is_some() || self.whole_record
    }

    /// Returns the names of the fields of JSON that make up the key.
    fn key_names(&self) -> Vec<&str> {
        match &self.key_field[..] {
            [] => vec!["key"],
            names => names.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the name of the field of JSON that holds the value.
    fn value_name(&self) -> &str {
        self.value_field.as_deref().unwrap_or("value")
    }

    /// Returns the key of these parts.
    fn key(&self, parts: impl Iterator<Item = Parsed<Vec<u8>>>) -> Parsed<Vec<u8>> {
        let parts: Parsed<Vec<_>> = parts.map(|part| self.padded(part?)).collect();
        Ok(parts?.join(self.key_separator.as_bytes()))
    }

    /// Returns a part of a key, with zeros before a number if it is to be padded.
    fn padded(&self, part: Vec<u8>) -> Parsed<Vec<u8>> {
        let Some(width) = self.pad.map(usize::from) else {
            return Ok(part);
        };
        let text = String::from_utf8_lossy(&part);
        let unsigned = text.trim_start_matches(['-', '+']);
        let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit());
        if is_number && part.iter().all(u8::is_ascii_digit) {
            if part.len() > width {
                return Err(format!("{text} has more than the {width} digits of --pad"));
            }
            return Ok(format!("{text:0>width$}").into_bytes());
        }
        if is_number && text.parse::<f64>().is_ok() {
            let what = "--pad is for whole numbers from 0";
            return Err(format!("{text} in a key: {what}"));
        }
        Ok(part)
    }

    /// Returns the message for one field, `name`, that would be both key and value.
    #[cold]
    fn same_field(&self, name: &str) -> String {
        let option = if self.key_field.is_empty() {
            "--key-field"
        } else {
            "--value-field"
        };
        format!("key and value are the same field, {name}: use {option}")
    }
}

/// What was parsed, or why it cannot be.
type Parsed<T> = Result<T, String>;

/// A key as the table stores it, and its value.
type KeyValue = (Vec<u8>, Vec<u8>);

/// An entry as it is read.
struct Entry {
    key: Vec<u8>,
    tag: Option<Tag>,
    value: Vec<u8>,
}

/// A file of entries, or standard input.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead>,
    /// What messages call it.
    pub(crate) name: String,
    /// In bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

/// Opens the file at `path`, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Input {
            reader: Box::new(io::stdin().lock()),
            name: "standard input".into(),
            size: None,
        });
    }
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Failure::of(path, "no such file"),
        _ => Failure::of(path, e),
    };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        let what = "is a directory: name a file of entries";
        return Err(Failure::of(path, what));
    }
    Ok(Input {
        reader: Box::new(BufReader::with_capacity(64 << 10, file)),
        name: path.display().to_string(),
        size: metadata.is_file().then_some(metadata.len()),
    })
}

/// Reads entries one by one, and holds one in memory.
pub(crate) struct Entries<'a> {
    source: Source,
    /// The name of the input, for messages.
    pub(crate) name: String,
    options: &'a InputOptions,
    /// Size of the input in bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

enum Source {
    Lines(Lines),
    Csv(CsvRecords),
}

impl Entries<'_> {
    /// Opens the file at `path`, or standard input for `-`.
    pub(crate) fn open<'a>(path: &Path, options: &'a InputOptions) -> Result<Entries<'a>, Failure> {
        options.check()?;
        let Input { reader, name, size } = open(path)?;
        let source = match options.format {
            Format::Csv => {
                let mut records = CsvRecords::new(reader, options.delimiter);
                records.start(options).map_err(|what| {
                    Failure::new(what).at(format!("{name}, line {}", records.line))
                })?;
                Source::Csv(records)
            }
            Format::Text | Format::Jsonl => Source::Lines(Lines::new(reader, options.raw)),
        };
        Ok(Entries {
            source,
            name,
            options,
            size,
        })
    }

    /// Reads the next entry. `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<KeyValue>, Failure> {
        let read = match &mut self.source {
            Source::Lines(lines) => lines.next().map_err(|e| e.to_string()),
            Source::Csv(records) => records.next(),
        };
        let parsed = match read {
            Ok(is_there) => is_there.then(|| self.parse()).transpose(),
            Err(what) => Err(what),
        };
        parsed.map_err(|what| Failure::new(what).at(self.place()))
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        match &self.source {
            Source::Lines(lines) => lines.bytes,
            Source::Csv(records) => records.position(),
        }
    }

    /// Returns the name of the input and the number of the last line, for messages.
    pub(crate) fn place(&self) -> String {
        let number = match &self.source {
            Source::Lines(lines) => lines.number,
            Source::Csv(records) => records.line,
        };
        format!("{}, line {number}", self.name)
    }

    fn parse(&self) -> Parsed<KeyValue> {
        let is_json = self.options.format == Format::Jsonl;
        let Entry { key, tag, value } = match &self.source {
            Source::Csv(records) => records.parse(self.options)?,
            Source::Lines(lines) if is_json => parse_json(&lines.line, self.options)?,
            Source::Lines(lines) => parse_tabs(&lines.line, self.options)?,
        };
        match tag {
            Some((_, ValueType::Deletion)) if !value.is_empty() => {
                Err("a deletion cannot have a value".into())
            }
            Some(tag) => Ok((stored_key(&key, tag), value)),
            None => Ok((key, value)),
        }
    }
}

/// Fails if `head`, with which the input begins, is that of a file that `gzip` wrote. Text does not begin so: the second byte
/// begins no character.
fn check_no_gzip(head: &[u8]) -> io::Result<()> {
    let what =
        "compressed by gzip: decompress it first, as in `gzip -dc IN | leveltable build OUT`";
    if head.starts_with(b"\x1f\x8b") {
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Editors on Windows begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Lines that are not empty.
pub(crate) struct Lines {
    reader: Box<dyn BufRead>,
    /// The last line, and its number.
    pub(crate) line: Vec<u8>,
    pub(crate) number: u64,
    bytes: u64,
    /// Whether a carriage return at the end of a line, or a byte order mark at the start of the input, is part of it.
    is_raw: bool,
}

impl Lines {
    pub(crate) fn new(reader: Box<dyn BufRead>, is_raw: bool) -> Lines {
        Lines {
            reader,
            line: Vec::new(),
            number: 0,
            bytes: 0,
            is_raw,
        }
    }

    /// Reads the next line. Returns `false` at the end.
    pub(crate) fn next(&mut self) -> io::Result<bool> {
        loop {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(false);
            }
            self.bytes += read as u64;
            self.number += 1;
            self.line.pop_if(|last| *last == b'\n');
            if !self.is_raw {
                if self.number == 1 {
                    check_no_gzip(&self.line)?;
                }
                self.line.pop_if(|last| *last == b'\r');
                if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                    self.line.drain(..BYTE_ORDER_MARK.len());
                }
            }
            if !self.line.is_empty() {
                return Ok(true);
            }
        }
    }
}

fn parse_tabs(line: &[u8], options: &InputOptions) -> Parsed<Entry> {
    let (notation, is_database) = (options.notation(), options.has_versions());
    let (columns, names, number, or) = if is_database {
        (4, "key, sequence, type and value", "four", "")
    } else {
        (
            2,
            "key and value",
            "two",
            ", or use --raw or --keys database",
        )
    };
    // Everything after the last separator is the value, because a raw one may contain tabs.
    let mut fields = line.splitn(columns, |&b| b == b'\t');
    let mut field = |name: &str| {
        fields.next().ok_or_else(|| {
            let hint = other_format(line);
            format!("no {name}: expected {names}, separated by tabs{hint}")
        })
    };
    let key = options.key([notation.parse(field("key")?)].into_iter())?;
    let mut tag = None;
    if is_database {
        tag = Some(parse_tag(field("sequence")?, field("type")?)?);
    }
    let written = field("value")?;
    if notation == Notation::Text && written.contains(&b'\t') {
        return Err(format!(
            r"more than {number} columns: write a tab in a value as \t{or}"
        ));
    }
    let value = notation.parse(written)?;
    Ok(Entry { key, tag, value })
}

/// Returns a hint if a line that is no entry looks like one in another format.
#[cold]
fn other_format(line: &[u8]) -> &'static str {
    if line.trim_ascii_start().starts_with(b"{") {
        "; for JSON lines, use --format jsonl"
    } else if line.contains(&b',') || line.contains(&b';') {
        "; for CSV, use --format csv"
    } else {
        ""
    }
}

/// Parses a sequence number and the name of a type.
fn parse_tag(sequence: &[u8], name: &[u8]) -> Parsed<Tag> {
    let digits = String::from_utf8_lossy(sequence);
    let sequence = digits.parse().ok().filter(|&n| n <= MAX_SEQUENCE);
    let sequence = sequence
        .ok_or_else(|| format!("sequence `{digits}` is not an integer from 0 to {MAX_SEQUENCE}"))?;
    let name = String::from_utf8_lossy(name);
    let mut types = [ValueType::Value, ValueType::Deletion].into_iter();
    match types.find(|value_type| type_name(*value_type) == name) {
        Some(value_type) => Ok((sequence, value_type)),
        None => Err(format!("unknown type `{name}`: expected value or deletion")),
    }
}
