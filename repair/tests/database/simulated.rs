//! Repair of simulated databases after accidents, beside what their owner had.

use std::collections::BTreeSet;

use leveltable_repair::{Grade, RepairOptions, RepairReport};

use crate::memory::Memory;
use crate::simulation::{Files, Simulation};
use crate::{Contents, repair_memory};

pub(crate) fn memory_of(files: &Files) -> Memory {
    let memory = Memory::new("old");
    for (name, bytes) in files {
        memory.put(name, bytes.clone());
    }
    memory
}

/// Whether the report says that a key may differ.
fn is_said(report: &RepairReport, key: &[u8]) -> bool {
    let mut findings = report.findings.iter();
    findings.any(|finding| {
        matches!(finding.grade, Grade::Lost | Grade::Unproven)
            && finding.from.as_deref().is_none_or(|from| from <= key)
            && finding.to.as_deref().is_none_or(|to| key <= to)
    })
}

/// The keys that are in one only, or have another value in the other.
fn differing<'a>(a: &'a Contents, b: &'a Contents) -> BTreeSet<&'a [u8]> {
    let keys = a.keys().chain(b.keys());
    keys.filter(|key| a.get(*key) != b.get(*key))
        .map(|key| &key[..])
        .collect()
}

fn check(seed: u64, accidents: usize) -> (bool, usize) {
    let mut simulation = Simulation::started(seed);
    let mut unknowable = BTreeSet::new();
    let happened: Vec<String> = (0..accidents)
        .map(|_| simulation.accident(&mut unknowable))
        .collect();
    let (report, found) = match repair_memory(&memory_of(&simulation.files), RepairOptions::new()) {
        Ok(repaired) => repaired,
        Err(error) => {
            assert!(accidents > 0, "seed {seed}: {error}");
            return (false, 0);
        }
    };
    let differing = differing(&simulation.truth, &found);
    let in_silence: Vec<_> = { differing.iter() }
        .filter(|key| {
            !is_said(&report, key) && !unknowable.contains(**key) && !unknowable.contains(&b""[..])
        })
        .map(|key| key.escape_ascii().to_string())
        .collect();
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        in_silence.is_empty(),
        "seed {seed}: {happened:?}: {in_silence:?} differ in silence\n{findings:#?}\n{:#?}",
        report.files
    );
    if accidents == 0 {
        assert!(
            differing.is_empty() && report.is_complete(),
            "seed {seed}: {findings:#?}"
        );
    }
    (report.is_complete(), differing.len())
}

pub(crate) fn seeds() -> std::ops::Range<u64> {
    match std::env::var("LEVELTABLE_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").unwrap();
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..300,
    }
}

#[test]
fn sound_databases_come_back_whole() {
    for seed in seeds() {
        assert_eq!(check(seed, 0), (true, 0));
    }
}

#[test]
fn no_key_differs_in_silence_after_an_accident() {
    let complete = seeds().filter(|&seed| check(seed, 1).0).count();
    assert!(complete > 50, "{complete}");
}

#[test]
fn no_key_differs_in_silence_after_two_accidents() {
    for seed in seeds() {
        check(seed, 2);
    }
}
