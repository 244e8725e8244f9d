//! The work of a row, done by the engine that this program was compiled with, in a process of its own. The process makes itself
//! ready, and then does a part of the work each time that it is told to.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use leveltable::{Compression, Cursor, OpenOptions, Source, Table, WriteOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::data::{Answers, Key, Keys, Probes, VALUE_LEN};
use crate::redb_peer::Redb;
use crate::rows::{Beside, Case, Row, Work};

/// Bytes that opening a table reads.
const TAIL_LEN: usize = 64 << 10;
/// Keys that warm the processor's caches up, after another process had its turn.
const AFTER_A_TURN: usize = 500;

/// A part of a row's work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    pub nanos: f64,
    /// Nanoseconds of what was done beside it.
    pub beside: f64,
    pub answers: Answers,
}

impl Part {
    /// What a process that measures writes, and `cpp/leveldb.cc`.
    fn render(&self) -> String {
        let Answers { checksum, count } = self.answers;
        format!("{} {} {checksum} {count}", self.nanos, self.beside)
    }

    pub fn parse(line: &str) -> Result<Part> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [nanos, beside, checksum, count] = words[..] else {
            anyhow::bail!("{line:?} instead of four words");
        };
        Ok(Part {
            nanos: nanos.parse()?,
            beside: beside.parse()?,
            answers: Answers {
                checksum: checksum.parse()?,
                count: count.parse()?,
            },
        })
    }
}

/// Processor time of this process. The work waits for nothing, so that on an idle machine it is the time that passes; on a busy one
/// it leaves others' time out.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns how many nanoseconds `work` takes, and what it found.
fn timed(work: impl FnOnce() -> Result<Answers>) -> Result<(f64, Answers)> {
    let start = processor_time();
    let answers = work()?;
    let took = processor_time() - start;
    Ok((took.as_nanos() as f64, answers))
}

/// Says that everything is ready. Then, for each number on a line, does that part of the work by `part`, and says how it went.
fn serve(mut part: impl FnMut(usize) -> Result<Part>) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    for line in io::stdin().lock().lines() {
        writeln!(out, "{}", part(line?.parse()?)?.render())?;
    }
    Ok(())
}

/// Does the work of `case` on the tables in `files`.
pub fn work(case: &Case, files: &Path) -> Result<()> {
    let row = &case.row;
    let data = row.data;
    let path = |number| data.table(files, case.shape, number);
    let side = Side {
        row,
        paths: (0..data.tables).map(path).collect(),
        probes: match row.work.probes() {
            Some(probes) => data.read_probes(files, case.shape, probes)?,
            None => Probes::default(),
        },
    };
    match row.work {
        Work::Open => side.openings(),
        Work::Build => side.builds(case, files),
        Work::BuildNumbers => side.builds_of_numbers(),
        Work::Threads => side.threads(),
        _ => side.reads(),
    }
}

/// Does the work of `case` by `redb`.
pub fn work_of_redb(case: &Case, files: &Path) -> Result<()> {
    let row = &case.row;
    let database = Redb::open(&row.data.redb(files, case.shape))?;
    let Some(probes) = row.work.probes() else {
        anyhow::bail!("nothing is looked up");
    };
    let keys = row.data.read_probes(files, case.shape, probes)?.keys;
    database.look_up(&keys[row.behind(row.warm)])?;
    serve(|part| {
        database.look_up(&keys[row.behind(AFTER_A_TURN)])?;
        let (nanos, answers) = timed(|| database.look_up(&keys[row.part(part)]))?;
        Ok(Part {
            nanos,
            answers,
            ..Part::default()
        })
    })
}

impl Row {
    /// Numbers of the keys of a part.
    fn part(&self, part: usize) -> Range<usize> {
        self.len * part..self.len * (part + 1)
    }

    /// Numbers of keys behind those of all parts, to warm up with.
    fn behind(&self, keys: usize) -> Range<usize> {
        let first = self.len * self.parts;
        first..first + keys
    }
}

struct Side<'a> {
    row: &'a Row,
    paths: Vec<PathBuf>,
    probes: Probes,
}

