//! Sorts entries that are added in any order.

use std::fmt;
use std::path::PathBuf;

use crate::comparator::{Comparator, Order};
use crate::error::Result;
use crate::sorted_input::SortedInput;
use crate::sorter::batch::Batch;
use crate::sorter::run::{Progress, Run, read_run, write_run};

mod batch;
mod run;

/// Number of runs of one level that are merged into one of the next. A sort of this many times its memory writes each entry to
/// temporary files once; of the square of that, twice; and so on. This many files may be open for each level.
const FAN_IN: usize = 32;

/// Sorts entries that come in any order: [`add`](Sorter::add) each, then take them in ascending order from
/// [`finish`](Sorter::finish).
///
/// Memory is bounded by [`memory`](Sorter::memory). When it is full, its entries are sorted and written to a temporary file, and in the
/// end the files are merged. So each entry is written and read at most once, or once more for each 32-fold of the memory. Entries that
/// fit into the memory are neither written nor read.
///
/// The files have no names if the system allows that, or names that mark them as temporary. They are removed when the sorter and the
/// input that it returned are dropped, and, if they have no names, even after a kill.
///
/// ```
/// use leveltable::{Sorter, WriteOptions};
///
/// let mut sorter = Sorter::new().memory(64 << 20).keep_all(false);
/// for (key, value) in [("cherry", "red"), ("apple", "red"), ("cherry", "dark")] {
///     sorter.add(key, value)?;
/// }
/// let mut builder = WriteOptions::new().build(Vec::new());
/// builder.extend(sorter.finish()?)?;
/// assert_eq!(builder.entries(), 2);
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// To show progress, count the entries that you add, then those that you take: as many as [`entries`](Sorter::entries), or fewer if keys
/// repeat. [`progress`](Sorter::progress) reports the work in between. C++ LevelDB has no sorter: its memtable and its compactions sort
/// what is written to a database.
#[must_use]
pub struct Sorter {
    batch: Batch,
    memory: usize,
    directory: PathBuf,
    /// In the order in which their entries were added. Levels do not ascend.
    runs: Vec<Run>,
    entries: u64,
    progress: Progress,
}

/// Short: shows how many entries were added.
impl fmt::Debug for Sorter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorter")
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

impl Default for Sorter {
    fn default() -> Sorter {
        Sorter::new()
    }
}

impl Sorter {
    /// Sorts bytewise, in 256 MiB of memory, with temporary files in [`std::env::temp_dir`], and keeps the last of several entries with
    /// one key. Call the methods that change this before the first entry is added. Allocates nothing yet.
    pub fn new() -> Sorter {
        Sorter {
            batch: Batch::new(Order::Bytewise, false),
            memory: 256 << 20,
            directory: std::env::temp_dir(),
            runs: Vec::new(),
            entries: 0,
            progress: Box::new(|_| ()),
        }
    }

    /// The order of the keys; bytewise by default. Internal keys need
    /// [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    ///
    /// Bytewise keys, and internal keys with bytewise user keys, are sorted by eight bytes at a time, which costs far less than
    /// comparing them.
    pub fn comparator(mut self, comparator: impl Comparator) -> Sorter {
        self.batch.order = Order::of(comparator);
        self
    }

    /// Bytes of memory for unsorted entries, 256 MiB by default. Each takes up to 36 bytes more than its key and its value.
    ///
    /// Merging files takes 128 KiB for each in addition: up to 31 files, and 31 more for each 32-fold of the memory. An entry larger
    /// than the memory is sorted by itself.
    pub fn memory(mut self, bytes: usize) -> Sorter {
        self.memory = bytes;
        self
    }

