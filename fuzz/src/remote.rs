//! The same file as a remote table: every answer must be that of the table that is read at once.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use leveltable::remote::{AsyncReadAt, AsyncTable, BoxFuture, Tail};
use leveltable::{OpenOptions, ReadAt, Result, Table};

use crate::naive::Entry;
use crate::source::{MAX_ENTRIES, disk};

/// Bytes whose requests are answered at once.
struct Near(Bytes);

impl AsyncReadAt for Near {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        let size = self.0.len() as u64;
        let start = size.saturating_sub(len);
        let read = ReadAt::read_at(&self.0, start, (size - start) as usize);
        Box::pin(async move { read.map(|bytes| Tail { size, bytes }) })
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let read = ReadAt::read_at(&self.0, offset, len);
        Box::pin(async move { read })
    }
}

/// Runs a future of which no part ever waits.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1 << 20 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("a future that never ends");
}

/// Asks `file` as a remote table and as one that is read at once.
pub fn as_remote(file: &Bytes, options: &OpenOptions, probes: &[Vec<u8>]) {
    // As much of the end as the file's own bytes say, so that parts are missing in all ways.
    let tail_len = u64::from(crc32c::crc32c(file)) % (file.len() as u64 + 2);
    let remote = run(options.open_async(Near(file.clone()), Some(tail_len)));
    let table = options.open_source(disk(file));
    match (remote, table) {
        (Ok(remote), Ok(table)) => compare(&remote, &table, probes),
        (remote, table) => {
            // Of several errors, the one that comes first depends on what came with the end.
            assert!(remote.is_err() && table.is_err());
            let alike = run(options.open_async(Near(file.clone()), None));
            assert_eq!(shown(alike.map(drop)), shown(table.map(drop)));
        }
    }
}

fn compare(remote: &AsyncTable, table: &Table, probes: &[Vec<u8>]) {
    let mut keys = probes.to_vec();
    let mut range = remote.range(..);
    let mut entries = table.range(..);
    for _ in 0..MAX_ENTRIES {
        let ours = shown(run(range.next()).map(|entry| entry.map(owned)));
        let theirs = shown(entries.next().transpose().map(|entry| entry.map(owned)));
        assert_eq!(ours, theirs);
        match theirs {
            Ok(Some((key, _))) => keys.push(key),
            _ => break,
        }
    }
    keys.truncate(40);
    for key in &keys {
        assert_eq!(shown(run(remote.get(key))), shown(table.get(key)));
    }
    for pair in keys.windows(2) {
        let (lower, upper) = (&pair[0][..], &pair[1][..]);
        let mut range = remote.range(lower..upper);
        let mut entries = table.range(lower..upper);
        for _ in 0..3 {
            let ours = shown(run(range.next()).map(|entry| entry.map(owned)));
            let theirs = shown(entries.next().transpose().map(|entry| entry.map(owned)));
            assert_eq!(ours, theirs);
        }
    }
    let (ours, theirs) = (run(remote.get_many(&keys)), table.get_many(&keys));
    match (&ours, &theirs) {
        // Of several errors, the one that comes first depends on what was seen before.
        (Err(_), Err(_)) => {}
        _ => assert_eq!(shown(ours), shown(theirs)),
    }
}

fn owned((key, value): (Bytes, Bytes)) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// A result in a form that can be compared: an error by its kind and the place of the damage.
fn shown<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|error| {
        let place = error.corruption();
        let place = place.map(|corruption| (corruption.section, corruption.offset));
        format!("{:?} {place:?}", error.kind())
    })
}
