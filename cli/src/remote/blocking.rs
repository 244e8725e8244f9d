//! An object as a source of calls that block.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};
use leveltable::ReadAt;
use leveltable::remote::{AsyncReadAt, Tail};
use leveltable_object_store::ObjectSource;
use tokio::runtime::Runtime;

/// Bytes of the object's end that come with its size: of most tables, all that opening reads.
const TAIL_LEN: u64 = 256 << 10;

/// The largest request of a walk.
const MOST_AHEAD: usize = 8 << 20;

/// Reads an object.
///
/// Where reads follow each other, as in a walk, each request is twice as long as the one before, up to 8 MiB. So a walk that
/// ends early has read at most twice what it needed.
pub(super) struct Blocking {
    object: ObjectSource,
    runtime: &'static Runtime,
    tail: OnceLock<Tail>,
    ahead: Mutex<Ahead>,
}

/// What was read last.
#[derive(Clone, Default)]
struct Ahead {
    start: u64,
    bytes: Bytes,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns the bytes from `offset` on, at most `len`, if `offset` lies within these or at their end.
    fn from(&self, offset: u64, len: usize) -> Option<Bytes> {
        let skipped = offset.checked_sub(self.start)?;
        let skipped = usize::try_from(skipped).ok()?;
        let len = self.bytes.len().checked_sub(skipped)?.min(len);
        Some(self.bytes.slice(skipped..skipped + len))
    }
}

impl Blocking {
    pub(super) fn new(object: ObjectSource, runtime: &'static Runtime) -> Blocking {
        Blocking {
            object,
            runtime,
            tail: OnceLock::new(),
            ahead: Mutex::default(),
        }
    }

    fn tail(&self) -> io::Result<&Tail> {
        if let Some(tail) = self.tail.get() {
            return Ok(tail);
        }
        let tail = self.runtime.block_on(self.object.read_tail(TAIL_LEN))?;
        Ok(self.tail.get_or_init(|| tail))
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `len` bytes at `offset` if the tail has them.
    fn in_tail(&self, offset: u64, len: usize) -> Option<Bytes> {
        let tail = self.tail.get()?;
        let kept = Ahead {
            start: tail.size.saturating_sub(tail.bytes.len() as u64),
            bytes: tail.bytes.clone(),
        };
        kept.from(offset, len).filter(|bytes| bytes.len() == len)
    }
}

impl ReadAt for Blocking {
    fn size(&self) -> io::Result<u64> {
        Ok(self.tail()?.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if let Some(bytes) = self.in_tail(offset, len) {
            return Ok(bytes);
        }
        let last = self.ahead().clone();
        let Some(head) = last.from(offset, len) else {
            let bytes = self.runtime.block_on(self.object.read_at(offset, len))?;
            let read = Ahead {
                start: offset,
                bytes: bytes.clone(),
            };
            *self.ahead() = read;
            return Ok(bytes);
        };
        if head.len() == len {
            return Ok(head);
        }
        // The walk goes on.
        let rest = usize::try_from(self.size()?.saturating_sub(last.end())).unwrap_or(usize::MAX);
        let wanted = (2 * last.bytes.len()).min(MOST_AHEAD).min(rest);
        let wanted = wanted.max(len - head.len());
        let more = self
            .runtime
            .block_on(self.object.read_at(last.end(), wanted))?;
        let mut bytes = BytesMut::with_capacity(head.len() + more.len());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&more);
        let read = Ahead {
            start: offset,
            bytes: bytes.freeze(),
        };
        let found = read.from(offset, len).filter(|bytes| bytes.len() == len);
        *self.ahead() = read;
        found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        let read = self.runtime.block_on(self.object.read_many_at(parts));
        for (i, part) in read.into_iter().enumerate() {
            each(i, part);
        }
    }
}
