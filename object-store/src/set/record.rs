//! The record of a shard in a manifest. The [module](super) describes its bytes.

use bytes::Bytes;
use object_store::path::Path;

use super::shard::Shard;
use crate::source::UNKNOWN;

const PATH: u64 = 1;
const FIRST_KEY: u64 = 2;
const SIZE: u64 = 3;
const TAIL_LEN: u64 = 4;
const E_TAG: u64 = 5;
const VERSION: u64 = 6;
const ENTRIES: u64 = 7;
/// Unknown tags from here on may be ignored.
const FIRST_IGNORABLE: u64 = 64;

/// The record, with the path relative to `directory`; `None` if the shard is elsewhere.
pub(super) fn encode(shard: &Shard, directory: &Path) -> Option<Vec<u8>> {
    let path = relative(&shard.path, directory)?;
    let mut record = Vec::new();
    put(&mut record, PATH, path.as_bytes());
    put(&mut record, FIRST_KEY, &shard.first_key);
    put(&mut record, SIZE, &varint(shard.size));
    put(&mut record, TAIL_LEN, &varint(shard.tail_len));
    if let Some(e_tag) = &shard.version.e_tag {
        put(&mut record, E_TAG, e_tag.as_bytes());
    }
    if let Some(version) = &shard.version.version {
        put(&mut record, VERSION, version.as_bytes());
    }
    if let Some(entries) = shard.entries {
        put(&mut record, ENTRIES, &varint(entries));
    }
    Some(record)
}

/// Decodes a record, which is untrusted. The error says what is wrong with it.
pub(super) fn decode(last_key: Bytes, record: &[u8], directory: &Path) -> Result<Shard, String> {
    let (mut path, mut first_key, mut size, mut tail_len) = (None, None, None, None);
    let (mut version, mut entries) = (UNKNOWN, None);
    let (mut rest, mut last_tag) = (record, 0);
    while !rest.is_empty() {
        let (tag, payload) = take_field(&mut rest).ok_or("a field is cut off")?;
        if tag <= last_tag {
            return Err(format!("field {tag} comes after field {last_tag}"));
        }
        last_tag = tag;
        match tag {
            PATH => path = Some(absolute(text(tag, payload)?, directory)?),
            FIRST_KEY => first_key = Some(Bytes::copy_from_slice(payload)),
            SIZE => size = Some(number(tag, payload)?),
            TAIL_LEN => tail_len = Some(number(tag, payload)?),
            E_TAG => version.e_tag = Some(text(tag, payload)?.to_owned()),
            VERSION => version.version = Some(text(tag, payload)?.to_owned()),
            ENTRIES => entries = Some(number(tag, payload)?),
            FIRST_IGNORABLE.. => {}
            _ => return Err(format!("field {tag} is of a later version")),
        }
    }
    let shard = Shard {
        path: path.ok_or("it has no path")?,
        first_key: first_key.ok_or("it has no first key")?,
        last_key,
        size: size.ok_or("it has no size")?,
        tail_len: tail_len.ok_or("it has no tail size")?,
        version,
        entries,
    };
    shard.check()?;
    Ok(shard)
}

/// The directory that paths in the manifest at `manifest` are relative to.
pub(super) fn directory_of(manifest: &Path) -> Path {
    let text = manifest.as_ref();
    match text.rsplit_once('/') {
        // A prefix of a path's parts is a valid path.
        Some((directory, _)) => Path::parse(directory).unwrap_or_default(),
        None => Path::default(),
    }
}

/// If `path` is a numbered manifest by its name, returns the path of the set and the number.
pub(super) fn number_of(path: &Path) -> Option<(Path, u64)> {
    let name = path.filename()?;
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let number = name.parse().ok().filter(|_| is_number)?;
    Some((directory_of(path), number))
}

/// `path` relative to `directory`; `None` if it is elsewhere.
fn relative<'a>(path: &'a Path, directory: &Path) -> Option<&'a str> {
    let (path, directory) = (path.as_ref(), directory.as_ref());
    let relative = if directory.is_empty() {
        path
    } else {
        path.strip_prefix(directory)?.strip_prefix('/')?
    };
    (!relative.is_empty()).then_some(relative)
}

