//! Directories in memory, with a fault at a chosen step. What was not synced may be lost, torn or out of order when power fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use leveltable::ReadAt;
use leveltable_database::sister_crates::{Directory, NewDirectory, NewFile};

/// A file: what the system has of it, and how much of that is on disk.
#[derive(Debug, Clone, Default)]
struct Stored {
    bytes: Vec<u8>,
    synced: usize,
}

/// What is wrong with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Error(io::ErrorKind),
    /// Half of the bytes are read or written, and then an error comes.
    Short,
}

#[derive(Debug, Default)]
struct Disk {
    files: BTreeMap<String, Stored>,
    /// Whether the names of the files are on disk.
    are_names_synced: bool,
    /// Under its name, and whether that is on disk.
    is_published: bool,
    is_name_synced: bool,
    /// Steps so far, and what fails at which.
    steps: Vec<String>,
    fault: Option<(usize, Fault)>,
    /// Files that another program holds: they cannot be opened.
    held: BTreeSet<String>,
    /// How the next renamings fail.
    refusals: VecDeque<io::Error>,
}

/// ERROR_SHARING_VIOLATION, with which Windows refuses what another program holds.
pub(crate) const HELD: i32 = 32;

impl Disk {
    /// Takes a step, unless it is the one that fails.
    fn step(&mut self, what: String) -> Result<(), Fault> {
        self.steps.push(what);
        match self.fault {
            Some((at, fault)) if at + 1 == self.steps.len() => Err(fault),
            _ => Ok(()),
        }
    }
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Error(kind) => kind.into(),
        Fault::Short => io::ErrorKind::UnexpectedEof.into(),
    }
}

/// A directory in memory. Clones are of the same.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    path: PathBuf,
    disk: Arc<Mutex<Disk>>,
}

impl Memory {
    pub(crate) fn new(path: &str) -> Memory {
        let (path, disk) = (path.into(), Arc::default());
        Memory { path, disk }
    }

    /// Holds what a directory of the file system holds.
    pub(crate) fn of(path: &Path) -> Memory {
        let memory = Memory::new(&path.display().to_string());
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            memory.put(&name, bytes);
        }
        memory
    }

    /// Puts a file there, whole and synced.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let synced = bytes.len();
        let stored = Stored { bytes, synced };
        self.disk().files.insert(name.to_owned(), stored);
    }

    /// All files.
    pub(crate) fn stored(&self) -> BTreeMap<String, Vec<u8>> {
        let disk = self.disk();
        let files = disk.files.iter();
        files
            .map(|(name, file)| (name.clone(), file.bytes.clone()))
            .collect()
    }

    pub(crate) fn remove(&self, name: &str) {
        self.disk().files.remove(name);
    }

    /// Appends to a file, or makes it.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.disk();
        let file = disk.files.entry(name.to_owned()).or_default();
        file.bytes.extend_from_slice(bytes);
    }

    /// Another directory with the same files, in which no step was taken.
    pub(crate) fn copy(&self) -> Memory {
        let copy = Memory::new(&self.path.display().to_string());
        copy.disk().files = self.disk().files.clone();
        copy
    }

    /// Lets the step of this number fail, counted from 0.
    pub(crate) fn failing_at(self, step: usize, fault: Fault) -> Memory {
        self.disk().fault = Some((step, fault));
        self
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// Lets another program hold a file, as LevelDB does on Windows.
    pub(crate) fn hold(&self, name: &str) {
        self.disk().held.insert(name.to_owned());
    }

    /// Lets the next renamings fail.
    pub(crate) fn refuse_renaming(&self, refusals: impl IntoIterator<Item = io::Error>) {
        self.disk().refusals.extend(refusals);
    }

    pub(crate) fn steps(&self) -> Vec<String> {
        self.disk().steps.clone()
    }

    pub(crate) fn is_published(&self) -> bool {
        self.disk().is_published
    }

    /// The files that are there under the directory's name.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let disk = self.disk();
        assert!(disk.is_published);
        let files = disk.files.iter();
        files
            .map(|(name, file)| (name.clone(), file.bytes.clone()))
            .collect()
    }

    /// What is under the name after a loss of power, if something is: each file and its name may be there or not, in any order,
    /// unless it was synced. `None` if the name is not there.
    pub(crate) fn after_power_loss(&self, random: &mut fastrand::Rng) -> Option<Memory> {
        let disk = self.disk();
        if !disk.is_published || !disk.is_name_synced && random.bool() {
            return None;
        }
        let left = Memory::new(&self.path.display().to_string());
        for (name, file) in &disk.files {
            let mut file = file.clone();
            let len = random.usize(file.synced..=file.bytes.len());
            // Pages reach the disk in any order.
            for byte in &mut file.bytes[file.synced..len] {
                *byte *= u8::from(random.bool());
            }
            file.bytes.truncate(len);
            if disk.are_names_synced || random.bool() {
                left.disk().files.insert(name.clone(), file);
            }
        }
        Some(left)
    }
}

