//! Entries in chunks, which one thread parses while another adds them to a table.

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::Entries;
use crate::failure::Failure;

/// Number of bytes at which a chunk is full. Three are in memory: one being parsed, one waiting, and one being added.
const FULL: usize = 64 << 10;

/// Entries in a row.
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// The lengths of each key and its value, and the number of its line.
    entries: Vec<(usize, usize, u64)>,
    /// Bytes of input up to the end of the chunk.
    pub(crate) position: u64,
}

impl Chunk {
    /// The keys and values, and the numbers of their lines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let mut rest = &self.bytes[..];
        self.entries.iter().map(move |&(key_len, value_len, line)| {
            let (key, after) = rest.split_at(key_len);
            let (value, after) = after.split_at(value_len);
            rest = after;
            (key, value, line)
        })
    }
}

impl Entries {
    /// Passes all entries to `take`, while a thread parses those that follow. Does not wait for the input to go on if `take` fails.
    pub(crate) fn in_chunks(
        self,
        mut take: impl FnMut(&Chunk) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (sender, chunks) = sync_channel(1);
        let parser = thread::Builder::new().spawn(move || self.parse_all(&sender));
        let parser = parser.map_err(|e| Failure::new(format!("starting a thread: {e}")))?;
        chunks.iter().try_for_each(|chunk| take(&chunk))?;
        let parsed = parser.join();
        parsed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Sends the entries up to the end, to an error, or until nobody receives them.
    fn parse_all(mut self, chunks: &SyncSender<Chunk>) -> Result<(), Failure> {
        let mut chunk = Chunk::default();
        loop {
            let parsed = self.next();
            let has_next = matches!(parsed, Ok(true));
            if has_next {
                let (key, value) = (&self.entry.key, &self.entry.value);
                chunk.bytes.extend_from_slice(key);
                chunk.bytes.extend_from_slice(value);
                let lens = (key.len(), value.len(), self.line());
                chunk.entries.push(lens);
            }
            if !has_next || chunk.bytes.len() >= FULL {
                chunk.position = self.position();
                let is_received = chunks.send(mem::take(&mut chunk)).is_ok();
                if !has_next || !is_received {
                    return parsed.map(|_| ());
                }
            }
        }
    }
}