/// The absolute path of `relative` in `directory`. A path that leaves the directory is an error.
fn absolute(relative: &str, directory: &Path) -> Result<Path, String> {
    let invalid =
        |why: &dyn std::fmt::Display| format!("its path {relative:?} is not valid: {why}");
    // `Path::parse` would ignore these slashes; it rejects `..` itself.
    if relative.is_empty() || relative.starts_with('/') || relative.ends_with('/') {
        return Err(invalid(&"it is empty, or begins or ends with a slash"));
    }
    let whole = match directory.as_ref() {
        "" => relative.to_owned(),
        directory => format!("{directory}/{relative}"),
    };
    Path::parse(whole).map_err(|error| invalid(&error))
}

fn put(record: &mut Vec<u8>, tag: u64, payload: &[u8]) {
    record.extend(varint(tag));
    record.extend(varint(payload.len() as u64));
    record.extend_from_slice(payload);
}

/// Takes the next field from `rest`.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let tag = take_varint(rest)?;
    let len = usize::try_from(take_varint(rest)?).ok()?;
    let (payload, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some((tag, payload))
}

fn text(tag: u64, payload: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(payload).map_err(|_| format!("field {tag} is not UTF-8"))
}

fn number(tag: u64, mut payload: &[u8]) -> Result<u64, String> {
    let number = take_varint(&mut payload).filter(|_| payload.is_empty());
    number.ok_or_else(|| format!("field {tag} is not a varint"))
}

