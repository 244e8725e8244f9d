//! Tables that are opened on demand.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

use leveltable::{Error, ErrorKind, Table, TableCache, WriteOptions};

fn key(i: usize) -> String {
    format!("{i:08}")
}

/// Tables that have their number as the value of each of 2,000 keys.
fn write(dir: &Path, count: usize) -> Vec<PathBuf> {
    write_keys(dir, count, 2_000)
}

fn write_keys(dir: &Path, count: usize, keys: usize) -> Vec<PathBuf> {
    let path = |number: usize| dir.join(format!("{number:06}.ldb"));
    let write = |number: usize| {
        let mut builder = WriteOptions::new()
            .block_size(64)
            .create(path(number))
            .unwrap();
        for i in 0..keys {
            builder.add(key(i), number.to_string()).unwrap();
        }
        builder.finish().unwrap();
        path(number)
    };
    (0..count).map(write).collect()
}

/// Only a call that succeeded made room, and keys that always fail stayed.
#[test]
fn a_key_that_fails_is_forgotten() {
    let tables: TableCache<Arc<usize>, Table> = TableCache::default();
    let keys: Vec<Arc<usize>> = (0..1_000).map(Arc::new).collect();
    for key in &keys {
        let opened = tables.get(key, || Err(Error::new(ErrorKind::Io, "gone")));
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Io);
    }
    assert!(keys.iter().all(|key| Arc::strong_count(key) == 1));
}

fn ask(tables: &TableCache<usize, Table>, paths: &[PathBuf], number: usize) {
    let table = tables.get(&number, || Table::open(&paths[number])).unwrap();
    let value = table.get(key(number % 100)).unwrap().unwrap();
    assert_eq!(value, number.to_string());
}

#[test]
fn no_more_tables_stay_open_than_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 40);
    for max_open in [1, 2, 7, 100] {
        let tables = TableCache::new(max_open, 1 << 30);
        for round in 0..3 {
            for number in 0..40 {
                ask(&tables, &paths, number * (round + 1) % 40);
                assert!((1..=max_open).contains(&tables.len()), "{}", tables.len());
            }
        }
        assert!(max_open < 40 || tables.len() == 40);
    }
}

#[test]
fn tables_that_grow_make_others_close() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 20);
    let whole = Table::open(&paths[0]).unwrap();
    whole.iter().for_each(|entry| drop(entry.unwrap()));
    let most = 5 * whole.weight() as u64;
    let tables = TableCache::new(1_000, most);
    for _ in 0..3 {
        for (number, path) in paths.iter().enumerate() {
            let table = tables.get(&number, || Table::open(path)).unwrap();
            assert_eq!(table.iter().count(), 2_000);
        }
    }
    // The one used last has grown since.
    tables.get(&1_000, || Table::open(&paths[0])).unwrap();
    assert!(tables.len() <= 6, "{}", tables.len());
}

/// Nothing is opened any more, and yet the tables outgrow their bound.
#[test]
fn tables_that_only_grow_are_closed_too() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_keys(dir.path(), 20, 20_000);
    let weight = |path: &PathBuf| Table::open(path).unwrap().weight() as u64;
    let tables = TableCache::new(1_000, paths.iter().map(weight).sum());
    for (number, path) in paths.iter().enumerate() {
        tables.get(&number, || Table::open(path)).unwrap();
    }
    assert_eq!(tables.len(), 20);
    for (number, path) in paths.iter().enumerate() {
        let table = tables.get(&number, || Table::open(path)).unwrap();
        assert_eq!(table.iter().count(), 20_000);
    }
    // The end of the first ten files holds their index. The others have grown, and the next that is asked for shows it.
    tables.get(&19, || Table::open(&paths[19])).unwrap();
    assert!(tables.len() < 20, "{}", tables.len());
}

/// One that was being looked at when tables were weighed was forgotten now and then: a few times in a thousand rounds.
#[test]
fn many_threads_open_a_table_once() {
    const ROUNDS: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 4);
    for _ in 0..ROUNDS {
        let tables = TableCache::new(4, 1 << 30);
        let (opened, start) = (AtomicUsize::new(0), Barrier::new(16));
        thread::scope(|scope| {
            for thread in 0..16 {
                let (tables, opened, start, paths) = (&tables, &opened, &start, &paths);
                scope.spawn(move || {
                    start.wait();
                    for i in 0..4 {
                        let number = (thread + i) % 4;
                        let open = || {
                            opened.fetch_add(1, Relaxed);
                            thread::yield_now();
                            Table::open(&paths[number])
                        };
                        let table = tables.get(&number, open).unwrap();
                        assert_eq!(table.get(key(7)).unwrap().unwrap(), number.to_string());
                    }
                });
            }
        });
        assert_eq!(opened.load(Relaxed), 4);
    }
}

#[test]
fn a_table_that_cannot_be_opened_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 1);
    let tables: TableCache<&str, Table> = TableCache::new(4, 1 << 30);
    let missing = tables.get(&"a", || Table::open(dir.path().join("missing")));
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::Io);
    assert!(tables.is_empty());
    tables.get(&"a", || Table::open(&paths[0])).unwrap();
    tables.remove(&"a");
    let again = tables.get(&"a", || {
        Err(Error::new(ErrorKind::InvalidState, "asked again"))
    });
    assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidState);
}

