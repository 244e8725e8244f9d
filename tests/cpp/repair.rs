//! A database whose tables this crate wrote: LevelDB's `RepairDB` makes one of a directory of tables
//! and nothing else, and then gives every key back. Compacted, its tables are LevelDB's own, which this
//! crate reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leveltable::{DbTable, RibbonFilterPolicy, db::Version, filter::FilterPolicy};

use super::*;

/// A change of a user key, as a table of a database keeps it.
struct Change {
    user_key: Vec<u8>,
    sequence: u64,
    /// None: deleted.
    value: Option<Vec<u8>>,
}

/// Whose filter a table has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Filter {
    /// LevelDB's, as it writes it; none where the settings have no bits for one.
    Stock,
    /// LevelDB's, one for the whole table.
    StockWholeTable,
    /// This crate's, which LevelDB does not know.
    Ours,
}

struct Database {
    number: usize,
    settings: Settings,
    filter: Filter,
    /// In the order of their file numbers. Changes are in the table's order.
    tables: Vec<Vec<Change>>,
    /// The newest value of every user key there ever was.
    model: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Keys that there never were.
    strangers: Vec<Vec<u8>>,
}

/// How much happened to a database.
struct Extent {
    generations: usize,
    changes: usize, // at most, in one generation
    user_keys: usize,
}

impl Database {
    /// Each generation of changes becomes one table, as a memtable does that is written out, or several
    /// with a share of the user keys each, as after a compaction. A later file has the later changes of a
    /// key: LevelDB relies on it where tables overlap, and a repaired database has all tables in level 0.
    fn random(
        number: usize,
        settings: Settings,
        shape: &KeyShape,
        extent: &Extent,
        random: &mut Random,
    ) -> Database {
        let user_keys: Vec<Vec<u8>> = (0..extent.user_keys).map(|_| shape.key(random)).collect();
        let filter = match random.below(4) {
            0 => Filter::StockWholeTable,
            1 => Filter::Ours,
            _ => Filter::Stock,
        };
        let (mut tables, mut model, mut sequence) = (Vec::new(), BTreeMap::new(), 0);
        for _ in 0..extent.generations {
            let mut changes = Vec::new();
            for _ in 0..1 + random.below(extent.changes) {
                sequence += 1 + random.below(3) as u64;
                let user_key = user_keys[random.below(user_keys.len())].clone();
                let value = (!random.one_in(4)).then(|| random.value());
                model.insert(user_key.clone(), value.clone());
                changes.push(Change {
                    user_key,
                    sequence,
                    value,
                });
            }
            changes.sort_by(|a, b| {
                let by_key = settings.compare(&a.user_key, &b.user_key);
                by_key.then(b.sequence.cmp(&a.sequence))
            });
            let share = changes.len().div_ceil(1 + random.below(3));
            let mut side_by_side: Vec<Vec<Change>> = Vec::new();
            for change in changes {
                match side_by_side.last_mut() {
                    // All versions of a user key stay together.
                    Some(table)
                        if table.len() < share
                            || table.last().unwrap().user_key == change.user_key =>
                    {
                        table.push(change);
                    }
                    _ => side_by_side.push(vec![change]),
                }
            }
            tables.extend(side_by_side);
        }
        let mut strangers: Vec<Vec<u8>> = (0..50).map(|_| shape.key(random)).collect();
        strangers.retain(|key| !model.contains_key(key));
        Database {
            number,
            settings,
            filter,
            tables,
            model,
            strangers,
        }
    }

    fn file(&self, kind: &str) -> String {
        format!("{:03}.{kind}", self.number)
    }

    fn context(&self, peer: &Peer) -> String {
        let (number, place) = (self.number, peer.directory.display());
        format!(
            "database {number} in {place}, {:?}, {:?}",
            self.settings, self.filter
        )
    }

    /// Number of the first table's file.
    const FIRST: u64 = 5;

