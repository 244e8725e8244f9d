//! How much memory it takes to open a remote table, and to walk it.

mod common;

use std::io;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use common::Layout;
use futures_util::future::FutureExt;
use leveltable::remote::{AsyncReadAt, BoxFuture, Tail};
use leveltable::{BloomFilterPolicy, Compression, OpenOptions, ReadAt, Table, WriteOptions};
use peak_alloc::PeakAlloc;

fn key(i: u64) -> Vec<u8> {
    format!("{i:08}").into_bytes()
}

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One test at a time is measured.
static ONE: Mutex<()> = Mutex::new(());

struct Copied(std::fs::File);
impl AsyncReadAt for Copied {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        let size = self.0.metadata().unwrap().len();
        let bytes = ReadAt::read_at(&self.0, size - len, len as usize);
        Box::pin(async move {
            Ok(Tail {
                size,
                bytes: bytes?,
            })
        })
    }
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let read = ReadAt::read_at(&self.0, offset, len);
        Box::pin(async move { read })
    }
}

#[test]
fn opening_takes_no_more_memory_than_that_of_a_table() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let options = WriteOptions::new()
        .compression(Compression::None)
        .block_size(1)
        .filter_policy(BloomFilterPolicy::new(200));
    let mut builder = options.create(&path).unwrap();
    for i in 0..400_000 {
        builder.add(key(i), b"").unwrap();
    }
    builder.finish().unwrap();
    let file = std::fs::read(&path).unwrap();
    let layout = Layout::of(&file);
    println!(
        "filter {} index {}",
        layout.filter.unwrap().len(),
        layout.index.len()
    );
    drop(file);
    let peak = |open: &dyn Fn()| {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        open();
        (MEMORY.peak_usage() - before) >> 10
    };
    let sync = peak(&|| drop(Table::open(&path).unwrap()));
    let remote = peak(&|| {
        let source = Copied(std::fs::File::open(&path).unwrap());
        let table = OpenOptions::new()
            .open_async(source, None)
            .now_or_never()
            .unwrap();
        drop(table.unwrap());
    });
    assert!(
        remote < sync + sync / 4,
        "{remote} KiB, and {sync} KiB of a table"
    );
}

/// What is on its way, 48 MiB, and what the walk is in.
#[test]
fn a_walk_takes_56_mib() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.create(&path).unwrap();
    for i in 0..10_000 {
        builder.add(key(i), [i as u8; 16 << 10]).unwrap();
    }
    builder.finish().unwrap();
    for is_expected in [false, true] {
        let source = Copied(std::fs::File::open(&path).unwrap());
        let table = OpenOptions::new()
            .no_cache()
            .open_async(source, None)
            .now_or_never();
        let table = table.unwrap().unwrap();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let mut all = table.range(..);
        if is_expected {
            all = all.expect_all();
        }
        let mut count = 0;
        while all.next().now_or_never().unwrap().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 10_000);
        let peak = MEMORY.peak_usage() - before;
        assert!(peak < 57 << 20, "{} KiB", peak >> 10);
        assert!(
            peak > 40 << 20,
            "{} KiB: the figure is too large",
            peak >> 10
        );
    }
}
