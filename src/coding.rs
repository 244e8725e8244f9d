//! Little-endian fixed-width integers and base-128 varints.
//!
//! Decoders take untrusted bytes. They return `None` if there are too few bytes, or if a varint does not fit its type.

/// Length of the longest 64-bit varint.
pub(crate) const MAX_VARINT64_LEN: usize = 10;

/// Appends `value` as a varint: seven bits per byte, lowest first, with the high bit set on all but the last byte. For
/// example, 300 is `ac 02`.
#[inline]
pub fn put_varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

/// Number of bytes that [`put_varint`] appends for `value`, 1 to 10.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Decodes the varint at the front of `src`. Returns the value and the number of bytes that it takes.
///
/// LevelDB's decoder ignores the bits of a tenth byte that do not fit into 64 bits. Here they are an error, since readers must
/// not disagree about where a block is.
#[inline]
pub fn get_varint64(src: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in src.iter().enumerate().take(MAX_VARINT64_LEN) {
        let group = u64::from(byte & 0x7f);
        let shift = 7 * i as u32;
        if shift == 63 && group > 1 {
            return None;
        }
        value |= group << shift;
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Like [`get_varint64`], for a value that must fit into 32 bits. Looks at five bytes at most.
#[inline]
pub(crate) fn get_varint32(src: &[u8]) -> Option<(u32, usize)> {
    let (value, len) = get_varint64(src.get(..5).unwrap_or(src))?;
    Some((u32::try_from(value).ok()?, len))
}

/// Appends four little-endian bytes.
#[inline]
pub(crate) fn put_fixed32(dst: &mut Vec<u8>, value: u32) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// Appends eight little-endian bytes.
#[inline]
pub(crate) fn put_fixed64(dst: &mut Vec<u8>, value: u64) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// The four little-endian bytes at `at`.
#[inline]
pub fn fixed32_at(src: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*src.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around each boundary between varint lengths.
    fn edges() -> impl Iterator<Item = u64> {
        (0..64)
            .flat_map(|bit| {
                let power = 1u64 << bit;
                [power - 1, power, power + 1]
            })
            .chain([u64::MAX - 1, u64::MAX])
    }

    #[test]
    fn varint_bytes_are_those_of_the_specification() {
        let mut dst = Vec::new();
        put_varint(&mut dst, 300);
        assert_eq!(dst, [0xac, 0x02], "300 is 0b10_0101100: low group first");
        dst.clear();
        put_varint(&mut dst, u64::MAX);
        assert_eq!(dst, [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn varints_round_trip_and_every_cut_is_an_error() {
        for value in edges() {
            let mut dst = Vec::new();
            put_varint(&mut dst, value);
            assert_eq!(dst.len(), varint_len(value));
            assert_eq!(get_varint64(&dst), Some((value, dst.len())));
            let small = u32::try_from(value).ok().map(|v| (v, dst.len()));
            assert_eq!(get_varint32(&dst), small);
            for cut in 0..dst.len() {
                assert_eq!(get_varint64(&dst[..cut]), None);
                assert_eq!(get_varint32(&dst[..cut]), None);
            }
        }
    }

    #[test]
    fn varints_that_do_not_fit_are_refused() {
        assert_eq!(get_varint64(&[0x80; 11]), None, "never ends");
        let mut over = [0xff; 10];
        over[9] = 2;
        assert_eq!(get_varint64(&over), None, "needs 65 bits");
        assert_eq!(get_varint32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        // Padded with groups of zeros: unusual, but LevelDB reads it.
        assert_eq!(get_varint64(&[0x81, 0x80, 0x00]), Some((1, 3)));
    }

    #[test]
    fn fixed_integers_are_little_endian() {
        let mut dst = Vec::new();
        put_fixed32(&mut dst, 0x0403_0201);
        put_fixed64(&mut dst, 0x0c0b_0a09_0807_0605);
        assert_eq!(dst, (1..=12).collect::<Vec<u8>>());
        assert_eq!(fixed32_at(&dst, 0), Some(0x0403_0201));
        assert_eq!(fixed32_at(&dst, 9), None);
        assert_eq!(fixed32_at(&dst, usize::MAX), None);
    }
}
