//! Reads entries for `build`: lines of text, CSV, or JSON lines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use clap::ValueEnum;
use csv::ByteRecord;
use leveltable::db::{InternalKey, MAX_SEQUENCE, ValueType};
use serde_json::value::RawValue;

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
    /// Name or number of the field that holds the key, and of that with the value.
    pub(crate) key_field: Option<String>,
    pub(crate) value_field: Option<String>,
    /// Whether the first record of CSV holds the names of the fields.
    pub(crate) has_header: bool,
    pub(crate) delimiter: u8,
}

impl InputOptions {
    fn check(&self) -> Result<(), Failure> {
        let names_fields = self.key_field.is_some() || self.value_field.is_some();
        if names_fields && self.format == Format::Text {
            let what = "--key-field and --value-field need --format csv or --format jsonl";
            return Err(Failure::new(what));
        }
        if (self.has_header || self.delimiter != b',') && self.format != Format::Csv {
            return Err(Failure::new("--header and --delimiter need --format csv"));
        }
        if self.notation == Notation::Raw && self.format != Format::Text {
            let what = "--raw needs --format text: CSV and JSON lines have no such escapes";
            return Err(Failure::new(what));
        }
        let key = self.key_field.as_deref().unwrap_or("key");
        if self.format == Format::Jsonl && key == self.value_field.as_deref().unwrap_or("value") {
            return Err(Failure::new(self.same_field(key)));
        }
        Ok(())
    }

