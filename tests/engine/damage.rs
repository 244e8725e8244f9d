//! Every truncation and every flipped bit of small tables, opened with default options: an error or the
//! right answer, never a lost key, a wrong value, a false absence or a panic.
//!
//! `cargo test --release --test engine damage:: -- --ignored --nocapture` does the same to larger tables.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::{self, Entry, Layout};
use bytes::Bytes;
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, DbTable, ErrorKind,
    OpenOptions, Section, Source, Table, WriteOptions,
    db::{InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType, Version},
};

/// A sound table, and what it must answer.
struct Specimen {
    name: String,
    file: Vec<u8>,
    /// As they are stored, in the table's order.
    entries: Vec<Entry>,
    /// A database's table: the stored keys are internal keys.
    is_db: bool,
    /// What to look for: every stored key, and keys before, between and after them; with the index of
    /// the first entry at or after each, and whether that entry's key equals it.
    probes: Vec<(Vec<u8>, usize, bool)>,
}

impl Specimen {
    fn new(name: impl fmt::Display, options: &WriteOptions, entries: Vec<Entry>) -> Specimen {
        let file = common::build(options, &entries);
        let name = format!("{name}, {} bytes", file.len());
        let mut specimen = Specimen {
            name,
            file,
            entries,
            is_db: false,
            probes: Vec::new(),
        };
        let around = |key: &[u8]| {
            let mut before = key.to_vec();
            before.pop();
            [key.to_vec(), [key, b"\0"].concat(), before]
        };
        let keys = specimen.entries.iter().flat_map(|(key, _)| around(key));
        let probes: Vec<_> = keys.chain([b"\xff\xff".to_vec()]).collect();
        specimen.probe(probes, &BytewiseComparator);
        specimen
    }

    /// The table of a database with every entry's key at two sequence numbers, and some deletions.
    fn db(name: impl fmt::Display, options: &WriteOptions, entries: &[Entry]) -> Specimen {
        let mut file = Vec::new();
        let mut builder = options.build_db(&mut file);
        let mut stored = Vec::new();
        let mut probes = Vec::new();
        for (i, (user_key, value)) in entries.iter().enumerate() {
            let sequence = 100 + i as u64;
            let key = |sequence, value_type| {
                let mut key = Vec::new();
                InternalKey {
                    user_key,
                    sequence,
                    value_type,
                }
                .encode(&mut key);
                key
            };
            if i % 3 == 0 {
                builder.delete(user_key, sequence).unwrap();
                stored.push((key(sequence, ValueType::Deletion), vec![]));
            } else {
                builder.put(user_key, sequence, value).unwrap();
                stored.push((key(sequence, ValueType::Value), value.clone()));
            }
            builder.put(user_key, 7, b"old").unwrap();
            stored.push((key(7, ValueType::Value), b"old".to_vec()));
            probes.extend([MAX_SEQUENCE, sequence, 50, 7, 3].map(|at| key(at, ValueType::Value)));
        }
        builder.finish().unwrap();
        let mut specimen = Specimen {
            name: format!("{name}, {} bytes", file.len()),
            file,
            entries: stored,
            is_db: true,
            probes: Vec::new(),
        };
        probes.extend(specimen.entries.iter().map(|(key, _)| key.clone()));
        specimen.probe(probes, &InternalKeyComparator::new(BytewiseComparator));
        specimen
    }

    fn probe(&mut self, mut keys: Vec<Vec<u8>>, order: &dyn Comparator) {
        keys.sort_by(|a, b| order.compare(a, b));
        keys.dedup();
        let probe = |key: Vec<u8>| {
            let at = self
                .entries
                .partition_point(|(k, _)| order.compare(k, &key).is_lt());
            let is_here = self.entries.get(at).is_some_and(|(k, _)| *k == key);
            (key, at, is_here)
        };
        self.probes = keys.into_iter().map(probe).collect();
    }

    /// What is not read of a table in pieces, which have checksums of their own: the restarts of the index, the end of the filter, if
    /// that is divided, of which there is a copy, and the trailers of both.
    fn unread(&self) -> Vec<Range<usize>> {
        let layout = Layout::of(&self.file);
        let Some(pieces) = &layout.pieces else {
            return Vec::new();
        };
        let index = &layout.index;
        let restarts = 4 * common::entries(&common::payload(&self.file, index)).len() + 4;
        let of_index = index.end - 5 - restarts..index.end;
        let mut unread = Vec::from([of_index]);
        // The second byte is the number of filters that are divided.
        if common::payload(&self.file, pieces)[1] > 0 {
            let filter = layout.filter.expect("a filter that is divided");
            let block = common::payload(&self.file, &filter);
            let layers = usize::from(block[block.len() - 10]);
            let end = 4 * (layers - 1) + 19;
            unread.push(filter.end - 5 - end..filter.end);
        }
        unread
    }

