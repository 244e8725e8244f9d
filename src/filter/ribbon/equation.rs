//! From a hash to a start and an equation, and the limits of the encoding: shared by builder and reader.

/// Number of slots in a segment, and of coefficients in an equation.
pub(super) const SLOTS: usize = 32;

/// Number of bytes at the end of every filter: end of layer 0, narrow, columns, layers.
pub(super) const TRAILER: usize = 10;

/// Minimum number of columns. A probe reads four at a time.
pub(super) const MIN_COLUMNS: usize = 4;

/// Maximum number of columns. A fingerprint has as many bits.
pub(super) const MAX_COLUMNS: usize = 32;

/// Number of starts in a layer of `segments`: the slots that have 31 more slots after them.
#[inline]
pub(super) fn starts(segments: usize) -> u64 {
    (segments as u64 * SLOTS as u64).saturating_sub(SLOTS as u64 - 1)
}

/// The slot at which the key of this hash starts, in a layer with `starts` starts. Starts are ordered like the hashes.
#[inline]
pub(super) fn start(hash: u64, starts: u64) -> u64 {
    ((u128::from(hash) * u128::from(starts)) >> 64) as u64
}

/// Coefficients and fingerprint of the key of this hash. The factor is 2⁶⁴ divided by the golden ratio.
#[inline]
pub(super) fn equation(hash: u64) -> (u32, u32) {
    let row = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((row >> 32) as u32 | 1, row as u32)
}

/// The hash of a bumped key in the next layer. Both steps are invertible, so different hashes stay different. The factor is
/// the fractional part of pi, times 2⁶⁴.
#[inline]
pub(super) fn rehash(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(0x243f_6a88_85a3_08d3)
}
