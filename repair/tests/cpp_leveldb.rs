//! C++ LevelDB reads salvaged tables of its own kind, and asks their filter. `tests/cpp/peer.cc` is the other party: see
//! `tests/engine/cpp_leveldb.rs`. Needs a C++ compiler and `libleveldb-dev`, so plain `cargo test` leaves it out.

use std::fs;
use std::path::Path;
use std::process::Command;

use leveltable::{Compression, OpenOptions, WriteOptions};
use leveltable_repair::{SalvageOptions, salvage};

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Entry, Layout, Random, build};

fn run(program: &mut Command) {
    let status = program.status().unwrap();
    assert!(status.success(), "{program:?}: {status}");
}

/// Strings in the peer's form: u32 LE length, bytes.
fn encode<'a>(strings: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let encode = |string: &Vec<u8>| [&(string.len() as u32).to_le_bytes()[..], string].concat();
    strings.into_iter().flat_map(encode).collect()
}

#[test]
#[ignore = "needs libleveldb-dev; .ci/run installs it"]
fn leveldb_reads_salvaged_tables_and_asks_their_filter() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp_salvaged");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cpp/peer.cc");
    let program = directory.join("peer");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-std=c++17"]).arg(source);
    run(compiler.arg("-lleveldb").arg("-o").arg(&program));

    let mut random = Random(7);
    let key = |i: usize| format!("key {:06}", 2 * i).into_bytes();
    let entries: Vec<Entry> = (0..3000).map(|i| (key(i), random.bytes(60))).collect();
    let (mut cases, mut script) = (Vec::new(), String::new());
    for codec in [Compression::None, Compression::Snappy] {
        let options = WriteOptions::leveldb().compression(codec).block_size(1000);
        let file = build(&options, &entries);
        let layout = Layout::of(&file);
        let (mut block, mut no_index) = (file.clone(), file.clone());
        block[layout.data[7].start + 3] ^= 1;
        no_index[layout.index.start..layout.footer.end].fill(0);
        for damaged in [file, block, no_index] {
            let mut builder = WriteOptions::new().properties(false).build(Vec::new());
            let report = salvage(damaged.clone(), &mut builder, SalvageOptions::new()).unwrap();
            let (copy, _) = builder.finish_into_writer().unwrap();
            assert!(report.entries > 2900, "{report}");
            if report.is_complete() {
                assert!(copy == damaged, "a table of LevelDB is copied to the byte");
            }
            let kept = OpenOptions::new().open_source(copy.clone()).unwrap();
            let kept: Vec<Entry> = kept
                .iter()
                .map(|entry| entry.unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            let n = cases.len();
            fs::write(directory.join(format!("{n}.table")), copy).unwrap();
            let absent = (0..3000).map(|i| format!("key {:06}", 2 * i + 1).into_bytes());
            let asked: Vec<Vec<u8>> = kept
                .iter()
                .map(|(key, _)| key.clone())
                .chain(absent)
                .collect();
            fs::write(directory.join(format!("{n}.keys")), encode(&asked)).unwrap();
            let settings = "user bytewise none 4096 16 10 0";
            script += &format!("scan {n}.table {n}.forward {n}.backward {settings}\n");
            script += &format!("lookup {n}.table {n}.keys {n}.answers {settings}\n");
            cases.push(kept);
        }
    }
    fs::write(directory.join("script"), script).unwrap();
    run(Command::new(&program).arg("script").current_dir(&directory));
    for (n, kept) in cases.iter().enumerate() {
        let read = |name: &str| fs::read(directory.join(format!("{n}.{name}"))).unwrap();
        let strings = |entries: &[Entry]| -> Vec<Vec<u8>> {
            let strings = entries
                .iter()
                .flat_map(|(key, value)| [key.clone(), value.clone()]);
            strings.collect()
        };
        assert!(read("forward") == encode(&strings(kept)), "{n}");
        check_answers(&read("answers"), kept);
    }
}

/// Each present key was found after the filter passed it, and few absent ones were passed.
fn check_answers(mut answers: &[u8], kept: &[Entry]) {
    let (mut asked, mut passed) = (0, 0);
    while let Some(([verdict, found], rest)) = answers.split_first_chunk() {
        answers = rest;
        let [key, value] = [(); 2].map(|()| {
            let (len, rest) = answers.split_first_chunk().unwrap();
            let (string, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            answers = rest;
            string.to_vec()
        });
        if let Some(entry) = kept.get(asked) {
            assert_eq!((*verdict, *found), (b'y', b'1'));
            assert_eq!(*entry, (key, value));
        } else {
            passed += usize::from(*verdict == b'y');
        }
        asked += 1;
    }
    assert_eq!(asked, kept.len() + 3000);
    assert!(passed < 150, "{passed} of 3000 absent keys passed");
}
