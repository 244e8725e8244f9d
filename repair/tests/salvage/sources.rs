//! Orders that must be named, and sources that fail.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::KeyKind;
use leveltable::{Compression, ErrorKind, OpenOptions, ReadAt, Section, WriteOptions};
use leveltable_repair::{IndexState, LostRange, SalvageOptions, VerifyOptions, salvage, verify};

use super::common::{Entry, Layout, Reverse, build, seal};
use super::{
    CODECS, build_blocks, by_block, content, destroy, entries, entry, options, ranges, rescue,
    without,
};

/// Its blocks are sound and look like a table's, but those of its properties are no entries, and its keys carry tags:
/// all that was copied, and nothing said.
#[test]
fn the_tables_of_other_programs_are_refused() {
    let mut file = build(&options(Compression::None), &entries(100));
    let magic_at = file.len() - 8;
    for (magic, name) in [
        (
            0x88e2_41b7_85f4_cff7_u64,
            "RocksDB or Pebble block-based table",
        ),
        (0x8242_2296_63bf_9564, "RocksDB plain table"),
        (0xb3aa_9ff0_b3aa_9ff0, "Pebble table"),
    ] {
        file[magic_at..].copy_from_slice(&magic.to_le_bytes());
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let error = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotATable);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(builder.entries(), 0);
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        assert!(!verified.is_sound());
        assert!(!verified.to_string().contains("salvage"), "{verified}");
    }
}

