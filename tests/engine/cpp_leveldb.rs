//! C++ LevelDB reads what this crate writes, and this crate what C++ LevelDB writes.
//!
//! Random options and random entries; `tests/cpp/peer.cc`, compiled on first use, is the other
//! party. It reads with paranoid checks and checksums verified, and looks keys up by the one route
//! that asks the filter. Needs a C++ compiler and `libleveldb-dev`, so plain `cargo test` leaves
//! these tests out; run them with `cargo test --test engine cpp_leveldb:: -- --ignored`.
//!
//! A failing case names its directory; the files in it stay there for a closer look.

#[path = "../cpp/repair.rs"]
mod repair;
#[path = "../../testdata/version-1/tables.rs"]
#[allow(dead_code, reason = "`features` builds the tables")]
mod version_1;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::root;
use bytes::Bytes;
use leveltable::{
    BloomFilterPolicy, Comparator, Compression, OpenOptions, Source, Table, WriteOptions,
    db::MAX_SEQUENCE,
    filter::{DelimitedPrefix, FilterBuilder, FilterPolicy, FixedPrefix},
};

// ---- The other party ------------------------------------------------------------------------

/// A directory of files for one test, and the commands that the peer is to run in it.
struct Peer {
    directory: PathBuf,
    script: String,
}

impl Peer {
    fn new(test: &str) -> Peer {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("cpp_leveldb")
            .join(test);
        if directory.exists() {
            fs::remove_dir_all(&directory).unwrap();
        }
        fs::create_dir_all(&directory).unwrap();
        Peer {
            directory,
            script: String::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn put(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
    }

    fn take(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    fn command(&mut self, line: String) {
        self.script += &line;
        self.script.push('\n');
    }

    /// Runs all commands in one process: starting one for each would take most of the time.
    fn run(&self) {
        self.put("script", self.script.as_bytes());
        let mut peer = Command::new(peer_program());
        let output = peer
            .arg("script")
            .current_dir(&self.directory)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        let place = self.directory.display();
        assert!(
            output.status.success(),
            "C++ in {place}, {}: {message}",
            output.status
        );
    }
}

fn peer_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = root().join("tests/cpp/peer.cc");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp_leveldb_peer");
        let mut compiler = Command::new("c++");
        compiler
            .args(["-O1", "-std=c++17"])
            .arg(source)
            .arg("-lleveldb")
            .arg("-o")
            .arg(&program);
        let status = compiler.status().expect("a C++ compiler named c++");
        assert!(
            status.success(),
            "peer.cc does not compile: is libleveldb-dev installed?"
        );
        program
    })
}

/// Strings in the peer's form: u32 LE length, bytes. Keys and values by turns make entries.
fn encode<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for string in strings {
        out.extend(u32::try_from(string.len()).unwrap().to_le_bytes());
        out.extend(string);
    }
    out
}

fn encode_entries<'a, K, V>(entries: impl IntoIterator<Item = &'a (K, V)>) -> Vec<u8>
where
    K: AsRef<[u8]> + 'a,
    V: AsRef<[u8]> + 'a,
{
    encode(
        entries
            .into_iter()
            .flat_map(|(key, value)| [key.as_ref(), value.as_ref()]),
    )
}

/// The outcome of LevelDB's lookup of a key.
#[derive(Debug, PartialEq)]
struct Answer {
    verdict: Verdict,
    /// The stored key and value.
    found: Option<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// There is no filter, or no block that could hold the key.
    NotAsked,
    MayMatch,
    Rejected,
}

fn decode_answers(bytes: &[u8]) -> Vec<Answer> {
    let mut rest = bytes;
    let mut answers = Vec::new();
    while let Some(([verdict, found], after)) = rest.split_first_chunk() {
        rest = after;
        let [key, value] = [(); 2].map(|()| {
            let (size, after) = rest.split_first_chunk().unwrap();
            let (string, after) = after.split_at(u32::from_le_bytes(*size) as usize);
            rest = after;
            string.to_vec()
        });
        answers.push(Answer {
            verdict: match verdict {
                b'-' => Verdict::NotAsked,
                b'y' => Verdict::MayMatch,
                b'n' => Verdict::Rejected,
                other => panic!("verdict {other}"),
            },
            found: (*found == b'1').then_some((key, value)),
        });
    }
    answers
}

