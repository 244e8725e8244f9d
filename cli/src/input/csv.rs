//! Comma-separated values.

use std::io::{self, BufRead, Read};

use csv::{ByteRecord, StringRecord};
use serde_json::json;

use super::options::{Entry, InputOptions, Parsed, check_no_gzip, parse_tag};
use crate::notation::{Field, Notation, write_json};

/// Passes CSV through, followed by a line feed, which ends the last record unless a quoted field is still open. The `csv` crate
/// would accept the rest of the input as that field.
struct Input {
    reader: io::Chain<Box<dyn BufRead + Send>, &'static [u8]>,
    is_at_start: bool,
    is_at_end: bool,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if std::mem::take(&mut self.is_at_start) {
            check_no_gzip(buffer)?;
        }
        self.is_at_end = read == 0;
        Ok(read)
    }
}

pub(super) struct CsvRecords {
    reader: csv::Reader<Input>,
    record: ByteRecord,
    /// Number of the line on which the record begins, or of an error.
    pub(super) line: u64,
    /// The indexes of the key's fields and of the value's field, which is not used if the value is the whole record.
    key: Vec<usize>,
    value: usize,
    /// The names of the fields; empty without a header.
    header: ByteRecord,
    /// The indexes of sequence number and type, in a table of a database.
    tag: Option<(usize, usize)>,
}

impl CsvRecords {
    pub(super) fn new(reader: Box<dyn BufRead + Send>, delimiter: u8) -> CsvRecords {
        let input = Input {
            reader: reader.chain(&b"\n"[..]),
            is_at_start: true,
            is_at_end: false,
        };
        CsvRecords {
            reader: csv::ReaderBuilder::new()
                .has_headers(false)
                .delimiter(delimiter)
                .from_reader(input),
            record: ByteRecord::new(),
            line: 1,
            key: Vec::new(),
            value: 0,
            header: ByteRecord::new(),
            tag: None,
        }
    }

    /// Reads the header, if there is one, and finds the fields that the options name.
    pub(super) fn start(&mut self, options: &InputOptions) -> Parsed<()> {
        let is_name = |field: &String| field.parse::<usize>().is_err();
        if options.header
            || options.key_field.iter().any(is_name)
            || options.value_field.iter().any(is_name)
        {
            self.next()?;
            self.header = std::mem::take(&mut self.record);
        }
        let header = &self.header;
        let named = |name: &str| {
            let mut places = (0..)
                .zip(header)
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
                let what = format!("no field named {field:?}: the first line has");
                Err(format!("{what} {}", names.join(", ")))
            }
        };
        let value_default = if options.has_versions() { 3 } else { 1 };
        let key = options.key_field.iter().map(place);
        let mut key = key.collect::<Result<Vec<_>, _>>()?;
        if key.is_empty() {
            key.push(0);
        }
        let value = options.value_field.as_ref().map(place).transpose()?;
        let value = value.unwrap_or(value_default);
        if key == [value] && !options.whole_record {
            let name = header.get(value).map(String::from_utf8_lossy);
            let name = name.unwrap_or_else(|| (value + 1).to_string().into());
            return Err(options.same_field(&name));
        }
        if options.has_versions() {
            let tag = (named("sequence")?.unwrap_or(1), named("type")?.unwrap_or(2));
            self.tag = Some(tag);
        }
        (self.key, self.value) = (key, value);
        Ok(())
    }

    /// Reads the next record. Returns `false` at the end.
    pub(super) fn next(&mut self) -> Parsed<bool> {
        let read = self.reader.read_byte_record(&mut self.record);
        let position = self.record.position();
        self.line = position.map_or(self.line, csv::Position::line);
        let read = read.map_err(|e| match e.kind() {
            csv::ErrorKind::UnequalLengths {
                expected_len, len, ..
            } => format!("{len} fields, where the records before have {expected_len}"),
            _ => e.to_string(),
        });
        // The line feed at the end has ended every other record.
        if self.reader.get_ref().is_at_end
            && let Some(open) = self.record.iter().next_back().filter(|_| read != Ok(false))
        {
            let lines = open.iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.line = self.reader.position().line() - lines;
            return Err("a quote opens here and is never closed".into());
        }
        read
    }

    pub(super) fn parse(&self, options: &InputOptions) -> Parsed<Entry> {
        let field = |at: usize| {
            self.record.get(at).ok_or_else(|| {
                let fields = self.record.len();
                format!("no field {}: the record has {fields}", at + 1)
            })
        };
        // Quotes replace escapes.
        let notation = Notation::of(options.hex, true);
        let key = options.key(self.key.iter().map(|&at| notation.parse(field(at)?)))?;
        let value = if options.whole_record {
            self.to_json()?
        } else {
            notation.parse(field(self.value)?)?
        };
        let mut tag = None;
        if let Some((sequence, value_type)) = self.tag {
            tag = Some(parse_tag(field(sequence)?, field(value_type)?)?);
        }
        Ok(Entry { key, tag, value })
    }

    /// Returns the record as a JSON object, or as an array if the fields have no names.
    fn to_json(&self) -> Parsed<Vec<u8>> {
        let text = |record: &ByteRecord| StringRecord::from_byte_record(record.clone());
        let (Ok(names), Ok(fields)) = (text(&self.header), text(&self.record)) else {
            return Err("not UTF-8, so no JSON can hold it".into());
        };
        if names.is_empty() {
            return Ok(json!(fields.iter().collect::<Vec<_>>()).to_string().into());
        }
        let mut json = Vec::new();
        let pairs = names.iter().zip(&fields);
        let pairs = pairs.map(|(name, field)| (name, Field::Text(field)));
        // Writing to memory does not fail.
        let _ = write_json(pairs, false, &mut json);
        json.pop_if(|last| *last == b'\n');
        Ok(json)
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.reader.position().byte()
    }
}
