//! Counts what a table does: reads, lookups that the filter rejected, cache hits.

use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// What a table has done so far, by all its clones and threads together. The reads of opening are included.
///
/// A snapshot, returned by [`Table::stats`](crate::Table::stats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of reads from the source. Always 0 for a table in memory.
    pub source_reads: u64,
    /// Bytes of those reads.
    pub source_bytes: u64,
    /// Lookups that a filter rejected: the key is absent, and no block was fetched.
    pub filter_rejected: u64,
    /// Lookups that a filter let pass, including those of present keys.
    pub filter_passed: u64,
    /// Scans that a filter of prefixes rejected, and questions of
    /// [`may_contain_prefix`](crate::Table::may_contain_prefix): no key has the prefix, and no block was fetched.
    pub prefix_rejected: u64,
    /// Scans that a filter of prefixes let pass. One that it cannot answer, since other prefixes may be in it, is not counted.
    pub prefix_passed: u64,
    /// Blocks that were found in the block cache.
    pub cache_hits: u64,
    /// Blocks that were not found in the block cache.
    pub cache_misses: u64,
}

/// What [`Counters`] count, one for each field of [`Stats`].
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    SourceReads,
    SourceBytes,
    FilterRejected,
    FilterPassed,
    PrefixRejected,
    PrefixPassed,
    CacheHits,
    CacheMisses,
}

/// Counters for which threads do not contend: each thread adds to a shard in cache lines of its own.
///
/// The first [`OWNED`] threads alive have a shard each, and add without a locked instruction, which would delay the
/// memory reads after it. All other threads share a few shards.
#[derive(Debug)]
pub(crate) struct Counters([Shard; OWNED + SHARED]);

/// Number of shards with one thread each, and of shards that any number of threads share.
const OWNED: usize = 32;
const SHARED: usize = 8;

#[derive(Debug, Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
struct Shard([AtomicU64; 8]);

impl Default for Counters {
    fn default() -> Counters {
        Counters(std::array::from_fn(|_| Shard::default()))
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let seat = Seat::of_this_thread();
        if let Some(Shard(values)) = self.0.get(seat) {
            let [
                reads,
                bytes,
                rejected,
                passed,
                prefix_rejected,
                prefix_passed,
                hits,
                misses,
            ] = values;
            let value = match counter {
                Counter::SourceReads => reads,
                Counter::SourceBytes => bytes,
                Counter::FilterRejected => rejected,
                Counter::FilterPassed => passed,
                Counter::PrefixRejected => prefix_rejected,
                Counter::PrefixPassed => prefix_passed,
                Counter::CacheHits => hits,
                Counter::CacheMisses => misses,
            };
            if seat < OWNED {
                value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
            } else {
                value.fetch_add(n, Relaxed);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let mut sums = [0; 8];
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
            prefix_rejected,
            prefix_passed,
            cache_hits,
            cache_misses,
        ] = sums;
        Stats {
            source_reads,
            source_bytes,
            filter_rejected,
            filter_passed,
            prefix_rejected,
            prefix_passed,
            cache_hits,
            cache_misses,
        }
    }
}

/// The number of a thread's shard, the same in all tables. Given back when the thread ends.
struct Seat(usize);

/// A bit for each owned shard that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);
const _: () = assert!(OWNED == u32::BITS as usize);

impl Seat {
    #[inline]
    fn of_this_thread() -> usize {
        thread_local! {
            static SEAT: Seat = Seat::take();
        }
        // A thread that is ending has given its seat back, but destructors may still read a table.
        SEAT.try_with(|seat| seat.0).unwrap_or(OWNED)
    }

    fn take() -> Seat {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Acquire: sees what the previous owner counted, and adds to that.
        let took = TAKEN.fetch_update(Acquire, Relaxed, |taken| {
            taken.checked_add(1).map(|next| taken | next)
        });
        match took {
            Ok(taken) => Seat(taken.trailing_ones() as usize),
            Err(_) => Seat(OWNED + NEXT.fetch_add(1, Relaxed) % SHARED),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.0 < OWNED {
            TAKEN.fetch_and(!(1 << self.0), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// More threads than have a shard of their own, at once and one after another.
    #[test]
    fn all_threads_are_counted() {
        let counters = Counters::default();
        let seated = Barrier::new(80);
        std::thread::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| {
                    Seat::of_this_thread();
                    seated.wait();
                    for _ in 0..100 {
                        counters.add(Counter::FilterPassed, 1);
                        counters.add(Counter::SourceBytes, 5);
                    }
                });
            }
        });
        for _ in 0..80 {
            std::thread::scope(|scope| {
                scope.spawn(|| counters.add(Counter::CacheHits, 1));
            });
        }
        let expected = Stats {
            cache_hits: 80,
            filter_passed: 80 * 100,
            source_bytes: 80 * 500,
            ..Stats::default()
        };
        assert_eq!(counters.snapshot(), expected);
    }
}