// ---- Cases ----------------------------------------------------------------------------------

type Entry = (Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, Copy)]
struct Settings {
    internal_keys: bool,
    reverse: bool,
    snappy: bool,
    block_size: usize,
    restart_interval: usize,
    bits_per_key: u32,  // 0: no filter
    flush_every: usize, // 0: never
}

/// As the peer reads them.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {} {} {} {}",
            if self.internal_keys {
                "internal"
            } else {
                "user"
            },
            if self.reverse { "reverse" } else { "bytewise" },
            if self.snappy { "snappy" } else { "none" },
            self.block_size,
            self.restart_interval,
            self.bits_per_key,
            self.flush_every,
        )
    }
}

impl Settings {
    fn random(random: &mut Random) -> Settings {
        Settings {
            internal_keys: random.one_in(4),
            reverse: random.one_in(4),
            snappy: random.one_in(2),
            block_size: match random.below(4) {
                0 => 1 + random.below(64),
                1 => 1 + random.below(1024),
                2 => 4096,
                _ => 1 + random.below(100_000),
            },
            restart_interval: match random.below(4) {
                0 => 1,
                1 => 16,
                2 => 1000,
                _ => 1 + random.below(30),
            },
            bits_per_key: if random.one_in(4) {
                0
            } else {
                1 + random.below(30) as u32
            },
            flush_every: if random.one_in(4) {
                1 + random.below(20)
            } else {
                0
            },
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let user_order = |a: &[u8], b: &[u8]| if self.reverse { b.cmp(a) } else { a.cmp(b) };
        if self.internal_keys {
            let ((a, a_tag), (b, b_tag)) = (split_tag(a), split_tag(b));
            user_order(a, b).then(b_tag.cmp(&a_tag))
        } else {
            user_order(a, b)
        }
    }

    /// The options in this crate's words. With internal keys they are for a database's table, whose
    /// comparator and filter are those of user keys.
    fn write_options(&self) -> WriteOptions {
        let options = WriteOptions::leveldb()
            .block_size(self.block_size)
            .restart_interval(self.restart_interval)
            .compression(if self.snappy {
                Compression::Snappy
            } else {
                Compression::None
            });
        let options = if self.reverse {
            options.comparator(ReverseBytewiseComparator)
        } else {
            options
        };
        match self.bits_per_key {
            0 => options.no_filter(),
            bits => options.filter_policy(BloomFilterPolicy::new(bits)),
        }
    }

    /// Opens a table of these settings, to be read as it is stored.
    fn open(&self, source: impl Into<Source>) -> leveltable::Result<Table> {
        let options = if self.reverse {
            OpenOptions::new().comparator(ReverseBytewiseComparator)
        } else {
            OpenOptions::new()
        };
        if self.internal_keys {
            Ok(options.open_db_source(source)?.as_table().clone())
        } else {
            options.open_source(source)
        }
    }
}

struct Case {
    number: usize,
    settings: Settings,
    entries: Vec<Entry>,
    /// Keys to look up that are mostly not there; user keys, where the others are internal.
    strangers: Vec<Vec<u8>>,
}

impl Case {
    fn random(number: usize, settings: Settings, random: &mut Random) -> Case {
        let keys = KeyShape::random(random);
        let count = match random.below(8) {
            0 => random.below(3),
            1..5 => random.below(60),
            _ => random.below(600),
        };
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let key = keys.key(random);
            if !settings.internal_keys {
                entries.insert(key, random.value());
                continue;
            }
            for _ in 0..random.below(4) {
                let sequence = if random.one_in(9) {
                    MAX_SEQUENCE
                } else {
                    random.next() % 1000
                };
                let deletion = random.one_in(4);
                let tag = sequence << 8 | u64::from(!deletion);
                let value = if deletion { Vec::new() } else { random.value() };
                entries.insert([&key[..], &tag.to_le_bytes()].concat(), value);
            }
        }
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| settings.compare(a, b));
        let strangers = (0..20).map(|_| keys.key(random)).collect();
        Case {
            number,
            settings,
            entries,
            strangers,
        }
    }

    /// Keys to look up, as they are stored or, with internal keys, as a database asks for them:
    /// user key, the sequence number to see, and the greater type.
    fn lookups(&self) -> Vec<Vec<u8>> {
        let internal = self.settings.internal_keys;
        let stored = self.entries.iter().map(|(key, _)| {
            let mut key = key.clone();
            if internal {
                let type_at = key.len() - 8;
                key[type_at] = 1;
            }
            key
        });
        let strangers = self.strangers.iter().map(|user_key| {
            let newest = (MAX_SEQUENCE << 8 | 1).to_le_bytes();
            [&user_key[..], if internal { &newest } else { b"" }].concat()
        });
        stored.chain(strangers).collect()
    }

    /// The entry that a lookup has to find, by the plainest search there is.
    fn expected(&self, lookup: &[u8]) -> Option<&Entry> {
        let at_or_above = |entry: &&Entry| self.settings.compare(&entry.0, lookup).is_ge();
        let landing = self.entries.iter().find(at_or_above)?;
        let matches = if self.settings.internal_keys {
            split_tag(&landing.0).0 == split_tag(lookup).0
        } else {
            landing.0 == lookup
        };
        matches.then_some(landing)
    }

    /// Writes the entries with this crate.
    fn build(&self, options: &WriteOptions) -> Vec<u8> {
        let mut written = Vec::new();
        let flush_after = |i: usize| match self.settings.flush_every {
            0 => false,
            every => (i + 1).is_multiple_of(every),
        };
        if self.settings.internal_keys {
            let mut builder = options.build_db(&mut written);
            for (i, (key, value)) in self.entries.iter().enumerate() {
                let (user_key, tag) = split_tag(key);
                match tag & 0xff {
                    0 => builder.delete(user_key, tag >> 8).unwrap(),
                    _ => builder.put(user_key, tag >> 8, value).unwrap(),
                }
                if flush_after(i) {
                    builder.table_mut().flush().unwrap();
                }
            }
            builder.finish().unwrap();
        } else {
            let mut builder = options.build(&mut written);
            for (i, (key, value)) in self.entries.iter().enumerate() {
                builder.add(key, value).unwrap();
                if flush_after(i) {
                    builder.flush().unwrap();
                }
            }
            builder.finish().unwrap();
        }
        written
    }

    /// Name of one of the case's files.
    fn file(&self, kind: &str) -> String {
        format!("{:03}.{kind}", self.number)
    }

    /// The case, and where its files are, for a failure's message.
    fn context(&self, peer: &Peer) -> String {
        let (number, place) = (self.number, peer.directory.display());
        format!("case {number} in {place}, {:?}", self.settings)
    }

    /// Has C++ write the entries.
    fn ask_to_write(&self, peer: &mut Peer) {
        let (number, settings) = (self.file(""), self.settings);
        peer.put(&self.file("entries"), &encode_entries(&self.entries));
        peer.command(format!("write {number}entries {number}theirs {settings}"));
    }

    /// Has C++ read `table`, whole and key by key.
    fn ask_to_read(&self, peer: &mut Peer, table: &[u8]) {
        let (number, settings) = (self.file(""), self.settings);
        peer.put(&self.file("ours"), table);
        let lookups = self.lookups();
        peer.put(
            &self.file("keys"),
            &encode(lookups.iter().map(Vec::as_slice)),
        );
        peer.command(format!(
            "scan {number}ours {number}forward {number}backward {settings}"
        ));
        peer.command(format!(
            "lookup {number}ours {number}keys {number}answers {settings}"
        ));
    }

    /// Checks what C++ read, and gives the filter's verdict on each key that is not there.
    fn check_reading(&self, peer: &Peer, filter_in_use: bool) -> Vec<Verdict> {
        let context = self.context(peer);
        let forward = encode_entries(&self.entries);
        assert!(
            peer.take(&self.file("forward")) == forward,
            "{context}: forward"
        );
        let backward = encode_entries(self.entries.iter().rev());
        assert!(
            peer.take(&self.file("backward")) == backward,
            "{context}: backward"
        );

        let answers = decode_answers(&peer.take(&self.file("answers")));
        let lookups = self.lookups();
        assert_eq!(answers.len(), lookups.len(), "{context}: answers");
        let mut absent = Vec::new();
        for (key, answer) in lookups.iter().zip(answers) {
            let context = || format!("{context}: {}", key.escape_ascii());
            let expected = self.expected(key);
            assert_eq!(answer.found.as_ref(), expected, "{}", context());
            match (filter_in_use, expected) {
                (false, _) => assert_eq!(answer.verdict, Verdict::NotAsked, "{}", context()),
                // Found, and not for want of asking.
                (true, Some(_)) => assert_eq!(answer.verdict, Verdict::MayMatch, "{}", context()),
                (true, None) => absent.push(answer.verdict),
            }
        }
        absent
    }
}

