//! Sorting beside a naive stable sort, with memory for a few entries only; full disks; memory and time beside GNU `sort`.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use leveltable::db::{InternalKey, InternalKeyComparator, ValueType};
use leveltable::{BytewiseComparator, Comparator, ErrorKind};
use leveltable::{Sorted, SortedInput, Sorter, WriteOptions};
use proptest::prelude::*;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// An order that sees no case, so that different keys are equal in it.
#[derive(Debug)]
struct Caseless;

impl Comparator for Caseless {
    fn name(&self) -> &str {
        "test.Caseless"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

/// Descending by bytes.
#[derive(Debug)]
struct Descending;

impl Comparator for Descending {
    fn name(&self) -> &str {
        "test.Descending"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

fn orders() -> [Arc<dyn Comparator>; 5] {
    [
        Arc::new(BytewiseComparator),
        Arc::new(Caseless),
        Arc::new(Descending),
        Arc::new(InternalKeyComparator::new(BytewiseComparator)),
        Arc::new(InternalKeyComparator::new(Descending)),
    ]
}

fn taken(mut sorted: Sorted) -> Entries {
    let mut entries = Vec::new();
    while sorted.advance().unwrap() {
        entries.push((sorted.key().to_vec(), sorted.value().to_vec()));
    }
    assert!(!sorted.advance().unwrap());
    assert_eq!((sorted.key(), sorted.value()), (&[][..], &[][..]));
    entries
}

fn sorted(mut sorter: Sorter, entries: &Entries) -> Entries {
    for (key, value) in entries {
        sorter.add(key, value).unwrap();
    }
    assert_eq!(sorter.entries(), entries.len() as u64);
    taken(sorter.finish().unwrap())
}

/// What a sort that is as simple as can be makes of the entries.
fn model(order: &dyn Comparator, keep_all: bool, entries: &Entries) -> Entries {
    let mut all = entries.clone();
    all.sort_by(|a, b| order.compare(&a.0, &b.0));
    let is_last = |i: usize| {
        let next = all.get(i + 1);
        next.is_none_or(|next| order.compare(&all[i].0, &next.0).is_ne())
    };
    let kept = (0..all.len()).filter(|&i| keep_all || is_last(i));
    kept.map(|i| all[i].clone()).collect()
}

/// Keys of few bytes, which share prefixes, end in zeros and repeat; some are long.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0, 0, b'a', b'A', b'b', 255]);
    let short = prop::collection::vec(byte, 0..20);
    let prefix = prop::sample::select(vec![0, 0, 7, 8, 9, 30]);
    (prefix, short).prop_map(|(prefix, short)| [vec![b'p'; prefix], short].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sorts_as_a_stable_sort_does(
        keys in prop::collection::vec(key(), 0..200),
        memory in prop::sample::select(vec![300, 2_000, 1 << 20]),
        keep_all: bool,
    ) {
        let numbered = keys.into_iter().enumerate();
        let entries: Entries = numbered.map(|(i, key)| (key, i.to_string().into())).collect();
        for order in orders() {
            let sorter = Sorter::new().comparator(order.clone()).memory(memory).keep_all(keep_all);
            prop_assert!(sorted(sorter, &entries) == model(&*order, keep_all, &entries), "{order:?}");
        }
    }
}

#[test]
fn versions_of_internal_keys_go_from_the_newest_to_the_oldest() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut version = || {
        let user_key = format!("user{:04}", random.u32(..300));
        let mut key = Vec::new();
        InternalKey {
            user_key: user_key.as_bytes(),
            sequence: random.u64(..8),
            value_type: ValueType::Value,
        }
        .encode(&mut key);
        (key, user_key.into_bytes())
    };
    let entries: Entries = (0..5000).map(|_| version()).collect();
    let order = InternalKeyComparator::new(BytewiseComparator);
    for memory in [1000, 1 << 20] {
        let sorter = Sorter::new().comparator(order.clone()).memory(memory);
        assert!(sorted(sorter, &entries) == model(&order, false, &entries));
    }
}

/// Each entry is a file, so that files are merged into files of the next level, and those again.
#[test]
fn files_of_several_levels_keep_the_order_of_equal_keys() {
    let mut random = fastrand::Rng::with_seed(1);
    let entry = |i: u32| (random.u8(..50).to_string().into(), i.to_string().into());
    let entries: Entries = (0..4200).map(entry).collect();
    for (keep_all, entries) in [(true, entries.clone()), (false, entries[..200].to_vec())] {
        let sorter = Sorter::new().memory(0).keep_all(keep_all);
        assert!(sorted(sorter, &entries) == model(&BytewiseComparator, keep_all, &entries));
    }
}

/// Keys that share ever longer prefixes need as many levels of the sort; an entry may be larger than all buffers.
#[test]
fn long_keys_and_large_entries() {
    let mut entries: Entries = Vec::new();
    for copy in 0..30 {
        for len in (0..1600).step_by(8).rev() {
            entries.push((vec![b'k'; len], format!("{copy}, {len}").into()));
        }
    }
    entries.push((b"large".to_vec(), vec![b'v'; 1 << 20]));
    for memory in [100_000, 64 << 20] {
        let sorter = Sorter::new().memory(memory).keep_all(true);
        assert!(sorted(sorter, &entries) == model(&BytewiseComparator, true, &entries));
    }
}

#[test]
fn no_file_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let files = || {
        let files = fs::read_dir(directory.path()).unwrap();
        files.map(|file| file.unwrap().path().display().to_string())
    };
    let mut sorter = Sorter::new().memory(1 << 20).directory(directory.path());
    for i in 0..50_000u32 {
        sorter.add(i.reverse_bits().to_le_bytes(), [7; 50]).unwrap();
    }
    // Files with names say what they are.
    assert!(files().all(|name| name.contains("tmp")));
    let mut sorted = sorter.finish().unwrap();
    assert!(sorted.advance().unwrap());
    drop(sorted);
    assert_eq!(files().count(), 0);
}

/// Merging the files within one `add` takes as long as all that came before it.
#[test]
fn progress_is_shown_while_files_are_merged() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = told.clone();
    let mut sorter = Sorter::new().memory(1 << 20);
    sorter = sorter.progress(move |written| all.lock().unwrap().push(written));
    let (mut at_once, mut added) = (0, 0);
    for i in 0..500_000u64 {
        let before = told.lock().unwrap().len();
        sorter.add(i.reverse_bits().to_be_bytes(), [7; 50]).unwrap();
        added += 8 + 50 + 2;
        at_once = at_once.max(told.lock().unwrap().len() - before);
    }
    let told = told.lock().unwrap();
    assert!(told.is_sorted(), "{told:?}");
    assert!(at_once > 200, "{at_once} calls in one `add`");
    // 32 files are merged once; the rest is in memory.
    let written = *told.last().unwrap();
    assert!(
        written > added && written < 2 * added,
        "{written} of {added}"
    );
    assert_eq!(taken(sorter.finish().unwrap()).len(), 500_000);
}

#[test]
fn what_fits_the_memory_makes_no_file() {
    let mut sorter = Sorter::new().directory("/no/such/directory").memory(1000);
    for key in ["b", "a"] {
        sorter.add(key, "value").unwrap();
    }
    let error = sorter.add("c", [0; 1000]).unwrap_err();
    assert_eq!((error.kind(), sorter.entries()), (ErrorKind::Io, 2));
    let message = error.to_string();
    assert!(
        message.starts_with("/no/such/directory: writing a temporary file"),
        "{message}"
    );
    // Nothing else is lost.
    assert_eq!(taken(sorter.finish().unwrap()).len(), 2);
}

// ---- full disks -----------------------------------------------------------------------------

/// Sorts more than the disk holds until that fails, if a test below started this process. Then sorts the same again, in a place with room.
#[test]
fn sort_on_a_full_disk_as_a_child() {
    let Some(full) = std::env::var_os("LEVELTABLE_SORT_IN") else {
        return;
    };
    let mut sorter = Sorter::new().directory(full).memory(100_000);
    let mut entries = 0u64..;
    let error = entries.find_map(|i| sorter.add(i.to_be_bytes(), [7; 100]).err());
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    let added = sorter.entries();
    let again = sorter.add([0; 8], [7; 100]).unwrap_err();
    assert_eq!(error.to_string(), again.to_string());
    let entries = taken(sorter.finish().unwrap());
    assert_eq!(
        entries.len() as u64,
        added,
        "nothing of what was added is lost"
    );
    println!("failed: {error}");
}

/// Runs the test above after commands of a shell.
fn child(shell: &mut Command, setup: &str, directory: &Path) -> String {
    let script = format!(
        "{setup} && exec \"$0\" --exact sorter::sort_on_a_full_disk_as_a_child --nocapture"
    );
    shell
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap());
    let output = shell
        .current_dir(directory)
        .env("LEVELTABLE_SORT_IN", directory)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let failed = shown.lines().find_map(|line| line.split_once("failed: "));
    let message = failed.unwrap_or_else(|| panic!("{shown}")).1.to_owned();
    assert!(
        message.starts_with(&format!("{}: ", directory.display())),
        "{message}"
    );
    assert!(
        message.contains("as much room as the entries; Sorter::directory chooses where"),
        "{message}"
    );
    message
}

