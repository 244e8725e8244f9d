//! A plain model of repair: what a damaged directory of keys in bytewise order still holds.
//!
//! Written from the rules in the documentation of `leveltable_repair::repair`, over the naive decoder, with none of the crate's code. All is in
//! memory, and looked at as often as a rule asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::naive::{self, Entry, FOOTER_LEN, Handle, TRAILER_LEN, varint};

/// Names and bytes of files.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Keys and values.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// From a user key to another, both inclusive; open where `None`.
type Keys = (Option<Vec<u8>>, Option<Vec<u8>>);

fn is_within(key: &[u8], (from, to): &Keys) -> bool {
    from.as_deref().is_none_or(|from| from <= key) && to.as_deref().is_none_or(|to| key <= to)
}

fn user(key: &[u8]) -> &[u8] {
    &key[..key.len() - 8]
}

/// `sequence << 8 | type`.
fn tag(key: &[u8]) -> u64 {
    u64::from_le_bytes(*key.last_chunk().expect("an internal key"))
}

fn sequence(key: &[u8]) -> u64 {
    tag(key) >> 8
}

fn is_internal(key: &[u8]) -> bool {
    key.len() >= 8 && tag(key) & 0xff <= 1
}

/// Whether internal keys ascend: by user key, then from the newest to the oldest.
fn ascends(a: &[u8], b: &[u8]) -> bool {
    (user(a), std::cmp::Reverse(tag(a))) < (user(b), std::cmp::Reverse(tag(b)))
}

// ---- Logs and MANIFESTs

const BLOCK: usize = 32 << 10;

enum Item {
    Record(Vec<u8>),
    /// An end that a crash may leave.
    Cut,
    Damage,
}

/// Payload, kind and end of the sound fragment at an offset.
fn fragment(log: &[u8], at: usize) -> Option<(&[u8], u8, usize)> {
    let header: &[u8; 7] = log.get(at..)?.first_chunk()?;
    let end = at + 7 + usize::from(u16::from_le_bytes([header[4], header[5]]));
    let is_possible = (1..=4).contains(&header[6]) && end - at <= BLOCK - at % BLOCK;
    let covered = log.get(at + 6..end).filter(|_| is_possible)?;
    (naive::checksum(covered) == header[..4]).then(|| (&log[at + 7..end], header[6], end))
}

/// What follows a damaged fragment: behind its length, if that leads to a sound one or to the end of block or file, or else wherever a
/// sound one begins.
fn after_damage(log: &[u8], at: usize) -> Option<usize> {
    if let Some(header) = log.get(at..at + 7) {
        let end = at + 7 + usize::from(u16::from_le_bytes([header[4], header[5]]));
        let has_length = end > at + 7 && (1..=4).contains(&header[6]);
        if has_length && end - at <= BLOCK - at % BLOCK && end <= log.len() {
            let left = BLOCK - end % BLOCK;
            let next = if left < 7 { end + left } else { end };
            if next >= log.len() || fragment(log, next).is_some() {
                return (next < log.len()).then_some(next);
            }
        }
    }
    (at + 1..log.len()).find(|&at| fragment(log, at).is_some())
}

/// Whether a crash may have left the end of a log from here on: zeros, or a fragment that runs past the file's end.
fn is_like_a_crash(log: &[u8], start: usize, at: usize) -> bool {
    let left = BLOCK - at % BLOCK;
    let runs_past = match log.get(at..at + 7) {
        None => left >= 7,
        Some(header) => {
            let len = 7 + usize::from(u16::from_le_bytes([header[4], header[5]]));
            len <= left && at + len > log.len()
        }
    };
    runs_past || log[start..].iter().all(|&byte| byte == 0)
}