    /// Opens `file`, a damaged copy, and asks it everything.
    fn examine(&self, source: Source) -> Outcome {
        let options = OpenOptions::new();
        if !self.is_db {
            return match options.open_source(source) {
                Ok(table) => self.examine_table(&table),
                Err(_) => Outcome::Refused,
            };
        }
        let plain = options.open_source(source.clone());
        assert!(plain.is_err(), "a database's table passes for a plain one");
        match options.open_db_source(source) {
            Ok(db) => self
                .examine_table(db.as_table())
                .max(self.examine_versions(&db)),
            Err(_) => Outcome::Refused,
        }
    }

    fn examine_table(&self, table: &Table) -> Outcome {
        let mut outcome = Outcome::Unharmed;
        let mut fails = || outcome = Outcome::Error;
        let mut cursor = table.cursor();
        for (key, at, is_here) in &self.probes {
            let shown = key.escape_ascii();
            let value = is_here.then(|| &self.entries[*at].1[..]);
            match table.may_contain(key) {
                Ok(may_be) => assert!(may_be || !is_here, "{shown} is filtered out"),
                Err(_) => fails(),
            }
            match table.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), value, "get of {shown}"),
                Err(_) => fails(),
            }
            match cursor.seek(key) {
                Ok(found) => {
                    let here = found.then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
                    assert_eq!(here.as_ref(), self.entries.get(*at), "seek to {shown}");
                }
                Err(_) => fails(),
            }
        }
        let entries = || self.entries.iter();
        if !walks_truly(table.iter(), entries())
            || !walks_truly(table.iter().rev(), entries().rev())
        {
            fails();
        }
        outcome
    }

    fn examine_versions(&self, db: &DbTable) -> Outcome {
        let mut outcome = Outcome::Unharmed;
        for (target, at, _) in &self.probes {
            let target = InternalKey::parse(target).unwrap();
            let visible = self.entries.get(*at).and_then(|(stored, value)| {
                let key = InternalKey::parse(stored).unwrap();
                (key.user_key == target.user_key).then(|| match key.value_type {
                    ValueType::Value => Version::Value(Bytes::copy_from_slice(value)),
                    _ => Version::Deleted,
                })
            });
            match db.at(target.sequence).get(target.user_key) {
                Ok(found) => assert_eq!(found, visible, "{target:?}"),
                Err(_) => outcome = Outcome::Error,
            }
        }
        outcome
    }
}

/// Asserts that a walk is right as far as it goes; returns whether it went all the way.
fn walks_truly<'a>(
    mut walk: impl Iterator<Item = leveltable::Result<(Bytes, Bytes)>>,
    mut expected: impl Iterator<Item = &'a Entry>,
) -> bool {
    loop {
        match (walk.next(), expected.next()) {
            (Some(Ok((key, value))), Some(entry)) => {
                assert_eq!((&key[..], &value[..]), (&entry.0[..], &entry.1[..]));
            }
            (Some(Err(_)), _) => {
                assert!(walk.next().is_none(), "a walk goes on after an error");
                return false;
            }
            (Some(Ok((key, _))), None) => panic!("invents {:?}", key.escape_ascii()),
            (None, Some((key, _))) => panic!("ends before {:?}", key.escape_ascii()),
            (None, None) => return true,
        }
    }
}

/// The effect of a piece of damage. Wrong answers are not listed: they fail the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Every answer was right.
    Unharmed,
    /// Some answer was an error, every other right.
    Error,
    /// The table did not open.
    Refused,
}

#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    errors: usize,
    unharmed: usize,
}

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Error => self.errors += 1,
            Outcome::Unharmed => self.unharmed += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            refused,
            errors,
            unharmed,
        } = self;
        let all = refused + errors + unharmed;
        write!(
            f,
            "{all:6} damaged copies: {refused:6} refused, {errors:6} with errors, {unharmed:4} with only right \
             answers, 0 wrong"
        )
    }
}

/// Examines `damaged` from memory and by way of reads; says what was done to it if that fails.
fn examine(specimen: &Specimen, damaged: &[u8], damage: impl fmt::Display) -> [Outcome; 2] {
    let file = Bytes::copy_from_slice(damaged);
    let sources = [Source::from(file.clone()), Source::from(Arc::new(file))];
    sources.map(|source| {
        let how = format!("{source:?}");
        catch_unwind(AssertUnwindSafe(|| specimen.examine(source)))
            .unwrap_or_else(|_| panic!("{}: {damage}, {how}", specimen.name))
    })
}

