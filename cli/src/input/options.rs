//! How the input is read and parsed.

use std::io;

use clap::{Args, ValueEnum};
use leveltable::db::{MAX_SEQUENCE, ValueType};

use crate::failure::Failure;
use crate::notation::Notation;
use crate::row::{Tag, type_name};
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

/// Options for reading the input.
#[derive(Args, Clone)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputOptions {
    /// The format of the input
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(super) format: Format,
    /// The fields that make up the key: names, or in CSV numbers from 1 [default: key; in CSV: 1]
    #[arg(long, value_name = "FIELD,..", value_delimiter = ',')]
    pub(super) key_field: Vec<String>,
    /// Text between the fields of a key
    #[arg(long, value_name = "TEXT", default_value = ":")]
    key_separator: String,
    /// Pad numbers in keys with zeros to N digits, so that they sort by size
    #[arg(long, value_name = "N", conflicts_with = "hex", value_parser = clap::value_parser!(u8).range(1..))]
    pad: Option<u8>,
    /// The field that holds the value [default: value; in CSV: 2]
    #[arg(long, value_name = "FIELD")]
    pub(super) value_field: Option<String>,
    /// The value is the whole record, as JSON
    #[arg(long, conflicts_with = "value_field")]
    pub(super) whole_record: bool,
    /// The first record of CSV holds the names of the fields
    #[arg(long)]
    pub(super) header: bool,
    /// The character between the fields of CSV
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter)]
    pub(super) delimiter: u8,
    /// The kind of the keys
    #[arg(long, value_enum, default_value_t = EntryKeys::Plain, value_name = "KIND")]
    keys: EntryKeys,
    /// Keys and values are in hexadecimal
    #[arg(long)]
    pub(super) hex: bool,
    /// Keys and values in lines of text have no escapes: a backslash is an ordinary character
    #[arg(long, conflicts_with = "hex")]
    pub(super) raw: bool,
}

/// Parses the character between fields, which must be one byte.
fn parse_delimiter(written: &str) -> Result<u8, String> {
    parse_character(written)
        .ok()
        .filter(|byte| !matches!(byte, b'"' | b'\n' | b'\r' | 0))
        .ok_or_else(|| r"expected one character, such as , or ; or \t".into())
}

impl InputOptions {
    pub(super) fn check(&self) -> Result<(), Failure> {
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

    pub(super) fn notation(&self) -> Notation {
        Notation::of(self.hex, self.raw)
    }

    pub(super) fn names_fields(&self) -> bool {
        !self.key_field.is_empty() || self.value_field.is_some() || self.whole_record
    }

    /// Returns the names of the JSON fields that make up the key.
    pub(super) fn key_names(&self) -> Vec<&str> {
        match &self.key_field[..] {
            [] => vec!["key"],
            names => names.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the name of the JSON field that holds the value.
    pub(super) fn value_name(&self) -> &str {
        self.value_field.as_deref().unwrap_or("value")
    }

    /// Returns the key made of these parts.
    pub(super) fn key(&self, parts: impl Iterator<Item = Parsed<Vec<u8>>>) -> Parsed<Vec<u8>> {
        let padded = |part: Parsed<Vec<u8>>| {
            let mut part = part?;
            self.pad(&mut part).map(|()| part)
        };
        let parts: Parsed<Vec<_>> = parts.map(padded).collect();
        Ok(parts?.join(self.key_separator.as_bytes()))
    }

    /// Adds zeros before a numeric part of a key, if padding is on.
    pub(super) fn pad(&self, part: &mut Vec<u8>) -> Parsed<()> {
        let Some(width) = self.pad.map(usize::from) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(part);
        let unsigned = text.trim_start_matches(['-', '+']);
        let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit());
        if is_number && part.iter().all(u8::is_ascii_digit) {
            if part.len() > width {
                return Err(format!("{text} has more than the {width} digits of --pad"));
            }
            *part = format!("{text:0>width$}").into_bytes();
        } else if is_number && text.parse::<f64>().is_ok() {
            let what = "--pad is for whole numbers from 0";
            return Err(format!("{text} in a key: {what}"));
        }
        Ok(())
    }

    /// Returns the message if the field `name` would be both key and value.
    #[cold]
    pub(super) fn same_field(&self, name: &str) -> String {
        let option = if self.key_field.is_empty() {
            "--key-field"
        } else {
            "--value-field"
        };
        format!("key and value are the same field, {name}: use {option}")
    }
}

/// A parsed value, or why it cannot be parsed.
pub(super) type Parsed<T> = Result<T, String>;

/// A parsed entry.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) tag: Option<Tag>,
    pub(super) value: Vec<u8>,
}

/// Fails if `head`, the start of the input, is that of a file by `gzip`. Text cannot begin like this: the second byte is not the start of a
/// character.
pub(super) fn check_no_gzip(head: &[u8]) -> io::Result<()> {
    let what =
        "compressed by gzip: decompress it first, as in `gzip -dc IN | leveltable build OUT`";
    if head.starts_with(b"\x1f\x8b") {
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Parses a sequence number and the name of a type.
pub(super) fn parse_tag(sequence: &[u8], name: &[u8]) -> Parsed<Tag> {
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
