//! A writer and a source that misbehave at the n-th call, for every n of a full build and a full read:
//! an error or the right result, never a panic, never a builder that goes on after losing bytes.
//!
//! Both tests print how many fault points they tried (`-- --nocapture`).

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{self, Entry, Random};
use bytes::Bytes;
use leveltable::{
    BlockCache, BloomFilterPolicy, Comparator, Compression, Error, ErrorKind, OpenOptions, ReadAt,
    Section, Summary, Table, WriteOptions,
};

// ---- Writing --------------------------------------------------------------------------------

/// A misbehaviour of the writer at one of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteFault {
    Fail,
    /// `Interrupted`, which is to be tried again.
    Interrupt,
    /// Takes one byte, which is allowed.
    Short,
    /// Takes nothing, which means that it never will.
    Zero,
    /// Takes half and fails at the next call.
    ShortThenFail,
    /// Claims to have written more than it was given.
    TooMuch,
}

const WRITE_FAULTS: [WriteFault; 6] = [
    WriteFault::Fail,
    WriteFault::Interrupt,
    WriteFault::Short,
    WriteFault::Zero,
    WriteFault::ShortThenFail,
    WriteFault::TooMuch,
];

/// Takes at most `most` bytes at a call, and has `fault` at call `at`, counted from 0. Its flush is a
/// call, too.
#[derive(Clone)]
struct FaultyWriter {
    fault: WriteFault,
    at: usize,
    most: usize,
    state: Arc<Mutex<Written>>,
}

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    calls: usize,
    /// Returned an error that is not to be tried again.
    failed: bool,
}

impl FaultyWriter {
    fn new(fault: WriteFault, at: usize, most: usize) -> FaultyWriter {
        let state = Arc::default();
        FaultyWriter {
            fault,
            at,
            most,
            state,
        }
    }

    fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }
}

impl Written {
    fn fail<T>(&mut self) -> io::Result<T> {
        self.failed = true;
        Err(io::Error::other("the disk is on fire"))
    }
}

impl Write for FaultyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        assert!(!state.failed, "written to after it failed");
        let call = state.calls;
        state.calls += 1;
        let whole = bytes.len().min(self.most);
        let taken = match self.fault {
            WriteFault::Fail if call == self.at => return state.fail(),
            WriteFault::ShortThenFail if call == self.at + 1 => return state.fail(),
            WriteFault::Interrupt if call == self.at => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            WriteFault::Zero if call == self.at => {
                state.failed = true;
                return Ok(0);
            }
            WriteFault::TooMuch if call == self.at => {
                state.failed = true;
                return Ok(bytes.len() + 1);
            }
            WriteFault::Short if call == self.at => 1,
            WriteFault::ShortThenFail if call == self.at => whole.div_ceil(2),
            _ => whole,
        };
        state.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        assert!(!state.failed, "flushed after it failed");
        let call = state.calls;
        state.calls += 1;
        let fails = match self.fault {
            WriteFault::Fail => call == self.at,
            WriteFault::ShortThenFail => call == self.at + 1,
            _ => false,
        };
        if fails { state.fail() } else { Ok(()) }
    }
}

/// The bytewise order without separators, so that the index holds whole keys.
#[derive(Debug)]
struct WholeKeys;

