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

/// Builds this program with the engine in `engine`, and copies it to `bin/<name>`. Returns its path.
///
/// All engines are built at one path, through a link: the path is part of each symbol's name, by which the compiler orders and divides
/// the code, so that one commit at two paths can differ by some percent.
pub fn with_engine(engine: &Path, name: &str) -> Result<PathBuf> {
    let (scratch, engine) = (scratch()?, engine.canonicalize()?);
    let (link, package) = (scratch.join("engine"), scratch.join("side"));
    fs::create_dir_all(&package)?;
    let manifest = include_str!("../Cargo.toml")
        .replace("\"../..\"", &format!("{:?}", link.display().to_string()))
        .replace("\"src/", &format!("\"{HERE}/src/"))
        .replace("\"turns", "\"side")
        .replace("build = \"build.rs\"", "build = false");
    fs::write(package.join("Cargo.toml"), manifest)?;
    if !package.join("Cargo.lock").exists() {
        fs::write(package.join("Cargo.lock"), include_str!("../Cargo.lock"))?;
    }
    if !fs::read_link(&link).is_ok_and(|old| old == engine) {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&engine, &link)?;
        // The other engine's files may be older than what was built of this one.
        cargo(&["clean", "--package", "leveltable"], &package)?;
    }
    let target = cargo(&["build"], &package)?;
    let bin = scratch.join("bin").join(name);
    fs::create_dir_all(&bin)?;
    for program in ["side", "side-peak"] {
        fs::copy(target.join("release").join(program), bin.join(program))?;
    }
    Ok(bin.join("side"))
}

/// As `with_engine`, of a commit. What was built before is taken, unless the bench has changed since.
pub fn with_commit(repository: &Path, commit: &str) -> Result<PathBuf> {
    let built = scratch()?.join("bin").join(commit).join("side");
    let modified = |path: &Path| fs::metadata(path).and_then(|it| it.modified());
    let mut sources = fs::read_dir(Path::new(HERE).join("src"))?;
    let since = modified(&built);
    let is_older = |file: &fs::DirEntry| Some(modified(&file.path()).ok()? < *since.as_ref().ok()?);
    if sources.all(|file| file.is_ok_and(|file| is_older(&file) == Some(true))) {
        return Ok(built);
    }
    with_engine(&check_out(repository, commit)?, commit)
}

/// Runs Cargo for release builds of `package`. Returns the directory of what it builds.
fn cargo(words: &[&str], package: &Path) -> Result<PathBuf> {
    let target = scratch()?.join("cargo");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(words).arg("--release").arg("--manifest-path");
    cargo
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    run(&mut cargo)?;
    Ok(target)
}