fn split_tag(internal_key: &[u8]) -> (&[u8], u64) {
    let (user_key, tag) = internal_key.split_last_chunk().expect("8 bytes of tag");
    (user_key, u64::from_le_bytes(*tag))
}

/// Descending bytes, as in the peer.
#[derive(Debug, Clone, Copy)]
struct ReverseBytewiseComparator;

impl Comparator for ReverseBytewiseComparator {
    fn name(&self) -> &str {
        "leveltable.ReverseBytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

/// The form of one table's keys. A small alphabet makes keys that are prefixes of others,
/// and separators that cannot be shortened; the extreme bytes ask for carries.
struct KeyShape {
    prefix: Vec<u8>,
    alphabet: &'static [u8], // empty: any byte
    longest: usize,
}

impl KeyShape {
    fn random(random: &mut Random) -> KeyShape {
        let alphabets: [&[u8]; 4] = [b"", b"ab", b"\x00\x01\xfe\xff", b"0123456789"];
        let prefix_len = if random.one_in(2) {
            0
        } else {
            random.below(200)
        };
        KeyShape {
            prefix: random.bytes(prefix_len),
            alphabet: alphabets[random.below(4)],
            longest: 1 + random.below(24),
        }
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        let mut key = self.prefix.clone();
        let length = random.below(self.longest + 1);
        key.extend(
            random
                .bytes(length)
                .into_iter()
                .map(|byte| match self.alphabet {
                    [] => byte,
                    alphabet => alphabet[usize::from(byte) % alphabet.len()],
                }),
        );
        key
    }
}

/// SplitMix64: enough to vary the cases, and the same on every run and every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// Empty, random, or of one letter; now and then longer than most blocks.
    fn value(&mut self) -> Vec<u8> {
        let longest = if self.one_in(60) { 10_000 } else { 60 };
        let length = self.below(longest);
        match self.below(3) {
            0 => Vec::new(),
            1 => self.bytes(length),
            _ => vec![b'v'; length],
        }
    }
}

/// Random cases, of random settings that `adjust` has changed.
fn cases(seed: u64, count: usize, adjust: impl Fn(&mut Settings)) -> Vec<Case> {
    let mut random = Random(seed);
    let mut case = |number| {
        let mut settings = Settings::random(&mut random);
        adjust(&mut settings);
        Case::random(number, settings, &mut random)
    };
    (0..count).map(&mut case).collect()
}

// ---- Tests ----------------------------------------------------------------------------------

#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_what_we_write() {
    let cases = cases(1, 400, |_| ());
    let mut peer = Peer::new("reads");
    for case in &cases {
        case.ask_to_read(&mut peer, &case.build(&case.settings.write_options()));
    }
    peer.run();
    for case in &cases {
        case.check_reading(&peer, case.settings.bits_per_key != 0);
    }
}

