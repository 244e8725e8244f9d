//! The prefix filter: one filter of the prefixes of a table's keys.
//!
//! It is a filter block (`filter_block.rs`) with one filter. The filter's keys are the distinct prefixes; in a database's table,
//! those of the user keys. Its policy is always [`RibbonFilterPolicy`], whose documentation defines the bytes. The block holds no
//! filter if no key has a prefix. Its lg(base) is 0: the filter covers the whole table, not the blocks at some offsets.
//!
//! The metaindex lists the block as [`PREFIXES_NAME`] and the name of the [`PrefixExtractor`](crate::filter::PrefixExtractor),
//! parameters included. A reader that knows another extractor, or does not know such filters, ignores the entry. So does
//! LevelDB.
//!
//! For example, the filter of the prefixes `apple/`, `grape/` and `lemon/`, at 5 bits per key, is found under
//! `about.prefixes.leveltable.DelimitedPrefix(2f)`:
//!
//! ```text
//! offset  bytes
//!      0  0a 00 00 00  0b 00 00 00  0b 00 00 00  08 00 00 00    ribbon: words of columns 0 to 3
//!     16  00  01 00 00 00  01 00 00 00  04  01                  its codes, layer, narrow segments, columns, layers
//!     27  00 00 00 00                                           filter 0 begins at 0
//!     31  1b 00 00 00                                           the offsets begin at 27
//!     35  00                                                    lg(base)
//! ```

use std::sync::Arc;

use super::filter_block::FilterBlockBuilder;
use crate::filter::{FilterPolicy, PrefixExtractor, RibbonFilterPolicy, prefix_of};

/// Prefix of the metaindex key of a prefix filter. The extractor's name follows.
///
/// It sorts before all filters of keys: some readers take any entry at or after their filter's name for the filter.
pub(crate) const PREFIXES_NAME: &[u8] = b"about.prefixes.";

/// Builds the block from the keys of a table.
pub(crate) struct PrefixBlockBuilder {
    extractor: Arc<dyn PrefixExtractor>,
    block: FilterBlockBuilder,
    /// The prefix of the previous key, if it had one.
    last: Option<Vec<u8>>,
}

impl PrefixBlockBuilder {
    pub(crate) fn new(extractor: Arc<dyn PrefixExtractor>) -> PrefixBlockBuilder {
        PrefixBlockBuilder {
            extractor,
            block: FilterBlockBuilder::new(RibbonFilterPolicy::DEFAULT.builder(), true),
            last: None,
        }
    }

    /// Adds the prefix of `key`, which comes after `previous` in bytewise order. Returns `false`, and adds nothing, if the two
    /// keys show that the extractor breaks the rule: keys that begin with a prefix have that prefix.
    #[must_use]
    #[inline(never)] // beside the loop of a build
    pub(crate) fn add_key(&mut self, previous: Option<&[u8]>, key: &[u8]) -> bool {
        let extractor = &*self.extractor;
        let prefix = prefix_of(extractor, key);
        // Keys with one prefix are adjacent, so each prefix is added once.
        if self.last.as_deref() == prefix {
            return true;
        }
        let begins =
            |key: &[u8], with: Option<&[u8]>| with.is_some_and(|with| key.starts_with(with));
        let is_broken = begins(key, self.last.as_deref())
            || previous.is_some_and(|previous| begins(previous, prefix))
            || prefix.is_some_and(|prefix| prefix_of(extractor, prefix) != Some(prefix));
        if is_broken {
            return false;
        }
        if let Some(prefix) = prefix {
            self.block.add_key(prefix);
        }
        self.last = prefix.map(<[u8]>::to_vec);
        true
    }