impl Comparator for WholeKeys {
    fn name(&self) -> &str {
        "test.WholeKeys"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

/// Data, filter and index that each take several writes: the builder gathers 256 KiB and more.
fn large_entries() -> Vec<Entry> {
    let mut random = Random(1);
    let entry = |i: u8| {
        let key = [&[i][..], &random.bytes(16).repeat(1000)].concat();
        let value = random.bytes(16).repeat(1500);
        (key, value)
    };
    (0..28).map(entry).collect()
}

fn large_options(block_size: usize) -> WriteOptions {
    WriteOptions::new()
        .compression(Compression::None)
        .block_size(block_size)
        .comparator(WholeKeys)
        .filter_policy(BloomFilterPolicy::new(90_000))
}

/// Builds the table as an application does, and stops at the first error; whatever it then tries must
/// be refused.
fn build(
    options: &WriteOptions,
    writer: FaultyWriter,
    entries: &[Entry],
) -> Result<Summary, Error> {
    let mut builder = options.build(writer.clone());
    for (key, value) in entries {
        if let Err(error) = builder.add(key, value) {
            let calls = writer.calls();
            let refused = [
                builder.add(b"\xff", b"later").unwrap_err(),
                builder.flush().unwrap_err(),
                builder.finish().unwrap_err(),
            ];
            for refused in refused {
                assert_eq!(refused.kind(), ErrorKind::InvalidState, "{refused}");
            }
            assert_eq!(writer.calls(), calls, "touched after the error");
            return Err(error);
        }
    }
    builder.finish()
}

#[test]
fn a_faulty_writer_gives_an_error_or_the_whole_table() {
    let entries = large_entries();
    let (mut points, mut errors) = (0, 0);
    for (block_size, most) in [(1, usize::MAX), (100_000, usize::MAX), (1 << 20, 100_000)] {
        let options = large_options(block_size);
        let sound = common::build(&options, &entries);
        let unharmed = FaultyWriter::new(WriteFault::Fail, usize::MAX - 1, most);
        let summary = build(&options, unharmed.clone(), &entries).unwrap();
        assert!(unharmed.calls() >= 5, "{} calls", unharmed.calls());
        for at in 0..unharmed.calls() {
            for fault in WRITE_FAULTS {
                let writer = FaultyWriter::new(fault, at, most);
                let built = build(&options, writer.clone(), &entries);
                let written = writer.state.lock().unwrap();
                points += 1;
                match built {
                    Ok(built) => {
                        assert!(!written.failed, "{fault:?} at call {at} was not noticed");
                        assert_eq!(built, summary);
                        assert!(written.bytes == sound, "{fault:?} at call {at}");
                    }
                    Err(error) => {
                        assert!(written.failed, "{fault:?} at call {at} is none: {error}");
                        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                        assert!(error.io_error().is_some());
                        // Only where the flush at the very end fails have all bytes been taken.
                        let is_whole = written.bytes.len() == sound.len();
                        assert!(sound.starts_with(&written.bytes));
                        assert!(
                            !is_whole || at + 2 >= unharmed.calls(),
                            "{fault:?} at call {at}"
                        );
                        if !is_whole {
                            let opened = OpenOptions::new().comparator(WholeKeys);
                            assert!(opened.open_source(written.bytes.clone()).is_err());
                        }
                        errors += 1;
                    }
                }
            }
        }
    }
    println!("{points} fault points of builds tried: {errors} errors, the others whole tables");
    assert!(points > 150 && errors > points / 2, "{errors} of {points}");
}

// ---- Reading --------------------------------------------------------------------------------

/// A misbehaviour of the source at one of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadFault {
    Fail,
    Interrupt,
    UnexpectedEof,
    /// One byte less, against the contract of `ReadAt`.
    Short,
    Nothing,
    /// One byte more.
    TooMuch,
    /// As many bytes as asked for, each from the place of its neighbour.
    Shifted,
    /// A bit of them flipped on the way.
    Flipped,
}

const READ_FAULTS: [ReadFault; 8] = [
    ReadFault::Fail,
    ReadFault::Interrupt,
    ReadFault::UnexpectedEof,
    ReadFault::Short,
    ReadFault::Nothing,
    ReadFault::TooMuch,
    ReadFault::Shifted,
    ReadFault::Flipped,
];

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasting {
    OneCall,
    ForEver,
}

struct FaultySource {
    file: Bytes,
    fault: ReadFault,
    at: usize,
    lasting: Lasting,
    calls: AtomicUsize,
}

impl ReadAt for FaultySource {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let start = offset as usize;
        let asked = start..start + len;
        let faulty = match self.lasting {
            Lasting::OneCall => call == self.at,
            Lasting::ForEver => call >= self.at,
        };
        if !faulty {
            return Ok(self.file.slice(asked));
        }
        match self.fault {
            ReadFault::Fail => Err(io::Error::other("the disk is on fire")),
            ReadFault::Interrupt => Err(io::ErrorKind::Interrupted.into()),
            ReadFault::UnexpectedEof => Err(io::ErrorKind::UnexpectedEof.into()),
            ReadFault::Short => Ok(self.file.slice(start..start + len - 1)),
            ReadFault::Nothing => Ok(Bytes::new()),
            ReadFault::TooMuch => {
                let mut bytes = self.file[asked].to_vec();
                bytes.push(0);
                Ok(bytes.into())
            }
            ReadFault::Shifted => {
                let mut bytes = self.file[asked].to_vec();
                bytes.rotate_left(1);
                Ok(bytes.into())
            }
            ReadFault::Flipped => {
                let mut bytes = self.file[asked].to_vec();
                bytes[len / 2] ^= 0x10;
                Ok(bytes.into())
            }
        }
    }
}

