//! Reading ahead of a walk: the longer it goes on, the more blocks come with one read.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Result;
use crate::format::frame;
use crate::read::fetch::{MOST_RUN_LEN, Run, Use};
use crate::read::options::ReadOptions;
use crate::read::table::Inner;

/// What a walk has read and not reached yet, or announced in a mapped file, and how much it reads next.
///
/// The first two blocks come alone, so that a short walk reads nothing that it does not need. From then on, each read takes
/// twice as many bytes as the one before: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone)]
pub(super) struct ReadAhead {
    run: Run,
    /// The frames of `run`.
    bytes: Bytes,
    /// Whether the last block was not compressed.
    is_raw: bool,
    /// The last data block of the walk, and its direction.
    last: Option<usize>,
    way: Option<Way>,
    /// Most bytes of the next read, unless a single block takes more.
    len: u64,
    /// The same of a walk's first read.
    first_len: u64,
    /// When the last run was announced; `None` on a walk that has not gone on yet.
    since: Option<Instant>,
    /// The data blocks that the walk may need.
    limits: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            run: Run::default(),
            bytes: Bytes::new(),
            is_raw: false,
            last: None,
            way: None,
            len: 0,
            first_len: 0,
            since: None,
            limits: 0..usize::MAX,
        }
    }
}

impl ReadAhead {
    /// For a walk that is known to go over the whole table: its reads are long from the first on.
    pub(super) fn over_all() -> ReadAhead {
        ReadAhead {
            len: MOST_RUN_LEN,
            first_len: MOST_RUN_LEN,
            ..ReadAhead::default()
        }
    }

    /// Reads no other data blocks ahead than `limits`.
    pub(super) fn limit(&mut self, limits: Range<usize>) {
        self.limits = limits;
    }

    /// The data blocks that the walk may need.
    pub(super) fn limits(&self) -> &Range<usize> {
        &self.limits
    }

    /// Data block `i` of a file that is not in memory, and whether it is a slice of all that was read with it.
    pub(super) fn fetch(
        &mut self,
        inner: &Inner,
        i: usize,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        let found = inner.index.block(i);
        // What was just read is nearer to the processor than what is in the cache, unless it must be decompressed.
        let is_at_hand = self.run.blocks.contains(&i) && self.is_raw;
        if !is_at_hand && let Some(block) = inner.cached(found) {
            self.turn_to(i);
            return Ok((block, false));
        }
        let frame = self.frame(inner, i)?;
        let is_alone = self.run.blocks.len() == 1;
        self.is_raw = frame::is_raw(&frame);
        let what_for = match self.way {
            None => Use::Lookup,
            Some(_) => Use::Walk,
        };
        match inner.try_admit(found, &frame, read, what_for) {
            Ok(block) => Ok((block, !is_alone && self.is_raw)),
            Err(defect) => {
                // Drop the whole run: its other blocks may be bad, too.
                self.drop_run();
                if is_alone {
                    return Err(inner.locate(i, defect));
                }
                Ok((inner.fetch_apart(found, read)?, false))
            }
        }
    }

    fn drop_run(&mut self) {
        (self.run, self.bytes) = (Run::default(), Bytes::new());
    }

    /// The frame of data block `i`.
    pub(super) fn frame(&mut self, inner: &Inner, i: usize) -> Result<Bytes> {
        self.turn_to(i);
        if !self.run.blocks.contains(&i) {
            self.read_run(inner, i)?;
        }
        let handle = inner.index.handle(i);
        match self.run.frame(&self.bytes, handle) {
            Some(frame) => Ok(frame),
            None => inner.file.read_frame(handle),
        }
    }

    /// Notes that the walk has come to data block `i`. If it did not come on from the last one, a new walk begins.
    fn turn_to(&mut self, i: usize) {
        let way = match self.last {
            Some(last) if i == last + 1 => Some(Way::Forward),
            Some(last) if i + 1 == last => Some(Way::Backward),
            _ => None,
        };
        if way.is_none() || self.way.is_some_and(|before| Some(before) != way) {
            self.len = self.first_len;
            self.since = None;
        }
        (self.last, self.way) = (Some(i), way);
    }

    /// Has the system read what comes next on a walk through a mapped file that has come to data block `i`.
    ///
    /// When the walk arrives in the second half of what was announced, the next run is due, so that the system reads while
    /// entries are used.
    pub(super) fn announce(&mut self, inner: &Inner, i: usize) {
        self.turn_to(i);
        let Range { start, end } = self.run.blocks;
        let next = match self.way {
            _ if !self.run.blocks.contains(&i) => Some(i),
            Some(Way::Forward) if i - start >= (end - start) / 2 => Some(end),
            Some(Way::Backward) if end - i > (end - start) / 2 => start.checked_sub(1),
            _ => None,
        };
        let Some(next) = next
            .filter(|next| *next == i || self.limits.contains(next) && *next < inner.index.len())
        else {
            return;
        };
        let is_slow = self.is_slow();
        let run = self.next_run(inner, next);
        if is_slow || !inner.is_known(next) {
            inner.file.announce(run.offset, run.len);
        }
        // From where the walk is to the end of what was announced.
        self.run = inner.run(i.min(run.blocks.start)..run.blocks.end.max(i + 1));
        self.grow(inner);
    }

    /// Whether the walk took more than 2 ns a byte for the last run: longer than in memory, so it waits for a disk, or its
    /// caller is slow. Blocks that were seen before are announced to such a walk only, since asking for what is in memory takes
    /// time. So does reading the clock, which a lone seek skips.
    fn is_slow(&mut self) -> bool {
        const MOST_NANOS_A_BYTE: u64 = 2;
        if self.way.is_none() {
            return false;
        }
        let now = Instant::now();
        let took = self.since.replace(now).map(|since| now - since);
        took.is_some_and(|took| took > Duration::from_nanos(MOST_NANOS_A_BYTE * self.run.len))
    }

    /// The blocks from data block `i` on, as many as are due.
    fn next_run(&self, inner: &Inner, i: usize) -> Run {
        match self.way {
            Some(Way::Backward) => inner.run_to(i, self.limits.start, self.len),
            Some(Way::Forward) | None => inner.run_from(i, self.limits.end, self.len),
        }
    }

    /// Sets the length of the next run, after the walk has gone on: room for twice as many blocks, padding included.
    fn grow(&mut self, inner: &Inner) {
        self.len = match self.way {
            Some(_) => MOST_RUN_LEN.min(2 * inner.padded_len(&self.run)),
            None => self.first_len,
        };
    }

    /// Reads data block `i`, and on a walk that goes on, the blocks that come next.
    fn read_run(&mut self, inner: &Inner, i: usize) -> Result<()> {
        let run = self.next_run(inner, i);
        self.drop_run();
        // If the blocks ahead cannot be read, that is for those who come to them.
        let (run, bytes) = match inner.read_run(&run) {
            Err(_) if run.blocks.len() > 1 => {
                let alone = inner.run(i..i + 1);
                let bytes = inner.read_run(&alone)?;
                (alone, bytes)
            }
            bytes => (run, bytes?),
        };
        (self.run, self.bytes) = (run, bytes);
        self.grow(inner);
        Ok(())
    }
}