impl Side<'_> {
    fn open(&self, mapped: bool) -> Result<Vec<Table>> {
        let open = |path: &PathBuf| {
            if !mapped {
                return Table::open(path);
            }
            // SAFETY: nobody changes the file while the bench runs.
            let source = unsafe { Source::map(path) }?;
            OpenOptions::new().open_source(source)
        };
        let opened = self.paths.iter().map(open);
        opened.collect::<Result<_, _>>().context("opening tables")
    }

    /// Opens the tables, and does with them some of the row's work.
    fn warm(&self, mapped: bool, work: Work) -> Result<Vec<Table>> {
        let tables = self.open(mapped)?;
        if mapped || self.probes.keys.is_empty() {
            scan(&tables, false, true)?;
        }
        if !self.probes.keys.is_empty() {
            let keys = if mapped {
                self.row.warm / 6
            } else {
                self.row.warm
            };
            self.read(&tables, work, self.row.behind(keys))?;
        }
        Ok(tables)
    }

    fn reads(&self) -> Result<()> {
        let row = self.row;
        let tables = self.warm(row.mapped, row.work)?;
        let beside = match row.beside {
            Some(Beside::Map) => Some((self.warm(true, row.work)?, row.work)),
            Some(Beside::Loop) => Some((self.warm(row.mapped, Work::Bytes)?, Work::Bytes)),
            _ => None,
        };
        let once = |tables: &[Table], work, part| {
            if !self.probes.keys.is_empty() {
                self.read(tables, work, row.behind(AFTER_A_TURN))?;
            }
            timed(|| self.read(tables, work, row.part(part)))
        };
        serve(|part| {
            let (nanos, answers) = once(&tables, row.work, part)?;
            let beside = match &beside {
                Some((tables, work)) => once(tables, *work, part)?.0,
                None => f64::NAN,
            };
            Ok(Part {
                nanos,
                beside,
                answers,
            })
        })
    }

    fn read(&self, tables: &[Table], work: Work, range: Range<usize>) -> Result<Answers> {
        if let Work::Scan { back, values } = work {
            return scan(tables, back, values);
        }
        let keys = &self.probes.keys[range.clone()];
        let mut answers = Answers::default();
        match (work, tables) {
            (Work::Lent(_), [table]) => {
                for key in keys {
                    table.get_with(key, |value| answers.value(value))?;
                }
            }
            (Work::Lent(_), _) => {
                for (key, &table) in keys.iter().zip(&self.probes.tables[range]) {
                    tables[table as usize].get_with(key, |value| answers.value(value))?;
                }
            }
            (Work::Many(len), _) => {
                for keys in keys.chunks(len) {
                    for value in tables[0].get_many(keys)?.iter().flatten() {
                        answers.value(value);
                    }
                }
            }
            (Work::Seek(len), _) => seek(&tables[0], keys, len, &mut answers)?,
            _ => {
                for key in keys {
                    if let Some(value) = tables[0].get(key)? {
                        answers.value(&value);
                    }
                }
            }
        }
        Ok(answers)
    }

    fn openings(&self) -> Result<()> {
        let path = &self.paths[0];
        let repeat = |once: &dyn Fn() -> Result<()>| {
            for _ in 0..self.row.len {
                once()?;
            }
            Ok(Answers::default())
        };
        let open = || {
            black_box(Table::open(path)?);
            Ok(())
        };
        let read = || {
            let file = File::open(path)?;
            let at = file.metadata()?.len().saturating_sub(TAIL_LEN as u64);
            let mut tail = vec![0; TAIL_LEN];
            file.read_exact_at(&mut tail, at)?;
            black_box(&tail);
            Ok(())
        };
        serve(|_| {
            open()?;
            let (nanos, answers) = timed(|| repeat(&open))?;
            let (beside, _) = timed(|| repeat(&read))?;
            Ok(Part {
                nanos,
                beside,
                answers,
            })
        })
    }

    /// Each of two threads looks its keys up, in a table that is the other's, too, and then in one of its own.
    fn threads(&self) -> Result<()> {
        let (one, two) = (self.warm(true, Work::Bytes)?, self.warm(true, Work::Bytes)?);
        let work = Work::Lent(Keys::Mixed);
        let both = |first: &[Table], second: &[Table], part| {
            let keys = self.row.part(part);
            let middle = keys.start + self.row.len / 2;
            let start = Instant::now();
            let mut answers = thread::scope(|scope| {
                let other = scope.spawn(|| self.read(second, work, middle..keys.end));
                let answers = self.read(first, work, keys.start..middle)?;
                let others = other.join().expect("a lookup panicked")?;
                anyhow::Ok([answers, others])
            })?;
            let took = start.elapsed().as_nanos() as f64;
            answers[0].checksum ^= answers[1].checksum;
            answers[0].count += answers[1].count;
            anyhow::Ok((took, answers[0]))
        };
        serve(|part| {
            let (nanos, answers) = both(&one, &one, part)?;
            let (beside, _) = both(&one, &two, part)?;
            Ok(Part {
                nanos,
                beside,
                answers,
            })
        })
    }

    /// The row's tables, in memory.
    fn builds(&self, case: &Case, files: &Path) -> Result<()> {
        let (keys, values) = self.row.data.read_entries(files, case.shape)?;
        let mut bytes = Vec::new();
        let mut build = || {
            bytes.clear(); // the memory stays
            let mut builder = self.row.data.kind.options().build(&mut bytes);
            for (key, value) in keys.iter().zip(values.chunks_exact(VALUE_LEN).cycle()) {
                builder.add(key, value)?;
            }
            builder.finish()?;
            Ok(Answers {
                checksum: 0,
                count: keys.len() as u64,
            })
        };
        build()?;
        serve(|_| {
            let (nanos, answers) = timed(&mut build)?;
            Ok(Part {
                nanos,
                beside: f64::NAN,
                answers,
            })
        })
    }

    fn builds_of_numbers(&self) -> Result<()> {
        let build = |filter| {
            timed(|| {
                build_numbers(self.row.len, filter)?;
                Ok(Answers::default())
            })
        };
        serve(|_| {
            let ((beside, _), (nanos, answers)) = (build(false)?, build(true)?);
            Ok(Part {
                nanos,
                beside,
                answers,
            })
        })
    }
}

