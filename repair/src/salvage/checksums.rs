//! Finds frames by their checksums alone, wherever they begin.

use std::collections::HashMap;

use leveltable::sister_crates::{fixed32_at, unmask};

/// Number of bytes after each payload: codec and checksum.
pub(crate) const TRAILER_LEN: usize = 5;

/// The types of blocks to search for: none, Snappy, Zstandard or zlib, deflate.
const CODECS: [u8; 4] = [0, 1, 2, 4];

/// The end of the first frame with a valid checksum that begins where `register` was all ones. `bytes` continue from
/// there; if there is no such frame, `register` afterwards covers all but the last four of them.
pub(super) fn frame_end(register: &mut u32, bytes: &[u8]) -> Option<usize> {
    for (at, window) in bytes.windows(5).enumerate() {
        let &[byte, ..] = window else { break };
        *register = times_x8(*register ^ u32::from(byte));
        if CODECS.contains(&byte)
            && let Some(stored) = fixed32_at(window, 1)
            && stored != 0
            && unmask(stored) == !*register
        {
            return Some(at + 5);
        }
    }
    None
}

/// All pairs of a start and an end in `bytes`, which are up to 4 GiB, with a frame between them that has a valid
/// checksum: for each start the nearest end, the first start last.
///
/// Takes one pass from right to left and a hash table. Trying all pairs would take quadratic time.
///
/// A CRC is a remainder of polynomials over GF(2), and therefore linear. Write `x` for the polynomial of one bit, `n`
/// for the length of `bytes`, and `raw(a, b)` for the CRC register after the bytes `a..b`, starting with 0. Then, with
/// `k = n - c` bytes after `c`,
///
/// ```text
/// raw(s, n) = raw(s, c) * x^8k + raw(c, n)                                            (+ is XOR)
/// ```
///
/// and a register that starts with all ones adds `ones * x^8(c - s)` to `raw(s, c)`. The frame `s..c` is valid if that
/// sum is the `register` that belongs to the checksum stored at `c`. Multiplied by `x^8k`:
///
/// ```text
/// raw(s, n) + ones * x^8(n - s)  =  raw(c, n) + register * x^8(n - c)
/// ```
///
/// The left side depends only on the start, the right side only on the end.
pub(super) fn frames_by_checksum(bytes: &[u8]) -> Vec<(u32, u32)> {
    /// The polynomial 1 as a register: bits are reflected, the highest power is the lowest bit.
    const ONE: u32 = 1 << 31;
    let mut frames = Vec::new();
    let mut ends: HashMap<u32, u32> = HashMap::new();
    let mut raw = 0u32; // raw(at, n)
    let mut power = ONE; // x^8(n - at)
    let mut ones = u32::MAX; // ones * x^8(n - at)
    let mut bit = times_x8(1 << 7); // what the top bit of the byte before `at` adds to `raw`
    for (at, &byte) in bytes.iter().enumerate().rev() {
        for i in (0..8).rev() {
            raw ^= bit & u32::from(byte >> i & 1).wrapping_neg();
            bit = times_x(bit);
            (power, ones) = (times_x(power), times_x(ones));
        }
        let at = at as u32;
        if let Some(end) = ends.get(&(raw ^ ones)) {
            frames.push((at, end + 4));
        }
        let codec = at.checked_sub(1).and_then(|i| bytes.get(i as usize));
        // Zeros could be a checksum, but there are too many of them to try.
        if codec.is_some_and(|codec| CODECS.contains(codec))
            && let Some(stored) = fixed32_at(bytes, at as usize)
            && stored != 0
        {
            let register = !unmask(stored);
            ends.insert(raw ^ multiply(register, power), at);
        }
    }
    frames
}

/// `a * x` modulo the polynomial of CRC-32C, reflected.
fn times_x(a: u32) -> u32 {
    const CRC32C: u32 = 0x82f6_3b78;
    (a >> 1) ^ (CRC32C & (a & 1).wrapping_neg())
}

/// `a * x^8`.
fn times_x8(a: u32) -> u32 {
    (0..8).fold(a, |a, _| times_x(a))
}

/// `a * b` modulo the polynomial of CRC-32C.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for i in (0..32).rev() {
        product ^= b & (a >> i & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use leveltable::sister_crates::mask;
    use proptest::prelude::*;

    /// Tries every pair with a widely used CRC crate: the nearest end for each start.
    fn by_trying(bytes: &[u8]) -> Vec<(u32, u32)> {
        let mut frames = Vec::new();
        for start in (0..bytes.len()).rev() {
            let end = (start + 5..=bytes.len()).find(|&end| {
                let stored = u32::from_le_bytes(bytes[end - 4..end].try_into().unwrap());
                let crc = crc32c::crc32c(&bytes[start..end - 4]);
                stored != 0 && CODECS.contains(&bytes[end - 5]) && mask(crc) == stored
            });
            frames.extend(end.map(|end| (start as u32, end as u32)));
        }
        frames
    }

    /// The frame of `block`, stored uncompressed.
    fn frame(block: &[u8]) -> Vec<u8> {
        let covered = [block, &[0]].concat();
        [&covered[..], &mask(crc32c::crc32c(&covered)).to_le_bytes()].concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Frames among noise, side by side, and within each other.
        #[test]
        fn frames_are_found_wherever_they_are(
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), 0..3), 0..8),
        ) {
            let mut bytes = Vec::new();
            let mut frames = 0;
            for (part, what) in parts {
                frames += usize::from(what > 0);
                match what {
                    0 => bytes.extend(&part),
                    1 => bytes.extend(frame(&part)),
                    _ => bytes = frame(&bytes),
                }
            }
            for (start, end) in by_trying(&bytes) {
                let after = frame_end(&mut u32::MAX.clone(), &bytes[start as usize..]);
                prop_assert_eq!(after, Some((end - start) as usize));
            }
            let found = frames_by_checksum(&bytes);
            prop_assert_eq!(&found, &by_trying(&bytes));
            prop_assert!(found.len() <= frames);
        }
    }
}
