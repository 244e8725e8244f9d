//! Sessions that are written down, and run as tests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Runs the `console` blocks of `files`. A line that begins with `$ ` is a shell command, and the lines after it are its exact
/// output, except that a long object of JSON has a line for each of its fields, so that a change of one can be reviewed. The commands of
/// a file run in one temporary directory, which contains `testdata`. Returns the number of commands.
///
/// `UPDATE_SESSIONS=1` updates the files with the current output: review the changes.
pub(crate) fn replay(files: &[PathBuf], testdata: &Path) -> usize {
    let mut commands = 0;
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let directory = TempDir::new().unwrap();
        std::os::unix::fs::symlink(testdata, directory.path().join("testdata")).unwrap();
        let mut replayed = String::new();
        let mut in_session = false;
        let mut in_output = false;
        for line in text.split_inclusive('\n') {
            let is_fence = line.starts_with("```");
            let command = line.strip_prefix("$ ").filter(|_| in_session);
            in_output &= !is_fence && command.is_none();
            if !in_output {
                replayed.push_str(line);
            }
            if is_fence {
                in_session = line.trim_end() == "```console";
            }
            if let Some(command) = command {
                replayed.push_str(&shell(command, directory.path()));
                in_output = true;
                commands += 1;
            }
        }
        if std::env::var_os("UPDATE_SESSIONS").is_some() {
            fs::write(file, &replayed).unwrap();
        } else {
            let mut lines = text.lines().zip(replayed.lines());
            let differs = lines.find(|(written, now)| written != now);
            let file = file.display();
            assert!(
                text == replayed,
                "{file}: expected and actual output: {differs:#?}"
            );
        }
    }
    commands
}

/// Returns what a terminal shows when `command` runs.
fn shell(command: &str, directory: &Path) -> String {
    let tool = Path::new(env!("CARGO_BIN_EXE_leveltable"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::iter::once(tool.parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {command}")])
        .env("PATH", std::env::join_paths(path).unwrap())
        .current_dir(directory)
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    output.split_inclusive('\n').map(spread).collect()
}

/// Returns a line, or the lines of an object of JSON that is longer than a line of a page: one for each field.
fn spread(line: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line) {
        Ok(fields) if line.len() > 300 => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("  \"{name}\": {value}"));
            format!("{{\n{}\n}}\n", fields.collect::<Vec<_>>().join(",\n"))
        }
        _ => line.to_owned(),
    }
}