fn small_entries() -> Vec<Entry> {
    let entry = |i: u32| {
        let key = format!("key{:04}", 2 * i).into_bytes();
        // So large, and random, that the file is read in pieces.
        (key, common::Random(i.into()).bytes(3000))
    };
    (0..24).map(entry).collect()
}

/// Opens the table and reads all of it in every way. Returns how many operations failed; what does not fail
/// must be right.
fn read_everything(source: Arc<FaultySource>, open: &OpenOptions, entries: &[Entry]) -> usize {
    let Ok(table) = open.open_source(Arc::clone(&source)) else {
        return 1;
    };
    let mut failed = 0;
    let mut check = |key: &[u8], expected: Option<&[u8]>| match table.get(key) {
        Ok(found) => assert_eq!(found.as_deref(), expected),
        Err(_) => failed += 1,
    };
    for (key, value) in entries {
        check(key, Some(value));
        check(&[key, &b"\0"[..]].concat(), None);
    }
    // Every other key, so that their blocks are parts of their own, and all keys, whose blocks are read as one part.
    for step in [2, 1] {
        let entries: Vec<&Entry> = entries.iter().step_by(step).collect();
        let keys: Vec<&Vec<u8>> = entries.iter().map(|(key, _)| key).collect();
        match table.get_many(&keys) {
            Ok(found) => {
                for (found, (_, value)) in found.into_iter().zip(entries) {
                    assert_eq!(found.as_deref(), Some(&value[..]));
                }
            }
            Err(_) => failed += 1,
        }
    }
    let mut walk = |walk: &mut dyn Iterator<Item = leveltable::Result<(Bytes, Bytes)>>,
                    expected: &mut dyn Iterator<Item = &Entry>| {
        for expected in expected {
            match walk
                .next()
                .expect("a walk ends with an error or the last entry")
            {
                Ok((key, value)) => {
                    assert_eq!((&key[..], &value[..]), (&expected.0[..], &expected.1[..]))
                }
                Err(_) => {
                    failed += 1;
                    break;
                }
            }
        }
        assert!(walk.next().is_none());
    };
    walk(&mut table.iter(), &mut entries.iter());
    walk(&mut table.iter().rev(), &mut entries.iter().rev());
    failed + step_everywhere(&table, entries)
}

/// A cursor that steps across every block boundary and back. After an error it must refuse to step, and
/// find its place again by a seek.
fn step_everywhere(table: &Table, entries: &[Entry]) -> usize {
    let mut failed = 0;
    let mut cursor = table.cursor();
    for (i, (key, _)) in entries.iter().enumerate() {
        type Step = fn(&mut leveltable::Cursor) -> leveltable::Result<bool>;
        let seek = cursor.seek(key);
        let steps: [(Step, Option<usize>); 3] = [
            (
                |cursor| cursor.next(),
                i.checked_add(1).filter(|&i| i < entries.len()),
            ),
            (|cursor| cursor.prev(), Some(i)),
            (|cursor| cursor.prev(), i.checked_sub(1)),
        ];
        let mut lost = match seek {
            Ok(found) => {
                assert!(found && cursor.key() == key);
                false
            }
            Err(_) => true,
        };
        failed += usize::from(lost);
        for (step, expected) in steps {
            match step(&mut cursor) {
                Ok(found) => {
                    assert!(!lost, "stepped from nowhere");
                    let here = found.then(|| (cursor.key(), cursor.value()));
                    let expected = expected.map(|i| (&entries[i].0[..], &entries[i].1[..]));
                    assert_eq!(here, expected);
                }
                Err(error) if lost => assert_eq!(error.kind(), ErrorKind::InvalidState),
                Err(_) => {
                    lost = true;
                    failed += 1;
                }
            }
            assert!(!lost || !cursor.is_valid() && cursor.key().is_empty());
        }
    }
    failed
}