    /// The directory for temporary files, by default [`std::env::temp_dir`]. Together they take as many bytes as the entries; while files
    /// are merged, up to twice as many.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Sorter {
        self.directory = directory.into();
        self
    }

    /// Whether all entries with one key are kept, in the order in which they were added, instead of the last one alone. False by
    /// default. Builders of tables reject duplicate keys.
    pub fn keep_all(mut self, yes: bool) -> Sorter {
        self.batch.keep_all = yes;
        self
    }

    /// Calls `show` with the number of bytes that were written to temporary files so far, after every 128 KiB. Nothing is called by
    /// default.
    ///
    /// This shows that work goes on while a single [`add`](Sorter::add) merges 32 files. Only then are bytes of the same entries written
    /// again.
    pub fn progress(mut self, mut show: impl FnMut(u64) + Send + Sync + 'static) -> Sorter {
        let mut written = 0;
        self.progress = Box::new(move |bytes| {
            written += bytes;
            show(written);
        });
        self
    }

    /// Adds an entry. Copies it; if the memory is full, first sorts the entries in memory and writes them to a
    /// temporary file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with the directory of the temporary file, if that cannot be written. The entry is not
    /// added, but nothing else is lost: once there is room, add it again.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        if !self.batch.has_room(key, value, self.memory) {
            self.spill()?;
        }
        self.batch.push(key, value, self.memory);
        self.entries += 1;
        Ok(())
    }

    /// Number of entries that were added.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Sorts the entries in memory, and returns all entries in ascending order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a temporary file cannot be read.
    pub fn finish(mut self) -> Result<Sorted> {
        self.batch.sort();
        let mut sorted = self.merge(&self.runs)?;
        sorted.waiting.push(Box::new(self.batch));
        Ok(sorted)
    }

    /// Moves the entries in memory to a file, and merges the files of each full level.
    fn spill(&mut self) -> Result<()> {
        self.batch.sort();
        let run = write_run(&self.directory, &mut self.batch, 0, &mut self.progress)?;
        self.runs.push(run);
        self.batch.clear();
        while let Some(level) = self.runs.last().map(|run| run.level) {
            let first = self.runs.partition_point(|run| run.level > level);
            let (_, same) = self.runs.split_at(first);
            if same.len() < FAN_IN {
                break;
            }
            let mut same = self.merge(same)?;
            let merged = write_run(&self.directory, &mut same, level + 1, &mut self.progress)?;
            self.runs.truncate(first);
            self.runs.push(merged);
        }
        Ok(())
    }

    fn merge(&self, runs: &[Run]) -> Result<Sorted> {
        let inputs = runs.iter().map(|run| read_run(run, &self.directory));
        Ok(Sorted {
            order: self.batch.order.clone(),
            keep_all: self.batch.keep_all,
            waiting: inputs.collect::<Result<_>>()?,
            queue: Vec::new(),
        })
    }
}

type Input = Box<dyn SortedInput + Send + Sync>;

/// The entries of a [`Sorter`] in ascending order, a [`SortedInput`]. Reads each temporary file once, in parts of 128 KiB.
pub struct Sorted {
    order: Order,
    keep_all: bool,
    /// Inputs before their first entry. Of entries with one key, those of an earlier input were added earlier.
    waiting: Vec<Input>,
    /// Inputs in the order of their current entries, with their numbers. The entry of the first is lent.
    queue: Vec<(usize, Input)>,
}

impl fmt::Debug for Sorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorted").finish_non_exhaustive()
    }
}

impl Sorted {
    /// Moves an input that is not in the queue to its next entry, and inserts it at its place.
    fn place(&mut self, number: usize, mut input: Input) -> Result<()> {
        if input.advance()? {
            let is_before = |(other, entry): &(usize, Input)| {
                let by_key = self.order.compare(entry.key(), input.key());
                by_key.then(other.cmp(&number)).is_lt()
            };
            let place = self.queue.partition_point(is_before);
            self.queue.insert(place, (number, input));
        }
        Ok(())
    }

    /// Whether the next entry has the same key as the current one, which is then dropped.
    fn is_replaced(&self) -> bool {
        let [(_, current), (_, next), ..] = &self.queue[..] else {
            return false;
        };
        !self.keep_all && self.order.compare(current.key(), next.key()).is_eq()
    }

    fn step(&mut self) -> Result<bool> {
        for (number, input) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            self.place(number, input)?;
        }
        while self.is_replaced() {
            let (number, input) = self.queue.remove(0);
            self.place(number, input)?;
        }
        Ok(!self.queue.is_empty())
    }
}

impl SortedInput for Sorted {
    fn advance(&mut self) -> Result<bool> {
        let current = (!self.queue.is_empty()).then(|| self.queue.remove(0));
        let placed = current.map_or(Ok(()), |(number, input)| self.place(number, input));
        let moved = placed.and_then(|()| self.step());
        if moved.is_err() {
            self.queue.clear();
        }
        moved
    }

    fn key(&self) -> &[u8] {
        self.queue.first().map_or(&[], |(_, input)| input.key())
    }

    fn value(&self) -> &[u8] {
        self.queue.first().map_or(&[], |(_, input)| input.value())
    }
}