/// Builds a table of so many entries of 8 + 8 bytes, and forgets it.
pub fn build_numbers(entries: usize, filter: bool) -> Result<()> {
    let options = WriteOptions::new().compression(Compression::None);
    let options = if filter { options } else { options.no_filter() };
    let mut builder = options.build(io::sink());
    for number in 0..entries as u64 {
        builder.add(number.to_be_bytes(), number.to_le_bytes())?;
    }
    builder.finish()?;
    Ok(())
}

fn seek(table: &Table, keys: &[Key], len: usize, answers: &mut Answers) -> Result<()> {
    let mut cursor = table.cursor();
    for key in keys {
        let mut is_valid = cursor.seek(key)?;
        for _ in 0..len {
            if !is_valid {
                break;
            }
            answers.entry(cursor.key(), cursor.value());
            is_valid = cursor.next()?;
        }
    }
    Ok(())
}

fn scan(tables: &[Table], back: bool, values: bool) -> Result<Answers> {
    let mut answers = Answers::default();
    for table in tables {
        let mut cursor = table.cursor();
        match (back, values) {
            (false, true) => walk(&mut cursor, Cursor::seek_to_first, Cursor::next, |it| {
                answers.entry(it.key(), it.value());
            })?,
            (false, false) => walk(&mut cursor, Cursor::seek_to_first, Cursor::next, |it| {
                answers.entry(it.key(), b"");
            })?,
            (true, true) => walk(&mut cursor, Cursor::seek_to_last, Cursor::prev, |it| {
                answers.entry(it.key(), it.value());
            })?,
            (true, false) => walk(&mut cursor, Cursor::seek_to_last, Cursor::prev, |it| {
                answers.entry(it.key(), b"");
            })?,
        }
    }
    Ok(answers)
}

#[inline]
fn walk(
    cursor: &mut Cursor,
    begin: impl Fn(&mut Cursor) -> leveltable::Result<bool>,
    step: impl Fn(&mut Cursor) -> leveltable::Result<bool>,
    mut each: impl FnMut(&Cursor),
) -> Result<()> {
    let mut is_valid = begin(cursor)?;
    while is_valid {
        each(cursor);
        is_valid = step(cursor)?;
    }
    Ok(())
}
