//! Entries, and how they are shown.

use std::io::{self, Write};
use std::ops::Bound;

use bytes::Bytes;
use clap::Args;
use leveltable::Result;
use leveltable::db::{DbEntry, InternalKey, ValueType, Version};
use serde_json::Value;

use crate::failure::Failure;
use crate::notation::{Field, Notation, as_json, write_json};

/// Options for showing entries.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct ShowArgs {
    /// Read and show keys, and show values, in hexadecimal
    #[arg(long)]
    pub(crate) hex: bool,
    /// Show keys and values as they are, without escapes
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
    /// Show each entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
    /// Show a value that is a JSON object, array, number, true or false as JSON, not as a string
    #[arg(long, requires = "json", conflicts_with = "hex")]
    json_values: bool,
}

impl ShowArgs {
    pub(crate) fn notation(self) -> Notation {
        Notation::of(self.hex, self.raw)
    }

    /// Parses a key that was read from `place`: an argument, or a line.
    ///
    /// Keys have escapes even with `--raw`, because an argument cannot contain a zero byte.
    pub(crate) fn parse_key(self, place: &str, written: &[u8]) -> Result<Vec<u8>, Failure> {
        let parsed = Notation::of(self.hex, false).parse(written);
        parsed.map_err(|e| Failure::new(e).at(place))
    }
}

/// How the entries of a file are shown.
#[derive(Default)]
pub(crate) struct Style {
    pub(crate) show: ShowArgs,
    /// Leave out values, or cut each to a number of characters.
    pub(crate) keys_only: bool,
    pub(crate) width: Option<usize>,
    /// The file name in JSON objects.
    pub(crate) file: Option<String>,
}

/// Sequence number and type of an entry of a database.
pub(crate) type Tag = (u64, ValueType);

/// An entry.
#[derive(Clone)]
pub(crate) struct Row {
    /// The place of the entry, if it is shown: before it in a line of text, and in a JSON object, which also has the field
    /// `by`.
    pub(crate) lead: Vec<(&'static str, Value)>,
    pub(crate) key: Bytes,
    /// Only in a table of a database.
    pub(crate) tag: Option<Tag>,
    pub(crate) value: Bytes,
}

/// A range of keys.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The entries to show, and their direction.
#[derive(Clone)]
pub(crate) struct Walk {
    pub(crate) bounds: Bounds,
    pub(crate) reverse: bool,
    /// Whether all entries within the bounds are wanted, and not only the first ones. Decides how far stores read
    /// ahead.
    pub(crate) is_whole: bool,
}

/// Rows, and possibly the error that ends them.
pub(crate) type RowSource = Box<dyn Iterator<Item = Result<Row>>>;

/// Returns the rows from the first to the last, or in reverse.
pub(crate) fn directed<R: Into<Row>>(
    entries: impl DoubleEndedIterator<Item = Result<R>> + 'static,
    reverse: bool,
) -> RowSource {
    let rows = entries.map(|entry| entry.map(R::into));
    if reverse {
        Box::new(rows.rev())
    } else {
        Box::new(rows)
    }
}

impl From<(Bytes, Bytes)> for Row {
    fn from((key, value): (Bytes, Bytes)) -> Row {
        Row {
            lead: Vec::new(),
            key,
            tag: None,
            value,
        }
    }
}

impl From<DbEntry> for Row {
    fn from(entry: DbEntry) -> Row {
        Row::of_version(entry.user_key, entry.sequence, entry.version)
    }
}

/// Returns the name of a type that `scan` prints and `build` reads.
pub(crate) fn type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Value => "value",
        _ => "deletion",
    }
}

impl Row {
    pub(crate) fn of_version(key: Bytes, sequence: u64, version: Version) -> Row {
        let (value_type, value) = match version.into_value() {
            Some(value) => (ValueType::Value, value),
            None => (ValueType::Deletion, Bytes::new()),
        };
        Row {
            tag: Some((sequence, value_type)),
            ..Row::from((key, value))
        }
    }

    /// Returns the stored key.
    pub(crate) fn stored_key(&self) -> Vec<u8> {
        match self.tag {
            Some(tag) => stored_key(&self.key, tag),
            None => self.key.to_vec(),
        }
    }

    /// Returns the sequence number of a deletion.
    pub(crate) fn deleted_at(&self) -> Option<u64> {
        match self.tag {
            Some((sequence, ValueType::Deletion)) => Some(sequence),
            _ => None,
        }
    }

    /// Writes a line `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value`, or one with a JSON object.
    pub(crate) fn write(&self, style: &Style, out: &mut impl Write) -> io::Result<()> {
        if style.show.json {
            return self.write_json(style, out);
        }
        let notation = style.show.notation();
        for (_, value) in self.lead.iter().filter(|(name, _)| *name != "by") {
            match value.as_str() {
                Some(text) => write!(out, "{text}\t")?,
                None => write!(out, "{value}\t")?,
            }
        }
        notation.write(&self.key, out)?;
        if let Some((sequence, value_type)) = self.tag {
            write!(out, "\t{sequence}\t{}", type_name(value_type))?;
        }
        if !style.keys_only {
            out.write_all(b"\t")?;
            match style.width {
                Some(width) => {
                    let (shown, dots) = notation.cut(&self.value, width);
                    write!(out, "{shown}{dots}")?;
                }
                None => notation.write(&self.value, out)?,
            }
        }
        out.write_all(b"\n")
    }

    fn write_json(&self, style: &Style, out: &mut impl Write) -> io::Result<()> {
        let file = style.file.as_deref().map(Field::Text);
        let mut fields: Vec<_> = file.map(|file| ("file", file)).into_iter().collect();
        let lead = self.lead.iter();
        fields.extend(lead.map(|(name, value)| (*name, Field::Json(value.clone()))));
        fields.push(("key", Field::Bytes(&self.key)));
        if let Some((sequence, value_type)) = self.tag {
            fields.push(("sequence", Field::Json(sequence.into())));
            fields.push(("type", Field::Text(type_name(value_type))));
        }
        if !style.keys_only && self.deleted_at().is_none() {
            let json = style.show.json_values.then(|| as_json(&self.value));
            let value = json.flatten().map(Field::Raw);
            fields.push(("value", value.unwrap_or(Field::Bytes(&self.value))));
        }
        write_json(fields, style.show.hex, out)
    }
}

/// Returns the stored key for a user key with sequence number and type.
pub(crate) fn stored_key(user_key: &[u8], (sequence, value_type): Tag) -> Vec<u8> {
    let mut stored = Vec::new();
    InternalKey {
        user_key,
        sequence,
        value_type,
    }
    .encode(&mut stored);
    stored
}
