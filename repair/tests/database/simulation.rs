//! A LevelDB that writes small databases into memory: batches to a log, flushes to level 0, compactions to level 1, openings that begin a
//! new MANIFEST, crashes at any point. And the accidents that happen to directories.

use std::collections::{BTreeMap, BTreeSet};

use leveltable::WriteOptions;
use leveltable::db::{InternalKey, ValueType};
use leveltable_database::TableMetadata;

use crate::Contents;
use crate::encode::{Log, batch, listing, string, varint};

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A version: a user key, a sequence number and a value or none.
type Version = (Vec<u8>, u64, Option<Vec<u8>>);

#[derive(Default)]
pub(crate) struct Simulation {
    pub(crate) random: fastrand::Rng,
    pub(crate) files: Files,
    /// Files that were removed.
    pub(crate) removed: Files,
    pub(crate) truth: Contents,
    sequence: u64,
    next_file: u64,
    log: Log,
    log_number: u64,
    /// Where each of the log's records begins, and the keys that it changes.
    pub(crate) log_records: Vec<(usize, BTreeSet<Vec<u8>>)>,
    /// Where the last record of the log before it begins.
    last_of_previous: usize,
    memory: Vec<Version>,
    manifest: Log,
    manifest_number: u64,
    /// What the MANIFEST lists, by number.
    tables: BTreeMap<u64, (u8, TableMetadata, Vec<Version>)>,
}

