//! Prints the tables of a LevelDB database: the user key, sequence number and type of each entry.
//!
//! Run it with `cargo run --example leveldb_files -- DIR`, where DIR holds `CURRENT`, `MANIFEST-*` and files such
//! as `000005.ldb` or `000005.sst`. Without DIR it creates and prints two small tables. The database may be open,
//! because finished tables do not change.
//!
//! A table is only a part of its database. Newer changes may be in other tables or in the log, and the manifest
//! may no longer list a file that still exists.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use leveltable::{DbTable, WriteOptions, db::Version};

fn main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match std::env::args_os().nth(1) {
        Some(dir) => print_tables(dir.as_ref(), &mut out),
        None => print_sample_tables(&mut out),
    };
    match printed.and_then(|sound| out.flush().map(|()| sound)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader of the output, such as `head`, has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("leveldb_files: {e}");
            ExitCode::FAILURE
        }
    }
}

fn print_sample_tables(out: &mut impl Write) -> io::Result<bool> {
    let dir = tempfile::tempdir()?;
    make_tables(dir.path())?;
    print_tables(dir.path(), out)
}

/// Prints every table in `dir`. Returns whether all of them could be read to the end.
fn print_tables(dir: &Path, out: &mut impl Write) -> io::Result<bool> {
    let paths = table_paths(dir)?;
    if paths.is_empty() {
        writeln!(out, "no *.ldb or *.sst files in {}", dir.display())?;
    }
    let mut sound = true;
    for path in paths {
        writeln!(out, "{}", path.file_name().unwrap_or_default().display())?;
        match print_table(&path, out) {
            Ok(()) => {}
            Err(PrintError::Output(e)) => return Err(e),
            Err(PrintError::Table(e)) => {
                sound = false;
                writeln!(out, "  {e}")?;
            }
        }
    }
    Ok(sound)
}

/// Returns the files in `dir` with the extension of a table, sorted by name.
fn table_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let name_dir = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
    for entry in fs::read_dir(dir).map_err(name_dir)? {
        let path = entry?.path();
        // LevelDB before 1.14 named its tables .sst.
        if path
            .extension()
            .is_some_and(|ext| ext == "ldb" || ext == "sst")
        {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

enum PrintError {
    Table(leveltable::Error),
    Output(io::Error),
}

impl From<leveltable::Error> for PrintError {
    fn from(e: leveltable::Error) -> PrintError {
        PrintError::Table(e)
    }
}

impl From<io::Error> for PrintError {
    fn from(e: io::Error) -> PrintError {
        PrintError::Output(e)
    }
}

fn print_table(path: &Path, out: &mut impl Write) -> Result<(), PrintError> {
    let table = DbTable::open(path)?;
    for entry in table.iter() {
        let entry = entry?;
        let key = entry.user_key.escape_ascii();
        let sequence = entry.sequence;
        match entry.version {
            Version::Value(value) => {
                writeln!(
                    out,
                    "  \"{key}\" at {sequence}: value of {} bytes",
                    value.len()
                )?;
            }
            _ => writeln!(out, "  \"{key}\" at {sequence}: deletion")?,
        }
    }
    Ok(())
}

/// Writes two tables as a database might: the second has newer versions of the keys in the first.
fn make_tables(dir: &Path) -> leveltable::Result<()> {
    let mut builder = WriteOptions::leveldb().create_db(dir.join("000005.ldb"))?;
    builder.put(b"apple", 1, b"green")?;
    builder.put(b"banana", 2, b"yellow")?;
    builder.finish()?;

    let mut builder = WriteOptions::leveldb().create_db(dir.join("000008.ldb"))?;
    builder.put(b"apple", 7, b"brown")?; // the versions of a key, from new to old
    builder.put(b"apple", 4, b"red")?;
    builder.delete(b"banana", 6)?;
    builder.finish()?;
    Ok(())
}
