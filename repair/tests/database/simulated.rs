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
    let mut simulation = Simulation::new(seed);
    let steps = simulation.random.usize(1..40);
    simulation.run(steps);
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

fn seeds() -> std::ops::Range<u64> {
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

/// Runs the reference model over directories, and prints what it makes of each as a line of JSON.
const MODEL: &str = r#"
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("model", sys.argv[1])
model = importlib.util.module_from_spec(spec); spec.loader.exec_module(model)
for name in sorted(os.listdir(sys.argv[2])):
    model.CACHE.clear()
    out, found = model.repair(os.path.join(sys.argv[2], name))
    text = lambda key: None if key is None else key.hex()
    said = [[f.grade, text(f.lo), text(f.hi), f.reason] for f in found]
    print(json.dumps([name, {k.hex(): v.hex() for k, v in out.items()}, said]))
"#;

/// Needs Python with `crc32c` and `cramjam`, whose program is `LEVELTABLE_PYTHON`, and the model's path as `LEVELTABLE_MODEL`.
#[test]
#[ignore = "needs Python and the reference model"]
fn contents_are_those_of_the_reference_model() {
    let [python, model] =
        ["LEVELTABLE_PYTHON", "LEVELTABLE_MODEL"].map(|name| std::env::var(name).unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let mut repaired = std::collections::BTreeMap::new();
    for seed in seeds() {
        for accidents in 0..4 {
            let mut simulation = Simulation::new(seed);
            let steps = simulation.random.usize(1..40);
            simulation.run(steps);
            let mut unknowable = BTreeSet::new();
            let happened: Vec<String> = (0..accidents)
                .map(|_| simulation.accident(&mut unknowable))
                .collect();
            let name = format!("{seed}-{accidents}");
            let dir = scratch.path().join(&name);
            std::fs::create_dir(&dir).unwrap();
            for (file, bytes) in &simulation.files {
                std::fs::write(dir.join(file), bytes).unwrap();
            }
            let Ok(done) = repair_memory(&memory_of(&simulation.files), RepairOptions::new())
            else {
                continue;
            };
            repaired.insert(name, (happened, done, simulation.truth));
        }
    }
    let mut command = std::process::Command::new(python);
    let output = command
        .args(["-c", MODEL, &model])
        .arg(scratch.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut other = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, expected, said): (
            String,
            std::collections::BTreeMap<String, String>,
            Vec<(String, Option<String>, Option<String>, String)>,
        ) = serde_json::from_str(line).unwrap();
        let Some((happened, (report, found), truth)) = repaired.get(&name) else {
            continue;
        };
        let hex = |bytes: &Vec<u8>| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let found_hex: std::collections::BTreeMap<_, _> = found
            .iter()
            .map(|(key, value)| (hex(key), hex(value)))
            .collect();
        let ranges = |grade: Grade| -> Vec<_> {
            let of = report
                .findings
                .iter()
                .filter(|finding| finding.grade == grade);
            let mut all: Vec<_> = of
                .map(|finding| (finding.from.as_ref().map(hex), finding.to.as_ref().map(hex)))
                .collect();
            all.sort();
            all.dedup();
            all
        };
        let expected_ranges = |grade: &str| -> Vec<_> {
            let of = said.iter().filter(|finding| finding.0 == grade);
            let mut all: Vec<_> = of
                .map(|finding| (finding.1.clone(), finding.2.clone()))
                .collect();
            all.sort();
            all.dedup();
            all
        };
        let same_contents = found_hex == expected;
        let same_ranges = ranges(Grade::Lost) == expected_ranges("lost")
            && ranges(Grade::Unproven) == expected_ranges("unproven");
        if !same_contents || !same_ranges {
            other += 1;
            let wrong = |of: &dyn Fn(&String) -> Option<String>| {
                truth
                    .iter()
                    .filter(|(key, value)| of(&hex(key)).as_ref() != Some(&hex(value)))
                    .count()
            };
            println!(
                "{name}: {happened:?}: contents {same_contents} (wrong: ours {}, model {}), ranges {same_ranges}",
                wrong(&|key| found_hex.get(key).cloned()),
                wrong(&|key| expected.get(key).cloned())
            );
            report
                .findings
                .iter()
                .for_each(|finding| println!("    ours  {finding}"));
            said.iter()
                .for_each(|finding| println!("    model {finding:?}"));
            for key in found_hex
                .keys()
                .chain(expected.keys())
                .collect::<BTreeSet<_>>()
            {
                if found_hex.get(key) != expected.get(key) {
                    println!(
                        "    key {key} ours {:?} model {:?}",
                        found_hex.get(key).map(String::len),
                        expected.get(key).map(String::len)
                    );
                }
            }
        }
    }
    println!("{other} of {} differ", repaired.len());
}