    /// Returns the message for one field, `name`, that would be both key and value.
    #[cold]
    fn same_field(&self, name: &str) -> String {
        let option = if self.key_field.is_none() {
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
            Source::Csv(records) => records.reader.position().byte(),
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
            Source::Csv(records) => records.line,
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
    notation.parse(field("key")?, key)?;
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

// ---- JSON -----------------------------------------------------------------------------------

/// The fields of an object, with their values as they are written.
type Object<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The fields that `scan --json` prints.
const FIELDS: [&str; 7] = [
    "key",
    "key_hex",
    "sequence",
    "type",
    "value",
    "value_hex",
    "file",
];

fn parse_json(
    line: &[u8],
    options: &InputOptions,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<Option<Tag>, String> {
    let object: Object<'_> = serde_json::from_slice(line)
        .map_err(|e| format!("not a JSON object: {}", json_error(&e)))?;
    let names_fields = options.key_field.is_some() || options.value_field.is_some();
    let is_unknown = |name: &&Cow<'_, str>| !FIELDS.contains(&name.as_ref());
    if let (false, Some(unknown)) = (names_fields, object.keys().find(is_unknown)) {
        return Err(format!(
            "unknown JSON field {unknown:?}: the known fields are {}; to take others, use --key-field and \
             --value-field",
            FIELDS.join(", ")
        ));
    }
    let key_field = options.key_field.as_deref().unwrap_or("key");
    let value_field = options.value_field.as_deref().unwrap_or("value");
    // A map keeps only the last of several fields with the same name.
    if written_names(line).count() != object.len() {
        for field in [key_field, value_field] {
            for name in [field.to_owned(), format!("{field}_hex")] {
                let is_name = |written: &&[u8]| {
                    serde_json::from_slice::<String>(written).is_ok_and(|other| other == name)
                };
                if written_names(line).filter(is_name).count() > 1 {
                    return Err(format!("two fields are named {name:?}"));
                }
            }
        }
    }
    let is_tagged = object.contains_key("sequence") || object.contains_key("type");
    let tag = match (options.is_database, is_tagged) {
        (false, true) if !names_fields => return Err("sequence and type need --database".into()),
        (false, _) => None,
        (true, _) => {
            let sequence = object
                .get("sequence")
                .ok_or("no sequence: expected an integer")?;
            let value_type = object.get("type").and_then(|raw| string(raw).ok()?);
            Some((
                parse_sequence(sequence.get().as_bytes())?,
                parse_type(value_type.unwrap_or_default().as_bytes())?,
            ))
        }
    };
    let is_deletion = matches!(tag, Some((_, ValueType::Deletion)));
    json_bytes(&object, key_field, options.notation, key, Some("a key"))?;
    let is_null = object
        .get(value_field)
        .is_some_and(|raw| raw.get() == "null");
    if is_null && !names_fields && !is_deletion {
        return Err(
            "value is null, as \"get --json\" prints an absent key: remove the line, or name the field with \
             --value-field"
                .into(),
        );
    }
    if !is_deletion || object.contains_key(value_field) {
        json_bytes(&object, value_field, options.notation, value, None)?;
    }
    Ok(tag)
}

/// Returns the names of the fields of a valid JSON object, as they are written, in quotes and with escapes.
fn written_names(object: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut depth, mut at) = (0_u32, 0);
    let mut last_string: &[u8] = b"";
    std::iter::from_fn(move || {
        while let Some(rest @ [byte, ..]) = object.get(at..) {
            at += 1;
            match byte {
                b'"' => {
                    let mut is_escaped = false;
                    let body = rest.iter().skip(1).take_while(|&&byte| {
                        let ends = byte == b'"' && !is_escaped;
                        is_escaped = byte == b'\\' && !is_escaped;
                        !ends
                    });
                    let len = body.count() + 2;
                    last_string = rest.get(..len).unwrap_or(rest);
                    at += len - 1;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b':' if depth == 1 => return Some(last_string),
                _ => {}
            }
        }
        None
    })
}

/// Returns the string that a JSON value is, if it is one.
fn string(raw: &RawValue) -> Result<Option<String>, String> {
    let written = raw.get();
    if !written.starts_with('"') {
        return Ok(None);
    }
    let parsed = serde_json::from_str(written);
    parsed
        .map(Some)
        .map_err(|e| format!("not a JSON string: {}", json_error(&e)))
}

/// Returns the message of `error` without its position: the line is always 1, as each line is parsed alone.
#[cold]
fn json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&position) {
        Some(alone) => alone.to_owned(),
        None => message,
    }
}

/// Appends the bytes of the field `name` or of `name_hex`, whichever is present. A value that is not a string is
/// stored as it is written, but as a key (`simple` says what it is) only if it is a number, true or false.
fn json_bytes(
    object: &Object<'_>,
    name: &str,
    notation: Notation,
    dst: &mut Vec<u8>,
    simple: Option<&str>,
) -> Result<(), String> {
    let hex = format!("{name}_hex");
    let from_hex = |digits: &str, field: &str, dst: &mut Vec<u8>| {
        let parsed = Notation::Hex.parse(digits.as_bytes(), dst);
        parsed.map_err(|e| format!("{field}: {e}"))
    };
    match (object.get(name), object.get(hex.as_str())) {
        (Some(raw), None) => match (string(raw)?, raw.get(), simple) {
            (Some(digits), _, _) if notation == Notation::Hex => from_hex(&digits, name, dst),
            (Some(text), _, _) => {
                dst.extend_from_slice(text.as_bytes());
                Ok(())
            }
            (None, written, Some(role)) if written.starts_with(['{', '[', 'n']) => Err(format!(
                "{name} is {}: {role} is a string, a number, true or false",
                match written.as_bytes() {
                    [b'{', ..] => "an object",
                    [b'[', ..] => "an array",
                    _ => "null",
                }
            )),
            (None, written, _) => {
                dst.extend_from_slice(written.as_bytes());
                Ok(())
            }
        },
        (None, Some(raw)) => match string(raw)? {
            Some(digits) => from_hex(&digits, &hex, dst),
            None => Err(format!("{hex} is not a string")),
        },
        (Some(_), Some(_)) => Err(format!("both {name} and {hex}")),
        (None, None) => Err(format!("neither {name} nor {hex}")),
    }
}

// ---- CSV ------------------------------------------------------------------------------------

/// An error in CSV, and the line on which it is, if it is in a line.
struct CsvError {
    line: Option<u64>,
    what: String,
}

impl From<String> for CsvError {
    fn from(what: String) -> CsvError {
        CsvError { line: None, what }
    }
}

/// Passes on CSV, and fails at its end if a quoted field is still open. The `csv` crate would take the rest of the
/// input as that field.
struct QuoteChecker {
    reader: Box<dyn BufRead>,
    delimiter: u8,
    state: QuoteState,
    /// Number of bytes passed on, and how many of the first are those of a byte order mark.
    bytes: u64,
    mark: usize,
    /// Number of the current line, and of the line with the last opening quote.
    line: u64,
    opened: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    FieldStart,
    /// In a field without quotes, or after its closing quote. A quote stands for itself here.
    Plain,
    Quoted,
    /// After a quote in a quoted field: it closes the field, unless another one follows.
    AfterQuote,
}

impl QuoteChecker {
    fn new(reader: Box<dyn BufRead>, delimiter: u8) -> QuoteChecker {
        QuoteChecker {
            reader,
            delimiter,
            state: QuoteState::FieldStart,
            bytes: 0,
            mark: 0,
            line: 1,
            opened: 1,
        }
    }

    fn pass(&mut self, byte: u8) {
        use QuoteState::{AfterQuote, FieldStart, Plain, Quoted};
        self.state = match (self.state, byte) {
            (FieldStart, b'"') => {
                self.opened = self.line;
                Quoted
            }
            (Quoted, b'"') => AfterQuote,
            (Quoted, _) | (AfterQuote, b'"') => Quoted,
            (_, b'\r' | b'\n') => FieldStart,
            (_, byte) if byte == self.delimiter => FieldStart,
            _ => Plain,
        };
        if byte == b'\n' {
            self.line += 1;
        }
        // The first field starts after the byte order mark, which the `csv` crate drops.
        if self.bytes == self.mark as u64 && BYTE_ORDER_MARK.get(self.mark) == Some(&byte) {
            self.mark += 1;
            if self.mark == BYTE_ORDER_MARK.len() {
                self.state = FieldStart;
            }
        }
        self.bytes += 1;
    }
}

impl Read for QuoteChecker {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.state == QuoteState::Quoted {
            return Err(io::Error::other(OpenQuote { line: self.opened }));
        }
        for &byte in buffer.iter().take(read) {
            self.pass(byte);
        }
        Ok(read)
    }
}

/// The error for a quoted field without an end.
#[derive(Debug)]
struct OpenQuote {
    /// Number of the line with the opening quote.
    line: u64,
}

impl Display for OpenQuote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quote opens here and is never closed")
    }
}

