//! Reads entries for `build`: one a line, tab-separated or in JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use leveltable::db::{InternalKey, MAX_SEQUENCE, ValueType};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::notation::Notation;

/// The format of a line.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON if the first line is an object with a key, or begins with a brace and has no tab; otherwise tab
    Auto,
    /// Key, tab, value; with --database: key, sequence, type (value or deletion), value
    Tab,
    /// An object with key or key_hex, value or value_hex; with --database: also sequence and type
    Json,
}

/// Reads entries line by line, and holds one line in memory.
pub(crate) struct Entries {
    reader: Box<dyn BufRead>,
    name: String,
    format: Format,
    notation: Notation,
    /// Whether entries have a sequence number and a type.
    is_database: bool,
    line: Vec<u8>,
    line_number: u64,
    bytes: u64,
    /// Size of the input in bytes, if it is a file.
    pub(crate) size: Option<u64>,
}

impl Entries {
    /// Opens the file at `path`, or standard input for `-`.
    pub(crate) fn open(
        path: &Path,
        format: Format,
        notation: Notation,
        is_database: bool,
    ) -> Result<Entries, Failure> {
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
        Ok(Entries {
            reader,
            name,
            format,
            notation,
            is_database,
            line: Vec::new(),
            line_number: 0,
            bytes: 0,
            size,
        })
    }

    /// Reads the next entry into `key`, as the table stores it, and `value`. Returns `false` at the end.
    pub(crate) fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, Failure> {
        loop {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| Failure::new(format!("reading {}: {e}", self.name)))?;
            if read == 0 {
                return Ok(false);
            }
            self.bytes += read as u64;
            self.line_number += 1;
            self.line.pop_if(|last| *last == b'\n');
            if self.notation != Notation::Raw {
                self.line.pop_if(|last| *last == b'\r');
            }
            // Skips empty lines.
            if !self.line.is_empty() {
                break;
            }
        }
        key.clear();
        value.clear();
        self.parse(key, value)
            .map_err(|what| Failure::new(what).at(self.place()))?;
        Ok(true)
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.bytes
    }

    /// Returns the name of the input, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the input and the number of the last line, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}, line {}", self.name, self.line_number)
    }

    fn parse(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), String> {
        if self.format == Format::Auto {
            self.format = if self.looks_like_json() {
                Format::Json
            } else {
                Format::Tab
            };
        }
        let tag = match self.format {
            Format::Json => self.parse_json(key, value)?,
            Format::Auto | Format::Tab => self.parse_tabs(key, value)?,
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

    /// Returns whether the line is an object with a key, or begins like one and has no tab. A line without a tab
    /// is not an entry in columns, so it is better reported as bad JSON.
    fn looks_like_json(&self) -> bool {
        let object = serde_json::from_slice::<Map<String, Value>>(&self.line);
        let has_key = |object: Map<String, Value>| {
            object.contains_key("key") || object.contains_key("key_hex")
        };
        object.is_ok_and(has_key)
            || self.line.trim_ascii_start().starts_with(b"{") && !self.line.contains(&b'\t')
    }

    fn parse_tabs(
        &self,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<(u64, ValueType)>, String> {
        // Everything after the last separator is the value, because a raw one may contain tabs.
        let columns = if self.is_database { 4 } else { 2 };
        let mut fields = self.line.splitn(columns, |&b| b == b'\t');
        let mut field = |name: &str| {
            fields.next().ok_or_else(|| {
                let columns = if self.is_database {
                    "key, sequence, type and value"
                } else {
                    "key and value"
                };
                format!("no {name}: expected {columns}, separated by tabs")
            })
        };
        self.notation.parse(field("key")?, key)?;
        let tag = if self.is_database {
            let sequence = parse_sequence(field("sequence")?)?;
            Some((sequence, parse_type(field("type")?)?))
        } else {
            None
        };
        let written = field("value")?;
        if self.notation == Notation::Text && written.contains(&b'\t') {
            let message = if self.is_database {
                r"more than four columns: write a tab in a value as \t"
            } else {
                r"more than two columns: write a tab in a value as \t, or use --raw or --database"
            };
            return Err(message.into());
        }
        self.notation.parse(written, value)?;
        Ok(tag)
    }

    fn parse_json(
        &self,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<(u64, ValueType)>, String> {
        let object: Map<String, Value> =
            serde_json::from_slice(&self.line).map_err(|e| format!("not a JSON object: {e}"))?;
        if let Some(unknown) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!(
                "unknown JSON field {unknown:?}: the known fields are {}",
                FIELDS.join(", ")
            ));
        }
        let is_tagged = object.contains_key("sequence") || object.contains_key("type");
        let tag = match (self.is_database, is_tagged) {
            (false, false) => None,
            (false, true) => return Err("sequence and type need --database".into()),
            (true, _) => {
                let sequence = object.get("sequence").and_then(Value::as_u64);
                let value_type = object.get("type").and_then(Value::as_str);
                Some((
                    sequence.ok_or("no sequence: expected an integer")?,
                    parse_type(value_type.unwrap_or_default().as_bytes())?,
                ))
            }
        };
        json_bytes(&object, "key", "key_hex", key)?;
        if !matches!(tag, Some((_, ValueType::Deletion))) || object.contains_key("value") {
            json_bytes(&object, "value", "value_hex", value)?;
        }
        Ok(tag)
    }
}

const FIELDS: [&str; 6] = ["key", "key_hex", "sequence", "type", "value", "value_hex"];

/// Appends the bytes of the field `text` or `hex`, whichever is present.
fn json_bytes(
    object: &Map<String, Value>,
    text: &str,
    hex: &str,
    dst: &mut Vec<u8>,
) -> Result<(), String> {
    match (object.get(text), object.get(hex)) {
        (Some(Value::String(text)), None) => {
            dst.extend_from_slice(text.as_bytes());
            Ok(())
        }
        (None, Some(Value::String(digits))) => Notation::Hex
            .parse(digits.as_bytes(), dst)
            .map_err(|e| format!("{hex}: {e}")),
        (Some(_), Some(_)) => Err(format!("both {text} and {hex}")),
        (None, None) => Err(format!("neither {text} nor {hex}")),
        _ => Err(format!("{text} is not a string")),
    }
}

fn parse_sequence(digits: &[u8]) -> Result<u64, String> {
    let digits = String::from_utf8_lossy(digits);
    digits
        .parse()
        .map_err(|_| format!("sequence `{digits}` is not an integer"))
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
