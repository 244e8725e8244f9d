//! Entries, and how they are shown.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use leveltable::Result;
use leveltable::db::{DbEntry, InternalKey, ValueType, Version};
use serde_json::{Value, json};

use crate::notation::{Field, Notation, NotationArgs, as_json, write_json};

/// The options that say how entries are shown.
#[derive(Args, Clone, Copy)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) notation: NotationArgs,
    /// Show each entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
    /// Show a value that is a JSON object, array, number, true or false as such, and not as a string
    #[arg(long, requires = "json", conflicts_with = "hex")]
    json_values: bool,
}

impl ShowArgs {
    pub(crate) fn is_hex(self) -> bool {
        self.notation.shown() == Notation::Hex
    }
}

/// How the entries of a file are shown.
pub(crate) struct Style {
    pub(crate) show: ShowArgs,
    /// Show no values, or so many characters of each.
    pub(crate) keys_only: bool,
    pub(crate) width: Option<usize>,
    /// The file that JSON objects name.
    pub(crate) file: Option<String>,
}

/// Sequence number and type of an entry of a database.
pub(crate) type Tag = (u64, ValueType);

/// An entry.
pub(crate) struct Row {
    pub(crate) lead: Lead,
    pub(crate) key: Bytes,
    /// In a table of a database.
    pub(crate) tag: Option<Tag>,
    pub(crate) value: Bytes,
}

/// Where an entry is, if that is shown: before it in a line of text, and in a JSON object.
#[derive(Default)]
pub(crate) struct Lead {
    pub(crate) text: String,
    pub(crate) json: Vec<(&'static str, Value)>,
}

/// Rows, or the error at which they end.
pub(crate) type RowSource = Box<dyn Iterator<Item = Result<Row>>>;

/// Returns the rows from the first to the last, or in reverse.
pub(crate) fn directed(
    rows: impl DoubleEndedIterator<Item = Result<Row>> + 'static,
    reverse: bool,
) -> RowSource {
    if reverse {
        Box::new(rows.rev())
    } else {
        Box::new(rows)
    }
}

impl From<(Bytes, Bytes)> for Row {
    fn from((key, value): (Bytes, Bytes)) -> Row {
        Row {
            lead: Lead::default(),
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
        ValueType::Deletion => "deletion",
    }
}

impl Row {
    pub(crate) fn of_version(key: Bytes, sequence: u64, version: Version) -> Row {
        let (value_type, value) = match version {
            Version::Value(value) => (ValueType::Value, value),
            Version::Deleted => (ValueType::Deletion, Bytes::new()),
        };
        Row {
            tag: Some((sequence, value_type)),
            ..Row::from((key, value))
        }
    }

    /// Returns the key as a table stores it.
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
        let notation = style.show.notation.shown();
        out.write_all(self.lead.text.as_bytes())?;
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
        let file = style.file.as_deref();
        let file = file.map(|file| ("file", Field::Text(file)));
        let lead = self.lead.json.iter();
        let lead = lead.map(|(name, value)| (*name, Field::Json(value.clone())));
        let tag = self.tag.map(|(sequence, value_type)| {
            [
                ("sequence", Field::Json(json!(sequence))),
                ("type", Field::Text(type_name(value_type))),
            ]
        });
        let is_shown = !style.keys_only && self.deleted_at().is_none();
        let is_json = style.show.json_values && is_shown;
        let json = is_json.then(|| as_json(&self.value)).flatten();
        let value = json.map_or(Field::Bytes(&self.value), Field::Raw);
        let value = is_shown.then_some(("value", value));
        let fields = { file.into_iter().chain(lead) }
            .chain([("key", Field::Bytes(&self.key))])
            .chain(tag.into_iter().flatten())
            .chain(value);
        write_json(fields, style.show.is_hex(), out)
    }
}

/// Returns a key of a database with sequence number and type, as tables store it.
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
