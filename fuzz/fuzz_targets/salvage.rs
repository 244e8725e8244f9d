//! Damaged tables: `verify` sees the damage, and `salvage` gets the rest back and invents nothing.

#![no_main]

use std::ops::Range;

use arbitrary::Arbitrary;
use bytes::Bytes;
use leveltable::db::KeyKind;
use leveltable::{BytewiseComparator, Compression, ErrorKind, OpenOptions, WriteOptions};
use leveltable_fuzz::naive::{self, Entry, FOOTER_LEN, TRAILER_LEN};
use leveltable_fuzz::tables::{self, Entries, KeyOrder, Options};
use leveltable_fuzz::{naive::Handle, source};
use leveltable_repair::{SalvageOptions, VerifyOptions, salvage, verify};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    options: Options,
    damage: Vec<Damage>,
    entries: Entries,
    bytes: &'a [u8],
}

/// Positions count round and round the file.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Damage {
    Set(u16, u8),
    Fill(u16, u16, u8),
    /// As `Fill`, near the end of the file.
    FillFromEnd(u8, u8, u8),
    Truncate(u16),
    /// Writes bytes to another place.
    Copy(u16, u16, u16),
}

fuzz_target!(|input: Input| {
    salvage_any(input.bytes);
    let order = input.options.order;
    let entries = input.entries.in_order(order);
    let write = match input.options.compression {
        Compression::None | Compression::Snappy => input.options.write,
        _ => input.options.write.compression(Compression::Snappy),
    };
    // The order is named, so that keys that look like a database's are what they are.
    let open = match order {
        KeyOrder::Bytewise => OpenOptions::new().comparator(BytewiseComparator),
        other => OpenOptions::new().comparator(other),
    };
    let named = || match order {
        KeyOrder::Bytewise => {
            VerifyOptions::new().open_options(OpenOptions::new().comparator(BytewiseComparator))
        }
        other => VerifyOptions::new().open_options(OpenOptions::new().comparator(other)),
    };
    let sound = tables::build(&write, &entries);
    let mut file = sound.clone();
    for &damage in &input.damage {
        damage.apply(&mut file);
    }
    let report = verify(file.clone(), named()).unwrap();
    assert!(!report.to_string().is_empty());
    if file == sound {
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.entries, entries.len() as u64);
    }
    let index_is_whole = index_is_whole(&sound, &file);
    // Where a block stored in a value is taken for data, the index cannot be told either.
    let cannot_tell = || {
        !index_is_whole && (has_blocks_in_values(&sound) || index_is_behind_first(&sound, &file))
    };
    let Some(salvaged) = salvaged(&file, &write, &open, named()) else {
        // Blocks in values may be in another order, and a builder without properties refuses all then.
        assert!(cannot_tell(), "refused: {file:02x?}");
        return;
    };
    let mut invented = salvaged.clone();
    invented.retain(|entry| !entries.contains(entry));
    if !invented.is_empty() && cannot_tell() {
        return;
    }
    assert!(
        invented.is_empty(),
        "entries that were not in the table, {invented:?}, of {file:02x?}"
    );
    if index_is_whole {
        check_untouched(&sound, &file, &salvaged, report.is_sound());
    }
});

/// Any bytes at all: it ends, and what comes out is a table.
fn salvage_any(file: &[u8]) {
    let _ = verify(file.to_vec(), VerifyOptions::new()).unwrap();
    let mut rescued = Vec::new();
    let mut builder = WriteOptions::new().build(&mut rescued);
    if let Ok(report) = salvage(file.to_vec(), &mut builder, SalvageOptions::new()) {
        builder.finish().unwrap();
        assert!(report.entries == 0 || !rescued.is_empty());
        naive::table(&rescued, |a, b| a.cmp(b), usize::MAX).expect("a sound table");
    }
}