    /// Returns the block; see [`FilterBlockBuilder::finish`].
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        // No data block comes before it: lg(base) is 0.
        self.block.finish(0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Defect;
    use super::super::filter_block::FilterBlockReader;
    use super::*;
    use crate::filter::DelimitedPrefix;

    fn block(policy: RibbonFilterPolicy, keys: &[&str]) -> Vec<u8> {
        let mut builder = PrefixBlockBuilder::new(Arc::new(DelimitedPrefix::new(b'/')));
        builder.block = FilterBlockBuilder::new(policy.builder(), true);
        let mut previous = None;
        for key in keys {
            let key = key.as_bytes();
            assert!(builder.add_key(previous, key));
            previous = Some(key);
        }
        builder.finish().unwrap()
    }

    fn reader(block: &[u8]) -> Result<FilterBlockReader, Defect> {
        let reader = FilterBlockReader::new(Bytes::copy_from_slice(block))?;
        reader.check_prefixes()?;
        Ok(reader)
    }

    fn passes(block: &[u8], prefix: &str) -> bool {
        reader(block).unwrap().prefix_may_match(prefix.as_bytes())
    }

    #[test]
    fn the_worked_example_is_what_the_builder_builds() {
        let this_file = include_str!("prefix_block.rs");
        let example = this_file.split("```").nth(1).unwrap();
        let mut expected = Vec::new();
        for line in example.lines().filter_map(|line| line.strip_prefix("//!")) {
            let Some((offset, rest)) = line.trim().split_once("  ") else {
                continue;
            };
            if offset == "offset" {
                continue;
            }
            assert_eq!(offset.parse(), Ok(expected.len()), "{line}");
            let bytes = rest.split_whitespace().map_while(|word| match word.len() {
                2 => u8::from_str_radix(word, 16).ok(),
                _ => None,
            });
            expected.extend(bytes);
        }
        let policy = RibbonFilterPolicy::new(5);
        let keys = ["apple/1", "apple/2", "avocado", "grape/", "lemon/7/8"];
        let built = block(policy, &keys);
        let hex: Vec<String> = built.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(built, expected, "{}", hex.join(" "));
        assert!(
            ["apple/", "grape/", "lemon/"]
                .iter()
                .all(|prefix| passes(&built, prefix))
        );
        assert!(!passes(&built, "peach/"));
    }

    #[test]
    fn without_a_prefix_nothing_matches() {
        for keys in [&[][..], &["apple", "grape"]] {
            let built = block(RibbonFilterPolicy::DEFAULT, keys);
            assert_eq!(built, [0, 0, 0, 0, 0x0b]);
            assert!(!passes(&built, "apple/"));
        }
    }

    /// An arbitrary order, such as a caller's that was not kept.
    #[test]
    fn each_prefix_is_added_in_any_order() {
        let keys = ["b/1", "a/1", "c", "b/2", "a/2"];
        let built = block(RibbonFilterPolicy::DEFAULT, &keys);
        assert!(passes(&built, "a/") && passes(&built, "b/"));
        assert!(!passes(&built, "c/"));
    }

    #[test]
    fn blocks_that_are_no_prefix_filter_are_damaged() {
        for block in [
            &[][..],
            &[0, 0, 0, 0],
            &[0, 0, 0, 0, 64],
            &[1, 0, 0, 0, 0],
            // Two filters; a filter that begins after its end.
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[7, 1, 0, 0, 0, 1, 0, 0, 0, 0],
        ] {
            assert!(reader(block).is_err(), "{block:02x?}");
        }
    }

    /// Up to the last slash.
    #[derive(Debug)]
    struct LastSlash;

    impl PrefixExtractor for LastSlash {
        fn name(&self) -> &str {
            "test.LastSlash"
        }

        fn prefix_len(&self, key: &[u8]) -> Option<usize> {
            Some(key.iter().rposition(|&byte| byte == b'/')? + 1)
        }
    }

    /// A fixed length, minus one: a prefix is not its own prefix.
    #[derive(Debug)]
    struct Shy;

    impl PrefixExtractor for Shy {
        fn name(&self) -> &str {
            "test.Shy"
        }

        fn prefix_len(&self, key: &[u8]) -> Option<usize> {
            key.len().checked_sub(1).filter(|&len| len > 3)
        }
    }

    #[test]
    fn extractors_that_break_the_rule_are_noticed() {
        let broken: [(Arc<dyn PrefixExtractor>, &[&str]); 4] = [
            (Arc::new(LastSlash), &["a/1", "a/b/1"]),
            (Arc::new(LastSlash), &["a/b/1", "a/c"]),
            (Arc::new(LastSlash), &["a/b/1", "a/c/2", "a/d"]),
            (Arc::new(Shy), &["abcdefg"]),
        ];
        for (extractor, keys) in broken {
            let mut builder = PrefixBlockBuilder::new(extractor);
            let mut previous = None;
            let mut refused = false;
            for key in keys.iter().map(|key| key.as_bytes()) {
                refused |= !builder.add_key(previous, key);
                previous = Some(key);
            }
            assert!(refused, "{keys:?}");
        }
        // A key is rejected, and another takes its place.
        let mut builder = PrefixBlockBuilder::new(Arc::new(LastSlash));
        assert!(builder.add_key(None, b"a/1"));
        assert!(!builder.add_key(Some(b"a/1"), b"a/b/1"));
        assert!(builder.add_key(Some(b"a/1"), b"a/2"));
        let built = builder.finish().unwrap();
        assert!(passes(&built, "a/") && !passes(&built, "a/b/"));
    }
}
