//! Sound tables but for `about.pieces`, which may say anything, its checksum right: nothing panics, and what is found is in the
//! table. If it only cuts index and filters elsewhere, as a writer may, every answer is that of the entries.

#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use leveltable::{Compression, OpenOptions, RibbonFilterPolicy, Table, WriteOptions};
use leveltable_fuzz::naive::Entry;
use leveltable_fuzz::pieces::{Lie, lying};
use leveltable_fuzz::source;
use leveltable_fuzz::tables::{self, Entries};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    entries: Entries,
    /// More keys, for a filter in several pieces and layers.
    more: u16,
    block_size: u8,
    bits: u8,
    prefixes: u8,
    compressed: bool,
    lie: Lie,
    absent: [Vec<u8>; 3],
}

impl Input {
    fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries.0.clone();
        if self.more >= 0xf000 {
            let more = (0..self.more - 0xf000).map(|i| (i.to_be_bytes().to_vec(), vec![]));
            entries.extend(more);
        }
        entries.sort();
        entries.dedup_by(|a, b| a.0 == b.0);
        entries
    }

    fn options(&self) -> WriteOptions {
        let bits = u32::from(self.bits % 29) + 5;
        let options = WriteOptions::new()
            .block_size(usize::from(self.block_size) * 8 + 1)
            .filter_policy(RibbonFilterPolicy::new(bits))
            .compression(match self.compressed {
                true => Compression::Snappy,
                false => Compression::None,
            });
        match self.prefixes {
            len @ 0..4 => {
                let len = usize::from(len) + 1;
                options.prefix_filter(leveltable::filter::FixedPrefix::new(len))
            }
            _ => options,
        }
    }
}

fuzz_target!(|input: Input| {
    let entries = input.entries();
    let file = tables::build(&input.options(), &entries);
    let Some(file) = lying(&file, &input.lie) else {
        assert!(entries.is_empty(), "every table with entries has pieces");
        return;
    };
    let file = Bytes::from(file);
    let options = OpenOptions::new().no_cache();
    for source in [source::disk(&file), file.clone().into()] {
        match options.open_source(source) {
            Ok(table) if input.lie.is_true() => check(&table, &entries, &input.absent),
            Ok(table) => check_found(&table, &entries, &input.absent),
            Err(_) => {}
        }
    }
});

fn probes(entries: &[Entry], absent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let step = entries.len() / 40 + 1;
    let keys = entries.iter().step_by(step).map(|(key, _)| key.clone());
    let keys = keys.chain(entries.last().map(|(key, _)| key.clone()));
    let around = |key: Vec<u8>| {
        let mut before = key.clone();
        before.pop();
        let after = [&key[..], b"\0"].concat();
        [key, before, after]
    };
    keys.flat_map(around).chain(absent.to_vec()).collect()
}

fn owned((key, value): (Bytes, Bytes)) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// Asks everything: an error, or something that `entries` have.
fn check_found(table: &Table, entries: &[Entry], absent: &[Vec<u8>]) {
    let probes = probes(entries, absent);
    let assert_has = |found: &Entry| assert!(entries.binary_search(found).is_ok(), "{found:02x?}");
    let many = table.get_many(&probes).unwrap_or_default();
    for (key, value) in probes.iter().zip(many) {
        if let Some(value) = value {
            assert_has(&owned((key.clone().into(), value)));
        }
    }
    for key in &probes {
        if let Ok(Some(value)) = table.get(key) {
            assert_has(&owned((key.clone().into(), value)));
        }
        let mut cursor = table.cursor();
        if let Ok(true) = cursor.seek(key) {
            assert_has(&(cursor.key().to_vec(), cursor.value().to_vec()));
        }
        let mut prefix = table.prefix(key.get(..1).unwrap_or(&[]));
        prefix
            .next()
            .and_then(Result::ok)
            .map(owned)
            .iter()
            .for_each(assert_has);
    }
    table
        .iter()
        .map_while(Result::ok)
        .map(owned)
        .for_each(|found| assert_has(&found));
    table
        .iter()
        .rev()
        .map_while(Result::ok)
        .map(owned)
        .for_each(|found| assert_has(&found));
}

/// Asks everything: an error, or what `entries` say.
fn check(table: &Table, entries: &[Entry], absent: &[Vec<u8>]) {
    let probes = probes(entries, absent);
    for key in &probes {
        let at = entries.partition_point(|(other, _)| other < key);
        let here = entries.get(at);
        let expected = here.filter(|(other, _)| other == key);
        if let Ok(found) = table.get(key) {
            assert_eq!(
                found.as_deref(),
                expected.map(|(_, value)| &value[..]),
                "{key:02x?}"
            );
        }
        let mut cursor = table.cursor();
        if let Ok(on) = cursor.seek(key) {
            let found = on.then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
            assert_eq!(found.as_ref(), here, "{key:02x?}");
        }
        let first = key.get(..1).unwrap_or(&[]);
        let expected = entries.iter().filter(|(key, _)| key.starts_with(first));
        for (found, expected) in table
            .prefix(first)
            .zip(expected.map(Some).chain([None]))
            .take(3)
        {
            let Ok(found) = found else { break };
            assert_eq!(Some(&owned(found)), expected);
        }
    }
    for (key, found) in probes
        .iter()
        .zip(table.get_many(&probes).into_iter().flatten())
    {
        let at = entries.binary_search_by(|(other, _)| other.cmp(key));
        let expected = at.ok().map(|at| &entries[at].1[..]);
        assert_eq!(found.as_deref(), expected, "{key:02x?}");
    }
    let walk = |walk: &mut dyn Iterator<Item = leveltable::Result<(Bytes, Bytes)>>,
                expected: &mut dyn Iterator<Item = &Entry>| {
        for found in walk {
            let Ok(found) = found else { return };
            assert_eq!(Some(&owned(found)), expected.next());
        }
        assert_eq!(expected.next(), None);
    };
    walk(&mut table.iter(), &mut entries.iter());
    walk(&mut table.iter().rev(), &mut entries.iter().rev());
}