    /// Writes the tables, and has C++ make a database of them, read it, and rewrite it.
    fn ask_to_repair(&self, peer: &mut Peer) {
        let directory = peer.path(&self.file("db"));
        fs::create_dir(&directory).unwrap();
        for (number, changes) in (Database::FIRST..).zip(&self.tables) {
            let options = match self.filter {
                Filter::Stock => self.settings.write_options(),
                Filter::StockWholeTable => self.settings.write_options().whole_table_filter(true),
                Filter::Ours => self
                    .settings
                    .write_options()
                    .filter_policy(RibbonFilterPolicy::new(10.0)),
            };
            let options = options.block_align(number % 2 == 0);
            // The older name, too, which LevelDB wrote until 1.14 and still reads.
            let suffix = if number % 5 == 0 { "sst" } else { "ldb" };
            let path = directory.join(format!("{number:06}.{suffix}"));
            let mut builder = options.create_db(path).unwrap();
            for change in changes {
                match &change.value {
                    Some(value) => builder
                        .put(&change.user_key, change.sequence, value)
                        .unwrap(),
                    None => builder.delete(&change.user_key, change.sequence).unwrap(),
                }
            }
            builder.finish().unwrap();
        }

        let keys = encode(self.lookups().map(Vec::as_slice));
        peer.put(&self.file("keys"), &keys);
        let (number, settings) = (self.file(""), self.settings);
        let read = |when: &str| {
            format!(
                "read-db {number}db {number}{when}-forward {number}{when}-backward {number}keys \
                 {number}{when}-answers {settings}"
            )
        };
        peer.command(format!("repair {number}db {settings}"));
        peer.command(read("repaired"));
        peer.command(format!("compact-db {number}db {settings}"));
        peer.command(read("compacted"));
    }

    fn lookups(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.model.keys().chain(&self.strangers)
    }

    /// The value that a user of the database has to get.
    fn expected(&self, user_key: &[u8]) -> Option<&Vec<u8>> {
        self.model.get(user_key)?.as_ref()
    }

    /// Checks what LevelDB read by the model, and gives its filters' verdict on each key looked up.
    fn check_reading(&self, peer: &Peer, when: &str) -> Vec<(&Vec<u8>, Verdict)> {
        let context = format!("{}, {when}", self.context(peer));
        let present =
            |(key, value): (&'_ Vec<u8>, &'_ Option<Vec<u8>>)| Some((key.clone(), value.clone()?));
        let mut present: Vec<Entry> = self.model.iter().filter_map(present).collect();
        present.sort_by(|(a, _), (b, _)| self.settings.compare(a, b));
        let forward = encode_entries(&present);
        let take = |kind: &str| peer.take(&self.file(&format!("{when}-{kind}")));
        assert!(take("forward") == forward, "{context}: forward");
        let backward = encode_entries(present.iter().rev());
        assert!(take("backward") == backward, "{context}: backward");

        let answers = decode_answers(&take("answers"));
        assert_eq!(answers.len(), self.lookups().count(), "{context}: answers");
        let answers = self.lookups().zip(answers).map(|(key, answer)| {
            let value = answer.found.map(|(_, value)| value);
            let key_shown = key.escape_ascii();
            assert_eq!(value.as_ref(), self.expected(key), "{context}: {key_shown}");
            (key, answer.verdict)
        });
        answers.collect()
    }

    /// What LevelDB says of the repaired database, and after it has rewritten the tables. Gives the
    /// verdict of the last filter asked for each key that never was.
    fn check_repaired(&self, peer: &Peer) -> Vec<Verdict> {
        let context = self.context(peer);
        let lost = peer.path(&self.file("db")).join("lost");
        assert!(!lost.exists(), "{context}: tables put aside as damaged");

        let filter_in_use = self.settings.bits_per_key != 0 && self.filter != Filter::Ours;
        let mut absent = Vec::new();
        for (key, verdict) in self.check_reading(peer, "repaired") {
            let is_stored = self.model.contains_key(key); // if only as deleted
            let context = || format!("{context}: {}", key.escape_ascii());
            match (filter_in_use, is_stored) {
                (false, _) => assert_eq!(verdict, Verdict::NotAsked, "{}", context()),
                (true, true) => assert_eq!(verdict, Verdict::MayMatch, "{}", context()),
                (true, false) => absent.push(verdict),
            }
        }
        self.check_reading(peer, "compacted");
        absent
    }

