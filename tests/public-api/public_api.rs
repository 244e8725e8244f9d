//! Compares the public interface of `leveltable`, with all features, and of the crates that stand on it with lists.
//!
//! This makes every change of the interface visible in review. It needs rustdoc's JSON, and so a nightly
//! toolchain, which it installs; `.ci/run` runs it. To update the list:
//!
//! ```console
//! UPDATE=1 cargo test -p leveltable-public-api -- --ignored
//! ```

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The toolchain, by its date: others list the same interface in other words.
const TOOLCHAIN: &str = "nightly-2026-05-20";

/// The root of the workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The libraries that are published, and their lists.
const LISTS: [(&str, &str); 4] = [
    ("leveltable", "docs/public-api.txt"),
    ("leveltable-database", "database/public-api.txt"),
    ("leveltable-object-store", "object-store/public-api.txt"),
    ("leveltable-repair", "repair/public-api.txt"),
];

#[test]
#[ignore = "installs a nightly toolchain; .ci/run runs it"]
fn the_public_interfaces_are_those_that_are_listed() {
    let changed: String = LISTS
        .map(|(package, list)| difference(package, list))
        .concat();
    assert!(
        changed.is_empty(),
        "{changed}If the changes are intended: UPDATE=1 cargo test -p leveltable-public-api -- --ignored"
    );
}

/// Returns what is wrong with the list of a package, after updating it if that is wanted.
fn difference(package: &str, list: &str) -> String {
    let listed_at = Path::new(ROOT).join(list);
    let actual = public_interface(package);
    if env::var_os("UPDATE").is_some() {
        fs::write(&listed_at, &actual).unwrap();
        return String::new();
    }
    let listed = fs::read_to_string(&listed_at).unwrap();
    let only_in = |a: &str, b: &str, sign: &str| -> String {
        let b: Vec<&str> = b.lines().collect();
        let lines = a.lines().filter(|line| !b.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let gone = only_in(&listed, &actual, "-");
    let new = only_in(&actual, &listed, "+");
    if listed == actual {
        return String::new();
    }
    format!("{list} is not the public interface of {package}:\n{gone}{new}")
}

/// Traits that the compiler implements by itself, other than `Send` and `Sync`. Its versions differ in them,
/// and no user of a table depends on them.
const INCIDENTAL: [&str; 5] = [
    "Freeze for",
    "StructuralPartialEq for",
    "UnsafeUnpin for",
    "Unpin for",
    "UnwindSafe for",
];

/// Features change the interface of the engine alone; object stores would compile TLS for nothing.
///
/// Returns a line for each public item and implementation, without the standard library's blanket
/// implementations.
fn public_interface(package: &str) -> String {
    // A directory of its own: sharing one with another toolchain would rebuild everything each time.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public_api");
    let mut rustdoc = Command::new("rustup");
    rustdoc
        .args([
            "run",
            "--install",
            TOOLCHAIN,
            "cargo",
            "rustdoc",
            "--locked",
            "--package",
            package,
            "--lib",
        ])
        .args((package == "leveltable").then_some("--all-features"))
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json"])
        // Nothing is linked: no C code of dependencies needs to be compiled.
        .envs([("CC", "true"), ("AR", "true")])
        .current_dir(ROOT);
    let output = rustdoc.output().expect("rustup");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rustdoc: {message}");
    let json = target.join(format!("doc/{}.json", package.replace('-', "_")));
    let all = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .build()
        .unwrap()
        .to_string();
    let lines = all.lines();
    lines
        .filter(|line| {
            !INCIDENTAL
                .iter()
                .any(|incidental| line.contains(incidental))
        })
        .map(|line| format!("{line}\n"))
        .collect()
}
