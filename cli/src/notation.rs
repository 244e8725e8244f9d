//! Notations for bytes: text with escapes, hexadecimal, or raw; and JSON objects with bytes in them.

use std::io::{self, Write};

use memchr::memchr;
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::value::RawValue;
use serde_json::{Serializer, Value, json};

/// A way to write arbitrary bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notation {
    /// Printable characters unchanged; `\\`, `\t`, `\n`, `\r`, and `\xNN` for every other byte. If the bytes are not
    /// valid UTF-8, only printable ASCII characters are unchanged. The text contains neither tab nor newline, so both
    /// can be separators.
    Text,
    /// Two hexadecimal digits for each byte.
    Hex,
    /// The bytes themselves.
    Raw,
}

impl Notation {
    pub(crate) fn of(hex: bool, raw: bool) -> Notation {
        match (hex, raw) {
            (true, _) => Notation::Hex,
            (_, true) => Notation::Raw,
            _ => Notation::Text,
        }
    }

    /// Decodes `written`.
    pub(crate) fn parse(self, written: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(written.len());
        self.parse_into(written, &mut bytes).map(|()| bytes)
    }

    /// Decodes `written`, and appends it to `bytes`.
    pub(crate) fn parse_into(self, written: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Notation::Text => return unescape(written, bytes),
            Notation::Hex => bytes.extend(unhex(written)?),
            Notation::Raw => bytes.extend_from_slice(written),
        }
        Ok(())
    }

    /// Returns the first `most` characters of the notation of `bytes`, and two dots if there are more.
    pub(crate) fn cut(self, bytes: &[u8], most: usize) -> (String, &'static str) {
        // Every byte, and every character of text, takes at least one character.
        let head = match str::from_utf8(bytes) {
            Ok(text) if self == Notation::Text => text.char_indices().nth(most).map(|(at, _)| at),
            _ => Some(most),
        };
        let head = head.and_then(|at| bytes.get(..at)).unwrap_or(bytes);
        let written = self.text(head);
        let shown: String = written.chars().take(most).collect();
        let is_cut = head.len() < bytes.len() || shown.len() < written.len();
        (shown, if is_cut { ".." } else { "" })
    }

    pub(crate) fn text(self, bytes: &[u8]) -> String {
        let mut written = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write(bytes, &mut written);
        String::from_utf8_lossy(&written).into_owned()
    }

    pub(crate) fn write(self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        match self {
            Notation::Text => write_escaped(bytes, out),
            Notation::Hex => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
            Notation::Raw => out.write_all(bytes),
        }
    }
}

fn write_escaped(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    match str::from_utf8(bytes) {
        Ok(text) => write_escaped_text(text, out),
        // A valid UTF-8 sequence among such bytes is usually a coincidence.
        Err(_) => bytes.iter().try_for_each(|&byte| match byte {
            0..0x80 => write_escaped_char(byte.into(), out),
            _ => write!(out, "\\x{byte:02x}"),
        }),
    }
}

fn write_escaped_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    let mut rest = text;
    // Writes runs of printable characters at once.
    while let Some((at, c)) = rest.char_indices().find(|&(_, c)| !is_plain(c)) {
        let (plain, from_c) = rest.split_at(at);
        out.write_all(plain.as_bytes())?;
        write_escaped_char(c, out)?;
        rest = from_c.split_at(c.len_utf8()).1;
    }
    out.write_all(rest.as_bytes())
}

fn write_escaped_char(c: char, out: &mut impl Write) -> io::Result<()> {
    let mut encoded = [0; 4];
    let bytes = c.encode_utf8(&mut encoded).as_bytes();
    match c {
        '\\' => out.write_all(br"\\"),
        '\t' => out.write_all(br"\t"),
        '\n' => out.write_all(br"\n"),
        '\r' => out.write_all(br"\r"),
        _ if is_plain(c) => out.write_all(bytes),
        _ => bytes
            .iter()
            .try_for_each(|byte| write!(out, "\\x{byte:02x}")),
    }
}

/// Returns whether a terminal shows `c` as itself. It does not if `c` is a control character, is invisible, or
/// changes the direction of writing.
fn is_plain(c: char) -> bool {
    match c {
        '\\' => false,
        ' '..='~' => true,
        // The standard library escapes characters that are not printable.
        _ => !c.is_ascii() && c.escape_debug().eq([c]),
    }
}