    /// Reads, with this crate, the tables that LevelDB left. Gives whether it wrote all of them itself:
    /// a table that overlaps no other it may have moved as it was.
    fn check_compacted(&self, peer: &Peer) -> bool {
        let context = self.context(peer);
        let stock = BloomFilterPolicy::new(10);
        let last_of_ours = Database::FIRST + self.tables.len() as u64 - 1;
        let mut newest: BTreeMap<Vec<u8>, (u64, Version)> = BTreeMap::new();
        let (mut written, mut all_are_theirs) = (Vec::new(), true);
        for path in tables_of(&peer.path(&self.file("db"))) {
            let number: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            let is_theirs = number > last_of_ours;
            let table = self.open(&path);
            for entry in table.iter() {
                let entry = entry.unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(
                    !is_theirs || entry.version != Version::Deleted,
                    "{context}: below the tables compacted there is nothing to hide"
                );
                let user_key = entry.user_key.to_vec();
                let known = newest.entry(user_key).or_insert((0, Version::Deleted));
                if known.0 < entry.sequence {
                    *known = (entry.sequence, entry.version);
                }
            }
            all_are_theirs &= is_theirs;
            if is_theirs {
                let policy = table
                    .as_table()
                    .filter()
                    .map(|filter| filter.policy.clone());
                let expected = (self.settings.bits_per_key != 0).then(|| stock.name());
                assert_eq!(policy.as_deref(), expected, "{context}: {}", path.display());
                written.push(table);
            }
        }

        for key in self.lookups() {
            let context = || format!("{context}: {}", key.escape_ascii());
            let walked = newest.remove(key);
            let walked = walked.and_then(|(_, version)| version.into_value());
            let expected = self.expected(key).map(Vec::as_slice);
            assert_eq!(walked.as_deref(), expected, "{}", context());
            if all_are_theirs {
                let found = written.iter().filter_map(|table| table.get(key).unwrap());
                let found: Vec<Version> = found.collect();
                let expected = expected.map(|value| Version::Value(Bytes::copy_from_slice(value)));
                assert_eq!(found, Vec::from_iter(expected), "{}", context());
            }
        }
        assert!(newest.is_empty(), "{context}: keys that nobody wrote");
        all_are_theirs
    }

    fn open(&self, path: &Path) -> DbTable {
        let options = match self.settings.reverse {
            true => OpenOptions::new().comparator(ReverseBytewiseComparator),
            false => OpenOptions::new(),
        };
        let opened = options.open_db(path);
        opened.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

fn tables_of(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "ldb" || e == "sst"));
    paths.sort();
    paths
}

/// Repairs, reads and compacts all databases in one run of the peer, and checks what came of it.
fn check(test: &str, databases: &[Database]) {
    let mut peer = Peer::new(test);
    for database in databases {
        database.ask_to_repair(&mut peer);
    }
    peer.run();

    let mut absent = Vec::new();
    let mut rewritten = 0;
    for database in databases {
        absent.extend(database.check_repaired(&peer));
        rewritten += usize::from(database.check_compacted(&peer));
    }
    assert!(
        rewritten * 4 > databases.len() * 3,
        "{rewritten} of {} databases are LevelDB's own tables after a compaction",
        databases.len()
    );
    absent.retain(|verdict| *verdict != Verdict::NotAsked);
    let rejected = absent
        .iter()
        .filter(|verdict| **verdict == Verdict::Rejected)
        .count();
    assert!(
        absent.len() > databases.len() && rejected * 2 > absent.len(),
        "filters rejected {rejected} of {} absent keys",
        absent.len()
    );
}

#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn a_repaired_database_of_our_tables_gives_every_key_back() {
    let mut random = Random(7);
    let databases: Vec<Database> = (0..100)
        .map(|number| {
            let mut settings = Settings::random(&mut random);
            settings.internal_keys = false; // not to the database's user
            let extent = Extent {
                generations: 1 + random.below(4),
                changes: 1 + random.below(300),
                user_keys: 1 + random.below(300),
            };
            let shape = KeyShape::random(&mut random);
            Database::random(number, settings, &shape, &extent, &mut random)
        })
        .collect();
    check("repair", &databases);
}

/// Many data blocks and filter windows in each table, and more than LevelDB puts in one table when it
/// compacts.
#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn a_large_repaired_database_of_our_tables_gives_every_key_back() {
    let mut random = Random(8);
    let shapes = [(true, Filter::Stock), (false, Filter::Ours)];
    let databases: Vec<Database> = (0..)
        .zip(shapes)
        .map(|(number, (snappy, filter))| {
            let settings = Settings {
                internal_keys: false,
                reverse: false,
                snappy,
                block_size: 4096,
                restart_interval: 16,
                bits_per_key: 10,
                flush_every: 0,
            };
            let extent = Extent {
                generations: 6,
                changes: 30_000,
                user_keys: 50_000,
            };
            let shape = KeyShape {
                prefix: b"user:".to_vec(),
                alphabet: b"0123456789",
                longest: 24,
            };
            let mut database = Database::random(number, settings, &shape, &extent, &mut random);
            database.filter = filter;
            assert!(database.model.len() > 20_000, "{}", database.model.len());
            database
        })
        .collect();
    check("repair_large", &databases);
}