/// The entries that can be had back, from memory and through `ReadAt` alike. `None` if they seem to be in another
/// order.
fn salvaged(
    file: &[u8],
    write: &WriteOptions,
    open: &OpenOptions,
    named: VerifyOptions<'_>,
) -> Option<Vec<Entry>> {
    let file = Bytes::copy_from_slice(file);
    let [from_disk, from_memory] = [source::disk(&file), file.into()].map(|source| {
        let mut rescued = Vec::new();
        let mut builder = write.build(&mut rescued);
        match salvage(
            source,
            &mut builder,
            SalvageOptions::new().keys(KeyKind::Plain),
        ) {
            Ok(report) => {
                let summary = builder.finish().unwrap();
                assert_eq!(report.entries, summary.properties.entries);
                assert!(!report.to_string().is_empty());
                Some(rescued)
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Comparator, "{e}");
                None
            }
        }
    });
    assert_eq!(from_disk, from_memory);
    let rescued = from_disk?;
    assert!(verify(rescued.clone(), named).unwrap().is_sound());
    let table = open.open_source(rescued).unwrap();
    let owned = |entry: leveltable::Result<(Bytes, Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    Some(table.iter().map(owned).collect())
}

/// Where the block at `handle` and its trailer lie in a sound table.
fn frame_range(sound: &[u8], handle: Handle) -> Range<usize> {
    let block = handle.range(sound.len() - FOOTER_LEN).unwrap();
    block.start..block.end + TRAILER_LEN
}

/// Whether sound blocks are stored in values of the table. Where the block around them is damaged, and there is no
/// index, nothing tells them from blocks of the table.
fn has_blocks_in_values(sound: &[u8]) -> bool {
    let (_, index) = naive::footer(sound).unwrap();
    let data = naive::entries_at(sound, index).unwrap();
    data.iter().any(|(_, handle)| {
        let outer = Handle::decode(&mut &handle[..]).unwrap();
        !naive::blocks_within(sound, outer).is_empty()
    })
}

/// Whether the index stands right behind its first block, all between them cut out: a data block whose values are
/// handles would be the same bytes.
fn index_is_behind_first(sound: &[u8], file: &[u8]) -> bool {
    let (_, index) = naive::footer(sound).unwrap();
    let data = naive::entries_at(sound, index).unwrap();
    let frame = |handle| &sound[frame_range(sound, handle)];
    data.first().is_some_and(|(_, handle)| {
        let first = Handle::decode(&mut &handle[..]).unwrap();
        let both = [frame(first), frame(index)].concat();
        file.windows(both.len()).any(|bytes| bytes == both)
    })
}

/// Whether footer and index are where and as they were.
fn index_is_whole(sound: &[u8], file: &[u8]) -> bool {
    let (_, index) = naive::footer(sound).unwrap();
    let unchanged = |range: Range<usize>| sound[range.clone()] == file[range];
    file.len() == sound.len()
        && unchanged(frame_range(sound, index))
        && unchanged(sound.len() - FOOTER_LEN..sound.len())
}

/// Where footer and index are as they were, damage to a data block costs that block only, and is seen.
fn check_untouched(sound: &[u8], file: &[u8], salvaged: &[Entry], is_sound: bool) {
    let (_, index) = naive::footer(sound).unwrap();
    let is_whole = |handle: Handle| {
        let range = frame_range(sound, handle);
        sound[range.clone()] == file[range]
    };
    let mut lost = false;
    for (_, handle) in naive::entries_at(sound, index).unwrap() {
        let handle = Handle::decode(&mut &handle[..]).unwrap();
        match is_whole(handle) {
            true => {
                let mut entries = naive::entries_at(sound, handle).unwrap().into_iter();
                assert!(entries.all(|entry| salvaged.contains(&entry)));
            }
            false => lost = true,
        }
    }
    assert!(!(lost && is_sound), "damage that is not seen");
}

impl Damage {
    fn apply(self, file: &mut Vec<u8>) {
        let len = file.len();
        let place = |at: u16| usize::from(at) % len.max(1);
        match self {
            _ if len == 0 => {}
            Damage::Set(at, byte) => file[place(at)] = byte,
            Damage::Fill(at, n, byte) => {
                let end = len.min(place(at) + usize::from(n));
                file[place(at)..end].fill(byte);
            }
            Damage::FillFromEnd(at, n, byte) => {
                let start = len.saturating_sub(1 + usize::from(at));
                let end = len.min(start + usize::from(n));
                file[start..end].fill(byte);
            }
            Damage::Truncate(at) => file.truncate(place(at)),
            Damage::Copy(from, to, n) => {
                let len = usize::from(n).min(len - place(from)).min(len - place(to));
                file.copy_within(place(from)..place(from) + len, place(to));
            }
        }
    }
}
