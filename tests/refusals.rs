//! A refused call changes nothing: the finished table holds what was accepted, in the bytes that it would have had without the
//! refused calls.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use leveltable::filter::{FilterBuilder, FilterPolicy, PrefixExtractor};
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, ErrorKind, OpenOptions, RibbonFilterPolicy,
    Table, TableBuilder, WriteOptions,
};

const SEQUENCES: u64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };

/// Pseudorandom numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// A key of few different bytes, so that keys meet, repeat and share prefixes.
    fn key(&mut self) -> Vec<u8> {
        let len = self.below(7);
        let byte = |_| b"/abcz\xff"[self.below(6) as usize];
        (0..len).map(byte).collect()
    }
}

/// Up to the last slash, which breaks the rule: some of its prefixes begin with others.
#[derive(Debug)]
struct LastSlash;

impl PrefixExtractor for LastSlash {
    fn name(&self) -> &str {
        "test.LastSlash"
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        Some(key.iter().rposition(|&byte| byte == b'/')? + 1)
    }
}

/// Bytewise, but its separators before a key that ends in `z` are wrong.
#[derive(Debug)]
struct Careless;

impl Comparator for Careless {
    fn name(&self) -> &str {
        "test.Careless"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        if limit.ends_with(b"z") {
            start.splice(.., limit.iter().copied());
        } else {
            BytewiseComparator.find_shortest_separator(start, limit);
        }
    }
}

/// One of many combinations of options; blocks from one entry on.
fn options(random: &mut Random) -> WriteOptions {
    let mut options = WriteOptions::new()
        .block_size([1, 20, 60, 4096][random.below(4) as usize])
        .restart_interval([1, 2, 16][random.below(3) as usize])
        .block_align(random.below(3) == 0);
    options = match random.below(4) {
        0 => options.no_filter(),
        1 => options.filter_policy(BloomFilterPolicy::new(10)),
        2 => options.filter_policy(RibbonFilterPolicy::new(10)),
        _ => options.properties(false),
    };
    // A prefix filter is for bytewise order only.
    match random.below(3) {
        0 => options.comparator(Careless),
        1 => options,
        _ => options.prefix_filter(LastSlash),
    }
}

enum Call<'a> {
    Add(Vec<u8>, &'a [u8]),
    Property(u64, &'a [u8]),
    Flush,
}

impl Call<'_> {
    fn random<'a>(random: &mut Random, too_large: &'a [u8]) -> Call<'a> {
        let len = if random.below(8) == 0 {
            too_large.len()
        } else if random.below(20) == 0 {
            5000 // a block of its own, with more than a page
        } else {
            random.below(9) as usize
        };
        match random.below(12) {
            0 | 1 => Call::Flush,
            2 => Call::Property(random.below(3), &too_large[..len]),
            _ => Call::Add(random.key(), &too_large[..len]),
        }
    }

    fn make(&self, builder: &mut TableBuilder<Vec<u8>>) -> leveltable::Result<()> {
        match self {
            Call::Add(key, value) => builder.add(key, value),
            Call::Property(name, value) => builder.property(&name.to_string(), value),
            Call::Flush => builder.flush(),
        }
    }
}

