//! Reads beside `classic-level`, which writes in another process: the LevelDB of Electron and Node.js, also on Windows.
//!
//! Needs Node.js with `classic-level` 1, and runs `.ci/wine/writer.js`:
//! `LEVELTABLE_NODE=node NODE_PATH=.../node_modules cargo test -p leveltable-database --test classic_level -- --ignored --nocapture`.
//! `LEVELTABLE_BATCHES` is the number of batches, 100,000 by default. `.ci/windows` runs this below Wine.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leveltable_database::sister_crates::holds_lock;
use leveltable_database::{CompactOptions, Database, compact_into};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a batch changes: the same as in `writer.js`.
fn apply(contents: &mut Contents, number: u32) {
    contents.insert(b"counter".to_vec(), number.to_string().into_bytes());
    let mut random = number;
    for _ in 0..8 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let key = format!("key{}", (random >> 8) % 2000).into_bytes();
        if random >> 28 < 4 {
            contents.remove(&key);
        } else {
            let value = format!("{number}:{}", "v".repeat((random >> 20) as usize % 100));
            contents.insert(key, value.into_bytes());
        }
    }
}

/// All live entries. Of a walk that a writer has outrun, the one after it.
fn read(dir: &Path) -> Contents {
    loop {
        let db = Database::open_read_only(dir).unwrap_or_else(|error| panic!("opening: {error}"));
        db.pin().unwrap_or_else(|error| panic!("pinning: {error}"));
        let entries = db
            .iter()
            .map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())));
        match entries.collect() {
            Ok(contents) => return contents,
            Err(error) => assert_eq!(error.kind(), leveltable::ErrorKind::Replaced, "{error}"),
        }
    }
}

#[test]
#[ignore = "needs Node.js with classic-level"]
fn live_entries_are_those_that_classic_level_wrote() {
    let batches = env::var("LEVELTABLE_BATCHES").map_or(100_000, |text| text.parse().unwrap());
    let node = env::var("LEVELTABLE_NODE").unwrap_or("node".into());
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/wine/writer.js");
    let mut writer = Command::new(node)
        .args([
            script.as_os_str(),
            dir.as_os_str(),
            batches.to_string().as_ref(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null()) // not every handle below Wine is one for Node.js
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let (is_done, begin) = (AtomicBool::new(false), Instant::now());
    let (mut expected, mut at, mut reads) = (Contents::new(), 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let last = lines.next();
            is_done.store(true, Ordering::SeqCst);
            assert_eq!(last.unwrap().unwrap(), "done");
        });
        loop {
            let is_last = is_done.load(Ordering::SeqCst);
            let found = read(&dir);
            let counter = str::from_utf8(&found[&b"counter"[..]]).unwrap();
            let counter: u32 = counter.parse().unwrap();
            assert!(counter >= at, "{counter} comes after {at}");
            (at + 1..=counter).for_each(|number| apply(&mut expected, number));
            at = counter;
            assert!(found == expected, "after batch {at}");
            reads += 1;
            if is_last {
                break;
            }
        }
    });
    assert_eq!(at, batches);
    println!(
        "{batches} batches in {:.0?}, {reads} times read and equal",
        begin.elapsed()
    );

    // The writer has the database open, and is at rest.
    if cfg!(any(windows, target_os = "linux")) {
        assert!(holds_lock(&dir));
        let new = scratch.path().join("new");
        assert!(
            compact_into(&dir, &new, CompactOptions::new())
                .unwrap()
                .has_writer
        );
        assert!(read(&new) == expected);
    }
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    assert!(!holds_lock(&dir));
    assert!(read(&dir) == expected);
}
