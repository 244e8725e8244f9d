//! JSON lines: one object per line.

use std::fmt;

use leveltable::db::ValueType;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::options::{Entry, InputOptions, Parsed, parse_tag};
use crate::notation::Notation;
use crate::row::Tag;

/// The fields of an object, with their values as written.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Returns the value of the field `name`, if there is one.
    fn get(&self, name: &str) -> Parsed<Option<&'a RawValue>> {
        let mut fields = self.0.iter().filter(|(other, _)| other == name);
        match (fields.next(), fields.next()) {
            (Some(_), Some(_)) => Err(format!("two fields are named {name:?}")),
            (field, _) => Ok(field.map(|(_, raw)| *raw)),
        }
    }
}

/// Keeps all fields. A map would keep the last of several fields with the same name.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Object(fields))
    }
}

/// The fields that `scan --json` prints.
const FIELDS: &str = "key, key_hex, sequence, type, value, value_hex, file";

fn parse_object(line: &[u8]) -> Parsed<Object<'_>> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let object = json.deserialize_map(Fields);
    let object = object.and_then(|object| json.end().map(|()| object));
    object.map_err(|e| format!("not a JSON object: {}", json_error(&e)))
}

/// Parses a change of a database: a key and its new value, or `None` to delete it.
pub(crate) fn parse_change(line: &[u8]) -> Parsed<(Vec<u8>, Option<Vec<u8>>)> {
    const KNOWN: [&str; 5] = ["key", "key_hex", "value", "value_hex", "delete"];
    let object = parse_object(line)?;
    let mut names = object.0.iter().map(|(name, _)| &**name);
    if let Some(unknown) = names.find(|name| !KNOWN.contains(name)) {
        let known = KNOWN.join(", ");
        return Err(format!(
            "unknown JSON field {unknown:?}: the known fields are {known}"
        ));
    }
    let key = json_bytes(&object, "key", false, true)?;
    let has_value = object.get("value")?.or(object.get("value_hex")?).is_some();
    match object.get("delete")?.map(RawValue::get) {
        Some("true") if !has_value => Ok((key, None)),
        Some("true") => Err("both a value and \"delete\": true".into()),
        None | Some("false") => Ok((key, Some(json_bytes(&object, "value", false, false)?))),
        Some(_) => Err("delete is neither true nor false".into()),
    }
}

pub(super) fn parse_json(line: &[u8], options: &InputOptions) -> Parsed<Entry> {
    let object = parse_object(line)?;
    let is_named = options.names_fields();
    let mut names = object.0.iter().map(|(name, _)| name.as_str());
    if let Some(unknown) =
        names.find(|name| !is_named && FIELDS.split(", ").all(|field| field != *name))
    {
        return Err(format!(
            "unknown JSON field {unknown:?}: the known fields are {FIELDS}; to take others, use --key-field and \
             --value-field"
        ));
    }
    let tag = json_tag(&object, options)?;
    let parts = options.key_names().into_iter();
    let key = options.key(parts.map(|name| json_bytes(&object, name, options.hex, true)))?;
    let name = options.value_name();
    let is_deletion = matches!(tag, Some((_, ValueType::Deletion)));
    let value = if options.whole_record {
        line.trim_ascii().to_vec()
    } else {
        match object.get(name)? {
            None if is_deletion => Vec::new(),
            Some(raw) if raw.get() == "null" && !is_named && !is_deletion => {
                return Err(
                    "value is null, as \"get --json\" prints an absent key: remove the line, or name the field with \
                     --value-field"
                        .into(),
                );
            }
            _ => json_bytes(&object, name, options.hex, false)?,
        }
    };
    Ok(Entry { key, tag, value })
}

/// Returns sequence number and type, if the table has them.
fn json_tag(object: &Object<'_>, options: &InputOptions) -> Parsed<Option<Tag>> {
    let (sequence, value_type) = (object.get("sequence"), object.get("type"));
    if !options.has_versions() {
        let is_tagged = !matches!((&sequence, &value_type), (Ok(None), Ok(None)));
        return if is_tagged && !options.names_fields() {
            Err("sequence and type need --keys database".into())
        } else {
            Ok(None)
        };
    }
    let sequence = sequence?.ok_or("no sequence: expected an integer")?;
    let value_type = value_type?.and_then(|raw| string(raw).ok()?);
    let value_type = value_type.unwrap_or_default();
    parse_tag(sequence.get().as_bytes(), value_type.as_bytes()).map(Some)
}

/// Returns the string, if a JSON value is one.
fn string(raw: &RawValue) -> Parsed<Option<String>> {
    let written = raw.get();
    if !written.starts_with('"') {
        return Ok(None);
    }
    let parsed = serde_json::from_str(written);
    parsed
        .map(Some)
        .map_err(|e| format!("not a JSON string: {}", json_error(&e)))
}

/// Returns the message of `error` without its position: the line is always 1, because each line is parsed separately.
#[cold]
fn json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&position) {
        Some(alone) => alone.to_owned(),
        None => message,
    }
}

/// Returns the bytes of the field `name` or of `name_hex`, whichever is present. A value that is not a string is stored
/// as it is written; a key must be a string, a number, true or false.
fn json_bytes(object: &Object<'_>, name: &str, is_hex: bool, is_key: bool) -> Parsed<Vec<u8>> {
    let hex = format!("{name}_hex");
    let unhex = |digits: String, field: &str| {
        let parsed = Notation::Hex.parse(digits.as_bytes());
        parsed.map_err(|e| format!("{field}: {e}"))
    };
    match (object.get(name)?, object.get(&hex)?) {
        (Some(raw), None) => match string(raw)? {
            Some(digits) if is_hex => unhex(digits, name),
            Some(text) => Ok(text.into_bytes()),
            None => {
                let what = match raw.get().as_bytes() {
                    [b'{', ..] => "an object",
                    [b'[', ..] => "an array",
                    [b'n', ..] => "null",
                    _ => "",
                };
                if is_key && !what.is_empty() {
                    let expected = "a key is a string, a number, true or false";
                    return Err(format!("{name} is {what}: {expected}"));
                }
                Ok(raw.get().into())
            }
        },
        (None, Some(raw)) => match string(raw)? {
            Some(digits) => unhex(digits, &hex),
            None => Err(format!("{hex} is not a string")),
        },
        (Some(_), Some(_)) => Err(format!("both {name} and {hex}")),
        (None, None) => Err(format!("neither {name} nor {hex}")),
    }
}