fn unescape(written: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    if memchr(b'\\', written).is_none() {
        bytes.extend_from_slice(written);
        return Ok(());
    }
    let mut rest = written;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        let (plain, escape) = rest.split_at(at);
        bytes.extend_from_slice(plain);
        let (byte, after) = match escape {
            [_, b't', after @ ..] => (b'\t', after),
            [_, b'n', after @ ..] => (b'\n', after),
            [_, b'r', after @ ..] => (b'\r', after),
            [_, b'0', after @ ..] => (0, after),
            [_, itself @ (b'\\' | b'"' | b'\''), after @ ..] => (*itself, after),
            [_, b'x', high, low, after @ ..] => {
                let byte = byte_of(*high, *low);
                let bad = || bad_escape(escape.get(..4).unwrap_or(escape));
                (byte.ok_or_else(bad)?, after)
            }
            _ => return Err(bad_escape(escape.get(..2).unwrap_or(escape))),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes.extend_from_slice(rest);
    Ok(())
}

#[cold]
fn bad_escape(escape: &[u8]) -> String {
    format!(
        r"`{}` is not an escape: use \\ \t \n \r \0 or \xNN with two hexadecimal digits",
        String::from_utf8_lossy(escape)
    )
}

fn unhex(written: &[u8]) -> Result<Vec<u8>, String> {
    let bytes = written.chunks(2).map(|pair| match pair {
        [high, low] => byte_of(*high, *low).ok_or("not a hexadecimal digit"),
        _ => Err("half a byte"),
    });
    bytes.collect::<Result<_, _>>().map_err(|what| {
        let shown = String::from_utf8_lossy(written);
        format!("{what} in `{shown}`: hexadecimal is two digits 0-9 a-f for each byte")
    })
}

/// Returns the byte of two hexadecimal digits.
fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |ascii: u8| char::from(ascii).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// The value of a field of a JSON object.
pub(crate) enum Field<'a> {
    /// Text; with `hex`, or if the bytes are not UTF-8, hexadecimal in a field whose name ends in `_hex`. `build` reads both back.
    Bytes(&'a [u8]),
    Text(&'a str),
    Json(Value),
    /// Written unchanged.
    Raw(Box<RawValue>),
}

/// Writes a JSON object with these fields in one line.
pub(crate) fn write_json<'a>(
    fields: impl IntoIterator<Item = (&'a str, Field<'a>)>,
    is_hex: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut json = Serializer::new(&mut *out);
    let mut object = json.serialize_map(None)?;
    for (name, field) in fields {
        match field {
            Field::Bytes(bytes) => match str::from_utf8(bytes) {
                Ok(text) if !is_hex => object.serialize_entry(name, text)?,
                _ => object.serialize_entry(&format!("{name}_hex"), &Notation::Hex.text(bytes))?,
            },
            Field::Text(text) => object.serialize_entry(name, text)?,
            Field::Json(value) => object.serialize_entry(name, &value)?,
            Field::Raw(value) => object.serialize_entry(name, &value)?,
        }
    }
    object.end()?;
    out.write_all(b"\n")
}

/// Returns a key without sequence number, in the field that `scan --json` prints.
pub(crate) fn key_json(key: &[u8]) -> Value {
    match str::from_utf8(key) {
        Ok(text) => json!({"key": text}),
        Err(_) => json!({"key_hex": Notation::Hex.text(key)}),
    }
}

/// Returns `bytes` as a JSON object, array, number, true or false, in one line; `None` if they are something else. A string could
/// not be distinguished from the bytes in it.
pub(crate) fn as_json(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = str::from_utf8(bytes).ok()?;
    let is_kept = !text.trim_start().starts_with(['"', 'n']);
    let raw: &RawValue = serde_json::from_str(text).ok().filter(|_| is_kept)?;
    // Line breaks are only between tokens: in strings they are escaped.
    RawValue::from_string(raw.get().replace(['\r', '\n'], " ")).ok()
}

/// Returns `bytes` in quotes, escaped and cut to about `most` characters, for messages.
pub(crate) fn quoted(bytes: &[u8], most: usize) -> String {
    let (shown, dots) = Notation::Text.cut(bytes, most);
    format!("\"{shown}\"{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(notation: Notation, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        notation.write(bytes, &mut out).unwrap();
        out
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(written(Notation::Text, bytes)).unwrap()
    }

    #[test]
    fn every_byte_pair_survives_and_never_breaks_a_line() {
        for notation in [Notation::Text, Notation::Hex, Notation::Raw] {
            for pair in 0..=u16::MAX {
                let bytes = [b"a".as_slice(), &pair.to_be_bytes(), b"z"].concat();
                let out = written(notation, &bytes);
                if notation != Notation::Raw {
                    assert!(std::str::from_utf8(&out).is_ok());
                    assert!(!out.iter().any(u8::is_ascii_control), "{out:?}");
                }
                assert_eq!(notation.parse(&out).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn printable_characters_stay_as_they_are() {
        assert_eq!(text("Grüße, \"世界\"!".as_bytes()), "Grüße, \"世界\"!");
        assert_eq!(
            text(b"C:\\dir\t\r\n\0\x1b[1m\x7f"),
            r"C:\\dir\t\r\n\x00\x1b[1m\x7f"
        );
        assert_eq!(text(b"cut \xe4\xb8 off"), r"cut \xe4\xb8 off");
        assert_eq!(
            text(b"\xff\xc3\xbc"),
            r"\xff\xc3\xbc",
            "a coincidence is not a letter"
        );
        // Right-to-left override, zero-width space, line separator.
        assert_eq!(
            text("\u{202e}\u{200b}\u{2028}".as_bytes()),
            r"\xe2\x80\xae\xe2\x80\x8b\xe2\x80\xa8"
        );
    }

    #[test]
    fn bad_escapes_are_named() {
        let error =
            |notation: Notation, written: &str| notation.parse(written.as_bytes()).unwrap_err();
        for (written, named) in [
            (r"a\q", r"`\q`"),
            (r"a\", r"`\`"),
            (r"\x4", r"`\x`"),
            (r"\x4gz", r"`\x4g`"),
            (r"\u{41}", r"`\u`"),
        ] {
            let error = error(Notation::Text, written);
            assert!(error.starts_with(named), "{error}");
        }
        assert!(error(Notation::Hex, "abc").starts_with("half a byte in `abc`"));
        assert!(error(Notation::Hex, "ag").starts_with("not a hexadecimal digit in `ag`"));
    }

    #[test]
    fn long_keys_are_cut() {
        assert_eq!(quoted(b"short", 10), "\"short\"");
        assert_eq!(quoted(b"longer than that", 6), "\"longer\"..");
        assert_eq!(quoted("äöü".as_bytes(), 2), "\"äö\"..");
        assert_eq!(quoted(&[0; 4], 10), r#""\x00\x00\x"#.to_owned() + "\"..");
    }
}