#[test]
fn a_faulty_source_gives_errors_or_right_answers() {
    let entries = small_entries();
    let (mut points, mut runs_with_errors) = (0, 0);
    let filters = [
        WriteOptions::new().no_filter(),
        WriteOptions::new(),
        WriteOptions::new().compression(Compression::None),
    ];
    for write in filters.map(|options| options.block_size(50)) {
        let file = Bytes::from(common::build(&write, &entries));
        let sources = |fault, at, lasting| {
            let calls = AtomicUsize::new(0);
            Arc::new(FaultySource {
                file: file.clone(),
                fault,
                at,
                lasting,
                calls,
            })
        };
        let no_cache = || OpenOptions::new().no_cache();
        let own_cache = || OpenOptions::new().cache(BlockCache::new(1 << 20));
        // A fresh cache for each run: what a fault left there must not outlive it.
        let caches: [&dyn Fn() -> OpenOptions; 2] = [&no_cache, &own_cache];
        for open in caches {
            let unharmed = sources(ReadFault::Fail, usize::MAX, Lasting::ForEver);
            assert_eq!(read_everything(Arc::clone(&unharmed), &open(), &entries), 0);
            let calls = unharmed.calls.load(Ordering::Relaxed);
            assert!(calls >= 10, "{calls} calls");
            for at in 0..calls {
                for fault in READ_FAULTS {
                    for lasting in [Lasting::OneCall, Lasting::ForEver] {
                        // A disk that fails for good: the first calls and some later ones tell enough.
                        if lasting == Lasting::ForEver && at > 8 && at % 16 != 0 {
                            continue;
                        }
                        let source = sources(fault, at, lasting);
                        let failed = read_everything(source, &open(), &entries);
                        if lasting == Lasting::OneCall {
                            assert!(
                                failed <= 1,
                                "{fault:?} at call {at}: {failed} operations failed"
                            );
                        }
                        points += 1;
                        runs_with_errors += usize::from(failed > 0);
                    }
                }
            }
        }
    }
    println!(
        "{points} fault points of reads tried: {runs_with_errors} with errors, the others right throughout"
    );
    assert!(points > 1000 && runs_with_errors > points / 2);
}

/// Too few bytes or too many are the source's fault, and reported as such: not as damage to the file.
#[test]
fn a_source_that_gives_the_wrong_length_is_not_a_damaged_table() {
    let entries = small_entries();
    let file = Bytes::from(common::build(&WriteOptions::new(), &entries));
    for fault in [ReadFault::Short, ReadFault::Nothing, ReadFault::TooMuch] {
        for at in 0..2 {
            let source = Arc::new(FaultySource {
                file: file.clone(),
                fault,
                at,
                lasting: Lasting::OneCall,
                calls: AtomicUsize::new(0),
            });
            let open = OpenOptions::new().no_cache();
            let opened = open.open_source(source);
            let found = opened.and_then(|table| table.get(&entries[0].0));
            if at == 0 {
                // The end of the file, which is read in pieces if it cannot be read at once.
                assert_eq!(found.unwrap().unwrap(), entries[0].1, "{fault:?}");
                continue;
            }
            // The second call is for the data block.
            let error = found.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Io,
                "{fault:?} at call {at}: {error}"
            );
        }
    }
}

/// Sources that lie about their size, or cannot tell it.
#[test]
fn a_source_that_lies_about_its_size_is_an_error() {
    struct Liar(Bytes, io::Result<u64>);

    impl ReadAt for Liar {
        fn size(&self) -> io::Result<u64> {
            match &self.1 {
                Ok(size) => Ok(*size),
                Err(error) => Err(error.kind().into()),
            }
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.0.read_at(offset, len)
        }
    }

    let file = Bytes::from(common::build(&WriteOptions::new(), &small_entries()));
    let size = file.len() as u64;
    let sizes = [
        0,
        1,
        47,
        48,
        size - 1,
        size + 1,
        2 * size,
        1 << 40,
        u64::MAX,
    ];
    for claimed in sizes
        .map(Ok)
        .into_iter()
        .chain([Err(io::Error::other("no idea"))])
    {
        let source = Arc::new(Liar(file.clone(), claimed));
        let error = OpenOptions::new().open_source(source).unwrap_err();
        let kinds = [ErrorKind::Io, ErrorKind::NotATable, ErrorKind::Corruption];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

/// The error of a byte that cannot be read says in which section it is.
#[test]
fn an_error_of_the_source_names_the_section() {
    let (file, keys, holes) = common::table_with_holes();
    let layout = common::Layout::of(&file);
    let mut named = Vec::new();
    for hole in holes.into_iter().chain([file.len() - 10]) {
        let source = Arc::new(common::Hole(file.clone(), hole));
        let read = || {
            let table = OpenOptions::new().no_cache().open_source(source)?;
            for key in keys.iter().step_by(97) {
                table.get(key)?;
            }
            table.iter().try_for_each(|entry| entry.map(drop))
        };
        let (section, _) = layout.section_at(hole);
        if let Err(error) = read() {
            common::assert_names_section(&error, section);
            named.push(section);
        }
    }
    for section in [
        Section::Data,
        Section::Index,
        Section::Filter,
        Section::Footer,
    ] {
        assert!(named.contains(&section), "{section}: {named:?}");
    }
}
