//! The entries that `build` reads: a line each, separated by tabs or as JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use leveltable::{InternalKey, MAX_SEQUENCE, ValueType};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::notation::Notation;

/// How a line holds an entry.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON if the first line is an object with a key, or begins with a brace and has no tab; else tabs
    Auto,
    /// Key, tab, value; with --database: key, sequence, type (value or deletion), value
    Tab,
    /// An object with key or key_hex, value or value_hex; with --database: sequence and type, too
    Json,
}

/// Entries, line by line; memory is that of one line.
pub(crate) struct Entries {
    reader: Box<dyn BufRead>,
    name: String,
    format: Format,
    notation: Notation,
    /// Whether entries have sequence and type.
    is_database: bool,
    line: Vec<u8>,
    line_number: u64,
    bytes: u64,
    /// Size of the input in bytes, where it is a file.
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
        let (reader, name, size): (Box<dyn BufRead>, _, _) = match path.as_os_str() == "-" {
            true => (
                Box::new(io::stdin().lock()),
                "standard input".to_owned(),
                None,
            ),
            false => {
                let name = path.display().to_string();
                let fail = |what: &str| Failure::new(what).at(&name);
                let file = File::open(path).map_err(|e| match e.kind() {
                    io::ErrorKind::NotFound => fail("no such file"),
                    _ => fail(&e.to_string()),
                })?;
                let metadata = file.metadata().map_err(|e| fail(&e.to_string()))?;
                if metadata.is_dir() {
                    return Err(fail("a directory: name a file of entries"));
                }
                let size = metadata.is_file().then_some(metadata.len());
                (
                    Box::new(BufReader::with_capacity(64 << 10, file)),
                    name,
                    size,
                )
            }
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

    /// Reads the next entry into `key` and `value`: the key as the table stores it. `false` at the end.
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
            // An empty line says nothing, so nothing is lost.
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

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.bytes
    }

    /// What is read, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The line last read, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}, line {}", self.name, self.line_number)
    }

    fn parse(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), String> {
        if self.format == Format::Auto {
            self.format = match self.looks_like_json() {
                true => Format::Json,
                false => Format::Tab,
            };
        }
        let tag = match self.format {
            Format::Json => self.parse_json(key, value)?,
            Format::Auto | Format::Tab => self.parse_tabs(key, value)?,
        };
        if let Some((sequence, value_type)) = tag {
            if sequence > MAX_SEQUENCE {
                return Err(format!(
                    "sequence {sequence} is above the greatest, {MAX_SEQUENCE}"
                ));
            }
            if value_type == ValueType::Deletion && !value.is_empty() {
                return Err("a deletion has no value".into());
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

    /// Whether the line is an object with a key, or an attempt at one: without a tab it is no entry in columns.
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
        // What comes behind the last separator is the value, tabs and all, if it is raw.
        let columns = if self.is_database { 4 } else { 2 };
        let mut fields = self.line.splitn(columns, |&b| b == b'\t');
        let mut field = |name: &str| {
            fields.next().ok_or_else(|| match self.is_database {
                true => {
                    format!("no {name}: expected key, sequence, type and value with tabs between")
                }
                false => format!("no {name}: expected key and value with a tab between"),
            })
        };
        self.notation.parse(field("key")?, key)?;
        let tag = match self.is_database {
            true => Some((
                parse_sequence(field("sequence")?)?,
                parse_type(field("type")?)?,
            )),
            false => None,
        };
        let written = field("value")?;
        if self.notation == Notation::Text && written.contains(&b'\t') {
            return Err(match self.is_database {
                true => r"more than four columns: write a tab in a value as \t".into(),
                false => r"more than two columns: write a tab in a value as \t, or give --raw or --database"
                    .into(),
            });
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
                "JSON with an unknown field {unknown:?}: known are {}",
                FIELDS.join(", ")
            ));
        }
        let is_tagged = object.contains_key("sequence") || object.contains_key("type");
        let tag = match (self.is_database, is_tagged) {
            (false, false) => None,
            (false, true) => return Err("sequence and type take --database".into()),
            (true, _) => {
                let sequence = object.get("sequence").and_then(Value::as_u64);
                let value_type = object.get("type").and_then(Value::as_str);
                Some((
                    sequence.ok_or("no sequence: expected a whole number")?,
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

/// Appends the bytes of the one of two fields that there is.
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
        (None, None) => Err(format!("JSON without {text} or {hex}")),
        _ => Err(format!("{text} is not a string")),
    }
}

fn parse_sequence(digits: &[u8]) -> Result<u64, String> {
    let digits = String::from_utf8_lossy(digits);
    digits
        .parse()
        .map_err(|_| format!("sequence `{digits}` is not a whole number"))
}

fn parse_type(name: &[u8]) -> Result<ValueType, String> {
    match name {
        b"value" => Ok(ValueType::Value),
        b"deletion" => Ok(ValueType::Deletion),
        _ => Err(format!(
            "type `{}`: expected value or deletion",
            String::from_utf8_lossy(name)
        )),
    }
}