impl std::error::Error for OpenQuote {}

struct CsvRecords {
    reader: csv::Reader<QuoteChecker>,
    record: ByteRecord,
    /// Number of the line on which the record begins.
    line: u64,
    key: usize,
    value: usize,
    /// Where sequence number and type are, in a table of a database.
    tag: Option<(usize, usize)>,
}

impl CsvRecords {
    fn open(reader: Box<dyn BufRead>, options: &InputOptions) -> Result<CsvRecords, CsvError> {
        let is_name = |field: &Option<String>| {
            let field = field.as_deref().unwrap_or("1");
            field.parse::<usize>().is_err()
        };
        let has_header =
            options.has_header || is_name(&options.key_field) || is_name(&options.value_field);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(has_header)
            .delimiter(options.delimiter)
            .from_reader(QuoteChecker::new(reader, options.delimiter));
        let header = if has_header {
            reader.byte_headers().map_err(|e| csv_error(&e))?.clone()
        } else {
            ByteRecord::new()
        };
        let named = |name: &str| {
            let mut places = (0..)
                .zip(&header)
                .filter(|(_, field)| *field == name.as_bytes());
            match (places.next(), places.next()) {
                (Some(_), Some(_)) => Err(format!("two fields are named {name:?}")),
                (first, _) => Ok(first.map(|(at, _)| at)),
            }
        };
        let place = |field: &Option<String>, default: usize| match field {
            None => Ok(default),
            Some(field) => match (named(field)?, field.parse::<usize>()) {
                (Some(at), _) => Ok(at),
                (None, Ok(number @ 1..)) => Ok(number - 1),
                (None, Ok(0)) => Err("fields are counted from 1".to_owned()),
                (None, Err(_)) => {
                    let names: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
                    let names = names.join(", ");
                    Err(format!(
                        "no field named {field:?}: the first line has {names}"
                    ))
                }
            },
        };
        let (value_default, tag) = if options.is_database {
            let tag = (named("sequence")?.unwrap_or(1), named("type")?.unwrap_or(2));
            (3, Some(tag))
        } else {
            (1, None)
        };
        let key = place(&options.key_field, 0)?;
        let value = place(&options.value_field, value_default)?;
        if key == value {
            let name = header.get(key).map(String::from_utf8_lossy);
            let name = name.unwrap_or_else(|| (key + 1).to_string().into());
            return Err(options.same_field(&name).into());
        }
        Ok(CsvRecords {
            key,
            value,
            tag,
            reader,
            record: ByteRecord::new(),
            line: 1,
        })
    }

    /// Reads the next record. Returns `false` at the end.
    fn next(&mut self) -> Result<bool, String> {
        let read = self.reader.read_byte_record(&mut self.record);
        let position = self.record.position();
        self.line = position.map_or(self.line, csv::Position::line);
        read.map_err(|e| {
            let CsvError { line, what } = csv_error(&e);
            self.line = line.unwrap_or(self.line);
            what
        })
    }

    fn parse(
        &self,
        options: &InputOptions,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<Tag>, String> {
        let field = |at: usize| {
            self.record.get(at).ok_or_else(|| {
                let fields = self.record.len();
                format!("no field {}: the record has {fields}", at + 1)
            })
        };
        // Quotes take the place of escapes.
        let notation = match options.notation {
            Notation::Hex => Notation::Hex,
            Notation::Text | Notation::Raw => Notation::Raw,
        };
        notation.parse(field(self.key)?, key)?;
        notation.parse(field(self.value)?, value)?;
        match self.tag {
            Some((sequence, value_type)) => Ok(Some((
                parse_sequence(field(sequence)?)?,
                parse_type(field(value_type)?)?,
            ))),
            None => Ok(None),
        }
    }
}

#[cold]
fn csv_error(error: &csv::Error) -> CsvError {
    let line = error.position().map(csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => CsvError {
            line,
            what: format!("{len} fields, where the records before have {expected_len}"),
        },
        csv::ErrorKind::Io(e) => {
            let open = e.get_ref().and_then(|e| e.downcast_ref::<OpenQuote>());
            CsvError {
                line: open.map(|open| open.line).or(line),
                what: e.to_string(),
            }
        }
        _ => CsvError {
            line,
            what: error.to_string(),
        },
    }
}

fn parse_sequence(digits: &[u8]) -> Result<u64, String> {
    let digits = String::from_utf8_lossy(digits);
    digits
        .parse()
        .map_err(|_| format!("sequence `{digits}` is not an integer from 0 to {MAX_SEQUENCE}"))
}

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
