//! A second encoder of logs and MANIFESTs.

use std::fs;
use std::path::Path;

use leveltable_database::TableMetadata;

pub(crate) const BLOCK: usize = 32 * 1024;

/// Writes records as LevelDB's log format has them.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<u8>);

impl Log {
    pub(crate) fn add(&mut self, record: &[u8]) {
        let mut rest = record;
        let mut is_first = true;
        loop {
            let left = BLOCK - self.0.len() % BLOCK;
            if left < 7 {
                self.0.resize(self.0.len() + left, 0);
                continue;
            }
            let (part, after) = rest.split_at(rest.len().min(left - 7));
            let kind = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            self.fragment(kind, part);
            (rest, is_first) = (after, false);
            if rest.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn fragment(&mut self, kind: u8, part: &[u8]) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind]), part);
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        self.0.extend(masked.to_le_bytes());
        self.0
            .extend(u16::try_from(part.len()).unwrap().to_le_bytes());
        self.0.push(kind);
        self.0.extend(part);
    }
}

pub(crate) fn varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

pub(crate) fn string(dst: &mut Vec<u8>, bytes: &[u8]) {
    varint(dst, bytes.len() as u64);
    dst.extend(bytes);
}

pub(crate) fn batch(sequence: u64, changes: &[(&[u8], Option<&[u8]>)]) -> Vec<u8> {
    let mut record = sequence.to_le_bytes().to_vec();
    record.extend(u32::try_from(changes.len()).unwrap().to_le_bytes());
    for (key, value) in changes {
        record.push(value.is_some().into());
        string(&mut record, key);
        if let Some(value) = value {
            string(&mut record, value);
        }
    }
    record
}

pub(crate) fn internal(key: &[u8], sequence: u64) -> Vec<u8> {
    [key, &(sequence << 8 | 1).to_le_bytes()].concat()
}

/// A version edit of numbers, and of tables of level 1.
pub(crate) fn edit(log: u64, tables: &[&TableMetadata]) -> Vec<u8> {
    let mut record = vec![1];
    string(&mut record, b"leveldb.BytewiseComparator");
    for (tag, value) in [(2, log), (9, 0), (3, 100), (4, 1000)] {
        record.push(tag);
        varint(&mut record, value);
    }
    tables
        .iter()
        .for_each(|table| record.extend(listing(1, table)));
    record
}

/// An edit that lists a table in a level.
pub(crate) fn listing(level: u8, table: &TableMetadata) -> Vec<u8> {
    let mut record = vec![7, level];
    varint(&mut record, table.number);
    varint(&mut record, table.size);
    string(&mut record, &table.smallest);
    string(&mut record, &table.largest);
    record
}

pub(crate) fn write_database(dir: &Path, manifest: &[u8], log: &[u8]) {
    fs::write(dir.join("CURRENT"), "MANIFEST-000002\n").unwrap();
    fs::write(dir.join("MANIFEST-000002"), manifest).unwrap();
    fs::write(dir.join("000003.log"), log).unwrap();
}

pub(crate) fn manifest(records: &[Vec<u8>]) -> Vec<u8> {
    let mut manifest = Log::default();
    records.iter().for_each(|record| manifest.add(record));
    manifest.0
}
