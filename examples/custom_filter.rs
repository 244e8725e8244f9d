//! An application's own filter policy, beside a comparator of its own.
//!
//! The application here stores host names, which ignore case: `Example.org` and `example.ORG` are one
//! key. That is its comparator's doing. A filter knows nothing of comparators: it is given the bytes of
//! the keys that were added, and asked about the bytes that somebody looks up. So the two must *agree*:
//! whenever the comparator calls two byte strings equal, the policy must treat them alike. The
//! policy here does, since it folds each key as the comparator does, before it hashes it. LevelDB's Bloom
//! filter does not, and the end of this program shows how it then hides a key that is there.
//!
//! `cargo run --example custom_filter`

use std::cmp::Ordering;

use leveltable::{
    BloomFilterPolicy, Comparator, FilterBuilder, FilterPolicy, OpenOptions, WriteOptions,
};
use xxhash_rust::xxh3::xxh3_64;

/// Host names in ASCII, without regard to case.
#[derive(Debug, Clone, Copy)]
struct IgnoreCase;

impl Comparator for IgnoreCase {
    fn name(&self) -> &str {
        "example.IgnoreCase"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

/// Keeps a fingerprint of 32 bits of each key, sorted.
///
/// Three times the memory of an ordinary filter, and all but exact: among a million keys, an absent one
/// meets a fingerprint once in 4,000 lookups. For a table far away, where each read is a request.
#[derive(Debug, Clone, Copy)]
struct Fingerprints;

/// The one place that decides which keys are the same. The comparator and this must change together,
/// and then so must both names.
fn fingerprint(key: &[u8]) -> u32 {
    (xxh3_64(&key.to_ascii_lowercase()) >> 32) as u32
}

impl FilterPolicy for Fingerprints {
    /// Stored in the table. A reader uses the filter only if it has a policy of this name, so a change
    /// of the encoding, the hash or the folding needs a new one.
    fn name(&self) -> &str {
        "example.IgnoreCaseFingerprints32"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(FingerprintBuilder(Vec::new()))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let (fingerprints, rest) = filter.as_chunks::<4>();
        // The bytes come from a file. What is not a filter of ours must not hide a key.
        if !rest.is_empty() {
            return true;
        }
        let sought = fingerprint(key);
        fingerprints
            .binary_search_by_key(&sought, |bytes| u32::from_le_bytes(*bytes))
            .is_ok()
    }
}

struct FingerprintBuilder(Vec<u32>);

impl FilterBuilder for FingerprintBuilder {
    fn add_key(&mut self, key: &[u8]) {
        self.0.push(fingerprint(key));
    }

    /// Called once for each filter of the table. That is one filter with `WriteOptions::new()`, but one for
    /// each 2 KiB of the file with `whole_table_filter(false)`, so the builder must be ready to begin anew.
    fn finish(&mut self, dst: &mut Vec<u8>) {
        self.0.sort_unstable();
        dst.extend(self.0.drain(..).flat_map(u32::to_le_bytes));
    }
}

/// A table of host names, filtered with `policy`; written to memory.
fn write(policy: impl FilterPolicy + 'static) -> leveltable::Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new()
        .comparator(IgnoreCase)
        .filter_policy(policy)
        .build(&mut file);
    builder.add(b"Docs.rs", b"151.101.2.1")?;
    builder.add(b"example.ORG", b"192.0.2.7")?;
    builder.add(b"Rust-Lang.org", b"192.0.2.9")?;
    builder.finish()?;
    Ok(file)
}

fn main() -> leveltable::Result<()> {
    let table = OpenOptions::new()
        .comparator(IgnoreCase)
        .filter_policy(Fingerprints) // readers must know it, too
        .open_source(write(Fingerprints)?)?;
    println!("with {:?}:", table.filter().map(|filter| filter.policy));
    for host in ["example.ORG", "EXAMPLE.org", "example.com"] {
        let address = table.get(host.as_bytes())?;
        println!("  {host} -> {address:?}");
    }
    assert!(table.contains_key(b"EXAMPLE.org")?);
    assert!(!table.may_contain(b"example.com"), "no block is read");

    // The same with a filter that knows bytes only.
    let table = OpenOptions::new()
        .comparator(IgnoreCase)
        .open_source(write(BloomFilterPolicy::new(10))?)?;
    println!("with {:?}:", table.filter().map(|filter| filter.policy));
    for host in ["example.ORG", "EXAMPLE.org"] {
        let address = table.get(host.as_bytes())?;
        println!("  {host} -> {address:?}");
    }
    assert!(
        !table.contains_key(b"EXAMPLE.org")?,
        "the comparator finds the key, and the filter hid it before the comparator was asked"
    );
    Ok(())
}