fn items(log: &[u8]) -> Vec<Item> {
    let (mut items, mut at) = (Vec::new(), 0);
    // Where a record in several fragments began, and what there is of it.
    let mut begun: Option<(usize, Vec<u8>)> = None;
    while at < log.len() {
        let left = BLOCK - at % BLOCK;
        let rest = &log[at..log.len().min(at + left)];
        if left < 7 && rest.iter().all(|&byte| byte == 0) {
            at += left;
            continue;
        }
        let Some((part, kind, end)) = fragment(log, at) else {
            let start = begun.take().map_or(at, |(start, _)| start);
            match after_damage(log, at) {
                Some(next) => at = next,
                None if is_like_a_crash(log, start, at) => {
                    items.push(Item::Cut);
                    return items;
                }
                None => at = log.len(),
            }
            items.push(Item::Damage);
            continue;
        };
        if matches!(kind, 1 | 2) {
            if begun.is_some() {
                items.push(Item::Damage);
            }
            begun = Some((at, part.to_vec()));
        } else if let Some((_, record)) = &mut begun {
            record.extend(part);
        } else {
            items.push(Item::Damage);
        }
        if matches!(kind, 1 | 4) {
            items.extend(begun.take().map(|(_, record)| Item::Record(record)));
        }
        at = end;
    }
    items.extend(begun.map(|_| Item::Cut));
    items
}

fn string(record: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(varint(record, 64)?).ok()?;
    let (string, rest) = record.split_at_checked(len)?;
    *record = rest;
    Some(string.to_vec())
}

