//! Files that another program holds, as LevelDB and virus scanners do on Windows: the errors, what is read without these files, and
//! how a new directory gets its name.

use std::io;
use std::path::{Path, PathBuf};

use crate::common::memory::{HELD, Memory};
use crate::common::{Log, batch, scratch};
use leveltable::ErrorKind;
use leveltable_database::sister_crates::{self, NewDirectory};
use leveltable_database::{Database, DatabaseBuildOptions, DatabaseOptions};

// ---- Publication ----------------------------------------------------------------------------

fn build(new: Box<dyn NewDirectory>) -> leveltable::Result<()> {
    let mut builder = sister_crates::build(new, DatabaseBuildOptions::new())?;
    for i in 0..1000 {
        builder.put(format!("key{i:04}"), "value")?;
    }
    builder.finish().map(drop)
}

fn held() -> io::Error {
    io::Error::from_raw_os_error(HELD)
}

fn denied() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

#[test]
fn a_directory_that_is_held_for_a_moment_gets_its_name() {
    let mut refusals: Vec<fn() -> Vec<io::Error>> =
        vec![|| vec![held()], || (0..9).map(|_| held()).collect()];
    if cfg!(windows) {
        refusals.push(|| vec![held(), denied(), held()]);
        refusals.push(|| (0..9).map(|_| denied()).collect());
    }
    for refusals in refusals {
        let (memory, tries) = (Memory::new("new"), refusals().len() + 1);
        memory.refuse_renaming(refusals());
        build(Box::new(memory.clone())).unwrap();
        assert!(memory.is_published());
        let steps = memory.steps();
        let renamings = steps.iter().filter(|step| *step == "renaming");
        assert_eq!(renamings.count(), tries);
    }
}

#[test]
fn a_directory_that_stays_held_is_an_error() {
    let refusals: [fn() -> io::Error; 2] = [held, denied];
    for refusal in refusals {
        let memory = Memory::new("new");
        memory.refuse_renaming((0..1000).map(|_| refusal()));
        let error = build(Box::new(memory.clone())).unwrap_err();
        assert!(!memory.is_published());
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.path(), Some(Path::new("new")));
        let message = error.to_string();
        assert!(
            message.contains("renaming a finished database to its path"),
            "{message}"
        );
        let is_held = refusal().raw_os_error() == Some(HELD);
        assert_eq!(
            message.contains("another program holds"),
            is_held,
            "{message}"
        );
    }
}

/// What is no refusal of that kind is not tried again: somebody else has the name, or the disk is gone.
#[test]
fn other_errors_of_renaming_are_not_tried_again() {
    let mut final_kinds = vec![io::ErrorKind::AlreadyExists, io::ErrorKind::StorageFull];
    if cfg!(unix) {
        final_kinds.push(io::ErrorKind::PermissionDenied);
    }
    for kind in final_kinds {
        let memory = Memory::new("new");
        memory.refuse_renaming([kind.into()]);
        build(Box::new(memory.clone())).unwrap_err();
        assert!(!memory.is_published());
        assert_eq!(memory.steps().last().unwrap(), "renaming");
    }
}

/// A directory of the file system that counts the open files in it when it is renamed.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Counting(
    Box<dyn NewDirectory>,
    std::sync::Arc<std::sync::Mutex<Vec<usize>>>,
);

/// Files of this process below `dir` that are open.
#[cfg(target_os = "linux")]
fn open_files(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(dir)).count()
}

