//! The work of a row, done by the engine that this program was compiled with, in a process of its own: where its memory happens to
//! lie is drawn anew each time.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use leveltable::{OpenOptions, Source, Table};
use rustix::time::{ClockId, clock_gettime};

use crate::data::{Key, read_probes};
use crate::rows::{Beside, Case, Row, Work};

/// Bytes that opening a table reads.
const TAIL_LEN: usize = 64 << 10;
/// Keys to warm a mapped table up with, after a scan.
const FEW: usize = 50_000;

/// What was found, in which order. `benches/peers/cpp/workload.h` has the same sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    pub checksum: u64,
    pub count: u64,
}

impl Answers {
    #[inline]
    fn value(&mut self, value: &[u8]) {
        self.add(first_word(value));
    }

    #[inline]
    fn entry(&mut self, key: &[u8], value: &[u8]) {
        let key = key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.add(key ^ first_word(value));
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.checksum = self.checksum.rotate_left(1).wrapping_add(word);
        self.count += 1;
    }
}

#[inline]
fn first_word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// Nanoseconds of each operation, of what was done beside it, and what was found.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub nanos: f64,
    pub beside: f64,
    pub answers: Answers,
}

/// Processor time of this process. Nothing waits here, so that it is the time that passes on an idle machine; on a busy one it
/// leaves others' time out.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs `pass` so many times. Returns the nanoseconds of each, and what the last one found.
fn timed(passes: usize, mut pass: impl FnMut() -> Result<Answers>) -> Result<(f64, Answers)> {
    let mut answers = Answers::default();
    let start = processor_time();
    for _ in 0..passes {
        answers = pass()?;
    }
    let took = processor_time() - start;
    Ok((took.as_nanos() as f64 / passes as f64, answers))
}

pub fn measure(case: &Case, files: &Path) -> Result<Measured> {
    let row = &case.row;
    let path = |number| row.data.table(files, case.shape, number);
    let paths: Vec<PathBuf> = (0..row.data.tables).map(path).collect();
    let probes = row.work.probes();
    let (keys, tables) = match probes {
        Some(probes) => read_probes(&row.data.probes(files, case.shape, probes))?,
        None => Default::default(),
    };
    let side = Side {
        row,
        paths: &paths,
        keys: &keys,
        tables: &tables,
    };
    if row.work == Work::Open {
        return side.openings();
    }
    let (nanos, answers) = side.run(row.mapped)?;
    let beside = match row.beside {
        Some(Beside::Map) => side.run(true)?.0,
        _ => f64::NAN,
    };
    Ok(Measured {
        nanos,
        beside,
        answers,
    })
}

struct Side<'a> {
    row: &'a Row,
    paths: &'a [PathBuf],
    /// The keys to look up, and the number of each one's table.
    keys: &'a [Key],
    tables: &'a [u8],
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

    /// Opens the tables, warms them up, and times the row's work. Returns the nanoseconds of an operation.
    fn run(&self, mapped: bool) -> Result<(f64, Answers)> {
        let (row, tables) = (self.row, &self.open(mapped)?);
        if let Work::Scan { back, values } = row.work {
            scan(tables, back, values)?;
            let (pass, answers) = timed(row.passes, || scan(tables, back, values))?;
            return Ok((pass / answers.count as f64, answers));
        }
        let keys = self.keys.len();
        let mut warm = row.keys..keys;
        if mapped {
            scan(tables, false, true)?;
            warm.end = keys.min(row.keys + FEW);
        }
        self.look_up(tables, warm)?;
        let (pass, answers) = timed(row.passes, || self.look_up(tables, 0..row.keys))?;
        Ok((pass / row.keys as f64, answers))
    }

    fn look_up(&self, tables: &[Table], range: std::ops::Range<usize>) -> Result<Answers> {
        let keys = &self.keys[range.clone()];
        let mut answers = Answers::default();
        match (self.row.work, tables) {
            (Work::Lent(_), [table]) => {
                for key in keys {
                    table.get_with(key, |value| answers.value(value))?;
                }
            }
            (Work::Lent(_), _) => {
                for (key, &number) in keys.iter().zip(&self.tables[range]) {
                    tables[number as usize].get_with(key, |value| answers.value(value))?;
                }
            }
            (Work::Bytes(_), _) => {
                for key in keys {
                    if let Some(value) = tables[0].get(key)? {
                        answers.value(&value);
                    }
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
            (Work::Scan { .. } | Work::Open, _) => {}
        }
        Ok(answers)
    }

    fn openings(&self) -> Result<Measured> {
        let open = || {
            black_box(Table::open(&self.paths[0])?);
            Ok(Answers::default())
        };
        timed(self.row.passes / 10 + 1, open)?;
        let (nanos, answers) = timed(self.row.passes, open)?;
        let file = File::open(&self.paths[0])?;
        let at = file.metadata()?.len().saturating_sub(TAIL_LEN as u64);
        let mut tail = vec![0; TAIL_LEN];
        let (beside, _) = timed(self.row.passes, || {
            file.read_exact_at(&mut tail, at)?;
            black_box(&tail);
            Ok(Answers::default())
        })?;
        Ok(Measured {
            nanos,
            beside,
            answers,
        })
    }
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
        let mut entry = |cursor: &leveltable::Cursor| match values {
            true => answers.entry(cursor.key(), cursor.value()),
            false => answers.entry(cursor.key(), b""),
        };
        if back {
            let mut is_valid = cursor.seek_to_last()?;
            while is_valid {
                entry(&cursor);
                is_valid = cursor.prev()?;
            }
        } else {
            let mut is_valid = cursor.seek_to_first()?;
            while is_valid {
                entry(&cursor);
                is_valid = cursor.next()?;
            }
        }
    }
    Ok(answers)
}