/// A table that a MANIFEST lists: size, first key, last key.
type Listed = (u64, Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Manifest {
    number: u64,
    records: usize,
    is_damaged: bool,
    listed: BTreeMap<u64, Listed>,
    deleted: BTreeSet<u64>,
    log: Option<u64>,
    previous_log: Option<u64>,
    next_file: u64,
    last_sequence: u64,
}

impl Manifest {
    fn read(number: u64, file: &[u8]) -> Manifest {
        let mut manifest = Manifest {
            number,
            ..Manifest::default()
        };
        for item in items(file) {
            let is_sound = match item {
                Item::Record(record) => manifest.apply(&record).is_some(),
                Item::Cut | Item::Damage => false,
            };
            manifest.is_damaged |= !is_sound;
        }
        manifest
    }

    fn apply(&mut self, mut record: &[u8]) -> Option<()> {
        let (mut numbers, mut deleted, mut added) = ([None; 10], Vec::new(), Vec::new());
        while !record.is_empty() {
            match varint(&mut record, 64)? {
                1 => drop(string(&mut record)?),
                field @ (2 | 3 | 4 | 9) => {
                    numbers[field as usize] = Some(varint(&mut record, 64)?);
                }
                5 => {
                    varint(&mut record, 64).filter(|&level| level < 64)?;
                    string(&mut record)?;
                }
                6 => {
                    varint(&mut record, 64).filter(|&level| level < 64)?;
                    deleted.push(varint(&mut record, 64)?);
                }
                7 => {
                    varint(&mut record, 64).filter(|&level| level < 64)?;
                    let number = varint(&mut record, 64)?;
                    let size = varint(&mut record, 64)?;
                    let ends = (string(&mut record)?, string(&mut record)?);
                    if !is_internal(&ends.0) || !is_internal(&ends.1) {
                        return None;
                    }
                    added.push((number, (size, ends.0, ends.1)));
                }
                _ => return None,
            }
        }
        self.records += 1;
        for number in deleted {
            self.listed.remove(&number);
            self.deleted.insert(number);
        }
        for (number, table) in added {
            self.deleted.remove(&number);
            self.listed.insert(number, table);
        }
        self.log = self.log.max(numbers[2]);
        self.next_file = self.next_file.max(numbers[3].unwrap_or(0));
        self.last_sequence = self.last_sequence.max(numbers[4].unwrap_or(0));
        self.previous_log = numbers[9].or(self.previous_log);
        Some(())
    }
}

// ---- Tables

#[derive(Default)]
struct Table {
    bytes: u64,
    has_index: bool,
    rows: Vec<Entry>,
    versions: BTreeSet<Vec<u8>>,
    /// Where something is lost; open where only a MANIFEST can tell.
    holes: Vec<Keys>,
}

/// The entries of the sound block at a handle, if they are internal keys in order.
fn versions_at(file: &[u8], handle: Handle) -> Option<Vec<Entry>> {
    let entries = naive::entries_at(file, handle)?;
    let keys = || entries.iter().map(|(key, _)| &key[..]);
    (!entries.is_empty() && keys().all(is_internal) && keys().is_sorted_by(|a, b| ascends(a, b)))
        .then_some(entries)
}

/// The frame that begins at an offset, by its checksum.
fn frame_at(file: &[u8], offset: usize) -> Option<Handle> {
    let mut crc = 0;
    for codec in offset..file.len().saturating_sub(TRAILER_LEN - 1) {
        crc = crc32c::crc32c_append(crc, &file[codec..=codec]);
        let stored = &file[codec + 1..codec + TRAILER_LEN];
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        if file[codec] < 2 && stored == masked {
            let size = (codec - offset) as u64;
            let offset = offset as u64;
            return Some(Handle { offset, size });
        }
    }
    None
}

fn handles(index: &[Entry]) -> Option<Vec<(Vec<u8>, Handle)>> {
    let handle = |(key, value): &Entry| {
        let mut rest = &value[..];
        let handle = Handle::decode(&mut rest).filter(|_| rest.is_empty());
        Some((key.clone(), handle?))
    };
    index.iter().map(handle).collect()
}

impl Table {
    fn read(file: &[u8]) -> Table {
        let mut table = Table {
            bytes: file.len() as u64,
            ..Table::default()
        };
        let footer = naive::footer(file);
        // The decoder takes the last bytes for a footer, but where that was cut off, they may be a block.
        let file = &[file, &[0; FOOTER_LEN]].concat();
        let index = footer.and_then(|(_, index)| naive::entries_at(file, index));
        match index.and_then(|index| handles(&index)) {
            Some(index) => {
                table.has_index = true;
                table.read_listed(file, index);
            }
            None => table.read_found(file),
        }
        table.versions = table.rows.iter().map(|(key, _)| key.clone()).collect();
        table
    }

    /// The blocks that an index lists. A run of lost ones is one hole.
    fn read_listed(&mut self, file: &[u8], index: Vec<(Vec<u8>, Handle)>) {
        let (mut before, mut was_lost) = (None, false);
        for (last, handle) in index {
            match versions_at(file, handle) {
                Some(entries) => {
                    self.rows.extend(entries);
                    was_lost = false;
                }
                None => {
                    let to = Some(user(&last).to_vec());
                    match self.holes.last_mut().filter(|_| was_lost) {
                        Some(hole) => hole.1 = to,
                        None => self.holes.push((before.clone(), to)),
                    }
                    was_lost = true;
                }
            }
            before = Some(user(&last).to_vec());
        }
    }

    /// The blocks that are found by their checksums, as far as they ascend.
    fn read_found(&mut self, file: &[u8]) {
        // Blocks of any contents, and whether something that is no block lies before each.
        let (mut found, mut at, mut is_gap) = (Vec::new(), 0, false);
        while at < file.len() {
            match frame_at(file, at) {
                Some(handle) => {
                    at += handle.size as usize + TRAILER_LEN;
                    found.push((handle, is_gap));
                    is_gap = false;
                }
                None => (at, is_gap) = (at + 1, true),
            }
        }
        let offsets: BTreeSet<u64> = found.iter().map(|(handle, _)| handle.offset).collect();
        let has_other_data = |own: Handle| {
            let mut found = found.iter();
            found.any(|(other, _)| *other != own && versions_at(file, *other).is_some())
        };
        for (own, _) in &found {
            let index = naive::entries_at(file, *own).filter(|index| !index.is_empty());
            let index = index.and_then(|index| handles(&index));
            let leads_to_blocks = |index: &Vec<(Vec<u8>, Handle)>| {
                index.iter().all(|(key, _)| is_internal(key))
                    && index.iter().all(|(_, handle)| handle.offset < own.offset)
                    && (!has_other_data(*own) // all that it lists may be lost
                        || index.iter().any(|(_, handle)| offsets.contains(&handle.offset)))
            };
            if let Some(index) = index.filter(leads_to_blocks) {
                return self.read_listed(file, index);
            }
        }
        let mut last: Option<Vec<u8>> = None;
        for (handle, is_gap) in found {
            let Some(entries) = versions_at(file, handle) else {
                // A filter or the metaindex follows the data.
                if is_gap {
                    self.holes.push((last, None));
                }
                return;
            };
            let first = user(&entries[0].0).to_vec();
            if last.as_ref().is_some_and(|last| *last > first) {
                continue;
            }
            if is_gap {
                self.holes.push((last, Some(first)));
            }
            last = entries.last().map(|(key, _)| user(key).to_vec());
            self.rows.extend(entries);
        }
        self.holes.push((last, None));
    }

    /// The first user key, and the last.
    fn span(&self) -> Option<(&[u8], &[u8])> {
        Some((user(&self.rows.first()?.0), user(&self.rows.last()?.0)))
    }

    fn spans(&self, key: &[u8]) -> bool {
        self.span()
            .is_some_and(|(from, to)| from <= key && key <= to)
    }

    fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        self.span()
            .is_some_and(|span| span.0 <= to && from <= span.1)
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.spans(key) && !self.holes.iter().any(|hole| is_within(key, hole))
    }

    fn sequences(&self) -> Option<(u64, u64)> {
        let sequences = || self.rows.iter().map(|(key, _)| sequence(key));
        sequences().min().zip(sequences().max())
    }

    /// Whether this may be the table that a MANIFEST lists.
    fn is(&self, (size, first, last): &Listed) -> bool {
        let is_damaged = !self.holes.is_empty() || !self.has_index;
        let lies_within = |span: (&[u8], &[u8])| user(first) <= span.0 && span.1 <= user(last);
        self.span().is_none_or(lies_within) && (self.bytes == *size || is_damaged)
    }
}

