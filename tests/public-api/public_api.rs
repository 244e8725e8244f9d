//! Compares the public interface of `leveltable`, with all features, with `docs/public-api.txt`.
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

/// The directory of the package `leveltable`.
const ENGINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
#[ignore = "installs a nightly toolchain; .ci/run runs it"]
fn the_public_interface_is_the_one_that_is_listed() {
    let listed_at = Path::new(ENGINE).join("docs/public-api.txt");
    let actual = public_interface();
    if env::var_os("UPDATE").is_some() {
        fs::write(&listed_at, &actual).unwrap();
        return;
    }
    let listed = fs::read_to_string(&listed_at).unwrap();
    let only_in = |a: &str, b: &str, sign: &str| -> String {
        let b: Vec<&str> = b.lines().collect();
        let lines = a.lines().filter(|line| !b.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let gone = only_in(&listed, &actual, "-");
    let new = only_in(&actual, &listed, "+");
    assert!(
        listed == actual,
        "docs/public-api.txt is not the public interface:\n{gone}{new}\
         If the change is intended: UPDATE=1 cargo test -p leveltable-public-api -- --ignored"
    );
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

/// Returns a line for each public item and implementation, without the standard library's blanket
/// implementations.
fn public_interface() -> String {
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
            "--lib",
        ])
        .args(["--all-features", "--target-dir"])
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json"])
        .current_dir(ENGINE);
    let output = rustdoc.output().expect("rustup");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rustdoc: {message}");
    let json = target.join("doc/leveltable.json");
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
