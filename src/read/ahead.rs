//! Reading ahead of a walk: the longer it goes on, the more blocks come with one read.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::read::fetch::{MOST_RUN_LEN, Run};
use crate::read::options::ReadOptions;
use crate::read::table::Inner;

/// What a walk has read and not reached yet, and how much it reads next.
///
/// The first two blocks come alone, so that a short walk reads nothing that it does not need. From then on, each read takes
/// twice as many bytes as the one before: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone)]
pub(super) struct ReadAhead {
    run: Run,
    /// The frames of `run`.
    bytes: Bytes,
    /// The data block that the walk came to last, and the way that it came.
    last: Option<usize>,
    way: Option<Way>,
    /// Most bytes of the next read, unless a single block takes more; and of a walk's first.
    len: u64,
    first_len: u64,
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
            last: None,
            way: None,
            len: 0,
            first_len: 0,
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

    /// Data block `i` of a file that is not in memory.
    pub(super) fn fetch(&mut self, inner: &Inner, i: usize, read: ReadOptions) -> Result<Bytes> {
        let found = inner.index.block(i);
        if !self.run.blocks.contains(&i)
            && let Some(block) = inner.cached(found)
        {
            self.turn_to(i);
            return Ok(block);
        }
        let frame = self.frame(inner, i)?;
        let is_alone = self.run.blocks.len() == 1;
        let block = if is_alone {
            inner.try_admit(found, &frame, read)
        } else {
            // A copy, so that a value does not keep all of the run in memory.
            inner.try_admit(found, &Bytes::copy_from_slice(&frame), read)
        };
        block.or_else(|defect| {
            // What came with a faulty read is not used again.
            self.run = Run::default();
            if is_alone {
                Err(inner.locate(i, defect))
            } else {
                inner.fetch_copy(found, read)
            }
        })
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
        }
        (self.last, self.way) = (Some(i), way);
    }

    /// Reads data block `i`, and on a walk that goes on, the blocks that come next.
    fn read_run(&mut self, inner: &Inner, i: usize) -> Result<()> {
        let run = match self.way {
            Some(Way::Backward) => inner.run_to(i, self.limits.start, self.len),
            Some(Way::Forward) | None => inner.run_from(i, self.limits.end, self.len),
        };
        self.run = Run::default();
        // If the blocks ahead cannot be read, that is for those who come to them.
        let (run, bytes) = match inner.read_run(&run) {
            Err(_) if run.blocks.len() > 1 => {
                let alone = inner.run(i..i + 1);
                let bytes = inner.read_run(&alone)?;
                (alone, bytes)
            }
            bytes => (run, bytes?),
        };
        self.len = match self.way {
            Some(_) => MOST_RUN_LEN.min(2 * run.len),
            None => self.first_len,
        };
        (self.run, self.bytes) = (run, bytes);
        Ok(())
    }
}