#[cfg(target_os = "linux")]
impl NewDirectory for Counting {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn temporary_path(&self) -> Option<&Path> {
        self.0.temporary_path()
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        self.0.leftovers()
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.0.free_bytes()
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn sister_crates::NewFile>> {
        let file = self.0.create(name)?;
        // The count sees open files.
        assert!(open_files(self.0.temporary_path().unwrap()) > 0);
        Ok(file)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn publish(&mut self) -> io::Result<()> {
        let open = open_files(self.0.temporary_path().unwrap());
        self.1.lock().unwrap().push(open);
        self.0.publish()
    }

    fn sync_name(&mut self) -> io::Result<()> {
        self.0.sync_name()
    }
}

#[cfg(target_os = "linux")]
impl Drop for Counting {
    fn drop(&mut self) {
        let open = open_files(self.0.temporary_path().unwrap());
        self.1.lock().unwrap().push(open);
    }
}

/// Windows neither renames nor removes a directory in which a file is open: an empty one was left after a failed build, and when a
/// build was interrupted that waited for its input.
#[cfg(target_os = "linux")]
#[test]
fn no_file_is_open_in_a_directory_that_is_renamed_or_removed() {
    let scratch = scratch();
    let (like, new) = (scratch.path(), scratch.path().join("new"));
    let counts = std::sync::Arc::default();
    let counting = || {
        let real = sister_crates::new_like(like, None, &new).unwrap();
        Box::new(Counting(real, std::sync::Arc::clone(&counts)))
    };
    let options = DatabaseBuildOptions::new();
    let mut unfinished = sister_crates::build(counting(), options).unwrap();
    unfinished.put("key", "value".repeat(100_000)).unwrap();
    assert_eq!(open_files(unfinished.temporary_path().unwrap()), 0);
    drop(unfinished);
    assert_eq!(*counts.lock().unwrap(), [0]);

    build(counting()).unwrap();
    assert_eq!(*counts.lock().unwrap(), [0, 0, 0]);
    assert_eq!(Database::open_read_only(new).unwrap().iter().count(), 1000);
}

// ---- A writer that shares nothing -----------------------------------------------------------

/// Puts "a" and "b" in a table, and "a" once more and "c" in the log; the table has number 5.
fn with_log(scratch: &Path) -> PathBuf {
    let dir = scratch.join("db");
    let options = DatabaseBuildOptions::new();
    let mut builder = leveltable_database::DatabaseBuilder::create(&dir, options).unwrap();
    builder.put("a", "old").unwrap();
    builder.put("b", "old").unwrap();
    builder.finish().unwrap();
    let mut log = Log::default();
    log.add(&batch(1001, &[(b"a", Some(b"new")), (b"c", Some(b"new"))]));
    std::fs::write(dir.join("000003.log"), log.0).unwrap();
    dir
}

#[test]
fn a_held_file_is_an_error_that_names_it_and_says_what_to_do() {
    let scratch = scratch();
    for name in ["MANIFEST-000001", "000003.log"] {
        let memory = Memory::of(&with_log(scratch.path()));
        std::fs::remove_dir_all(scratch.path().join("db")).unwrap();
        memory.hold(name);
        let opened = sister_crates::open(std::sync::Arc::new(memory), &DatabaseOptions::new());
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.path().unwrap().ends_with(name), "{error}");
        let advice =
            "which another program holds (close that program, or take the file from a shadow copy)";
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// The same with files that are held indeed.
#[cfg(windows)]
mod on_windows {
    use std::fs::{File, OpenOptions};
    use std::os::windows::fs::OpenOptionsExt as _;

    use leveltable_database::{CompactOptions, compact_into};

    use super::*;

    /// Holds a file as LevelDB 1.23 holds its log: others may not open it.
    fn hold(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .share_mode(0);
        options.open(path).unwrap()
    }

    #[test]
    fn what_is_not_held_is_read_without_a_manifest() {
        let scratch = scratch();
        let dir = with_log(scratch.path());
        let files = ["000003.log", "MANIFEST-000001"];
        let _holds = files.map(|name| hold(&dir.join(name)));
        let error = Database::open_read_only(&dir).unwrap_err().to_string();
        assert!(
            error.contains("MANIFEST-000001") && error.contains("shadow copy"),
            "{error}"
        );
        let options = DatabaseOptions::new();
        let error = options.open_without_manifest(&dir).unwrap_err().to_string();
        assert!(
            error.contains("000003.log") && error.contains("shadow copy"),
            "{error}"
        );

        let db = options.skip_held(true).open_without_manifest(&dir).unwrap();
        let values = ["a", "b", "c"].map(|key| db.get(key).unwrap());
        let values = values.each_ref().map(|value| value.as_deref());
        assert_eq!(values, [Some(&b"old"[..]), Some(b"old"), None]);
        let recovery = db.recovery();
        assert_eq!(recovery.held, files);
        let unknown = recovery.unknown().unwrap();
        for word in ["obsolete", "deleted", "newer values", "000003.log"] {
            assert!(unknown.contains(word), "{unknown}");
        }
    }

    /// By the sharing error of LOCK. Looking at it takes no lock, nor keeps a writer from it.
    #[test]
    fn a_writer_is_noticed_by_its_lock() {
        let scratch = scratch();
        let dir = with_log(scratch.path());
        let compact = |new| compact_into(&dir, scratch.path().join(new), CompactOptions::new());
        assert!(!compact("without LOCK").unwrap().has_writer);
        let lock = hold(&dir.join("LOCK"));
        assert!(sister_crates::holds_lock(&dir));
        assert!(compact("beside a writer").unwrap().has_writer);
        drop(lock);
        assert!(!sister_crates::holds_lock(&dir));
        hold(&dir.join("LOCK"));
    }

    #[test]
    fn a_directory_that_stands_in_the_way_is_not_replaced() {
        let scratch = scratch();
        let new = scratch.path().join("new");
        let mut builder =
            leveltable_database::DatabaseBuilder::create(&new, DatabaseBuildOptions::new())
                .unwrap();
        builder.put("a", "1").unwrap();
        std::fs::create_dir(&new).unwrap();
        let error = builder.finish().unwrap_err().to_string();
        assert!(error.contains("name a new directory"), "{error}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
