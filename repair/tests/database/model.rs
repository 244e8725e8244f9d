//! What repair makes of simulated databases beside two models: the plain one that the fuzz target asks, and the reference, which is a
//! program in Python.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use leveltable_repair::{Grade, RepairOptions, RepairReport};

use crate::Contents;
use crate::recovery::recover;
use crate::repair_memory;
use crate::simulated::{memory_of, seeds};
use crate::simulation::Simulation;

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

/// What the model makes of a directory: its name, the contents, and grade, first key and last of each finding.
type Expected = (String, BTreeMap<String, String>, Vec<Said>);

/// The grade of a finding, its first key and its last, and its reason.
type Said = (String, Option<String>, Option<String>, String);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The ranges of the findings of a grade.
fn ranges(report: &RepairReport, grade: Grade) -> BTreeSet<(Option<String>, Option<String>)> {
    let findings = report
        .findings
        .iter()
        .filter(|finding| finding.grade == grade);
    let text = |key: &Option<Vec<u8>>| key.as_deref().map(hex);
    findings
        .map(|finding| (text(&finding.from), text(&finding.to)))
        .collect()
}

fn expected_ranges(said: &[Said], grade: &str) -> BTreeSet<(Option<String>, Option<String>)> {
    let said = said.iter().filter(|said| said.0 == grade);
    said.map(|said| (said.1.clone(), said.2.clone())).collect()
}

/// The plain model, without a program in Python.
#[test]
fn contents_are_those_of_the_plain_model() {
    for (seed, accidents) in seeds().flat_map(|seed| (0..4).map(move |n| (seed, n))) {
        let mut simulation = Simulation::started(seed);
        let happened: Vec<String> = { 0..accidents }
            .map(|_| simulation.accident(&mut BTreeSet::new()))
            .collect();
        let repaired = repair_memory(&memory_of(&simulation.files), RepairOptions::new());
        if let Ok((report, found)) = repaired {
            let expected = recover(&simulation.files);
            assert_eq!(
                found, expected,
                "{seed}-{accidents}: {happened:?}: {report:#?}"
            );
        }
    }
}

/// Prints where contents or ranges differ: where they do, the code departs from the model on purpose, or is wrong. Needs Python with
/// `crc32c` and `cramjam`, whose program is `LEVELTABLE_PYTHON`, and the model's path as `LEVELTABLE_MODEL`.
#[test]
#[ignore = "needs Python and the reference model"]
fn contents_are_those_of_the_reference_model() {
    let variables = ["LEVELTABLE_PYTHON", "LEVELTABLE_MODEL"];
    let [python, model] = variables.map(|name| std::env::var(name).unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let mut repaired = BTreeMap::new();
    for (seed, accidents) in seeds().flat_map(|seed| (0..4).map(move |n| (seed, n))) {
        let mut simulation = Simulation::started(seed);
        let happened: Vec<String> = { 0..accidents }
            .map(|_| simulation.accident(&mut BTreeSet::new()))
            .collect();
        let name = format!("{seed}-{accidents}");
        let dir = scratch.path().join(&name);
        std::fs::create_dir(&dir).unwrap();
        for (file, bytes) in &simulation.files {
            std::fs::write(dir.join(file), bytes).unwrap();
        }
        if let Ok(done) = repair_memory(&memory_of(&simulation.files), RepairOptions::new()) {
            repaired.insert(name, (happened, recover(&simulation.files), done));
        }
    }
    let mut command = Command::new(python);
    let output = command.args(["-c", MODEL, &model]).arg(scratch.path());
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (mut other, mut differing, mut plain_other) = (0, 0, 0);
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, expected, said): Expected = serde_json::from_str(line).unwrap();
        let Some((happened, plain, (report, found))) = repaired.get(&name) else {
            continue;
        };
        let is_expected = |found: &Contents| {
            let found = found.iter().map(|(key, value)| (hex(key), hex(value)));
            found.collect::<BTreeMap<_, _>>() == expected
        };
        let (is_same, is_plain_same) = (is_expected(found), is_expected(plain));
        let is_said = ranges(report, Grade::Lost) == expected_ranges(&said, "lost")
            && ranges(report, Grade::Unproven) == expected_ranges(&said, "unproven");
        if !is_same || !is_said || !is_plain_same {
            println!(
                "{name}: {happened:?}: the same contents: {is_same}, by the plain model: {is_plain_same}"
            );
            { report.findings.iter() }.for_each(|finding| println!("    ours  {finding}"));
            said.iter().for_each(|said| println!("    model {said:?}"));
        }
        other += usize::from(!is_same);
        plain_other += usize::from(!is_plain_same);
        differing += usize::from(!is_said);
    }
    let of = repaired.len();
    println!(
        "of {of}, {other} have other contents, {plain_other} by the plain model, {differing} other ranges"
    );
    assert!(other * 500 < of && plain_other * 500 < of);
}