fn flip_every_bit(specimen: &Specimen) {
    let sound = examine(specimen, &specimen.file, "undamaged");
    assert_eq!(sound, [Outcome::Unharmed; 2], "{}", specimen.name);
    let mut tally = Tally::default();
    let mut damaged = specimen.file.clone();
    let unread = specimen.unread();
    // Only the zeros after the footer's handles do not matter.
    let footer = damaged.len() - 48..damaged.len() - 8;
    for bit in 0..8 * damaged.len() {
        damaged[bit / 8] ^= 1 << (bit % 8);
        let damage = format!("bit {} of byte {} flipped", bit % 8, bit / 8);
        let is_unread = unread.iter().any(|range| range.contains(&(bit / 8)));
        for outcome in examine(specimen, &damaged, &damage) {
            tally.count(outcome);
            let is_unharmed = outcome == Outcome::Unharmed;
            assert!(
                is_unread == is_unharmed || footer.contains(&(bit / 8)),
                "{}: {damage}: {outcome:?}",
                specimen.name
            );
        }
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    println!("{:50} bits   {tally}", specimen.name);
    assert!(tally.refused > 0 && tally.errors > 0);
    let unread: usize = unread.iter().map(|range| range.len()).sum();
    let most = 2 * 8 * (unread + footer.len());
    assert!(tally.unharmed <= most, "damage goes unnoticed");
}

fn cut_everywhere(specimen: &Specimen) {
    let mut tally = Tally::default();
    for len in 0..specimen.file.len() {
        for outcome in examine(
            specimen,
            &specimen.file[..len],
            format!("cut to {len} bytes"),
        ) {
            assert_eq!(outcome, Outcome::Refused, "{} cut to {len}", specimen.name);
            tally.count(outcome);
        }
    }
    println!("{:50} cuts   {tally}", specimen.name);
}

/// Compressible, but not to nothing: `entries` keys with shared prefixes.
fn some_entries(entries: usize) -> Vec<Entry> {
    let entry = |i: usize| {
        let key = format!("key/{:04}/{}", i * 7, i % 3);
        let value = format!("value {i} {}", "abcdefgh".repeat(i % 4));
        (key.into_bytes(), value.into_bytes())
    };
    (0..entries).map(entry).collect()
}

/// Tables of `entries` entries in blocks of `block_size`, under every filter.
fn specimens(compression: Compression, entries: usize, block_size: usize) -> Vec<Specimen> {
    let options = WriteOptions::new()
        .compression(compression)
        .block_size(block_size)
        .restart_interval(3);
    let bloom = || options.clone().filter_policy(BloomFilterPolicy::new(10));
    let filters = [
        ("no filter", options.clone().no_filter()),
        ("Bloom", bloom().whole_table_filter(false)),
        ("whole-table Bloom", bloom().whole_table_filter(true)),
        ("default filter", options.clone()),
    ];
    let plain = filters.iter().map(|(filter, options)| {
        let name = format!("{compression:?}, {filter}");
        Specimen::new(name, options, some_entries(entries))
    });
    let name = format!("{compression:?}, database's, default filter");
    let db = Specimen::db(name, &options, &some_entries(entries / 2));
    plain.chain([db]).collect()
}

/// Those whose blocks [`Layout`] understands.
const CODECS: [Compression; 2] = [Compression::None, Compression::Snappy];

/// Two entries of a few bytes: where a block's own numbers are small, a flipped bit goes farthest.
fn tiny() -> Specimen {
    let entries = vec![
        (b"a".to_vec(), b"1".to_vec()),
        (b"b".to_vec(), b"2".to_vec()),
    ];
    Specimen::new("tiny", &WriteOptions::new().block_size(1), entries)
}

#[test]
fn every_flipped_bit_is_an_error_or_harmless() {
    flip_every_bit(&tiny());
    let specimens = specimens(Compression::None, 8, 90);
    specimens.iter().for_each(flip_every_bit);
}

#[test]
fn every_flipped_bit_of_a_compressed_table_is_an_error_or_harmless() {
    let specimens = specimens(Compression::Snappy, 9, 110);
    specimens.iter().for_each(flip_every_bit);
}

#[test]
fn every_truncation_is_refused() {
    cut_everywhere(&tiny());
    for compression in CODECS {
        let specimens = specimens(compression, 24, 200);
        specimens.iter().for_each(cut_everywhere);
    }
}

#[test]
#[ignore = "takes minutes; for release builds"]
fn damage_to_larger_tables() {
    for compression in CODECS {
        for specimen in specimens(compression, 150, 700) {
            flip_every_bit(&specimen);
            cut_everywhere(&specimen);
        }
    }
}

/// Damage is reported where it is, and what it has not touched is still answered.
#[test]
fn errors_name_the_damaged_section_and_nothing_else_suffers() {
    let specimens = CODECS.map(|compression| specimens(compression, 10, 110));
    for specimen in specimens
        .iter()
        .flatten()
        .filter(|specimen| !specimen.is_db)
    {
        let layout = Layout::of(&specimen.file);
        assert!(layout.data.len() > 2, "{layout:?}");
        let unread = specimen.unread();
        let mut damaged = specimen.file.clone();
        for byte in 0..damaged.len() - 48 {
            let (section, start) = layout.section_at(byte);
            let bit = 1 << (byte % 8);
            damaged[byte] ^= bit;
            let file = Bytes::copy_from_slice(&damaged);
            let context = format!("{}, byte {byte} in {section}", specimen.name);

            let opened = OpenOptions::new().open_source(file.clone());
            if section == Section::Data {
                let table = opened.expect("opening reads no data block");
                let damaged_block = layout.data.iter().position(|range| range.contains(&byte));
                let mut in_damaged = 0;
                for (i, range) in layout.data.iter().enumerate() {
                    for (key, value) in common::entries(&common::payload(&specimen.file, range)) {
                        match table.get(&key) {
                            Ok(found) => assert_eq!(found.unwrap(), value, "{context}"),
                            Err(error) => {
                                assert_eq!(Some(i), damaged_block, "{context}: {error}");
                                assert_located(&error, section, start, byte, &context);
                                in_damaged += 1;
                            }
                        }
                    }
                }
                assert!(in_damaged > 0, "{context}");
            } else if unread.iter().any(|range| range.contains(&byte)) {
                common::assert_holds(&opened.expect(&context), &specimen.entries);
            } else {
                let error = opened.expect_err(&context);
                assert_located(&error, section, start, byte, &context);
                if section != Section::Index {
                    let table = OpenOptions::new().no_filter().open_source(file).unwrap();
                    common::assert_holds(&table, &specimen.entries);
                }
            }
            damaged[byte] ^= bit;
        }
    }
}

/// The error must name the section, and an offset between the start of the block and the damage.
fn assert_located(
    error: &leveltable::Error,
    section: Section,
    start: usize,
    damage: usize,
    context: &str,
) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{context}: {error}");
    let corruption = error.corruption().unwrap();
    assert_eq!(corruption.section, section, "{context}: {error}");
    let plausible = start as u64..=damage as u64;
    assert!(plausible.contains(&corruption.offset), "{context}: {error}");
    assert_ne!(corruption.expected, corruption.found, "{context}");
}

