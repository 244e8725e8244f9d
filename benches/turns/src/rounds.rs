//! Turns: this, the other, this again, and others where they can do the work.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::build::run;
use crate::data::{Answers, Kind};
use crate::rows::{Case, Work};
use crate::side::Part;

/// C++ LevelDB's program, if the library was installed when this was compiled.
pub const LEVELDB: Option<&str> = option_env!("CPP_LEVELDB");

/// With as little doubt as this, a row needs no more rounds.
const CERTAIN: f64 = 0.01;
/// With so much doubt, the machine is too busy to tell.
pub const TOO_BUSY: f64 = 0.02;

pub struct Sides {
    pub this: PathBuf,
    pub other: PathBuf,
    pub files: PathBuf,
    pub quick: bool,
    /// The processors that there are.
    pub processors: CpuSet,
}

/// A process that waits for its turns.
struct Side {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Side {
    fn start(command: &mut Command) -> Result<Side> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("starting {command:?}"))?;
        let from = child.stdout.take().context("its output is a pipe")?;
        let mut side = Side {
            to: child.stdin.take(),
            from: BufReader::new(from),
            child,
        };
        ensure!(side.line()? == "ready", "{command:?} is not ready");
        Ok(side)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(!line.is_empty(), "a process ended before its work");
        Ok(line.trim().to_owned())
    }

    /// Does a part of the work.
    fn part(&mut self, number: usize) -> Result<Part> {
        writeln!(self.to.as_ref().context("its input is a pipe")?, "{number}")?;
        Part::parse(&self.line()?)
    }

    fn end(mut self) -> Result<()> {
        drop(self.to.take());
        ensure!(self.child.wait()?.success(), "a process failed at its end");
        Ok(())
    }
}

/// What each one did with the same part of the work.
pub struct Turn {
    this: Part,
    other: Part,
    again: Part,
    leveldb: Option<Part>,
    redb: Option<Part>,
}

impl Turn {
    /// Nanoseconds of this one's two runs: the geometric mean, by which a machine that is now slow, now fast, favours neither side.
    pub fn this(&self) -> f64 {
        (self.this.nanos * self.again.nanos).sqrt()
    }

    pub fn other(&self) -> f64 {
        self.other.nanos
    }

    /// How many times as fast as the other this one is.
    pub fn speed(&self) -> f64 {
        self.other() / self.this()
    }

    /// This one's time, in times of what it did beside it.
    pub fn beside(&self) -> f64 {
        self.this() / (self.this.beside * self.again.beside).sqrt()
    }

    pub fn other_beside(&self) -> f64 {
        self.other.nanos / self.other.beside
    }

    pub fn to_leveldb(&self) -> f64 {
        self.leveldb.map_or(f64::NAN, |it| self.this() / it.nanos)
    }

    pub fn to_redb(&self) -> f64 {
        self.redb.map_or(f64::NAN, |it| self.this() / it.nanos)
    }

    fn results(&self) -> impl Iterator<Item = Answers> {
        let parts = [
            Some(self.this),
            Some(self.other),
            Some(self.again),
            self.leveldb,
            self.redb,
        ];
        parts.into_iter().flatten().map(|part| part.answers)
    }
}

/// The rounds of a row.
pub struct Outcome {
    pub case: Case,
    pub rounds: Vec<Vec<Turn>>,
    /// Bytes of memory for each entry of a build: this, the other.
    pub peaks: Option<[f64; 2]>,
}

impl Outcome {
    /// Of each round, the median of its turns.
    pub fn rounds(&self, of: impl Fn(&Turn) -> f64) -> Sorted {
        let round = |turns: &Vec<Turn>| Sorted::of(turns.iter().map(&of)).median();
        Sorted::of(self.rounds.iter().map(round))
    }

    /// By how much two runs of this one differ, or the ratio may be off.
    pub fn doubt(&self) -> f64 {
        let again = self.rounds(|turn| turn.again.nanos / turn.this.nanos);
        let speed = self.rounds(Turn::speed);
        (again.median() - 1.0)
            .abs()
            .max(speed.error() / speed.median())
    }

    /// Whether this one is known to take at most so much more time than the other.
    pub fn is_within(&self, percent: f64) -> bool {
        self.doubt() < TOO_BUSY
            && self.rounds(Turn::speed).median() * (1.0 + percent / 100.0) >= 1.0
    }
}

pub struct Sorted(Vec<f64>);

impl Sorted {
    fn of(numbers: impl Iterator<Item = f64>) -> Sorted {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        Sorted(numbers)
    }

