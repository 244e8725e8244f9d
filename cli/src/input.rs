//! Reads entries for `build`: lines of text, CSV, or JSON lines.

mod csv;
mod json;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use leveltable::db::{InternalKey, MAX_SEQUENCE, ValueType};

use self::csv::CsvRecords;
use self::json::parse_json;
use crate::failure::Failure;
use crate::notation::Notation;

/// The format of the input.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Key, tab, value on each line, with escapes; with --database: key, sequence, type (value or deletion), value
    #[value(alias = "tab")]
    Text,
    /// Comma-separated fields, in quotes where necessary: the first is the key, the second the value
    Csv,
    /// A JSON object on each line, as `scan --json` prints it: key or key_hex, value or value_hex
    #[value(alias = "json")]
    Jsonl,
}

/// How the input is read.
pub(crate) struct InputOptions {
    pub(crate) format: Format,
    pub(crate) notation: Notation,
    /// Whether entries have a sequence number and a type.
    pub(crate) is_database: bool,
    /// Names or numbers of the fields that make up the key, and of that with the value.
    pub(crate) key_fields: Vec<String>,
    pub(crate) value_field: Option<String>,
    /// What is between the fields of a key.
    pub(crate) key_separator: String,
    /// The whole record, as JSON, is the value.
    pub(crate) whole_record: bool,
    /// Number of digits of numbers in keys.
    pub(crate) pad: Option<usize>,
    /// Whether the first record of CSV holds the names of the fields.
    pub(crate) has_header: bool,
    pub(crate) delimiter: u8,
}

impl InputOptions {
    fn check(&self) -> Result<(), Failure> {
        if self.names_fields() && self.format == Format::Text {
            let what =
                "--key-field, --value-field and --whole-record need --format csv or --format jsonl";
            return Err(Failure::new(what));
        }
        if (self.has_header || self.delimiter != b',') && self.format != Format::Csv {
            return Err(Failure::new("--header and --delimiter need --format csv"));
        }
        if self.notation == Notation::Raw && self.format != Format::Text {
            let what = "--raw needs --format text: CSV and JSON lines have no such escapes";
            return Err(Failure::new(what));
        }
        if self.format == Format::Jsonl
            && !self.whole_record
            && let [key] = &self.key_names()[..]
            && *key == self.value_name()
        {
            return Err(Failure::new(self.same_field(key)));
        }
        Ok(())
    }

    fn names_fields(&self) -> bool {
        !self.key_fields.is_empty() || self.value_field.is_some() || self.whole_record
    }