/// The limit is the kernel's own, on the size of a file; with `SIGXFSZ` ignored, the error is `EFBIG`.
#[cfg(unix)]
#[test]
fn a_file_that_may_not_grow_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let setup = "trap '' XFSZ; ulimit -f 64";
    child(&mut Command::new("sh"), setup, directory.path());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A real full disk: a small tmpfs, in a mount namespace of its own.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "mounts a file system in a user namespace, which not every machine allows"]
fn a_full_disk_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["-rm", "sh"]);
    let setup = "mount -t tmpfs -o size=1m tmpfs \"$PWD\"";
    let message = child(&mut unshare, setup, directory.path());
    assert!(message.contains("os error 28"), "ENOSPC: {message}");
}

// ---- time and memory ------------------------------------------------------------------------

/// Entries of 16 and 100 bytes, in lines `key<TAB>value`, shuffled.
fn write_lines(path: &Path, entries: u64) {
    let mut lines = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut random = fastrand::Rng::with_seed(1);
    for i in 0..u128::from(entries) {
        // A prime that divides no power of ten, so that each number comes once.
        let number = i * 7_919_199_999_989 % 10_000_000_000_000_000;
        let value: [u8; 50] = std::array::from_fn(|_| random.alphanumeric() as u8);
        writeln!(
            lines,
            "{number:016}\t{0}{0}",
            str::from_utf8(&value).unwrap()
        )
        .unwrap();
    }
    lines.flush().unwrap();
}

