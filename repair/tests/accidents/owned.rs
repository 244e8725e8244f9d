//! Databases of C++ LevelDB before anything happens to them, and what their owner has in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use leveltable_database::{Database, FileKind, FileState};

use crate::common::{Change, Settings, Writer, copy_dir};

pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Changes in a batch, which is a record of the log.
pub(crate) const BATCH: usize = 100;

/// A database that was closed, or whose writer was killed.
pub(crate) struct Owned {
    pub(crate) name: String,
    /// Nobody opens it any more: it is copied.
    pub(crate) dir: PathBuf,
    /// Tables and logs that LevelDB has removed.
    pub(crate) removed: PathBuf,
    /// The MANIFEST of the session before, which LevelDB has removed as well.
    pub(crate) older_manifest: Option<PathBuf>,
    pub(crate) settings: Settings,
    pub(crate) was_killed: bool,
    /// Whether every file that the MANIFEST names is there.
    pub(crate) is_whole: bool,
    /// Whether all tables are in one level.
    pub(crate) is_compacted: bool,
    pub(crate) contents: Contents,
    pub(crate) manifest: String,
    /// The tables that are listed, and their levels.
    pub(crate) tables: Vec<(String, u32)>,
    /// The logs that count.
    pub(crate) logs: Vec<String>,
}

impl Owned {
    /// The database in `dir`, as the program that wrote it reads a copy of it.
    pub(crate) fn at(name: String, dir: PathBuf, removed: PathBuf, settings: Settings) -> Owned {
        let files = Database::open_read_only(&dir).unwrap().files().unwrap();
        let names = |kind| {
            let live = files
                .iter()
                .filter(|file| file.kind == kind && file.state == FileState::Live);
            live.map(|file| file.name.clone()).collect::<Vec<_>>()
        };
        let listed = files.iter().filter(|file| file.bytes.is_some());
        let listed = listed.filter_map(|file| Some((file.name.clone(), file.listed.as_ref()?.0)));
        Owned {
            tables: listed.collect(),
            contents: read_copy(&dir, &settings, |_| {}),
            manifest: names(FileKind::Manifest).remove(0),
            logs: names(FileKind::Log),
            is_whole: files.iter().all(|file| file.state != FileState::Missing),
            name,
            dir,
            removed,
            older_manifest: None,
            settings,
            was_killed: false,
            is_compacted: false,
        }
    }

    /// Writes the database of this number, in `scratch`.
    pub(crate) fn make(number: u64, scratch: &Path) -> Owned {
        Owned::make_with(number, scratch, |_| {})
    }

    /// The same, opened in another way.
    pub(crate) fn make_with(
        number: u64,
        scratch: &Path,
        change: impl FnOnce(&mut Settings),
    ) -> Owned {
        let mut life = Life::begin(number, scratch, change);
        life.write(life.batches / 3);
        life.writer.run("close");
        let older = fs::read_to_string(life.dir.join("CURRENT")).unwrap();
        let older = life.dir.join(older.trim_end());
        let kept = life.removed.join(older.file_name().unwrap());
        fs::copy(&older, &kept).unwrap();
        let was_killed = number / 2 % 2 == 1;
        if was_killed {
            life.writer.run("mortal");
        }
        life.writer.open(&life.dir, &life.settings);
        life.write(life.batches - life.batches / 3);
        if was_killed {
            life.write_until_death();
        } else {
            if matches!(number % 5, 0 | 4) {
                life.writer.run("compact");
                life.write(2);
            }
            // LevelDB closes in the middle of what it does in the background.
            life.writer.run("close");
        }
        let settings = &life.settings;
        let name = format!(
            "{number}: {} keys, {}, {}, buffers of {} KiB, {}",
            life.contents.len(),
            if settings.snappy { "Snappy" } else { "raw" },
            if settings.bloom_bits > 0 {
                "filter"
            } else {
                "no filter"
            },
            settings.write_buffer >> 10,
            if was_killed { "killed" } else { "closed" },
        );
        let mut owned = Owned::at(name, life.dir, life.removed, life.settings);
        let is_acknowledged = owned.contents == life.contents;
        // It may have written the batch that it did not acknowledge.
        let is_last_too = life.last.is_some_and(|last| {
            apply(&mut life.contents, last);
            owned.contents == life.contents
        });
        assert!(is_acknowledged || is_last_too);
        owned.older_manifest = Some(kept);
        owned.was_killed = was_killed;
        let mut levels: Vec<_> = owned.tables.iter().map(|(_, level)| level).collect();
        levels.dedup();
        owned.is_compacted = levels.len() == 1;
        owned
    }
}

/// What the program that wrote it reads from a copy of the database in `dir` after `change`.
pub(crate) fn read_copy(dir: &Path, settings: &Settings, change: impl FnOnce(&Path)) -> Contents {
    let scratch = crate::common::scratch();
    let copy = scratch.path().join("db");
    copy_dir(dir, &copy);
    change(&copy);
    let mut writer = start(settings);
    writer.open(&copy, settings);
    writer.dump(scratch.path()).into_iter().collect()
}

/// The program that writes databases of these settings.
pub(crate) fn start(settings: &Settings) -> Writer {
    if settings.goleveldb {
        Writer::of(goleveldb().expect("Go, and goleveldb in LEVELTABLE_GOPATH"))
    } else {
        Writer::start()
    }
}