    /// Returns the names of the fields of JSON that make up the key.
    fn key_names(&self) -> Vec<&str> {
        match &self.key_fields[..] {
            [] => vec!["key"],
            names => names.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the name of the field of JSON that holds the value.
    fn value_name(&self) -> &str {
        self.value_field.as_deref().unwrap_or("value")
    }

    /// Appends `part` number `i` of a key, with zeros before a number if it is to be padded.
    fn add_part(&self, i: usize, part: &[u8], key: &mut Vec<u8>) -> Result<(), String> {
        if i > 0 {
            key.extend_from_slice(self.key_separator.as_bytes());
        }
        let begins_as_number = |digits: &&[u8]| digits.first().is_some_and(u8::is_ascii_digit);
        let unsigned = part.strip_prefix(b"-").or(part.strip_prefix(b"+"));
        if let Some(width) = self.pad
            && Some(unsigned.unwrap_or(part))
                .filter(begins_as_number)
                .is_some()
        {
            let text = String::from_utf8_lossy(part);
            if part.iter().all(u8::is_ascii_digit) {
                let zeros = width.checked_sub(part.len());
                let zeros = zeros
                    .ok_or_else(|| format!("{text} has more than the {width} digits of --pad"))?;
                key.resize(key.len() + zeros, b'0');
            } else if text.parse::<f64>().is_ok() {
                return Err(format!(
                    "{text} in a key: --pad is for whole numbers from 0"
                ));
            }
        }
        key.extend_from_slice(part);
        Ok(())
    }

    /// Returns the message for one field, `name`, that would be both key and value.
    #[cold]
    fn same_field(&self, name: &str) -> String {
        let option = if self.key_fields.is_empty() {
            "--key-field"
        } else {
            "--value-field"
        };
        format!("key and value are the same field, {name}: use {option}")
    }
}

/// Reads entries one by one, and holds one in memory.
pub(crate) struct Entries {
    source: Source,
    name: String,
    options: InputOptions,
    /// Size of the input in bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

enum Source {
    Lines(Lines),
    Csv(CsvRecords),
}

/// Sequence number and type of an entry.
type Tag = (u64, ValueType);

impl Entries {
    /// Opens the file at `path`, or standard input for `-`.
    pub(crate) fn open(path: &Path, options: InputOptions) -> Result<Entries, Failure> {
        options.check()?;
        let (reader, name, size): (Box<dyn BufRead>, _, _) = if path.as_os_str() == "-" {
            let name = "standard input".to_owned();
            (Box::new(io::stdin().lock()), name, None)
        } else {
            let name = path.display().to_string();
            let fail = |what: &str| Failure::new(what).at(&name);
            let file = File::open(path).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => fail("no such file"),
                _ => fail(&e.to_string()),
            })?;
            let metadata = file.metadata().map_err(|e| fail(&e.to_string()))?;
            if metadata.is_dir() {
                return Err(fail("is a directory: name a file of entries"));
            }
            let size = metadata.is_file().then_some(metadata.len());
            let reader = BufReader::with_capacity(64 << 10, file);
            (Box::new(reader), name, size)
        };
        let source = match options.format {
            Format::Csv => Source::Csv(CsvRecords::open(reader, &options).map_err(|e| {
                let failure = Failure::new(e.what);
                match e.line {
                    Some(line) => failure.at(format!("{name}, line {line}")),
                    None => failure.at(&name),
                }
            })?),
            Format::Text | Format::Jsonl => Source::Lines(Lines {
                reader,
                line: Vec::new(),
                number: 0,
                bytes: 0,
                is_raw: options.notation == Notation::Raw,
            }),
        };
        Ok(Entries {
            source,
            name,
            options,
            size,
        })
    }

    /// Reads the next entry into `key`, as the table stores it, and `value`. Returns `false` at the end.
    pub(crate) fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, Failure> {
        let read = match &mut self.source {
            Source::Lines(lines) => lines
                .next()
                .map_err(|e| Failure::new(format!("reading {}: {e}", self.name)))?,
            Source::Csv(records) => match records.next() {
                Ok(read) => read,
                Err(what) => return Err(Failure::new(what).at(self.place())),
            },
        };
        if !read {
            return Ok(false);
        }
        key.clear();
        value.clear();
        self.parse(key, value)
            .map_err(|what| Failure::new(what).at(self.place()))?;
        Ok(true)
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        match &self.source {
            Source::Lines(lines) => lines.bytes,
            Source::Csv(records) => records.position(),
        }
    }

    /// Returns the name of the input, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the input and the number of the last line, for messages.
    pub(crate) fn place(&self) -> String {
        let number = match &self.source {
            Source::Lines(lines) => lines.number,
            Source::Csv(records) => records.line(),
        };
        format!("{}, line {number}", self.name)
    }

    fn parse(&self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), String> {
        let tag = match &self.source {
            Source::Csv(records) => records.parse(&self.options, key, value)?,
            Source::Lines(lines) => match self.options.format {
                Format::Jsonl => parse_json(&lines.line, &self.options, key, value)?,
                Format::Text | Format::Csv => parse_tabs(&lines.line, &self.options, key, value)?,
            },
        };
        if let Some((sequence, value_type)) = tag {
            if sequence > MAX_SEQUENCE {
                return Err(format!(
                    "sequence {sequence} is above the maximum, {MAX_SEQUENCE}"
                ));
            }
            if value_type == ValueType::Deletion && !value.is_empty() {
                return Err("a deletion cannot have a value".into());
            }
            let user_key = std::mem::take(key);
            InternalKey {
                user_key: &user_key,
                sequence,
                value_type,
            }
            .encode(key);
        }
        Ok(())
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
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

// ---- Lines ----------------------------------------------------------------------------------

struct Lines {
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
    /// Whether a carriage return at the end of a line, or a byte order mark at the start of the input, is part of it.
    is_raw: bool,
}

impl Lines {
    /// Reads the next line that is not empty. Returns `false` at the end.
    fn next(&mut self) -> io::Result<bool> {
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

fn parse_tabs(
    line: &[u8],
    options: &InputOptions,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<Option<Tag>, String> {
    let InputOptions {
        notation,
        is_database,
        ..
    } = *options;
    // Everything after the last separator is the value, because a raw one may contain tabs.
    let columns = if is_database { 4 } else { 2 };
    let mut fields = line.splitn(columns, |&b| b == b'\t');
    let mut field = |name: &str| {
        fields.next().ok_or_else(|| {
            let columns = if is_database {
                "key, sequence, type and value"
            } else {
                "key and value"
            };
            let hint = other_format(line);
            format!("no {name}: expected {columns}, separated by tabs{hint}")
        })
    };
    if options.pad.is_some() {
        let mut part = Vec::new();
        notation.parse(field("key")?, &mut part)?;
        options.add_part(0, &part, key)?;
    } else {
        notation.parse(field("key")?, key)?;
    }
    let tag = if is_database {
        let sequence = parse_sequence(field("sequence")?)?;
        Some((sequence, parse_type(field("type")?)?))
    } else {
        None
    };
    let written = field("value")?;
    if notation == Notation::Text && written.contains(&b'\t') {
        let message = if is_database {
            r"more than four columns: write a tab in a value as \t"
        } else {
            r"more than two columns: write a tab in a value as \t, or use --raw or --database"
        };
        return Err(message.into());
    }
    notation.parse(written, value)?;
    Ok(tag)
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

/// Parses a sequence number.
fn parse_sequence(digits: &[u8]) -> Result<u64, String> {
    let digits = String::from_utf8_lossy(digits);
    digits
        .parse()
        .map_err(|_| format!("sequence `{digits}` is not an integer from 0 to {MAX_SEQUENCE}"))
}

/// Parses the name of a type.
fn parse_type(name: &[u8]) -> Result<ValueType, String> {
    match name {
        b"value" => Ok(ValueType::Value),
        b"deletion" => Ok(ValueType::Deletion),
        _ => Err(format!(
            "unknown type `{}`: expected value or deletion",
            String::from_utf8_lossy(name)
        )),
    }
}
