//! A writer in another process: C++ LevelDB.
#![allow(dead_code, unused_imports)] // each test uses its part

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use bytes::Bytes;
pub(crate) use encode::*;
use leveltable::Table;
use leveltable::format::codec_name;
use leveltable::sister_crates::data_frame;
use leveltable_database::DatabaseRange;

mod encode;
pub(crate) mod memory;

/// A key and its value.
pub(crate) type Stored = (Vec<u8>, Vec<u8>);

/// A key, and its new value or none.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

/// How LevelDB opens a database.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) write_buffer: usize,
    pub(crate) max_file: usize,
    pub(crate) block_size: usize,
    pub(crate) snappy: bool,
    pub(crate) bloom_bits: usize,
    pub(crate) reuse_logs: bool,
    pub(crate) reverse: bool,
    /// Bytewise, by the name of Chrome's IndexedDB.
    pub(crate) indexed_db: bool,
    /// By goleveldb, which only some tests have.
    pub(crate) goleveldb: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            write_buffer: 4 << 20,
            max_file: 2 << 20,
            block_size: 4096,
            snappy: true,
            bloom_bits: 10,
            reuse_logs: false,
            reverse: false,
            indexed_db: false,
            goleveldb: false,
        }
    }
}

/// A process in which C++ LevelDB runs, or another that takes the same commands. It ends when this is dropped.
pub(crate) struct Writer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Writer {
    pub(crate) fn start() -> Writer {
        Writer::of(program())
    }

    pub(crate) fn of(program: &Path) -> Writer {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Writer {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Runs a command and returns its answer, which is empty if the process has ended.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        // Errors name keys, which may be no text.
        let mut answer = Vec::new();
        if writeln!(self.input, "{command}").is_ok() {
            self.output.read_until(b'\n', &mut answer).unwrap();
        }
        String::from_utf8_lossy(&answer).trim_end().to_owned()
    }

    pub(crate) fn run(&mut self, command: &str) {
        let answer = self.ask(command);
        assert_eq!(answer, "ok", "{command}");
    }

    pub(crate) fn open(&mut self, dir: &Path, settings: &Settings) {
        let answer = self.try_open(dir, settings);
        assert_eq!(answer, "ok", "{dir:?}");
    }

    pub(crate) fn try_open(&mut self, dir: &Path, settings: &Settings) -> String {
        let Settings {
            write_buffer,
            max_file,
            block_size,
            bloom_bits,
            ..
        } = settings;
        let [snappy, reuse, reverse, indexed_db] = [
            settings.snappy,
            settings.reuse_logs,
            settings.reverse,
            settings.indexed_db,
        ]
        .map(u8::from);
        let order = reverse + 2 * indexed_db;
        let dir = dir.display();
        self.ask(&format!(
            "open {dir} {write_buffer} {max_file} {block_size} {snappy} {bloom_bits} {reuse} {order}"
        ))
    }

    pub(crate) fn batch(&mut self, changes: &[Change]) {
        assert_eq!(self.try_batch(changes), "ok");
    }

    pub(crate) fn try_batch(&mut self, changes: &[Change]) -> String {
        let mut command = "batch 0".to_owned();
        for (key, value) in changes {
            match value {
                Some(value) => write!(command, " put {} {}", hex(key), hex(value)).unwrap(),
                None => write!(command, " delete {}", hex(key)).unwrap(),
            }
        }
        self.ask(&command)
    }

    /// Every entry, by LevelDB's iterator.
    pub(crate) fn dump(&mut self, scratch: &Path) -> Vec<Stored> {
        let (answer, entries) = self.dump_until_error(scratch);
        assert_eq!(answer, "ok");
        entries
    }

    /// The entries up to the first that cannot be read, and what the iterator says at the end.
    pub(crate) fn dump_until_error(&mut self, scratch: &Path) -> (String, Vec<Stored>) {
        let path = scratch.join("dump");
        let answer = self.ask(&format!("dump {}", path.display()));
        let bytes = std::fs::read(path).unwrap_or_default();
        let mut rest = &bytes[..];
        let mut string = || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (string, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = after;
            Some(string.to_vec())
        };
        let entries = std::iter::from_fn(|| Some((string()?, string()?)));
        (answer, entries.collect())
    }

    /// As a machine that loses power does, except that the system keeps what was written.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Compiles the writer on first use.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // Also from other packages of the workspace.
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut sources = above.map(|directory| directory.join("database/tests/cpp/writer.cc"));
        let source = sources.find(|source| source.exists());
        let source = source.expect("database/tests/cpp/writer.cc above the package");
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (built, program) = (
            scratch.path().join("writer"),
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("database_writer"),
        );
        let mut compiler = Command::new("c++");
        compiler.args(["-O1", "-std=c++17"]).arg(source);
        compiler.arg("-lleveldb").arg("-o").arg(&built);
        let status = compiler.status().expect("a C++ compiler named c++");
        assert!(
            status.success(),
            "writer.cc does not compile: is libleveldb-dev installed?"
        );
        // Several tests may do this at a time.
        std::fs::rename(built, &program).unwrap();
        program
    })
}

/// Takes an entry from a range: way 0 is from the front to keep, 1 from the front as it is lent, 2 from the back.
pub(crate) fn take(
    range: &mut DatabaseRange,
    way: u8,
) -> Option<leveltable::Result<(Bytes, Bytes)>> {
    match way {
        0 => range.next(),
        1 => {
            let moved = range.advance();
            let lent = [range.key(), range.value()].map(Bytes::copy_from_slice);
            moved.map(|moved| moved.then_some(lent.into())).transpose()
        }
        _ => range.next_back(),
    }
}

/// Copies the files of a directory.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        // RepairDB makes a directory of what it could not use.
        if file.path().is_dir() {
            continue;
        }
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A directory that needs no disk, where there is one: LevelDB syncs files whenever it opens a database.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// The codec of each data block.
pub(crate) fn codecs(table: &Table) -> Vec<&'static str> {
    let codec = |i| codec_name(&data_frame(table, i).unwrap()).unwrap();
    (0..table.data_blocks()).map(codec).collect()
}