/// Seven bits per byte, lowest first, with the high bit set on all but the last byte.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Takes a varint from the front of `rest`. `None` if it is cut off, or does not fit into 64 bits.
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            return None;
        }
        value |= group << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;
    use proptest::prelude::*;

    fn example() -> Shard {
        Shard {
            path: Path::from("sets/a/0.ldb"),
            first_key: "apple".into(),
            last_key: "fig".into(),
            size: 300,
            tail_len: 44,
            version: Version {
                e_tag: Some("\"e1\"".into()),
                version: None,
            },
            entries: Some(3),
        }
    }

    fn directory() -> Path {
        directory_of(&Path::from("sets/manifest"))
    }

    fn decode(record: &[u8]) -> Result<Shard, String> {
        super::decode("fig".into(), record, &directory())
    }

    /// The bytes of the example above, in which text is in quotes.
    fn example_bytes() -> Vec<u8> {
        let blocks = include_str!("mod.rs").split("```");
        let text = blocks.skip_while(|block| !block.contains("offset  bytes"));
        let text = text.take(1).collect::<String>();
        let mut bytes = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("//!")) {
            let Some((offset, rest)) = line.trim().split_once("  ") else {
                continue;
            };
            let Ok(offset) = offset.parse::<usize>() else {
                continue;
            };
            assert_eq!(offset, bytes.len(), "{line}");
            for (i, part) in rest.split('"').enumerate() {
                let hex = |word: &str| {
                    u8::from_str_radix(word, 16)
                        .ok()
                        .filter(|_| word.len() == 2)
                };
                if i % 2 == 1 {
                    bytes.extend(part.bytes());
                } else {
                    bytes.extend(part.split_whitespace().map_while(hex));
                }
            }
        }
        bytes
    }

    #[test]
    fn the_worked_example_is_what_the_encoder_makes() {
        let bytes = example_bytes();
        assert_eq!(bytes.len(), 32);
        assert_eq!(encode(&example(), &directory()).unwrap(), bytes);
        assert_eq!(decode(&bytes).unwrap(), example());
    }

    #[test]
    fn what_is_not_known_comes_back_as_such() {
        let mut shard = example();
        shard.version = Version {
            e_tag: None,
            version: Some("17".into()),
        };
        shard.entries = None;
        shard.size = u64::MAX;
        let record = encode(&shard, &directory()).unwrap();
        assert_eq!(decode(&record).unwrap(), shard);
    }

    #[test]
    fn later_fields_are_ignored_from_64_on_and_refused_before() {
        let mut record = example_bytes();
        put(&mut record, 64, b"later");
        put(&mut record, u64::MAX, b"");
        assert_eq!(decode(&record).unwrap(), example());
        let mut record = example_bytes();
        put(&mut record, 8, b"later");
        let error = decode(&record).unwrap_err();
        assert!(error.contains("field 8 is of a later version"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let change = |from: &[u8], to: &[u8]| {
            let bytes = example_bytes();
            let at = bytes.windows(from.len()).position(|window| window == from);
            let at = at.unwrap();
            let changed = [&bytes[..at], to, &bytes[at + from.len()..]].concat();
            decode(&changed).unwrap_err()
        };
        for (from, to, message) in [
            (&b"apple"[..], &b"grape"[..], "comes after its last"),
            (b"a/0.ldb", b"../.ldb", "not valid"),
            (b"a/0.ldb", b"/a0.ldb", "not valid"),
            (b"a/0.ldb", b"a/0.ld/", "not valid"),
            (b"a/0.ldb", b"a//0ldb", "not valid"),
            (b"a/0.ldb", b"a/0.ld\xff", "not UTF-8"),
            (b"\x22e1\x22", b"\xffe1\x22", "not UTF-8"),
            (b"\x03\x02\xac\x02", b"\x03\x02\xac\x82", "not a varint"),
            (b"\x03\x02\xac\x02", b"\x03\x02\x2b\x02", "not a varint"),
            (b"\x03\x02\xac\x02", b"\x03\x01\x2b", "longer than"),
            (
                b"\x04\x01\x2c",
                b"\x04\x05\x81\x80\x80\x80\x10",
                "longer than its 300 bytes",
            ),
            (
                b"\x03\x02\xac\x02\x04\x01\x2c",
                b"\x03\x05\x81\x80\x80\x80\x10\x04\x05\x81\x80\x80\x80\x10",
                "longer than 4 GiB",
            ),
            (
                b"\x03\x02\xac\x02",
                b"\x03\x01\x2f",
                "fewer than a table's footer",
            ),
            (b"\x03\x02\xac\x02", b"", "no size"),
            (b"\x04\x01\x2c", b"", "no tail size"),
            (b"\x02\x05apple", b"", "no first key"),
            (b"\x01\x07a/0.ldb", b"", "no path"),
            (b"\x02\x05apple", b"\x01\x07a/0.ldb", "comes after field 1"),
            (b"\x07\x01", b"\x07\x7f", "cut off"),
        ] {
            let error = change(from, to);
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_shard_lies_under_the_directory_of_its_manifest() {
        let at = |path: &str, manifest: &str| {
            let shard = Shard {
                path: Path::from(path),
                ..example()
            };
            let directory = directory_of(&Path::from(manifest));
            let record = encode(&shard, &directory)?;
            let decoded = super::decode("fig".into(), &record, &directory).unwrap();
            assert_eq!(decoded, shard);
            Some(())
        };
        assert!(at("sets/a", "sets/m").is_some());
        assert!(at("sets/deep/er/a", "sets/m").is_some());
        assert!(at("a", "m").is_some());
        assert!(at("a/b", "m").is_some());
        assert!(at("a", "sets/m").is_none());
        assert!(at("setsa", "sets/m").is_none());
        assert!(at("other/a", "sets/m").is_none());
    }

    #[test]
    fn damage_does_not_panic() {
        let bytes = example_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&damaged);
            let _ = decode(&bytes[..bit / 8]);
        }
    }

    proptest! {
        /// A decoded record is encoded again to the same bytes: nothing was misread.
        #[test]
        fn any_bytes_are_refused_or_understood(record: Vec<u8>) {
            if let Ok(shard) = decode(&record) {
                let again = encode(&shard, &directory()).unwrap();
                prop_assert_eq!(decode(&again).unwrap(), shard);
            }
        }
    }
}