#[test]
fn any_comparator_will_do_but_it_must_be_the_right_one() {
    let mut entries = entries(300);
    entries.push((vec![], vec![])); // the empty key is the last, and its entry looks like restarts
    entries.sort_by(|a, b| b.0.cmp(&a.0));
    let options = options(Compression::None).comparator(Reverse);
    let file = build(&options, &entries);
    let layout = Layout::of(&file);
    for damage in [
        layout.footer.start..file.len(),
        layout.index.start..file.len(),
    ] {
        let mut damaged = file.clone();
        destroy(&mut damaged, damage);
        let mut rescued = Vec::new();
        let mut builder = options.build(&mut rescued);
        let _ = salvage(damaged.clone(), &mut builder, SalvageOptions::new()).unwrap();
        builder.finish().unwrap();
        let open = OpenOptions::new().comparator(Reverse);
        assert!(content(open.open_source(rescued).unwrap().iter()) == entries);

        let mut wrong = WriteOptions::leveldb().build(Vec::new());
        let error = salvage(damaged, &mut wrong, SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
        assert_eq!(wrong.entries(), 0, "nothing was added");
    }
}

#[test]
fn a_databases_table_keeps_its_stored_keys() {
    let mut file = Vec::new();
    let mut builder = options(Compression::Snappy).build_db(&mut file);
    for i in 0..300u64 {
        let key = format!("user key {i:04}");
        if i % 3 == 0 {
            builder.delete(key.as_bytes(), 1000 + i).unwrap();
        }
        builder.put(key.as_bytes(), i + 1, b"a value").unwrap();
    }
    builder.finish().unwrap();
    let layout = Layout::of(&file);
    let stored: Vec<Entry> = by_block(&file, &layout).concat();
    assert_eq!(stored.len(), 400);
    destroy(&mut file, layout.index.start..layout.footer.end);

    let mut rescued = Vec::new();
    let mut builder = WriteOptions::leveldb().build_db(&mut rescued);
    let report = salvage(file.clone(), builder.table_mut(), SalvageOptions::new()).unwrap();
    builder.finish().unwrap();
    assert_eq!(report.entries, 400);
    let db = OpenOptions::new().open_db_source(rescued).unwrap();
    assert!(content(db.as_table().iter()) == stored);

    let newest = db.iter().next().unwrap().unwrap();
    assert_eq!(
        (newest.sequence, newest.version),
        (1000, leveltable::db::Version::Deleted)
    );

    // The wrong kind of builder is refused, before anything is added.
    let mut plain = WriteOptions::new().build(Vec::new());
    let error = salvage(file.clone(), &mut plain, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
    assert_eq!(plain.entries(), 0);
    let plain_file = build(&options(Compression::Snappy), &entries(50));
    let mut db = WriteOptions::new().build_db(Vec::new());
    let words: Vec<Entry> = (0..50)
        .map(|i| entry(&format!("word {i:02}"), b""))
        .collect();
    for plain in [plain_file, build(&options(Compression::Snappy), &words)] {
        let error = salvage(plain, db.table_mut(), SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
    }

    // Unless the caller insists.
    let mut plain = WriteOptions::new().build(Vec::new());
    let insist = SalvageOptions::new().keys(KeyKind::Plain);
    assert_eq!(salvage(file, &mut plain, insist).unwrap().entries, 400);
    let mut db = WriteOptions::new().build_db(Vec::new());
    let insist = SalvageOptions::new().keys(KeyKind::Database);
    let words = build(&options(Compression::Snappy), &words);
    assert_eq!(salvage(words, db.table_mut(), insist).unwrap().entries, 50);
}

/// A disk with sectors that cannot be read.
struct BadSectors {
    file: Bytes,
    bad: Vec<Range<u64>>,
}

impl ReadAt for BadSectors {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset + len as u64;
        let is_bad = |bad: &Range<u64>| bad.start < end && offset < bad.end;
        if self.bad.iter().any(is_bad) {
            Err(io::Error::other("bad sector"))
        } else {
            self.file.read_at(offset, len)
        }
    }
}

#[test]
fn sectors_that_cannot_be_read_cost_the_blocks_they_hold() {
    for compression in CODECS {
        let file = build(&options(compression).block_size(4096), &entries(20_000));
        let layout = Layout::of(&file);
        let blocks = by_block(&file, &layout);
        let len = file.len() as u64;
        for end_is_bad in [false, true] {
            let mut bad = vec![40_960..45_056, 200_704..204_800];
            if end_is_bad {
                bad.push(len - 100..len);
            }
            let source = BadSectors {
                file: file.clone().into(),
                bad: bad.clone(),
            };
            let (report, rescued) = rescue(Arc::new(source));
            let is_lost = |i: usize| {
                let block = &layout.data[i];
                let is_in = |bad: &Range<u64>| {
                    (bad.start as usize) < block.end && block.start < bad.end as usize
                };
                bad.iter().any(is_in)
            };
            assert!(rescued == without(&blocks, is_lost), "{report}");
            assert!(!end_is_bad || report.index == IndexState::Lost);
            assert!(!report.is_complete());
            let says_why = |lost: &LostRange| lost.reason.contains("bad sector");
            for sector in &bad[..2] {
                let overlaps = |lost: &&LostRange| {
                    lost.range.start < sector.end && sector.start < lost.range.end
                };
                let mut lost = report.lost.iter().filter(overlaps).peekable();
                assert!(lost.peek().is_some() && lost.all(says_why), "{report}");
            }
        }
    }
    let mut dead = BadSectors {
        file: vec![0; 100].into(),
        bad: vec![],
    };
    dead.bad.push(0..100);
    let mut builder = WriteOptions::new().build(Vec::new());
    let error = salvage(Arc::new(dead), &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn blocks_of_a_codec_that_is_not_built_in_are_named() {
    let entries = entries(30);
    let mut file = build(&options(Compression::None), &entries);
    let layout = Layout::of(&file);
    let blocks = by_block(&file, &layout);
    let range = layout.data[1].clone();
    file[range.end - 5] = 7;
    seal(&mut file, &range);
    for (damage, index) in [
        (0..0, IndexState::Sound),
        (layout.index.start..file.len(), IndexState::Lost),
    ] {
        let mut damaged = file.clone();
        destroy(&mut damaged, damage);
        let (report, rescued) = rescue(damaged);
        assert!(rescued == without(&blocks, |i| i == 1), "{report}");
        assert_eq!(ranges(&report)[0], range);
        assert_eq!(report.index, index);
        let named = report.lost[0].reason.contains("type 7");
        assert!(named || index == IndexState::Lost, "{report}");
    }
}

/// Entries out of order inside of a block whose checksum is right, a writer's fault: nobody knows where they belong.
#[test]
fn a_block_whose_keys_do_not_ascend_is_left_out() {
    let keys = ["a", "c", "d", "e"];
    let block = keys.map(|key| entry(key, b"1")).to_vec();
    let others = ["x", "y"].map(|key| vec![entry(key, b"5")]);
    let blocks = [&[block][..], &others].concat();
    let mut file = build_blocks(&options(Compression::None), &blocks);
    let layout = Layout::of(&file);
    let range = layout.data[0].clone();
    let d = file[range.clone()]
        .windows(3)
        .position(|w| w == b"\x01\x01d");
    file[range.start + d.unwrap() + 2] = b'b';
    seal(&mut file, &range);
    let mut headless = file.clone();
    destroy(&mut headless, layout.index.start..layout.footer.end);
    for file in [file, headless] {
        let (report, rescued) = rescue(file);
        let keys: Vec<&[u8]> = rescued.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [b"x", b"y"]);
        assert_eq!(ranges(&report)[0], range);
    }
}

/// Errors of the builder come through, and what it wrote stands as it is.
#[test]
fn a_full_disk_ends_the_salvage() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let file = build(&options(Compression::None), &entries(20_000));
    let mut builder = options(Compression::None).build(Full);
    let error = salvage(file, &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn what_was_set_aside_is_reported() {
    let file = build(&options(Compression::None), &entries(100));
    let layout = Layout::of(&file);
    let (report, _) = rescue(file.clone());
    assert!(report.is_complete());
    assert_eq!((report.index, report.entries), (IndexState::Sound, 100));
    let as_range = |range: &Range<usize>| range.start as u64..range.end as u64;
    let expected = [
        (Section::Filter, as_range(layout.filter.as_ref().unwrap())),
        (Section::Metaindex, as_range(&layout.metaindex)),
        (Section::Index, as_range(&layout.index)),
        (Section::Footer, as_range(&layout.footer)),
    ];
    assert_eq!(report.set_aside, expected);
    let mut damaged = file;
    destroy(&mut damaged, layout.index.start..layout.footer.end);
    let (report, _) = rescue(damaged);
    assert_eq!(report.set_aside, expected[..2]);
}