fn name(number: u64, end: &str) -> String {
    format!("{number:06}.{end}")
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Simulation {
        let random = fastrand::Rng::with_seed(seed);
        let mut simulation = Simulation {
            random,
            next_file: 2,
            ..Simulation::default()
        };
        simulation.open();
        simulation
    }

    /// A database after some steps.
    pub(crate) fn started(seed: u64) -> Simulation {
        let mut simulation = Simulation::new(seed);
        let steps = simulation.random.usize(1..40);
        simulation.run(steps);
        simulation
    }

    /// Runs for some steps, and ends at any point, or cleanly.
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.u8(..24) {
                0..16 => self.write(),
                16..19 => self.flush(false),
                19..22 => self.compact(false),
                _ => self.open(),
            }
        }
        match self.random.u8(..5) {
            0 => {
                self.flush(true);
                // Meanwhile, changes go to the next log.
                (0..self.random.u8(..3)).for_each(|_| self.write());
            }
            1 | 2 => self.compact(true),
            _ => {}
        }
        self.save_log();
    }

    pub(crate) fn log_name(&self) -> String {
        name(self.log_number, "log")
    }

    pub(crate) fn manifest_name(&self) -> String {
        format!("MANIFEST-{:06}", self.manifest_number)
    }

    pub(crate) fn is_listed(&self, file: &str) -> bool {
        self.tables
            .keys()
            .any(|&number| name(number, "ldb") == file)
    }

    fn number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    fn remove(&mut self, file: &str) {
        if let Some(bytes) = self.files.remove(file) {
            self.removed.insert(file.to_owned(), bytes);
        }
    }

    fn save_log(&mut self) {
        self.files.insert(self.log_name(), self.log.0.clone());
    }

    fn write(&mut self) {
        for _ in 0..self.random.usize(1..12) {
            let mut changes = Vec::new();
            for _ in 0..self.random.usize(1..4) {
                let key = format!("key{:03}", self.random.u32(..60)).into_bytes();
                let value = (self.random.u8(..4) > 0).then(|| {
                    let len = self.random.usize(..40);
                    [format!("{} ", self.sequence).into_bytes(), vec![b'v'; len]].concat()
                });
                changes.push((key, value));
            }
            let lent: Vec<_> = { changes.iter() }
                .map(|(key, value)| (&key[..], value.as_deref()))
                .collect();
            let keys = changes.iter().map(|(key, _)| key.clone()).collect();
            self.log_records.push((self.log.0.len(), keys));
            self.log.add(&batch(self.sequence + 1, &lent));
            for (key, value) in changes {
                self.sequence += 1;
                match &value {
                    Some(value) => self.truth.insert(key.clone(), value.clone()),
                    None => self.truth.remove(&key),
                };
                self.memory.push((key, self.sequence, value));
            }
        }
    }

    /// Makes tables of versions in order.
    fn build(&mut self, versions: Vec<Version>, number: u64) -> (Vec<u8>, TableMetadata) {
        let options = WriteOptions::leveldb().block_size(self.random.usize(60..400));
        let options = if self.random.bool() {
            options
        } else {
            options.no_filter()
        };
        let mut builder = options.build_db(Vec::new());
        let mut ends = Vec::new();
        for (user_key, sequence, value) in &versions {
            let value_type = if value.is_some() {
                ValueType::Value
            } else {
                ValueType::Deletion
            };
            let key = InternalKey {
                user_key,
                sequence: *sequence,
                value_type,
            };
            builder
                .add(key, value.as_deref().unwrap_or_default())
                .unwrap();
            let mut stored = Vec::new();
            key.encode(&mut stored);
            ends.push(stored);
        }
        let (file, _) = builder.finish_into_writer().unwrap();
        let (smallest, largest) = (ends[0].clone(), ends[ends.len() - 1].clone());
        let size = file.len() as u64;
        (
            file,
            TableMetadata {
                number,
                size,
                smallest,
                largest,
            },
        )
    }

    fn edit(&self, log: Option<u64>) -> Vec<u8> {
        let mut edit = Vec::new();
        for (tag, number) in [
            (2, log),
            (9, log.map(|_| 0)),
            (3, Some(self.next_file)),
            (4, Some(self.sequence)),
        ] {
            if let Some(number) = number {
                edit.push(tag);
                varint(&mut edit, number);
            }
        }
        edit
    }

    fn record(&mut self, edit: &[u8]) {
        self.manifest.add(edit);
        self.files
            .insert(self.manifest_name(), self.manifest.0.clone());
    }

    /// Writes the memory to a table, of which the MANIFEST knows unless it crashes before.
    fn flush(&mut self, crashes: bool) {
        if self.memory.is_empty() {
            return;
        }
        self.save_log();
        let old_log = self.log_name();
        self.log_number = self.number();
        self.last_of_previous = self.log_records.last().map_or(0, |(start, _)| *start);
        (self.log, self.log_records) = (Log::default(), Vec::new());
        self.save_log();
        let mut versions = std::mem::take(&mut self.memory);
        versions.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
        let number = self.number();
        let (file, listed) = self.build(versions.clone(), number);
        if crashes {
            let len = self.random.usize(..=file.len());
            self.files.insert(name(number, "ldb"), file[..len].to_vec());
            return;
        }
        self.files.insert(name(number, "ldb"), file);
        let mut edit = self.edit(Some(self.log_number));
        edit.extend(listing(0, &listed));
        self.tables.insert(number, (0, listed, versions));
        self.record(&edit);
        self.remove(&old_log);
    }

    /// Merges level 0, or one table of it, with what it overlaps in level 1.
    fn compact(&mut self, crashes: bool) {
        let mut inputs: Vec<u64> = { self.tables.iter() }
            .filter(|(_, table)| table.0 == 0)
            .map(|(&number, _)| number)
            .collect();
        if inputs.is_empty() {
            return;
        }
        let inputs_of_0 = inputs.clone();
        let span = |tables: &[u64]| {
            let of = |number: &u64| &self.tables[number].1;
            let first = tables
                .iter()
                .map(|number| of(number).first_user_key().to_vec())
                .min();
            let last = tables
                .iter()
                .map(|number| of(number).last_user_key().to_vec())
                .max();
            (first.unwrap(), last.unwrap())
        };
        let (first, last) = span(&inputs_of_0);
        for (&number, (level, table, _)) in &self.tables {
            if *level == 1 && *table.first_user_key() <= *last && *first <= *table.last_user_key() {
                inputs.push(number);
            }
        }
        let mut versions: Vec<Version> = { inputs.iter() }
            .flat_map(|number| self.tables[number].2.clone())
            .collect();
        versions.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
        versions.dedup_by(|older, newer| older.0 == newer.0);
        versions.retain(|version| version.2.is_some());
        let mut edit = self.edit(None);
        for number in &inputs {
            let level = self.tables[number].0;
            edit.extend([6, level]);
            varint(&mut edit, *number);
        }
        let mut outputs = Vec::new();
        while !versions.is_empty() {
            let len = self.random.usize(1..30).min(versions.len());
            let rest = versions.split_off(len);
            let number = self.number();
            let (file, listed) = self.build(versions.clone(), number);
            if crashes && self.random.u8(..3) == 0 {
                let len = self.random.usize(..=file.len());
                self.files.insert(name(number, "ldb"), file[..len].to_vec());
                return;
            }
            self.files.insert(name(number, "ldb"), file);
            outputs.push((number, listed, versions));
            versions = rest;
        }
        if crashes {
            return;
        }
        // The next file number is that after the outputs.
        let numbers = self.edit(None);
        edit.splice(..numbers.len(), numbers);
        for number in &inputs {
            self.tables.remove(number);
        }
        for (number, listed, versions) in outputs {
            edit.extend(listing(1, &listed));
            self.tables.insert(number, (1, listed, versions));
        }
        self.record(&edit);
        for number in inputs {
            self.remove(&name(number, "ldb"));
        }
    }

    /// Opens the database: logs become tables, and a MANIFEST begins.
    fn open(&mut self) {
        if self.log_number > 0 {
            self.flush(false);
        }
        let (old_log, old_manifest) = (self.log_name(), self.manifest_name());
        self.manifest_number = self.number();
        self.log_number = self.number();
        self.manifest = Log::default();
        let mut snapshot = vec![1];
        string(&mut snapshot, b"leveldb.BytewiseComparator");
        for (level, table, _) in self.tables.values() {
            snapshot.extend(listing(*level, table));
        }
        self.record(&snapshot);
        let edit = self.edit(Some(self.log_number));
        self.record(&edit);
        self.files.insert(
            "CURRENT".to_owned(),
            format!("{}\n", self.manifest_name()).into_bytes(),
        );
        (self.log, self.log_records) = (Log::default(), Vec::new());
        self.save_log();
        self.remove(&old_log);
        self.remove(&old_manifest);
        // Whatever no MANIFEST lists goes, too.
        let orphans: Vec<String> = self
            .files
            .keys()
            .filter(|file| file.ends_with(".ldb") && !self.is_listed(file))
            .cloned()
            .collect();
        orphans.iter().for_each(|file| self.remove(file));
    }

    /// Damages the directory. Returns what happened, and adds the keys about which nobody can tell.
    pub(crate) fn accident(&mut self, unknowable: &mut BTreeSet<Vec<u8>>) -> String {
        let kinds = [".ldb", ".log", "MANIFEST", "CURRENT"];
        let kind = kinds[self.random.usize(..kinds.len())];
        let of = |files: &Files| -> Vec<String> {
            files
                .keys()
                .filter(|file| file.contains(kind))
                .cloned()
                .collect()
        };
        let removed = of(&self.removed);
        if self.random.u8(..3) == 0 && !removed.is_empty() {
            let file = self.random.choice(removed).unwrap();
            self.files.insert(file.clone(), self.removed[&file].clone());
            return format!("{file} is back");
        }
        let present = of(&self.files);
        let Some(file) = self.random.choice(present) else {
            return "nothing".to_owned();
        };
        let len = self.files[&file].len();
        let is_log = file == self.log_name();
        let what = self.random.u8(..5);
        if kind == "CURRENT" && what > 2 {
            let texts = [
                "MANIFEST-999999\n",
                "<<<<<<< HEAD\nMANIFEST-000003\n=======\n",
                "\0\0\0\0",
                "",
            ];
            let text = self.random.choice(texts).unwrap();
            self.files.insert(file, text.as_bytes().to_vec());
            return format!("CURRENT is {text:?}");
        }
        if what == 0 || len == 0 {
            self.files.remove(&file);
            if is_log
                && self
                    .files
                    .keys()
                    .any(|other| other.ends_with(".log") && *other < file)
            {
                // It looks as if the log had not been begun when the writer crashed.
                self.log_records
                    .iter()
                    .for_each(|(_, keys)| unknowable.extend(keys.clone()));
            }
            return format!("{file} is lost");
        }
        let at = self.random.usize(..len);
        let bytes = self.files.get_mut(&file).unwrap();
        match what {
            1 => {
                bytes.truncate(at);
                if is_log {
                    let cut = self.log_records.iter().rev();
                    let end = |i: usize| self.log_records.get(i + 1).map_or(len, |next| next.0);
                    let cut = cut
                        .enumerate()
                        .filter(|(i, _)| end(self.log_records.len() - 1 - i) > at);
                    cut.for_each(|(_, (_, keys))| unknowable.extend(keys.clone()));
                } else if file.ends_with(".log") {
                    // A hole shows only if a later log has batches.
                    if self.log_records.is_empty() {
                        unknowable.insert(Vec::new());
                    }
                }
                format!("{file} is cut from {len} to {at}")
            }
            2 => {
                let end = len.min(at + self.random.usize(1..200));
                bytes[at..end].fill(0);
                if file.ends_with(".log") && !is_log && end == len && self.log_records.is_empty() {
                    unknowable.insert(Vec::new());
                }
                if is_log && end == len {
                    self.log_records.iter().for_each(|(start, keys)| {
                        if *start + 300 > at {
                            unknowable.extend(keys.clone());
                        }
                    });
                }
                format!("{file} is zero from {at} to {end}")
            }
            _ => {
                bytes[at] ^= 1 << self.random.u8(..8);
                let start = self.last_of_previous;
                let is_length = (start + 4..start + 6).contains(&at);
                if file.ends_with(".log") && !is_log && is_length && self.log_records.is_empty() {
                    unknowable.insert(Vec::new());
                }
                if is_log
                    && let Some((start, keys)) =
                        self.log_records.iter().rfind(|(start, _)| *start <= at)
                    && (4..6).contains(&(at - start))
                {
                    // A longer record, which runs past the file's end, looks like one that a crash cut.
                    unknowable.extend(keys.clone());
                    self.log_records
                        .iter()
                        .filter(|(later, _)| later > start)
                        .for_each(|(_, keys)| unknowable.extend(keys.clone()));
                }
                format!("{file} is flipped at {at} of {len}")
            }
        }
    }
}
