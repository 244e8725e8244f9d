//! Comma-separated values.

use std::fmt::{self, Display};
use std::io::{self, BufRead, Read};

use csv::ByteRecord;

use super::{BYTE_ORDER_MARK, InputOptions, Tag, check_no_gzip, parse_sequence, parse_type};
use crate::notation::Notation;

/// An error in CSV, and the line on which it is, if it is in a line.
pub(super) struct CsvError {
    pub(super) line: Option<u64>,
    pub(super) what: String,
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
        if self.bytes == 0 {
            check_no_gzip(buffer)?;
        }
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

pub(super) struct CsvRecords {
    reader: csv::Reader<QuoteChecker>,
    record: ByteRecord,
    /// Number of the line on which the record begins.
    line: u64,
    /// Where the fields of the key are, and the value, which may be the whole record.
    key: Vec<usize>,
    value: usize,
    /// The names of the fields, of which there are none without a header.
    header: ByteRecord,
    /// Where sequence number and type are, in a table of a database.
    tag: Option<(usize, usize)>,
}

impl CsvRecords {
    pub(super) fn open(
        reader: Box<dyn BufRead>,
        options: &InputOptions,
    ) -> Result<CsvRecords, CsvError> {
        let is_name = |field: &String| field.parse::<usize>().is_err();
        let has_header = options.has_header
            || options.key_fields.iter().any(is_name)
            || options.value_field.iter().any(is_name);
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
        let place = |field: &String| match (named(field)?, field.parse::<usize>()) {
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
        };
        let (value_default, tag) = if options.is_database {
            let tag = (named("sequence")?.unwrap_or(1), named("type")?.unwrap_or(2));
            (3, Some(tag))
        } else {
            (1, None)
        };
        let mut key: Vec<usize> = options
            .key_fields
            .iter()
            .map(place)
            .collect::<Result<_, _>>()?;
        if key.is_empty() {
            key.push(0);
        }
        let value = options.value_field.as_ref().map(place).transpose()?;
        let value = value.unwrap_or(value_default);
        if key == [value] && !options.whole_record {
            let name = header.get(value).map(String::from_utf8_lossy);
            let name = name.unwrap_or_else(|| (value + 1).to_string().into());
            return Err(options.same_field(&name).into());
        }
        Ok(CsvRecords {
            key,
            value,
            header,
            tag,
            reader,
            record: ByteRecord::new(),
            line: 1,
        })
    }

    /// Reads the next record. Returns `false` at the end.
    pub(super) fn next(&mut self) -> Result<bool, String> {
        let read = self.reader.read_byte_record(&mut self.record);
        let position = self.record.position();
        self.line = position.map_or(self.line, csv::Position::line);
        read.map_err(|e| {
            let CsvError { line, what } = csv_error(&e);
            self.line = line.unwrap_or(self.line);
            what
        })
    }

    pub(super) fn parse(
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
        let mut part = Vec::new();
        for (i, &at) in self.key.iter().enumerate() {
            part.clear();
            notation.parse(field(at)?, &mut part)?;
            options.add_part(i, &part, key)?;
        }
        if options.whole_record {
            self.write_json(value)?;
        } else {
            notation.parse(field(self.value)?, value)?;
        }
        match self.tag {
            Some((sequence, value_type)) => Ok(Some((
                parse_sequence(field(sequence)?)?,
                parse_type(field(value_type)?)?,
            ))),
            None => Ok(None),
        }
    }

    /// Writes the record as a JSON object, or as an array if the fields have no names.
    fn write_json(&self, value: &mut Vec<u8>) -> Result<(), String> {
        let text = |field| {
            let text = str::from_utf8(field).map_err(|_| "not UTF-8, so no JSON can hold it")?;
            Ok::<_, String>(serde_json::Value::from(text).to_string())
        };
        let names = self
            .header
            .iter()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let fields = self
            .record
            .iter()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let json = if names.is_empty() {
            format!("[{}]", fields.join(","))
        } else {
            let pairs = names.iter().zip(&fields);
            let pairs: Vec<_> = pairs
                .map(|(name, field)| format!("{name}:{field}"))
                .collect();
            format!("{{{}}}", pairs.join(","))
        };
        value.extend_from_slice(json.as_bytes());
        Ok(())
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Returns the number of the line on which the last record begins.
    pub(super) fn line(&self) -> u64 {
        self.line
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