    fn quantile(&self, part: f64) -> f64 {
        let at = part * (self.0.len() - 1) as f64;
        let (low, high) = (self.0[at.floor() as usize], self.0[at.ceil() as usize]);
        low + (high - low) * at.fract()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn least(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn most(&self) -> f64 {
        self.quantile(1.0)
    }

    /// How far the median may be off, with a probability of some 5 % for more: of a normal distribution, 1.96 times its standard
    /// error, by the distance between the quartiles.
    fn error(&self) -> f64 {
        let between = self.quantile(0.75) - self.quantile(0.25);
        1.82 * between / (self.0.len() as f64).sqrt()
    }
}

impl Sides {
    fn command(&self, program: &Path, what: &str, case: &Case) -> Command {
        let mut command = Command::new(program);
        command
            .args([what, &case.name(), "--files"])
            .arg(&self.files);
        if self.quick {
            command.arg("--quick");
        }
        command
    }

    fn leveldb(&self, case: &Case) -> Option<Command> {
        let mut command = Command::new(LEVELDB.filter(|_| case.row.leveldb)?);
        let (row, data, shape) = (&case.row, case.row.data, case.shape);
        let codec = if data.kind == Kind::Snappy {
            "snappy"
        } else {
            "raw"
        };
        if row.work == Work::Build {
            let (keys, values) = data.entries(&self.files, shape);
            command.args(["build", codec]).arg(keys).arg(values);
            return Some(command);
        }
        command.arg(match row.work {
            Work::Seek(_) => "seek",
            Work::Scan { .. } => "scan",
            _ => "get",
        });
        command
            .arg(codec)
            .args([row.len, row.parts, row.warm].map(|number| number.to_string()));
        command.arg(
            row.work
                .probes()
                .map_or_else(PathBuf::new, |keys| data.probes(&self.files, shape, keys)),
        );
        command.args((0..data.tables).map(|number| data.table(&self.files, shape, number)));
        Some(command)
    }

    /// Binds this process, and those that it will start, to the last processor, so that all work with the same caches; for two threads,
    /// to all.
    fn choose_processors(&self, case: &Case) -> Result<()> {
        let mut chosen = self.processors;
        if case.row.work != Work::Threads {
            chosen.clear();
            let last = (0..CpuSet::MAX_CPU)
                .rev()
                .find(|&cpu| self.processors.is_set(cpu));
            chosen.set(last.unwrap_or_default());
        }
        Ok(sched_setaffinity(None, &chosen)?)
    }

    fn round(&self, case: &Case) -> Result<Vec<Turn>> {
        let start = |program: &Path, what| Side::start(&mut self.command(program, what, case));
        let mut this = start(&self.this, "--work")?;
        let mut other = start(&self.other, "--work")?;
        let mut again = start(&self.this, "--work")?;
        let mut leveldb = self
            .leveldb(case)
            .map(|mut it| Side::start(&mut it))
            .transpose()?;
        let redb = case.row.redb.then(|| start(&self.this, "--work-of-redb"));
        let mut redb = redb.transpose()?;
        let mut turns = Vec::new();
        for part in 0..case.row.parts {
            let turn = Turn {
                this: this.part(part)?,
                other: other.part(part)?,
                again: again.part(part)?,
                leveldb: leveldb.as_mut().map(|it| it.part(part)).transpose()?,
                redb: redb.as_mut().map(|it| it.part(part)).transpose()?,
            };
            let results: Vec<Answers> = turn.results().collect();
            let is_equal = results.iter().all(|it| *it == results[0]);
            ensure!(is_equal, "{}: results differ: {results:?}", case.name());
            turns.push(turn);
        }
        let sides = [Some(this), Some(other), Some(again), leveldb, redb];
        sides.into_iter().flatten().try_for_each(Side::end)?;
        Ok(turns)
    }

    /// Takes so many rounds, and up to three times as many while there is a doubt.
    pub fn turns(&self, case: Case, rounds: usize) -> Result<Outcome> {
        run(&mut self.command(&self.this, "--prepare", &case))?;
        self.choose_processors(&case)?;
        let mut outcome = Outcome {
            case,
            rounds: Vec::new(),
            peaks: None,
        };
        let is_done = |outcome: &Outcome| match outcome.rounds.len() {
            n if n < rounds => false,
            n => self.quick || n >= 3 * rounds || outcome.doubt() < CERTAIN,
        };
        while !is_done(&outcome) {
            outcome.rounds.push(self.round(&case)?);
        }
        if case.row.work == Work::BuildNumbers && !self.quick {
            let peak = |program| self.peak(program, case.row.len);
            outcome.peaks = Some([peak(&self.this)?, peak(&self.other)?]);
        }
        Ok(outcome)
    }

    fn peak(&self, program: &Path, entries: usize) -> Result<f64> {
        let mut name = program.as_os_str().to_owned();
        name.push("-peak");
        let bytes: f64 = run(Command::new(name).arg(entries.to_string()))?.parse()?;
        Ok(bytes / entries as f64)
    }
}
