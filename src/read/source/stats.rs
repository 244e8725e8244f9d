//! Counts what a table does: reads, lookups that the filter rejected, cache hits.

use std::cell::Cell;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Makes [`Stats`], [`Counter`] and all code that names each counter from one list, so that none can be forgotten.
macro_rules! counters {
    ($($(#[$doc:meta])+ $field:ident: $counter:ident,)+) => {
        /// Counters of a table's work so far, for all its clones and threads together. The reads of opening are
        /// included.
        ///
        /// A snapshot, returned by [`Table::stats`](crate::Table::stats). The statistics of several tables can be added up. A
        /// reopened table counts from 0: an exporter whose sums must not fall adds the statistics of tables that it drops.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])+ pub $field: u64,)+
        }

        /// The counters in [`Counters`], one for each field of [`Stats`].
        #[derive(Clone, Copy)]
        pub(crate) enum Counter {
            $($counter,)+
        }

        impl Counter {
            const COUNT: usize = [$(Counter::$counter),+].len();
        }

        impl Stats {
            fn of([$($field),+]: [u64; Counter::COUNT]) -> Stats {
                Stats { $($field),+ }
            }

            /// Every counter, with its name.
            pub(crate) fn counts(&self) -> [(&'static str, u64); Counter::COUNT] {
                [$((stringify!($field), self.$field)),+]
            }
        }

        /// Adds up the work of several tables.
        impl Add for Stats {
            type Output = Stats;

            fn add(self, other: Stats) -> Stats {
                Stats { $($field: self.$field.saturating_add(other.$field)),+ }
            }
        }
    };
}

counters! {
    /// Number of reads from the source. Always 0 for a table in memory.
    source_reads: SourceReads,
    /// Bytes of those reads.
    source_bytes: SourceBytes,
    /// Lookups that a filter rejected: the key is absent, and no block was fetched.
    filter_rejected: FilterRejected,
    /// Lookups that a filter passed, including those of present keys.
    filter_passed: FilterPassed,
    /// Scans that a prefix filter rejected: no key has the prefix, and no block was fetched.
    prefix_rejected: PrefixRejected,
    /// Scans that a prefix filter passed. Scans that it cannot answer, since they may meet other prefixes, are not counted.
    prefix_passed: PrefixPassed,
    /// Blocks that were found in the block cache.
    cache_hits: CacheHits,
    /// Blocks that were not found in the block cache.
    cache_misses: CacheMisses,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        *self = *self + other;
    }
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(stats: I) -> Stats {
        stats.fold(Stats::default(), Add::add)
    }
}

/// Counters for which threads do not contend: each thread adds to one of a few shards, in cache lines of its own.
///
/// Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Counters(Arc<[Shard; SHARDS]>);

/// Number of shards. The first [`OWN`] belong to one thread each; other threads share the rest.
pub(crate) const SHARDS: usize = 24;

/// Number of threads that have their own shard: the first ones of the process that count. They add to it without an atomic addition,
/// which would take an eighth of the time of an absent key.
const OWN: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
struct Shard {
    counts: [AtomicU64; Counter::COUNT],
    /// Whether the filter passed the last key that was looked up.
    passed_last: AtomicBool,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters(Arc::new(std::array::from_fn(|_| Shard::default())))
    }
}

impl Counters {
    /// Bytes of memory that they take, apart from the structure itself.
    pub(crate) const WEIGHT: usize = (SHARDS + 1) * size_of::<Shard>();

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        match self.of_this_thread().counts.get(counter as usize) {
            Some(own) if shard_of_this_thread() < OWN => {
                own.store(own.load(Relaxed).wrapping_add(n), Relaxed);
            }
            shared => _ = shared.map(|shared| shared.fetch_add(n, Relaxed)),
        }
    }

    /// Counts a result of a filter.
    #[inline]
    pub(crate) fn add_answer(&self, passes: bool, passed: Counter, rejected: Counter) {
        self.add(if passes { passed } else { rejected }, 1);
    }

    /// Whether the filter passed the last key that this thread looked up. Per thread, since all threads would contend
    /// for one flag.
    #[inline]
    pub(crate) fn passed_last(&self) -> bool {
        self.of_this_thread().passed_last.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_passed_last(&self, passed: bool) {
        self.of_this_thread().passed_last.store(passed, Relaxed);
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the number is below `SHARDS`")]
    fn of_this_thread(&self) -> &Shard {
        &self.0[shard_of_this_thread()]
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let shard = |shard: &Shard| Stats::of(shard.counts.each_ref().map(|v| v.load(Relaxed)));
        self.0.iter().map(shard).sum()
    }
}

/// The number of this thread's shard, the same in all tables and less than [`SHARDS`].
#[inline]
pub(crate) fn shard_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // One more than the shard's number; 0 until the thread has a shard.
        static SHARD: Cell<usize> = const { Cell::new(0) };
    }
    SHARD.with(|shard| {
        if shard.get() == 0 {
            let thread = NEXT.fetch_add(1, Relaxed);
            shard.set(1 + thread.min(OWN + thread % (SHARDS - OWN)));
        }
        shard.get() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Each counter is counted in its own field, and added to the same field.
    #[test]
    fn counters_keep_their_fields() {
        let counters = Counters::default();
        counters.add(Counter::SourceReads, 1);
        counters.add(Counter::SourceBytes, 20);
        counters.add(Counter::FilterRejected, 300);
        counters.add(Counter::FilterPassed, 4_000);
        counters.add(Counter::PrefixRejected, 7_000_000);
        counters.add(Counter::PrefixPassed, 80_000_000);
        counters.add(Counter::CacheHits, 50_000);
        counters.add(Counter::CacheMisses, 600_000);
        let stats = counters.snapshot();
        let expected = Stats {
            source_reads: 1,
            source_bytes: 20,
            filter_rejected: 300,
            filter_passed: 4_000,
            prefix_rejected: 7_000_000,
            prefix_passed: 80_000_000,
            cache_hits: 50_000,
            cache_misses: 600_000,
        };
        assert_eq!(stats, expected);
        let mut twice = stats;
        twice += stats;
        assert_eq!(twice, stats + stats);
        assert_eq!(twice, [stats, stats].into_iter().sum());
        let full = Stats {
            source_bytes: u64::MAX,
            ..stats
        };
        assert_eq!((full + stats).source_bytes, u64::MAX);
    }

    /// More threads than there are shards, at once and one after another.
    #[test]
    fn all_threads_are_counted() {
        let counters = Counters::default();
        let seated = Barrier::new(80);
        std::thread::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| {
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