/// The golden tables of version 1 that are stored as files, of the codecs that LevelDB 1.23 has.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_the_golden_tables_of_version_1() {
    let all = version_1::all();
    let codecs = ["none", "snappy"];
    let stored = all.iter().filter(|golden| codecs.contains(&golden.codec));
    let stored = stored.filter_map(|golden| Some((golden, golden.file()?)));
    let mut peer = Peer::new("version_1");
    let mut cases = Vec::new();
    for (number, (golden, path)) in stored.enumerate() {
        let settings = Settings {
            internal_keys: golden.database,
            reverse: false,
            snappy: golden.codec == "snappy",
            block_size: 4096,
            restart_interval: 16,
            bits_per_key: if golden.filter.starts_with("bloom") {
                10
            } else {
                0
            },
            flush_every: 0,
        };
        let (entries, strangers) = (golden.entries(), vec![b"000001/?".to_vec()]);
        let case = Case {
            number,
            settings,
            entries,
            strangers,
        };
        case.ask_to_read(&mut peer, &fs::read(path).unwrap());
        cases.push(case);
    }
    assert!(cases.len() > 20, "{}", cases.len());
    peer.run();
    for case in &cases {
        case.check_reading(&peer, case.settings.bits_per_key != 0);
    }
}

#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn without_compression_both_write_the_same_bytes() {
    let cases = cases(2, 400, |settings| settings.snappy = false);
    let mut peer = Peer::new("same_bytes");
    for case in &cases {
        case.ask_to_write(&mut peer);
    }
    peer.run();
    for case in &cases {
        let theirs = peer.take(&case.file("theirs"));
        let ours = case.build(&case.settings.write_options());
        if ours != theirs {
            peer.put(&case.file("ours"), &ours);
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            panic!("{}: differ at {at:?}", case.context(&peer));
        }
    }
}