/// The one lock of all tables was held for every look at one, though not while a table was opened.
#[test]
fn a_slow_opening_keeps_nobody_else_waiting() {
    const OTHERS: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let paths = write_keys(dir.path(), 2, 100);
    let tables: TableCache<usize, Table> = TableCache::new(OTHERS / 2, 1 << 30);
    let (done, wait) = std::sync::mpsc::channel();
    let (begun, started) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (tables, paths) = (&tables, &paths);
        let slow = scope.spawn(move || {
            let open = || {
                begun.send(()).unwrap();
                let waited = wait.recv_timeout(std::time::Duration::from_secs(100));
                assert!(
                    waited.is_ok(),
                    "others wait for a table that is being opened"
                );
                Table::open(&paths[0])
            };
            tables.get(&OTHERS, open).unwrap()
        });
        started.recv().unwrap();
        // In every shard: opened, found, closed for others, removed, and failing.
        let open = Table::open(&paths[1]).unwrap();
        for number in (0..OTHERS).chain(0..OTHERS) {
            tables.get(&number, || Ok(open.clone())).unwrap();
            tables.get(&number, || panic!("it is open")).unwrap();
        }
        for number in 0..OTHERS {
            tables.remove(&number);
            let failed = tables.get(&number, || Err(Error::new(ErrorKind::Io, "gone")));
            assert!(failed.is_err());
        }
        assert!(tables.is_empty() && tables.stats().evictions > 0);
        done.send(()).unwrap();
        slow.join().unwrap();
    });
    tables.get(&OTHERS, || panic!("it is open")).unwrap();
}

#[test]
fn what_is_kept_found_and_closed_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 10);
    let tables = TableCache::new(4, 1 << 30);
    for number in (0..10).chain(6..10).chain(8..10) {
        ask(&tables, &paths, number);
    }
    let stats = tables.stats();
    assert_eq!((stats.hits, stats.misses, stats.evictions), (6, 10, 6));
    let weigh = |number: usize| tables.get(&number, || panic!()).unwrap().weight() as u64;
    assert_eq!(stats.bytes, (6..10).map(weigh).sum::<u64>());
    (6..10).for_each(|number| tables.remove(&number));
    let stats = tables.stats();
    assert_eq!((stats.hits, stats.evictions, stats.bytes), (10, 6, 0));
    let failed = tables.get(&0, || Err(Error::new(ErrorKind::Io, "gone")));
    assert!(failed.is_err());
    assert_eq!(tables.stats().misses, 11);
}

/// The table used the longest time ago is closed, also if others were found open since.
#[test]
fn the_table_that_is_closed_was_not_used_lately() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_keys(dir.path(), 40, 100);
    let tables = TableCache::new(20, 1 << 30);
    for number in 0..20 {
        ask(&tables, &paths, number);
    }
    for _ in 0..3 {
        for number in (0..20).filter(|number| number % 2 == 0) {
            ask(&tables, &paths, number);
        }
    }
    for number in 20..30 {
        ask(&tables, &paths, number);
    }
    for number in (0..20).filter(|number| number % 2 == 0) {
        tables
            .get(&number, || panic!("{number} was closed"))
            .unwrap();
    }
}

/// Each thread asks for tables of its own: for the count of a table's clones, threads contend.
///
/// `cargo test --release --test engine table_cache::a_hit -- --ignored --nocapture`
#[test]
#[ignore = "measures time"]
fn a_hit_is_fast_and_threads_do_not_wait_for_each_other() {
    const TABLES: usize = 500;
    const ROUNDS: usize = 4_000;
    let dir = tempfile::tempdir().unwrap();
    let paths = write_keys(dir.path(), TABLES, 100);
    let tables = TableCache::new(TABLES, 1 << 30);
    for number in 0..TABLES {
        ask(&tables, &paths, number);
    }
    let walk = |first: usize| {
        for i in 0..ROUNDS * TABLES {
            let number = (i * 7 % (TABLES / 2) + first) % TABLES;
            std::hint::black_box(tables.get(&number, || panic!()).unwrap());
        }
    };
    let timed = |threads: usize| {
        let start = std::time::Instant::now();
        thread::scope(|scope| {
            (0..threads).for_each(|thread| drop(scope.spawn(move || walk(thread * TABLES / 2))));
        });
        start.elapsed().as_nanos() as f64 / (ROUNDS * TABLES) as f64
    };
    for _ in 0..5 {
        let (one, two) = (timed(1), timed(2));
        println!(
            "a hit {one:.1} ns; two threads {:.2} times one",
            2.0 * one / two
        );
    }
}

/// The limit is that of the process, so this is run in one of its own.
#[cfg(unix)]
#[test]
fn five_hundred_tables_work_where_256_files_may_be_open() {
    const CHILD: &str = "LEVELTABLE_TEST_OF_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        let name = "table_cache::five_hundred_tables_work_where_256_files_may_be_open";
        let command = format!("ulimit -n 256 && exec \"$0\" --exact {name} --test-threads 1");
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .arg(std::env::current_exe().unwrap())
            .env(CHILD, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && printed.contains("1 passed"),
            "{printed}"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let paths = write_keys(dir.path(), 500, 100);
    let opened: Result<Vec<Table>, Error> = paths.iter().map(Table::open).collect();
    assert!(opened.is_err(), "the limit holds");
    let tables = TableCache::new(200, 1 << 30);
    for number in (0..500).chain((0..500).rev()) {
        ask(&tables, &paths, number);
    }
    assert!(tables.len() <= 200);
}

/// A panic in `open` left an empty slot behind, which counted as an open table and was never closed.
#[test]
fn a_panic_while_opening_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write(dir.path(), 1);
    let tables: TableCache<usize, Table> = TableCache::new(4, 1 << 30);
    let panics = || tables.get(&0, || -> Result<Table, Error> { panic!("in `open`") });
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(panicked.is_err());
    assert!(tables.is_empty());
    ask(&tables, &paths, 0);
    assert_eq!(tables.len(), 1);
}