// ---- The rules

/// A version: sequence number, what it counts for, and its value or none.
#[derive(Clone)]
struct Version {
    sequence: u64,
    /// Of equal sequence numbers, the higher one counts: of a listed table, then by number; a log's most.
    rank: (u8, u64),
    value: Option<Vec<u8>>,
    /// The number of its table.
    table: Option<u64>,
}

const SPARE: u8 = 0;
const UNLISTED: u8 = 1;
const LISTED: u8 = 2;
const LOG: u8 = 3;

#[derive(Default)]
struct Newest(BTreeMap<Vec<u8>, Version>);

impl Newest {
    fn add(&mut self, key: &[u8], version: Version) {
        let of = |version: &Version| (version.sequence, version.rank);
        let known = self.0.get(key);
        if known.is_none_or(|known| of(known) < of(&version)) {
            self.0.insert(key.to_vec(), version);
        }
    }

    fn add_row(&mut self, (key, value): &Entry, rank: (u8, u64)) {
        let value = (tag(key) & 1 == 1).then(|| value.clone());
        let (sequence, table) = (sequence(key), Some(rank.1));
        let version = Version {
            sequence,
            rank,
            value,
            table,
        };
        self.add(user(key), version);
    }
}

/// The changes of a record of a log.
type Changes = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>;

fn batch(record: &[u8]) -> Option<Changes> {
    let (first, rest) = record.split_first_chunk()?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let (first, count) = (u64::from_le_bytes(*first), u32::from_le_bytes(*count));
    first
        .checked_add(count.into())
        .filter(|&end| end < 1 << 56)?;
    let mut changes = Vec::new();
    while let Some((&kind, after)) = rest.split_first() {
        rest = after;
        let key = string(&mut rest)?;
        let value = match kind {
            0 => None,
            1 => Some(string(&mut rest)?),
            _ => return None,
        };
        changes.push((key, first + changes.len() as u64, value));
    }
    (changes.len() == count as usize).then_some(changes)
}

/// What logs hold.
#[derive(Default)]
struct Logged {
    changes: Changes,
    /// The sequence numbers of what is lost.
    lost: Vec<Range<u64>>,
    expected: Option<u64>,
}