/// A writer by goleveldb, compiled on first use, if `LEVELTABLE_GOPATH` says where that is: Debian's has `/usr/share/gocode`.
pub(crate) fn goleveldb() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let path = std::env::var_os("LEVELTABLE_GOPATH")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("accidents/writer.go");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = target.join("goleveldb_writer");
        let mut go = Command::new("go");
        go.env("GO111MODULE", "off").env("GOPATH", path);
        go.env("GOCACHE", target.join("go")).args(["build", "-o"]);
        let status = go.arg(&program).arg(source).status();
        assert!(status.expect("go").success(), "writer.go does not compile");
        Some(program)
    };
    PROGRAM.get_or_init(build).as_deref()
}

/// A database as it is written.
struct Life {
    dir: PathBuf,
    removed: PathBuf,
    settings: Settings,
    writer: Writer,
    random: fastrand::Rng,
    number: u64,
    /// Of how many keys.
    keys: u32,
    batches: usize,
    contents: Contents,
    /// The changes that were not acknowledged.
    last: Option<Vec<Change>>,
}

fn apply(contents: &mut Contents, changes: Vec<Change>) {
    for (key, value) in changes {
        match value {
            Some(value) => contents.insert(key, value),
            None => contents.remove(&key),
        };
    }
}

impl Life {
    fn begin(number: u64, scratch: &Path, change: impl FnOnce(&mut Settings)) -> Life {
        let mut random = fastrand::Rng::with_seed(number);
        let megabytes = 1 + number as usize * 7 % 12;
        let mut settings = Settings {
            write_buffer: [64 << 10, 256 << 10, 1 << 20, 2 << 20][random.usize(..4)]
                .min(megabytes << 18),
            max_file: [1 << 20, 2 << 20][random.usize(..2)],
            block_size: [1024, 4096][random.usize(..2)],
            snappy: number.is_multiple_of(2),
            bloom_bits: [10, 0][number as usize / 4 % 2],
            ..Settings::default()
        };
        change(&mut settings);
        let (dir, removed) = (scratch.join("db"), scratch.join("removed"));
        fs::create_dir_all(&removed).unwrap();
        let mut writer = start(&settings);
        writer.open(&dir, &settings);
        Life {
            // A change has 200 bytes. One in four is of a key that was written before; in some databases, two in three.
            batches: (megabytes << 20) / 200 / BATCH,
            keys: (megabytes as u32) << if number % 5 == 1 { 11 } else { 13 },
            dir,
            removed,
            settings,
            writer,
            random,
            number,
            contents: Contents::new(),
            last: None,
        }
    }

    /// Three designs of keys: decimal numbers, random bytes, paths with long common prefixes.
    fn key(&mut self) -> Vec<u8> {
        let i = self.random.u32(..self.keys);
        match self.number % 3 {
            0 => format!("user/{i:08}").into_bytes(),
            1 => {
                let mut random = fastrand::Rng::with_seed(i.into());
                (0..16).map(|_| random.u8(..)).collect()
            }
            _ => format!("world/overworld/region/{:04}/chunk/{i}", i % 37).into_bytes(),
        }
    }

    fn change(&mut self) -> Change {
        let key = self.key();
        if self.random.u8(..10) < 2 {
            return (key, None);
        }
        let part: Vec<u8> = (0..self.random.usize(10..180))
            .map(|_| self.random.u8(..))
            .collect();
        (key, Some(part.repeat(2)))
    }

    fn write(&mut self, batches: usize) {
        for n in 0..batches {
            // Old versions outlive compactions beside a snapshot.
            if self.number.is_multiple_of(5) && n == batches / 4 {
                self.writer.run("snapshot");
            } else if self.number.is_multiple_of(5) && n == batches / 2 {
                self.writer.run("release");
            }
            self.batch();
            if n % 8 == 0 {
                self.keep_removed();
            }
        }
        self.keep_removed();
    }

    fn batch(&mut self) {
        let changes: Vec<_> = (0..BATCH).map(|_| self.change()).collect();
        self.writer.batch(&changes);
        apply(&mut self.contents, changes);
    }

    /// Writes until the process ends in the middle of a compaction.
    fn write_until_death(&mut self) {
        self.writer.run("die");
        for n in 0..10_000 {
            let changes: Vec<_> = (0..BATCH).map(|_| self.change()).collect();
            match self.writer.try_batch(&changes).as_str() {
                "ok" => apply(&mut self.contents, changes),
                "" => return self.last = Some(changes),
                error => panic!("{error}"),
            }
            if n % 8 == 0 {
                self.keep_removed();
            }
        }
        panic!("no compaction");
    }

    /// Links what LevelDB may remove.
    fn keep_removed(&self) {
        for file in fs::read_dir(&self.dir).unwrap() {
            let file = file.unwrap();
            let name = file.file_name();
            let kind = FileKind::of(name.to_str().unwrap()).0;
            if matches!(kind, FileKind::Table | FileKind::Log) {
                // It may be there, or have gone meanwhile.
                let _ = fs::hard_link(file.path(), self.removed.join(name));
            }
        }
    }
}
