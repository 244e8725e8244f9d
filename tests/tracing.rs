//! Every event that the crate's documentation lists, with its fields, as a subscriber of its own sees it.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Once};

use bytes::Bytes;
use common::Layout;
use leveltable::{
    BlockCache, Compression, ErrorKind, OpenOptions, ReadAt, Section, Source, Table, WriteOptions,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// An event of this crate. The message is among the fields.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    level: Level,
    target: String,
    fields: BTreeMap<String, String>,
}

thread_local! {
    /// The events of this thread, which are those of one test.
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

struct Recorder;

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").unwrap();
        let twice = self.0.insert(field.name().to_owned(), text);
        assert_eq!(twice, None, "{field} twice");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leveltable")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let event = Event {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            fields: fields.0,
        };
        EVENTS.with_borrow_mut(|events| events.push(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("this crate opens no spans")
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs `work`. Returns its result, and the events meanwhile.
fn events_of<R>(work: impl FnOnce() -> R) -> (R, Vec<Event>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
    EVENTS.take();
    let result = work();
    (result, EVENTS.take())
}

fn event(level: Level, target: &str, fields: &[(&str, &dyn ToString)]) -> Event {
    let field = |(name, value): &(&str, &dyn ToString)| ((*name).to_owned(), value.to_string());
    Event {
        level,
        target: target.to_owned(),
        fields: fields.iter().map(field).collect(),
    }
}

fn reading(offset: u64, bytes: usize) -> Event {
    let fields: [(&str, &dyn ToString); 3] = [
        ("message", &"reading"),
        ("offset", &offset),
        ("bytes", &bytes),
    ];
    event(Level::TRACE, "leveltable::read", &fields)
}

/// Those of `events` with this target.
fn with_target(events: &[Event], target: &str) -> Vec<Event> {
    let has_target = |event: &&Event| event.target == target;
    events.iter().filter(has_target).cloned().collect()
}

fn write(options: &WriteOptions, path: &Path, entries: u32) -> u64 {
    let mut builder = options.create(path).unwrap();
    for i in 0..entries {
        builder.add(key(i), [b'v'; 100]).unwrap();
    }
    builder.finish().unwrap().file_bytes
}

fn key(i: u32) -> String {
    format!("key{i:06}")
}

/// A table whose parts are read one by one: it is larger than what opening reads at once.
fn large(entries: u32) -> Vec<u8> {
    let options = WriteOptions::new().compression(Compression::None);
    let entry = |i| (key(i).into_bytes(), vec![b'v'; 100]);
    common::build(&options, &(0..entries).map(entry).collect::<Vec<_>>())
}

/// A source that remembers what it was asked for, and fails if told to.
struct Watched {
    bytes: Bytes,
    asked: Mutex<Vec<(u64, usize)>>,
    fails: Mutex<bool>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Arc<Watched> {
        Arc::new(Watched {
            bytes: bytes.into(),
            asked: Mutex::default(),
            fails: Mutex::default(),
        })
    }

    /// The events of the reads that were made since the last call.
    fn take_reads(&self) -> Vec<Event> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let reading = |(offset, len)| reading(offset, len);
        asked.into_iter().map(reading).collect()
    }
}

impl ReadAt for Watched {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.asked.lock().unwrap().push((offset, len));
        if *self.fails.lock().unwrap() {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.bytes.read_at(offset, len)
    }
}

#[test]
fn publication_and_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.ldb");
    let options = WriteOptions::new().compression(Compression::None);
    let (bytes, events) = events_of(|| write(&options, &path, 100));
    let published = event(
        Level::DEBUG,
        "leveltable::publish",
        &[
            ("message", &"published a table"),
            ("path", &path.display()),
            ("entries", &100),
            ("bytes", &bytes),
        ],
    );
    assert_eq!(events, [published]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);

    let (table, events) = events_of(|| Table::open(&path).unwrap());
    let mut read = reading(0, bytes as usize);
    read.fields
        .insert("path".into(), path.display().to_string());
    let opened = event(
        Level::DEBUG,
        "leveltable::open",
        &[
            ("message", &"opened a table"),
            ("path", &path.display()),
            ("bytes", &bytes),
            ("blocks", &table.data_blocks()),
            ("filter", &"leveltable.Ribbon1"),
        ],
    );
    assert_eq!(events, [read, opened]);

    // From memory, without a path, a filter, or a read.
    let mut file = Vec::new();
    let (_, events) = events_of(|| options.build(&mut file).finish().unwrap());
    let written = event(
        Level::DEBUG,
        "leveltable::publish",
        &[
            ("message", &"published a table"),
            ("entries", &0),
            ("bytes", &file.len()),
        ],
    );
    assert_eq!(events, [written]);
    let bytes = file.len();
    let (_, events) = events_of(|| OpenOptions::new().no_filter().open_source(file).unwrap());
    let opened = event(
        Level::DEBUG,
        "leveltable::open",
        &[
            ("message", &"opened a table"),
            ("bytes", &bytes),
            ("blocks", &0),
        ],
    );
    assert_eq!(events, [opened]);
}