impl Directory for Memory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<BTreeMap<String, u64>> {
        let mut disk = self.disk();
        disk.step("listing".into()).map_err(error)?;
        let files = disk.files.iter();
        Ok(files
            .map(|(name, file)| (name.clone(), file.bytes.len() as u64))
            .collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        let mut disk = self.disk();
        if !disk.files.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.step(format!("opening {name}")).map_err(error)?;
        if disk.held.contains(name) {
            return Err(io::Error::from_raw_os_error(HELD));
        }
        Ok(Arc::new(OpenFile(self.clone(), name.to_owned())))
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open(name)?;
        let len = file.size()?.min(most);
        Ok(file.read_at(0, len as usize)?.to_vec())
    }

    fn exists(&self, name: &str) -> bool {
        self.disk().files.contains_key(name)
    }
}

struct OpenFile(Memory, String);

impl ReadAt for OpenFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.disk().files[&self.1].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut disk = self.0.disk();
        disk.step(format!("reading {}", self.1)).map_err(error)?;
        let bytes = Bytes::copy_from_slice(&disk.files[&self.1].bytes);
        bytes.read_at(offset, len)
    }
}

impl NewDirectory for Memory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn temporary_path(&self) -> Option<&Path> {
        None
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.disk()
            .step("asking for free space of".into())
            .map_err(error)?;
        Ok(Some(1 << 40))
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn NewFile>> {
        let mut disk = self.disk();
        disk.step(format!("creating {name}")).map_err(error)?;
        let taken = disk.files.insert(name.to_owned(), Stored::default());
        assert!(taken.is_none(), "{name} is created twice");
        Ok(Box::new(WrittenFile(self.clone(), name.to_owned())))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step("syncing the directory".into()).map_err(error)?;
        disk.are_names_synced = true;
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step("renaming".into()).map_err(error)?;
        if let Some(refusal) = disk.refusals.pop_front() {
            return Err(refusal);
        }
        disk.is_published = true;
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step("syncing the parent directory".into())
            .map_err(error)?;
        disk.is_name_synced = true;
        Ok(())
    }
}

#[derive(Debug)]
struct WrittenFile(Memory, String);

impl Write for WrittenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.disk();
        let done = disk.step(format!("writing {}", self.1));
        let len = if done == Err(Fault::Short) {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        let file = disk.files.get_mut(&self.1).unwrap();
        match done {
            Err(Fault::Error(kind)) => Err(kind.into()),
            _ => {
                file.bytes.extend_from_slice(&bytes[..len]);
                // A write of no bytes is an error to the writer.
                Ok(len)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for WrittenFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.disk();
        disk.step(format!("syncing {}", self.1)).map_err(error)?;
        let file = disk.files.get_mut(&self.1).unwrap();
        file.synced = file.bytes.len();
        Ok(())
    }
}