#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn we_read_what_leveldb_writes() {
    let cases = cases(3, 400, |_| ());
    let mut peer = Peer::new("writes");
    for case in &cases {
        case.ask_to_write(&mut peer);
    }
    peer.run();
    for case in &cases {
        let context = case.context(&peer);
        let table = case.settings.open(peer.take(&case.file("theirs")));
        let table = table.unwrap_or_else(|e| panic!("{context}: {e}"));

        let read: Vec<(Bytes, Bytes)> = table.iter().map(Result::unwrap).collect();
        let forward = encode_entries(&case.entries);
        assert!(encode_entries(&read) == forward, "{context}: forward");
        let read: Vec<(Bytes, Bytes)> = table.iter().rev().map(Result::unwrap).collect();
        let backward = encode_entries(case.entries.iter().rev());
        assert!(encode_entries(&read) == backward, "{context}: backward");

        let present = case.entries.iter().map(|(key, _)| key);
        for key in present.chain(&case.lookups()) {
            let stored = case.entries.iter().find(|(stored, _)| stored == key);
            let expected = stored.map(|(_, value)| value.as_slice());
            let value = table.get(key).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(
                value.as_deref(),
                expected,
                "{context}: {}",
                key.escape_ascii()
            );
        }
    }
}

/// One filter for the whole table is a matter of one byte, the logarithm of the range of offsets
/// that a filter covers. LevelDB never writes another than 11, and honours what it reads.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_asks_a_filter_of_the_whole_table() {
    let cases = cases(4, 100, |settings| {
        settings.bits_per_key = settings.bits_per_key.max(10);
    });
    let mut peer = Peer::new("whole_table_filter");
    let mut beyond_one_window = 0;
    for case in &cases {
        let table = case.build(&case.settings.write_options().whole_table_filter(true));
        beyond_one_window += usize::from(table.len() > 4096);
        case.ask_to_read(&mut peer, &table);
    }
    peer.run();
    assert!(
        beyond_one_window > 20,
        "for the others the smallest filter covers the table anyway"
    );

    let mut absent = Vec::new();
    for case in &cases {
        absent.extend(case.check_reading(&peer, true));
    }
    absent.retain(|verdict| *verdict != Verdict::NotAsked);
    let passed = absent
        .iter()
        .filter(|verdict| **verdict == Verdict::MayMatch)
        .count();
    assert!(
        absent.len() > 500 && passed * 10 < absent.len(),
        "{passed} of {}",
        absent.len()
    );
}

/// A filter of a policy that LevelDB has never heard of: it must read on without, neither fail nor
/// take that filter for its own.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_passes_over_a_filter_it_does_not_know() {
    let cases = cases(5, 100, |settings| {
        settings.internal_keys = false;
        settings.bits_per_key = 10; // for the peer to look for and not to find
    });
    let mut peer = Peer::new("unknown_filter");
    for case in &cases {
        let options = case.settings.write_options().filter_policy(FirstBytes);
        case.ask_to_read(&mut peer, &case.build(&options));
    }
    peer.run();
    for case in &cases {
        case.check_reading(&peer, false);
    }
}