/// Waits for the disk, so that who comes next does not.
fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Reads lines, sorts them, and writes them again, as `sort` does.
fn sort_lines(from: &Path, to: &Path, mut sorter: Sorter) {
    let mut lines = BufReader::with_capacity(256 << 10, File::open(from).unwrap());
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).unwrap() > 0 {
        let (key, value) = line.split_at(16);
        sorter.add(key, &value[1..value.len() - 1]).unwrap();
        line.clear();
    }
    let mut sorted = sorter.finish().unwrap();
    let mut out = BufWriter::with_capacity(256 << 10, File::create(to).unwrap());
    while sorted.advance().unwrap() {
        for part in [sorted.key(), b"\t", sorted.value(), b"\n"] {
            out.write_all(part).unwrap();
        }
    }
    out.flush().unwrap();
}

/// `ENTRIES` chooses how many, and `PLACE` the disk, which must hold three times as much. All files are removed.
#[test]
#[ignore = "measures time: 20 million entries by default, 8 GB of disk"]
fn is_faster_than_gnu_sort() {
    let entries = std::env::var("ENTRIES").map_or(20_000_000, |n| n.parse().unwrap());
    let place = std::env::var_os("PLACE").map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = tempfile::tempdir_in(place).unwrap();
    let path = |name: &str| scratch.path().join(name);
    write_lines(&path("lines"), entries);
    sync(&path("lines"));

    let begin = Instant::now();
    let sorter = Sorter::new().memory(256 << 20).directory(scratch.path());
    sort_lines(&path("lines"), &path("ours"), sorter);
    let ours = begin.elapsed();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap_or("unknown").trim().to_owned();
    sync(&path("ours"));

    let begin = Instant::now();
    let mut sort = Command::new("sort");
    sort.args(["-S", "256M", "-T"])
        .arg(scratch.path())
        .arg("-o")
        .arg(path("theirs"));
    let done = sort.arg(path("lines")).env("LC_ALL", "C").status().unwrap();
    assert!(done.success());
    let theirs = begin.elapsed();
    let same = Command::new("cmp")
        .arg(path("ours"))
        .arg(path("theirs"))
        .status();
    assert!(same.unwrap().success(), "the same lines");

    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("{entries} entries: {ours:.1?}, sort {theirs:.1?}, ratio {ratio:.2}, peak {peak}");
    assert!(ratio <= 0.7);
    let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
    assert!(peak * 1024 <= 300_000_000, "{peak} kB");
}

#[test]
fn builders_take_what_was_sorted() {
    let mut sorter = Sorter::new();
    for (key, value) in [("b", "2"), ("a", "1"), ("b", "3")] {
        sorter.add(key, value).unwrap();
    }
    let mut builder = WriteOptions::new().build(Vec::new());
    builder.extend(sorter.finish().unwrap()).unwrap();
    assert_eq!(builder.finish().unwrap().properties.entries, 2);
}