/// Each event of a read is a read that the source was asked for, and the other way round.
#[test]
fn reads_and_batches() {
    let disk = Watched::new(large(5_000));
    let options = OpenOptions::new().cache(BlockCache::new(1 << 20));
    let (table, events) = events_of(|| options.open_source(disk.clone()).unwrap());
    let reads = disk.take_reads();
    assert!(!reads.is_empty());
    assert_eq!(with_target(&events, "leveltable::read"), reads);

    let (_, events) = events_of(|| table.get(key(0)).unwrap().unwrap());
    let first = disk.take_reads();
    assert_eq!(first.len(), 1);
    assert_eq!(events, first);
    let (_, events) = events_of(|| table.get(key(0)).unwrap().unwrap());
    assert_eq!(events, [], "a block from the cache");

    let keys = [key(1_000), key(2_000), key(3_000)];
    let (_, events) = events_of(|| table.get_many(&keys).unwrap());
    let reads = disk.take_reads();
    assert_eq!(reads.len(), 3);
    assert_eq!(events, reads);

    let (_, events) = events_of(|| table.iter().count());
    let reads = disk.take_reads();
    assert!(reads.len() > 5, "{reads:?}");
    assert_eq!(events, reads);
    assert_eq!(events_of(|| table.stats()).1, []);
}

/// One event for an error, whichever way leads to the damage, and however often the block was read on that way.
#[test]
fn damage() {
    let mut file = large(5_000);
    let sound = file.clone();
    let layout = Layout::of(&file);
    let damaged = layout.data[10].clone();
    file[damaged.start + 20] ^= 1;
    let table = OpenOptions::new()
        .no_cache()
        .open_source(Watched::new(file))
        .unwrap();
    let first_key_of = |block: usize| {
        common::entries(&common::payload(&sound, &layout.data[block]))
            .remove(0)
            .0
    };
    let expected = |error: &leveltable::Error| {
        let corruption = error.corruption().unwrap();
        assert_eq!(corruption.section, Section::Data);
        assert_eq!(corruption.offset, damaged.start as u64);
        event(
            Level::ERROR,
            "leveltable::error",
            &[
                ("message", &"an error"),
                ("kind", &"Corruption"),
                ("section", &"data block"),
                ("offset", &damaged.start),
                ("error", error),
            ],
        )
    };
    let (result, events) = events_of(|| table.get(first_key_of(10)));
    let error = result.unwrap_err();
    assert_eq!(
        with_target(&events, "leveltable::error"),
        [expected(&error)]
    );

    // Read with its neighbours, and then once more alone.
    let around = [9, 10, 11].map(first_key_of);
    let (result, events) = events_of(|| table.get_many(&around));
    let error = result.unwrap_err();
    assert_eq!(
        with_target(&events, "leveltable::error"),
        [expected(&error)]
    );

    for is_backward in [false, true] {
        let (result, events) = events_of(|| {
            let mut entries = table.iter();
            if is_backward {
                entries.rev().find_map(Result::err)
            } else {
                entries.find_map(Result::err)
            }
        });
        let error = result.unwrap();
        let errors = with_target(&events, "leveltable::error");
        assert_eq!(errors, [expected(&error)]);
    }
}

#[test]
fn failed_reads_and_openings() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.ldb");
    let failure = |path: Option<&Path>, kind: ErrorKind, error: &leveltable::Error| {
        let mut failure = event(
            Level::WARN,
            "leveltable::error",
            &[
                ("message", &"an error"),
                ("kind", &format!("{kind:?}")),
                ("error", error),
            ],
        );
        if let Some(path) = path {
            let path = path.display().to_string();
            failure.fields.insert("path".into(), path);
        }
        failure
    };
    for open in [Source::open, Source::load] {
        let (result, events) = events_of(|| open(&missing));
        let error = result.unwrap_err();
        assert_eq!(events, [failure(Some(&missing), ErrorKind::Io, &error)]);
    }

    let text = dir.path().join("text.ldb");
    std::fs::write(&text, "This is no table. ".repeat(10)).unwrap();
    let (result, events) = events_of(|| Table::open(&text));
    let error = result.unwrap_err();
    let not_opened = event(
        Level::DEBUG,
        "leveltable::open",
        &[
            ("message", &"did not open a table"),
            ("path", &text.display()),
            ("error", &error),
        ],
    );
    let expected = [
        failure(Some(&text), ErrorKind::NotATable, &error),
        not_opened,
    ];
    assert_eq!(events[events.len() - 2..], expected);
    assert_eq!(with_target(&events, "leveltable::error").len(), 1);

    let disk = Watched::new(large(5_000));
    let table = OpenOptions::new().open_source(disk.clone()).unwrap();
    *disk.fails.lock().unwrap() = true;
    disk.take_reads();
    let (result, events) = events_of(|| table.get(key(7)));
    let error = result.unwrap_err();
    let failed = failure(None, ErrorKind::Io, &error);
    assert_eq!(events, [disk.take_reads(), vec![failed]].concat());
}

#[test]
fn failed_writes() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("no room"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (result, events) = events_of(|| WriteOptions::new().build(Full).finish());
    let failed = event(
        Level::WARN,
        "leveltable::error",
        &[
            ("message", &"an error"),
            ("kind", &"Io"),
            ("error", &result.unwrap_err()),
        ],
    );
    assert_eq!(events, [failed]);
}
