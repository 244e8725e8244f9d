//! The public interface is the one that `docs/public-api.txt` lists, with all features.
//!
//! So a change of it is seen in review, and none happens by accident. Needs rustdoc's JSON, hence a
//! nightly toolchain; plain `cargo test` leaves it out. To bring the list up to date:
//!
//! ```console
//! UPDATE=1 cargo test --test public_api -- --ignored
//! ```

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs a nightly toolchain; .ci/run has it run where there is one"]
fn the_public_interface_is_the_one_that_is_listed() {
    let listed_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/public-api.txt");
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
         If that is meant, UPDATE=1 cargo test --test public_api -- --ignored"
    );
}

/// What the compiler adds to types by itself, other than `Send` and `Sync`: some come and go between
/// its versions, and nobody chooses a table by them.
const INCIDENTAL: [&str; 5] = [
    "Freeze for",
    "StructuralPartialEq for",
    "UnsafeUnpin for",
    "Unpin for",
    "UnwindSafe for",
];

/// A line for each public item and implementation; without what every type gets from the standard
/// library.
fn public_interface() -> String {
    // Apart from the other builds: another toolchain's would have to be made anew each time.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public_api");
    let mut rustdoc = Command::new("rustup");
    rustdoc
        .args(["run", "nightly", "cargo", "rustdoc", "--locked", "--lib"])
        .args(["--all-features", "--target-dir"])
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
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
