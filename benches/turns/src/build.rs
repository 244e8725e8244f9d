//! Checks a commit out, and builds this program with another engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The directory of what the bench makes: `target/turns`.
pub fn scratch() -> Result<PathBuf> {
    let scratch = Path::new(HERE).join("../../target/turns");
    fs::create_dir_all(&scratch)?;
    Ok(scratch.canonicalize()?)
}

pub fn run(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn git(repository: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository);
    git
}

/// The hash of the commit that `name` names in `repository`.
pub fn commit(repository: &Path, name: &str) -> Result<String> {
    let name = format!("{name}^{{commit}}");
    run(git(repository).args(["rev-parse", "--verify", &name]))
}

/// The files of `commit`, in a directory of its own.
pub fn check_out(repository: &Path, commit: &str) -> Result<PathBuf> {
    let commits = scratch()?.join("commits");
    let checkout = commits.join(commit);
    if !checkout.exists() {
        let unfinished = commits.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        let tar = unfinished.join("tar");
        let archive = git(repository)
            .arg("archive")
            .arg("-o")
            .arg(&tar)
            .arg(commit)
            .status()?;
        ensure!(archive.success(), "git archive: {archive}");
        run(Command::new("tar")
            .arg("-xf")
            .arg(&tar)
            .arg("-C")
            .arg(&unfinished))?;
        fs::remove_file(tar)?;
        fs::rename(unfinished, &checkout)?;
    }
    Ok(checkout)
}

/// Builds this program with the engine in `engine`. Returns its path.
pub fn with_engine(engine: &Path) -> Result<PathBuf> {
    let engine = engine.canonicalize()?.display().to_string();
    let name = engine.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let package = scratch()?.join("sides").join(&name);
    fs::create_dir_all(&package)?;
    let manifest = include_str!("../Cargo.toml")
        .replace("\"../..\"", &format!("{engine:?}"))
        .replace("\"src/", &format!("\"{HERE}/src/"))
        .replace("name = \"turns", &format!("name = \"turns{name}"))
        .replace("build = \"build.rs\"", "build = false");
    write_new(&package.join("Cargo.toml"), &manifest)?;
    if !package.join("Cargo.lock").exists() {
        fs::write(package.join("Cargo.lock"), include_str!("../Cargo.lock"))?;
    }
    // The directory of this program, TARGET/release/turns, has the dependencies already.
    let own = std::env::current_exe()?;
    let target = own
        .ancestors()
        .nth(3)
        .context("where this program was built")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--manifest-path"]);
    cargo
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    run(&mut cargo)?;
    Ok(target.join("release").join(format!("turns{name}")))
}

/// Leaves a file alone that has these contents, for Cargo to see that nothing has changed.
fn write_new(path: &Path, contents: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    Ok(fs::write(path, contents)?)
}