/// A damaged footer leads elsewhere, or nowhere: the report names what was not found, or says
/// that this is no table.
#[test]
fn a_damaged_footer_is_reported() {
    let specimen = &specimens(Compression::None, 14, 150)[1];
    let (footer, magic) = (specimen.file.len() - 48, specimen.file.len() - 8);
    let mut refused = 0;
    for bit in 8 * footer..8 * specimen.file.len() {
        let mut damaged = specimen.file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match OpenOptions::new().open_source(damaged) {
            Ok(table) => {
                assert!(
                    bit / 8 < magic,
                    "bit {bit}: the magic number is not checked"
                );
                common::assert_holds(&table, &specimen.entries);
                continue;
            }
            Err(error) if bit / 8 >= magic => {
                assert_eq!(error.kind(), ErrorKind::NotATable, "{error}");
            }
            Err(error) => {
                let section = error.corruption().map(|corruption| corruption.section);
                let sections = [Section::Footer, Section::Index, Section::Metaindex];
                assert!(section.is_some_and(|s| sections.contains(&s)), "{error}");
            }
        }
        refused += 1;
    }
    // Every bit of the magic number and the two handles counts, except that a handle's last number may claim to continue:
    // the padding's zeros do not change its value.
    let layout = Layout::of(&specimen.file);
    let handles = [layout.metaindex, layout.index].map(|range| common::handle_of(&range));
    let bits = 8 * (8 + handles.concat().len());
    assert!((bits - 2..=bits).contains(&refused), "{refused} of {bits}");
}