impl Logged {
    /// `tables_end` is the highest sequence number in tables if a log before this is missing, or has no batch. Returns whether this has one.
    fn read(&mut self, log: &[u8], tables_end: Option<u64>) -> bool {
        let (mut is_damaged, mut has_batch) = (false, false);
        for item in items(log) {
            let changes = match item {
                Item::Record(record) => batch(&record),
                Item::Cut => continue,
                Item::Damage => None,
            };
            let Some(changes) = changes else {
                is_damaged = true;
                continue;
            };
            let Some(&(_, first, _)) = changes.first() else {
                continue;
            };
            has_batch = true;
            if self.expected.is_some_and(|expected| first < expected) {
                is_damaged = true;
                continue;
            }
            let start = match self.expected {
                Some(expected) => Some(expected),
                None if is_damaged => Some(0),
                None => tables_end.map(|end| end + 1),
            };
            self.lost.extend(
                start
                    .filter(|&start| start < first)
                    .map(|start| start..first),
            );
            is_damaged = false;
            self.expected = Some(first + changes.len() as u64);
            self.changes.extend(changes);
        }
        if is_damaged {
            self.lost.push(self.expected.unwrap_or(0)..1 << 56);
        }
        has_batch
    }
}

fn numbered<'a>(files: &'a Files, ends: &[&str]) -> BTreeMap<u64, &'a Vec<u8>> {
    let number = |name: &str| {
        ends.iter()
            .find_map(|end| name.strip_suffix(end)?.parse().ok())
    };
    let files = files.iter();
    files
        .filter_map(|(name, file)| Some((number(name)?, file)))
        .collect()
}

/// The MANIFEST that CURRENT names, or the newest one.
fn manifest(files: &Files) -> Option<Manifest> {
    let number = |name: &str| name.strip_prefix("MANIFEST-")?.parse().ok();
    let manifests = files
        .iter()
        .filter_map(|(name, file)| Some((name.clone(), Manifest::read(number(name)?, file))));
    let mut manifests: BTreeMap<String, Manifest> = manifests.collect();
    let current = files.get("CURRENT").map_or(&[][..], |current| current);
    let named = String::from_utf8_lossy(current).trim().to_owned();
    if let Some(named) = manifests.remove(&named) {
        return Some(named).filter(|own| own.records > 0);
    }
    let age = |own: &Manifest| (own.last_sequence, own.number);
    let mut all: Vec<Manifest> = manifests.into_values().collect();
    all.sort_by_key(age);
    let mut newest = all.pop()?;
    let is_newer = |own: &Manifest| own.records == 0 && own.number > newest.number;
    newest.is_damaged |= all.iter().any(is_newer);
    Some(newest).filter(|own| own.records > 0)
}

/// What repair makes of a directory.
pub fn recover(files: &Files) -> Contents {
    let tables = numbered(files, &[".ldb", ".sst"]);
    let tables: BTreeMap<u64, Table> = { tables.into_iter() }
        .map(|(number, file)| (number, Table::read(file)))
        .collect();
    let logs = numbered(files, &[".log"]);
    Case::new(manifest(files), tables, logs).recover()
}

struct Case<'a> {
    manifest: Option<Manifest>,
    tables: BTreeMap<u64, Table>,
    logs: BTreeMap<u64, &'a Vec<u8>>,
    /// The tables that are what the MANIFEST lists.
    listed: BTreeSet<u64>,
    missing: BTreeMap<u64, Listed>,
    /// Listed ones, and unlisted ones that may count.
    counting: BTreeSet<u64>,
    /// Whether nothing is wrong with the MANIFEST.
    is_settled: bool,
    /// Whether it is lost, damaged or old.
    is_doubtful: bool,
}

