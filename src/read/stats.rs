//! Counts what a table does: reads, lookups that the filter rejected, cache hits.

use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Makes [`Stats`], [`Counter`] and all that names each counter from one list, so that none can be forgotten.
///
/// A counter's documentation is its help text.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $field:ident: $counter:ident,)+) => {
        /// What a table has done so far, by all its clones and threads together. The reads of opening are included.
        ///
        /// A snapshot, returned by [`Table::stats`](crate::Table::stats). Those of several tables can be added up, and
        /// [`metrics`](Stats::metrics) lists them for a metrics exporter.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $help])+ pub $field: u64,)+
        }

        /// What [`Counters`] count, one for each field of [`Stats`].
        #[derive(Clone, Copy)]
        pub(crate) enum Counter {
            $($counter,)+
        }

        impl Counter {
            const COUNT: usize = [$(Counter::$counter),+].len();
        }

        impl Stats {
            fn from_values([$($field),+]: [u64; Counter::COUNT]) -> Stats {
                Stats { $($field),+ }
            }

            /// Name, value and help text of each counter.
            fn list(self) -> [(&'static str, u64, &'static str); Counter::COUNT] {
                [$((
                    concat!("leveltable_", stringify!($field), "_total"),
                    self.$field,
                    concat!($($help),+),
                )),+]
            }
        }

        impl Shard {
            #[inline]
            fn value(&self, counter: Counter) -> &AtomicU64 {
                let [$($field),+] = &self.values;
                match counter {
                    $(Counter::$counter => $field,)+
                }
            }
        }

        /// Adds up the work of several tables.
        impl Add for Stats {
            type Output = Stats;

            fn add(self, other: Stats) -> Stats {
                Stats {
                    $($field: self.$field.saturating_add(other.$field),)+
                }
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
    /// Lookups that a filter let pass, including those of present keys.
    filter_passed: FilterPassed,
    /// Scans and calls of may_contain_prefix that a prefix filter rejected: no key has the prefix, and no block was fetched.
    prefix_rejected: PrefixRejected,
    /// Scans that a prefix filter let pass. Scans that it cannot answer, since they may meet other prefixes, are not counted.
    prefix_passed: PrefixPassed,
    /// Blocks that were found in the block cache.
    cache_hits: CacheHits,
    /// Blocks that were not found in the block cache.
    cache_misses: CacheMisses,
}

impl Stats {
    /// Returns the name, the value and a help text of each counter, for a metrics exporter.
    ///
    /// The names follow Prometheus' conventions: `leveltable_`, the field's name, `_total`. A name and its meaning stay;
    /// later versions may add counters.
    ///
    /// A table that is opened again counts from 0. An exporter whose sums must not fall keeps the last statistics of the
    /// tables that it drops, and adds them in.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, Stats, WriteOptions};
    /// # let mut file = Vec::new();
    /// # WriteOptions::new().build(&mut file).finish()?;
    /// # let tables = [OpenOptions::new().open_source(file)?];
    /// let total: Stats = tables.iter().map(|table| table.stats()).sum();
    /// for (name, value, help) in total.metrics() {
    ///     println!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> + use<> {
        let trimmed = |(name, value, help): (_, _, &'static str)| (name, value, help.trim());
        self.list().into_iter().map(trimmed)
    }
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

/// Counters for which threads do not contend: each thread adds to a shard in cache lines of its own.
///
/// The first [`OWNED`] threads alive have a shard each, and add without a locked instruction, which would delay the
/// memory reads after it. All other threads share a few shards. A shard is made when its first thread counts: of ten thousand
/// open tables, most are seldom used.
#[derive(Debug)]
pub(crate) struct Counters([OnceLock<Box<Shard>>; SEATS]);

/// Number of shards with one thread each, and of shards that any number of threads share.
const OWNED: usize = 32;
const SHARED: usize = 8;
/// Number of shards.
pub(super) const SEATS: usize = OWNED + SHARED;

#[derive(Debug, Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
struct Shard {
    values: [AtomicU64; Counter::COUNT],
    /// Whether the filter let the last key pass that it was asked for.
    passed_last: AtomicBool,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let seat = Seat::of_this_thread();
        if let Some(shard) = self.0.get(seat) {
            shard.get_or_init(Box::default).add(counter, n, seat);
        }
    }

    /// Counts what a filter answered, and remembers it for this thread.
    #[inline]
    pub(crate) fn add_filtered(&self, passes: bool) {
        let counter = match passes {
            true => Counter::FilterPassed,
            false => Counter::FilterRejected,
        };
        let seat = Seat::of_this_thread();
        if let Some(shard) = self.0.get(seat) {
            let shard = shard.get_or_init(Box::default);
            shard.add(counter, 1, seat);
            // Threads that share a shard would contend.
            if seat < OWNED {
                shard.passed_last.store(passes, Relaxed);
            }
        }
    }

    /// Whether the filter let the last key pass that this thread looked for, as far as is remembered.
    #[inline]
    pub(crate) fn filter_passed_last(&self) -> bool {
        let shard = self.0.get(Seat::of_this_thread()).and_then(OnceLock::get);
        shard.is_some_and(|shard| shard.passed_last.load(Relaxed))
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let mut sums = [0; Counter::COUNT];
        for shard in self.0.iter().filter_map(OnceLock::get) {
            for (sum, value) in sums.iter_mut().zip(&shard.values) {
                *sum += value.load(Relaxed);
            }
        }
        Stats::from_values(sums)
    }
}

impl Shard {
    /// Adds to a counter, for the thread at `seat`.
    #[inline]
    fn add(&self, counter: Counter, n: u64, seat: usize) {
        let value = self.value(counter);
        if seat < OWNED {
            value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
        } else {
            value.fetch_add(n, Relaxed);
        }
    }
}

/// The number of a thread's shard, the same in all tables and less than [`SEATS`]. Given back when the thread ends.
pub(super) struct Seat(usize);

/// A bit for each owned shard that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);
const _: () = assert!(OWNED == u32::BITS as usize);

impl Seat {
    #[inline]
    pub(super) fn of_this_thread() -> usize {
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
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    /// Each counter lands in the field and under the name that it has, and is added to its like.
    #[test]
    fn counters_keep_their_names() {
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
        let named = stats.metrics().map(|(name, value, _)| (name, value));
        // Names that dashboards rely on. They may grow in number, and never change.
        let names = [
            ("leveltable_source_reads_total", 1),
            ("leveltable_source_bytes_total", 20),
            ("leveltable_filter_rejected_total", 300),
            ("leveltable_filter_passed_total", 4_000),
            ("leveltable_prefix_rejected_total", 7_000_000),
            ("leveltable_prefix_passed_total", 80_000_000),
            ("leveltable_cache_hits_total", 50_000),
            ("leveltable_cache_misses_total", 600_000),
        ];
        assert!(named.eq(names));

        let mut twice = stats;
        twice += stats;
        assert_eq!(twice, stats + stats);
        assert_eq!(twice, [stats, stats].into_iter().sum());
        let doubled = stats.metrics().map(|(_, value, _)| 2 * value);
        assert!(twice.metrics().map(|(_, value, _)| value).eq(doubled));
        let full = Stats {
            source_bytes: u64::MAX,
            ..stats
        };
        assert_eq!((full + stats).source_bytes, u64::MAX);
    }

    /// As Prometheus' text format and its naming conventions have it.
    #[test]
    fn metrics_fit_the_exposition_format() {
        let mut seen = BTreeSet::new();
        let cache = crate::BlockCache::new(1000);
        for (name, _, help) in Stats::default().metrics().chain(cache.metrics()) {
            assert!(seen.insert(name), "{name} twice");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(name.ends_with("_total") || name.ends_with("_bytes"));
            assert!(!help.is_empty() && help.trim() == help, "{help:?}");
            assert!(!help.contains(['\n', '\\']), "{help:?}");
            // They are rustdoc's, too, but read as plain text.
            assert!(!help.contains(['[', ']', '`']), "{help:?}");
        }
    }

    #[test]
    fn each_thread_remembers_what_the_filter_answered_last() {
        let (counters, other_table) = (Counters::default(), Counters::default());
        assert!(!counters.filter_passed_last());
        for passes in [true, false, true] {
            counters.add_filtered(passes);
            counters.add(Counter::CacheHits, 1);
            assert_eq!(counters.filter_passed_last(), passes);
            assert!(!other_table.filter_passed_last());
            let elsewhere = || assert!(!counters.filter_passed_last());
            std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
        }
        let stats = counters.snapshot();
        assert_eq!((stats.filter_passed, stats.filter_rejected), (2, 1));
    }

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
