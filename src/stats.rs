//! What a table did: reads, filter verdicts, cache hits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a table has done since it was opened, for all its clones and threads together.
///
/// A snapshot, by [`Table::stats`](crate::Table::stats). The reads of opening are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks read from the source: what a disk would have been asked for. Always 0 in memory.
    pub source_reads: u64,
    /// Bytes of those reads.
    pub source_bytes: u64,
    /// Lookups that a filter ended: the key is not here, and no block was fetched.
    pub filter_rejected: u64,
    /// Lookups that a filter let pass, keys that are here included.
    pub filter_passed: u64,
    /// Blocks that were found in the block cache.
    pub cache_hits: u64,
    /// Blocks that were looked for in the block cache and not found.
    pub cache_misses: u64,
}

/// What [`Counters`] count, one for each field of [`Stats`].
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    SourceReads,
    SourceBytes,
    FilterRejected,
    FilterPassed,
    CacheHits,
    CacheMisses,
}

/// Number of shards: more than two threads seldom land on one, up to about this many threads.
const SHARDS: usize = 16;

/// Counters that threads do not fight over: each thread adds to a shard of its own cache line.
#[derive(Debug, Default)]
pub(crate) struct Counters([Shard; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
struct Shard([AtomicU64; 6]);

impl Counters {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(Shard(values)) = self.0.get(shard()) {
            let [reads, bytes, rejected, passed, hits, misses] = values;
            match counter {
                Counter::SourceReads => reads,
                Counter::SourceBytes => bytes,
                Counter::FilterRejected => rejected,
                Counter::FilterPassed => passed,
                Counter::CacheHits => hits,
                Counter::CacheMisses => misses,
            }
            .fetch_add(n, Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let mut sums = [0; 6];
        for Shard(values) in &self.0 {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value.load(Relaxed);
            }
        }
        let [
            source_reads,
            source_bytes,
            filter_rejected,
            filter_passed,
            cache_hits,
            cache_misses,
        ] = sums;
        Stats {
            source_reads,
            source_bytes,
            filter_rejected,
            filter_passed,
            cache_hits,
            cache_misses,
        }
    }
}

/// The calling thread's shard, dealt out in turn.
#[inline]
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Relaxed) % SHARDS;
    }
    SHARD.with(|&shard| shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_counted() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.add(Counter::FilterPassed, 1);
                        counters.add(Counter::SourceBytes, 5);
                    }
                });
            }
        });
        let expected = Stats {
            filter_passed: 4000,
            source_bytes: 20_000,
            ..Stats::default()
        };
        assert_eq!(counters.snapshot(), expected);
    }
}