impl<'a> Case<'a> {
    fn new(
        manifest: Option<Manifest>,
        tables: BTreeMap<u64, Table>,
        logs: BTreeMap<u64, &'a Vec<u8>>,
    ) -> Case<'a> {
        let mut case = Case {
            counting: tables.keys().copied().collect(),
            manifest,
            tables,
            logs,
            listed: BTreeSet::new(),
            missing: BTreeMap::new(),
            is_settled: false,
            is_doubtful: true,
        };
        let Some(manifest) = &case.manifest else {
            return case;
        };
        for (number, listed) in &manifest.listed {
            if case
                .tables
                .get(number)
                .is_some_and(|table| table.is(listed))
            {
                case.listed.insert(*number);
            } else {
                case.missing.insert(*number, listed.clone());
            }
        }
        let is_newer = |number: &u64| *number >= manifest.next_file;
        let has_log = match manifest.log {
            Some(0) => !case.tables.keys().any(is_newer),
            Some(log) => case.logs.contains_key(&log),
            None => false,
        };
        let first = manifest.log.unwrap_or(0);
        let is_old = match first {
            0 => !has_log,
            _ => case.logs.keys().any(|&log| log > first) && !case.logs.contains_key(&first),
        };
        case.is_settled = !manifest.is_damaged && has_log;
        case.is_doubtful = manifest.is_damaged || !case.is_settled && is_old;
        let is_whole = case.is_settled && case.missing.is_empty();
        case.counting = { case.tables.keys().copied() }
            .filter(|number| {
                let is_free = !is_whole && !manifest.deleted.contains(number);
                case.listed.contains(number) || is_free
            })
            .collect();
        case
    }

    fn rank(&self, number: u64) -> (u8, u64) {
        let is_listed = self.listed.contains(&number);
        (if is_listed { LISTED } else { UNLISTED }, number)
    }

    /// Whether the versions of a table count for a key: under a sound MANIFEST, of unlisted tables where a listed one is missing.
    fn counts(&self, number: u64, key: &[u8]) -> bool {
        let mut missing = self.missing.values();
        let is_free = !self.is_settled
            || missing.any(|(_, first, last)| user(first) <= key && key <= user(last));
        self.listed.contains(&number) || self.counting.contains(&number) && is_free
    }

    fn recover(&self) -> Contents {
        let mut newest = Newest::default();
        for (&number, table) in &self.tables {
            for row in &table.rows {
                if self.counts(number, user(&row.0)) {
                    newest.add_row(row, self.rank(number));
                }
            }
        }
        let logged = self.read_logs();
        for (key, sequence, value) in &logged.changes {
            let (rank, table) = ((LOG, 0), None);
            let (sequence, value) = (*sequence, value.clone());
            let version = Version {
                sequence,
                rank,
                value,
                table,
            };
            newest.add(key, version);
        }
        let (lost, is_replaced) = self.lost();
        self.fill_in(&mut newest, &lost, &logged.lost);
        if self.is_doubtful || is_replaced {
            let dropped = |key: &[u8], version: &Version| self.was_dropped(key, version);
            newest.0.retain(|key, version| !dropped(key, version));
        }
        let live = newest.0.into_iter();
        live.filter_map(|(key, version)| Some((key, version.value?)))
            .collect()
    }

    /// The first log that counts, and one that counts in spite of its number.
    fn counts_log(&self, number: u64) -> bool {
        let Some(manifest) = &self.manifest else {
            return true;
        };
        number >= manifest.log.unwrap_or(0) || Some(number) == manifest.previous_log
    }

    fn read_logs(&self) -> Logged {
        let named = self.manifest.as_ref().and_then(|manifest| manifest.log);
        let missing = named.filter(|log| *log > 0 && !self.logs.contains_key(log));
        let sequences = |number: &u64| Some(self.tables[number].sequences()?.1);
        let tables_end = self
            .counting
            .iter()
            .filter_map(sequences)
            .max()
            .unwrap_or(0);
        let (mut logged, mut lacks_first) = (Logged::default(), false);
        for (&number, log) in &self.logs {
            if self.counts_log(number) {
                lacks_first |= missing.is_some_and(|missing| number > missing);
                lacks_first |= !logged.read(log, lacks_first.then_some(tables_end));
            }
        }
        logged
    }

    /// Ranges of listed tables in which something is lost or unproven, and whether a compaction replaced a missing table.
    fn lost(&self) -> (Vec<Keys>, bool) {
        let (mut lost, mut is_replaced) = (Vec::new(), false);
        for (number, (_, first, last)) in &self.missing {
            let own = sequence(first).max(sequence(last));
            let (from, to) = (user(first), user(last));
            let is_heir = |heir: &u64| {
                let table = &self.tables[heir];
                let is_old_enough = table.sequences().is_some_and(|(low, _)| low <= own);
                let is_newer = heir > number && !self.listed.contains(heir);
                is_newer && is_old_enough && table.overlaps(from, to)
            };
            let heirs: Vec<&Table> = { self.counting.iter() }
                .filter(|heir| is_heir(heir))
                .map(|heir| &self.tables[heir])
                .collect();
            let has_end =
                |heir: &&Table| heir.versions.contains(first) || heir.versions.contains(last);
            if !heirs.iter().any(has_end) {
                lost.push((Some(from.to_vec()), Some(to.to_vec())));
                continue;
            }
            is_replaced = true;
            let mut spans: Vec<_> = heirs.iter().filter_map(|heir| heir.span()).collect();
            spans.sort();
            let mut at = from;
            for (start, end) in spans.into_iter().chain([(to, to)]) {
                if at < start {
                    lost.push((Some(at.to_vec()), Some(start.to_vec())));
                }
                at = at.max(end);
            }
        }
        let of_listed = { self.manifest.iter() }
            .flat_map(|manifest| &manifest.listed)
            .filter(|(number, _)| self.listed.contains(number));
        for (number, (_, first, last)) in of_listed {
            for (from, to) in &self.tables[number].holes {
                let last = user(last).to_vec();
                if to.is_none() && from.as_ref() == Some(&last) {
                    continue;
                }
                let from = from.clone().unwrap_or_else(|| user(first).to_vec());
                let to = to.clone().filter(|to| *to < last).unwrap_or(last);
                lost.push((Some(from), Some(to)));
            }
        }
        (lost, is_replaced)
    }

    /// Fills in what is lost from tables and logs that do not count.
    fn fill_in(&self, newest: &mut Newest, lost: &[Keys], lost_sequences: &[Range<u64>]) {
        let is_lost = |key: &[u8]| lost.iter().any(|lost| is_within(key, lost));
        for (&number, table) in &self.tables {
            for row in &table.rows {
                let key = &row.0;
                let is_in_hole = lost_sequences
                    .iter()
                    .any(|lost| lost.contains(&sequence(key)));
                if !self.counts(number, user(key)) && (is_lost(user(key)) || is_in_hole) {
                    newest.add_row(row, (SPARE, number));
                }
            }
        }
        let old = self
            .logs
            .iter()
            .filter(|(number, _)| !self.counts_log(**number));
        for (_, log) in old {
            for item in items(log) {
                let Item::Record(record) = item else { continue };
                for (key, sequence, value) in batch(&record).into_iter().flatten() {
                    if is_lost(&key) {
                        let (rank, table) = ((SPARE, 0), None);
                        let version = Version {
                            sequence,
                            rank,
                            value,
                            table,
                        };
                        newest.add(&key, version);
                    }
                }
            }
        }
    }

    /// Whether a compaction dropped a key: its newest version stands in one table alone, and another one, which that compaction wrote,
    /// spans it.
    fn was_dropped(&self, key: &[u8], version: &Version) -> bool {
        let (Some(number), Some(_), true) = (version.table, &version.value, version.rank.0 > SPARE)
        else {
            return false;
        };
        let stored = [key, &(version.sequence << 8 | 1).to_le_bytes()].concat();
        let own = &self.tables[&number].versions;
        let others = self.counting.iter().filter(|&&other| other != number);
        let others: Vec<_> = others.map(|other| (*other, &self.tables[other])).collect();
        let is_alone = !others
            .iter()
            .any(|(_, other)| other.versions.contains(&stored));
        let is_heir = |(other, table): &(u64, &Table)| {
            *other > number && !table.versions.is_disjoint(own) && table.covers(key)
        };
        is_alone && others.iter().any(is_heir)
    }
}
