//! Turns: this, the other, and this again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::build::run;
use crate::rows::Case;
use crate::side::{Answers, Measured};

pub struct Sides {
    pub this: PathBuf,
    pub other: PathBuf,
    pub files: PathBuf,
    pub quick: bool,
}

/// Ratios of rounds.
pub struct Ratio {
    sorted: Vec<f64>,
}

impl Ratio {
    fn of(ratios: impl Iterator<Item = f64>) -> Ratio {
        let mut sorted: Vec<f64> = ratios.collect();
        sorted.sort_by(f64::total_cmp);
        Ratio { sorted }
    }

    fn quantile(&self, part: f64) -> f64 {
        let at = part * (self.sorted.len() - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        self.sorted[low] + (self.sorted[high] - self.sorted[low]) * at.fract()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn range(&self) -> (f64, f64) {
        (self.quantile(0.0), self.quantile(1.0))
    }

    /// How far the median may be off, with a probability of some 5 % for more.
    fn error(&self) -> f64 {
        let middle = self.quantile(0.75) - self.quantile(0.25);
        1.82 * middle / (self.sorted.len() as f64).sqrt()
    }
}

#[derive(Clone, Copy)]
struct Round {
    this: Measured,
    other: Measured,
    again: Measured,
}

impl Round {
    fn this(&self) -> f64 {
        (self.this.nanos + self.again.nanos) / 2.0
    }

    fn beside(&self) -> f64 {
        (self.this.beside / self.this.nanos + self.again.beside / self.again.nanos) / 2.0
    }
}

/// The rounds of a row.
pub struct Outcome {
    pub case: Case,
    rounds: Vec<Round>,
}

impl Outcome {
    fn ratio(&self, of: impl Fn(&Round) -> f64) -> Ratio {
        Ratio::of(self.rounds.iter().map(of))
    }

    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    pub fn this(&self) -> f64 {
        self.ratio(Round::this).median()
    }

    pub fn other(&self) -> f64 {
        self.ratio(|round| round.other.nanos).median()
    }

    /// How many times as fast as the other this one is.
    pub fn speed(&self) -> Ratio {
        self.ratio(|round| round.other.nanos / round.this())
    }

    /// This one's time, in times of what was done beside it; the other's.
    pub fn beside(&self) -> (Ratio, Ratio) {
        (
            self.ratio(|round| 1.0 / round.beside()),
            self.ratio(|round| round.other.nanos / round.other.beside),
        )
    }

    /// How far two runs of this one differ, or the ratio may be off.
    pub fn doubt(&self) -> f64 {
        let again = self.ratio(|round| round.again.nanos / round.this.nanos);
        (again.median() - 1.0).abs().max(self.speed().error() / self.speed().median())
    }
}

impl Sides {
    pub fn prepare(&self, case: &Case) -> Result<()> {
        run(&mut self.command(&self.this, "--prepare", case)).map(|_| ())
    }

    fn command(&self, program: &Path, what: &str, case: &Case) -> Command {
        let mut command = Command::new(program);
        command.args([what, &case.name(), "--files"]).arg(&self.files);
        if self.quick {
            command.arg("--quick");
        }
        command
    }

    fn measure(&self, program: &Path, case: &Case) -> Result<Measured> {
        let line = run(&mut self.command(program, "--measure", case))?;
        parse(&line).with_context(|| format!("{} said {line:?}", program.display()))
    }

    fn round(&self, case: &Case) -> Result<Round> {
        let round = Round {
            this: self.measure(&self.this, case)?,
            other: self.measure(&self.other, case)?,
            again: self.measure(&self.this, case)?,
        };
        let answers = [round.this, round.other, round.again].map(|it| it.answers);
        ensure!(
            answers.iter().all(|it| *it == answers[0]),
            "{}: the results differ: {answers:?}",
            case.name()
        );
        Ok(round)
    }

    /// Takes so many rounds, and up to three times as many while there is a doubt of more than 1 %.
    pub fn turns(&self, case: Case, rounds: usize) -> Result<Outcome> {
        self.prepare(&case)?;
        let mut outcome = Outcome {
            case,
            rounds: Vec::new(),
        };
        while outcome.len() < rounds
            || !self.quick && outcome.len() < 3 * rounds && outcome.doubt() > 0.01
        {
            outcome.rounds.push(self.round(&case)?);
        }
        Ok(outcome)
    }
}

/// What a process that measures writes.
pub fn render(measured: &Measured) -> String {
    let Answers { checksum, count } = measured.answers;
    format!("{} {} {checksum} {count}", measured.nanos, measured.beside)
}

fn parse(line: &str) -> Result<Measured> {
    let words: Vec<&str> = line.split(' ').collect();
    let [nanos, beside, checksum, count] = words[..] else {
        anyhow::bail!("four words are expected");
    };
    Ok(Measured {
        nanos: nanos.parse()?,
        beside: beside.parse()?,
        answers: Answers {
            checksum: checksum.parse()?,
            count: count.parse()?,
        },
    })
}