/// Whatever the crate's default filter is, LevelDB reads the table.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_tables_of_our_default_options() {
    let cases = cases(6, 100, |settings| {
        settings.internal_keys = false;
        settings.reverse = false;
        settings.bits_per_key = 10;
    });
    let mut peer = Peer::new("default_options");
    for case in &cases {
        case.ask_to_read(&mut peer, &case.build(&WriteOptions::new()));
    }
    peer.run();
    let leveldbs = BloomFilterPolicy::new(10);
    for case in &cases {
        let ours = case.settings.open(peer.take(&case.file("ours"))).unwrap();
        let filter_in_use = ours.filter().unwrap().policy == leveldbs.name();
        case.check_reading(&peer, filter_in_use);
    }
}

/// A properties block is one more entry of the metaindex. LevelDB reads the table, and asks the filter, as without it.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_tables_with_properties() {
    let cases = cases(7, 200, |_| ());
    let mut peer = Peer::new("properties");
    for case in &cases {
        let table = case.build(&case.settings.write_options().properties(true));
        assert!(table.windows(16).any(|name| name == b"about.leveltable"));
        case.ask_to_read(&mut peer, &table);
    }
    peer.run();
    for case in &cases {
        case.check_reading(&peer, case.settings.bits_per_key != 0);
    }
}

/// So is a filter of prefixes, with properties or without.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_tables_with_a_filter_of_prefixes() {
    let cases = cases(9, 300, |settings| settings.reverse = false);
    let mut peer = Peer::new("prefixes");
    for case in &cases {
        let options = case.settings.write_options();
        let options = options.properties(case.number % 3 == 0);
        let options = match case.number % 2 {
            0 => options.prefix_filter(FixedPrefix::new(2)),
            _ => options.prefix_filter(DelimitedPrefix::new(b'a')),
        };
        let table = case.build(&options);
        let opened = case.settings.open(table.clone()).unwrap();
        assert!(opened.prefix_filter().is_some());
        case.ask_to_read(&mut peer, &table);
    }
    peer.run();
    for case in &cases {
        case.check_reading(&peer, case.settings.bits_per_key != 0);
    }
}

/// Padding between the blocks is nothing to it, which it neither reads nor misses; and its filters, each for 2 KiB of file,
/// have the keys of the blocks where they are after the padding.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_aligned_tables() {
    let cases = cases(8, 400, |_| ());
    let mut peer = Peer::new("aligned");
    let mut padded = [0; 2];
    for case in &cases {
        let options = case.settings.write_options();
        let options = options.whole_table_filter(case.number % 4 == 3);
        let table = case.build(&options.block_align(true));
        let data = crate::common::Layout::of(&table).data;
        let has_padding = data.windows(2).any(|pair| pair[0].end < pair[1].start);
        padded[usize::from(case.settings.internal_keys)] += usize::from(has_padding);
        case.ask_to_read(&mut peer, &table);
    }
    assert!(padded[0] > 50 && padded[1] > 20, "{padded:?}");
    peer.run();
    for case in &cases {
        case.check_reading(&peer, case.settings.bits_per_key != 0);
    }
}

/// A set of first bytes, as 256 bits; the empty key is always let through. Taken for a Bloom filter
/// it would reject nearly everything.
#[derive(Debug)]
struct FirstBytes;

impl FilterPolicy for FirstBytes {
    fn name(&self) -> &str {
        "test.FirstBytes"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(FirstBytesBuilder([0; 32]))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let Some(&first) = key.first() else {
            return true;
        };
        let byte = filter.get(usize::from(first / 8)).copied().unwrap_or(0xff);
        byte >> (first % 8) & 1 == 1
    }
}

struct FirstBytesBuilder([u8; 32]);

impl FilterBuilder for FirstBytesBuilder {
    fn add_key(&mut self, key: &[u8]) {
        if let Some(&first) = key.first() {
            self.0[usize::from(first / 8)] |= 1 << (first % 8);
        }
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        dst.extend(std::mem::take(&mut self.0));
    }
}
