//! Reads entries for `build`: lines of text, CSV, or JSON lines.

mod chunks;
mod csv;
mod json;
mod options;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use leveltable::db::ValueType;
use memchr::memchr;

use self::csv::CsvRecords;
pub(crate) use self::json::parse_change;
use self::json::parse_json;
pub(crate) use self::options::InputOptions;
use self::options::{Entry, Format, Parsed, check_no_gzip, parse_tag};
use crate::failure::Failure;
use crate::notation::Notation;
use crate::row::stored_key;

/// A file of entries, or standard input.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead + Send>,
    /// Its name for messages.
    pub(crate) name: String,
    /// Size in bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

/// Number of bytes to read at once.
const BUFFERED: usize = 64 << 10;

pub(crate) fn standard_input() -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFERED, io::stdin()))
}

/// Opens the file at `path`, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Input {
            reader: standard_input(),
            name: "standard input".into(),
            size: None,
        });
    }
    let is_directory = || Failure::of(path, "is a directory: name a file of entries");
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Failure::of(path, "no such file"),
        // Windows does not open a directory as a file.
        io::ErrorKind::PermissionDenied if path.is_dir() => is_directory(),
        _ => Failure::of(path, e),
    };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(is_directory());
    }
    Ok(Input {
        reader: Box::new(BufReader::with_capacity(BUFFERED, file)),
        name: path.display().to_string(),
        size: metadata.is_file().then_some(metadata.len()),
    })
}

/// Reads entries one by one, and keeps one in memory.
pub(crate) struct Entries {
    source: Source,
    /// The name of the input, for messages.
    pub(crate) name: String,
    options: InputOptions,
    /// The current entry, with its stored key.
    entry: Entry,
    /// Size of the input in bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

enum Source {
    Lines(Lines),
    Csv(CsvRecords),
}

impl Entries {
    /// Opens the file at `path`, or standard input for `-`.
    pub(crate) fn open(path: &Path, options: &InputOptions) -> Result<Entries, Failure> {
        options.check()?;
        let Input { reader, name, size } = open(path)?;
        let source = match options.format {
            Format::Csv => {
                let mut records = CsvRecords::new(reader, options.delimiter);
                let started = records.start(options);
                started.map_err(|what| Failure::new(what).at(place(&name, records.line)))?;
                Source::Csv(records)
            }
            Format::Text | Format::Jsonl => Source::Lines(Lines::new(reader, options.raw)),
        };
        Ok(Entries {
            source,
            name,
            options: options.clone(),
            entry: Entry::default(),
            size,
        })
    }

    /// Reads the next entry. Returns `false` at the end.
    fn next(&mut self) -> Result<bool, Failure> {
        let read = match &mut self.source {
            Source::Lines(lines) => lines.next().map_err(|e| e.to_string()),
            Source::Csv(records) => records.next(),
        };
        let parsed = match read {
            Ok(true) => self.parse().map(|()| true),
            read => read,
        };
        parsed.map_err(|what| Failure::new(what).at(place(&self.name, self.line())))
    }

    /// Returns the number of bytes read so far.
    fn position(&self) -> u64 {
        match &self.source {
            Source::Lines(lines) => lines.bytes,
            Source::Csv(records) => records.position(),
        }
    }

    /// Returns the number of the last line.
    fn line(&self) -> u64 {
        match &self.source {
            Source::Lines(lines) => lines.number,
            Source::Csv(records) => records.line,
        }
    }

    fn parse(&mut self) -> Parsed<()> {
        let is_json = self.options.format == Format::Jsonl;
        match &self.source {
            Source::Csv(records) => self.entry = records.parse(&self.options)?,
            Source::Lines(lines) if is_json => self.entry = parse_json(&lines.line, &self.options)?,
            Source::Lines(lines) => parse_tabs(&lines.line, &self.options, &mut self.entry)?,
        }
        match self.entry.tag {
            Some((_, ValueType::Deletion)) if !self.entry.value.is_empty() => {
                return Err("a deletion cannot have a value".into());
            }
            Some(tag) => self.entry.key = stored_key(&self.entry.key, tag),
            None => {}
        }
        Ok(())
    }
}

/// Returns the name of an input and the number of a line, for messages.
pub(crate) fn place(name: &str, line: u64) -> String {
    format!("{name}, line {line}")
}

/// Editors on Windows write it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Lines that are not empty.
pub(crate) struct Lines {
    reader: Box<dyn BufRead + Send>,
    /// The last line, and its number.
    pub(crate) line: Vec<u8>,
    pub(crate) number: u64,
    bytes: u64,
    /// Whether a carriage return at the end of a line, or a byte order mark at the start of the input, is part of it.
    is_raw: bool,
}

impl Lines {
    pub(crate) fn new(reader: Box<dyn BufRead + Send>, is_raw: bool) -> Lines {
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
            let read = read_line(&mut *self.reader, &mut self.line)?;
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

/// Reads a line, including its line feed, into `line`, which is empty; finds the line feed faster than `read_until`. Returns
/// its length.
fn read_line(reader: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let read = match reader.fill_buf() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let end = memchr(b'\n', read).map(|at| at + 1);
        let (taken, _) = read.split_at(end.unwrap_or(read.len()));
        let (len, is_done) = (taken.len(), end.is_some() || taken.is_empty());
        line.extend_from_slice(taken);
        reader.consume(len);
        if is_done {
            return Ok(line.len());
        }
    }
}

/// Parses a line into `entry`, whose memory is reused.
fn parse_tabs(line: &[u8], options: &InputOptions, entry: &mut Entry) -> Parsed<()> {
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
    // Everything after the last separator is the value, because a raw value may contain tabs.
    let mut fields = line.splitn(columns, |&b| b == b'\t');
    let mut field = |name: &str| {
        fields.next().ok_or_else(|| {
            let hint = other_format(line);
            format!("no {name}: expected {names}, separated by tabs{hint}")
        })
    };
    entry.key.clear();
    notation.parse_into(field("key")?, &mut entry.key)?;
    options.pad(&mut entry.key)?;
    if is_database {
        entry.tag = Some(parse_tag(field("sequence")?, field("type")?)?);
    }
    let written = field("value")?;
    if notation == Notation::Text && memchr(b'\t', written).is_some() {
        return Err(format!(
            r"more than {number} columns: write a tab in a value as \t{or}"
        ));
    }
    entry.value.clear();
    notation.parse_into(written, &mut entry.value)
}

/// Returns a hint if an invalid line looks like an entry in another format.
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