/// Makes random calls, keys ascending for the most part, until some are accepted; returns those, and counts refusals by kind.
fn random_calls<'a>(
    random: &mut Random,
    builder: &mut TableBuilder<Vec<u8>>,
    too_large: &'a [u8],
    refused: &mut BTreeMap<String, u64>,
) -> Vec<Call<'a>> {
    let mut calls = (0..40 + random.below(60))
        .map(|_| Call::random(random, too_large))
        .collect::<Vec<_>>();
    // Sorts the keys, which leaves repetitions, and then moves some back.
    let mut keys = calls.iter_mut().filter_map(|call| match call {
        Call::Add(key, _) => Some(key),
        _ => None,
    });
    let mut keys = keys.by_ref().collect::<Vec<_>>();
    let mut sorted = keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>();
    sorted.sort();
    for _ in 0..random.below(6) {
        let [a, b] = [(); 2].map(|()| random.below(sorted.len() as u64) as usize);
        sorted.swap(a, b);
    }
    keys.iter_mut()
        .zip(sorted)
        .for_each(|(key, sorted)| **key = sorted);
    calls.retain(|call| {
        let before = (builder.entries(), builder.file_bytes());
        match call.make(builder) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!((builder.entries(), builder.file_bytes()), before, "{error}");
                *refused.entry(format!("{:?}", error.kind())).or_default() += 1;
                false
            }
        }
    });
    calls
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_table_holds_what_was_accepted_and_nothing_tells_of_what_was_refused() {
    // Never written to, so that it takes no memory.
    let too_large = vec![0; (1 << 32) + 1];
    let mut refused = BTreeMap::new();
    for seed in 0..SEQUENCES {
        let mut random = Random(seed);
        let options = options(&mut random);
        let mut builder = options.build(Vec::new());
        let accepted = random_calls(&mut random, &mut builder, &too_large, &mut refused);
        let (file, summary) = builder.finish_into_writer().unwrap();

        let mut alone = options.build(Vec::new());
        for call in &accepted {
            call.make(&mut alone).unwrap();
        }
        let alone = alone.finish_into_writer().unwrap();
        assert_eq!(summary, alone.1, "seed {seed}");
        assert!(file == alone.0, "seed {seed}: other bytes");

        let entries = accepted.iter().filter_map(|call| match call {
            Call::Add(key, value) => Some((key.as_slice(), *value)),
            _ => None,
        });
        let entries = entries.collect::<BTreeMap<_, _>>();
        assert_eq!(
            summary.properties.entries,
            entries.len() as u64,
            "seed {seed}"
        );
        let table = OpenOptions::new().prefix_extractor(LastSlash);
        let table = open(table, file.clone())
            .or_else(|_| open(OpenOptions::new().comparator(Careless), file))
            .unwrap();
        for (key, value) in &entries {
            let found = table.get(key).unwrap();
            assert_eq!(found.as_deref(), Some(*value), "seed {seed}: {key:?}");
        }
        let stored = table.iter().map(Result::unwrap).collect::<Vec<_>>();
        let stored = stored.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(stored.eq(entries), "seed {seed}");
    }
    println!("{SEQUENCES} sequences, refused: {refused:?}");
    for kind in ["OutOfOrder", "TooLarge", "Comparator", "InvalidState"] {
        assert!(refused[kind] >= SEQUENCES / 10, "{kind}: {refused:?}");
    }
}

fn open(options: OpenOptions, file: Vec<u8>) -> leveltable::Result<Table> {
    options.open_source(file)
}

/// A block has ended, so that the refused key would have ended its part of the index.
#[test]
fn a_key_that_breaks_the_prefix_rule_leaves_no_separator_behind() {
    let options = WriteOptions::new().prefix_filter(LastSlash);
    let mut builder = options.build(Vec::new());
    builder.add("a/b", "1").unwrap();
    builder.flush().unwrap();
    let refused = builder.add("a/z/c", "2").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState, "{refused}");
    builder.add("a/bb", "3").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_source(file).unwrap();
    assert_eq!(table.get(b"a/bb").unwrap().as_deref(), Some(&b"3"[..]));
}

/// A filter that allows nothing.
#[derive(Debug)]
struct Senseless;

impl FilterPolicy for Senseless {
    fn name(&self) -> &str {
        "test.Senseless"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        unreachable!("a policy that its check refuses is not asked")
    }

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        Err("senseless on purpose".into())
    }
}

/// A policy and an extractor can refuse themselves only: before the first entry, and for good.
#[test]
fn a_filter_that_refuses_itself_refuses_every_call_and_writes_nothing() {
    let mut file = Vec::new();
    let options = WriteOptions::new().filter_policy(Senseless);
    let mut builder = options.build(&mut file);
    for _ in 0..2 {
        let refusals = [builder.add("a", "1"), builder.flush()];
        for error in refusals.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::InvalidState);
            assert!(error.to_string().contains("senseless"), "{error}");
        }
    }
    assert_eq!(builder.entries(), 0);
    assert!(builder.finish().is_err());
    assert_eq!(file, []);
}
