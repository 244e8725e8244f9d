//! CRC-32C, the checksum of every block, and the form in which it is stored.

use crc_fast::CrcAlgorithm;

/// The form in which a CRC-32C is stored. LevelDB masks checksums since the CRC of any bytes followed by their own CRC is
/// the same constant, and would detect nothing.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The CRC-32C whose stored form is `masked`.
pub(crate) fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// The CRC-32C of `bytes`, not masked.
///
/// Takes 140 ns for 4 KiB with AVX-512. The crate `crc32c` takes 360 ns, a third of the time to read a block from the page cache.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32Cs of a string's beginnings, from that of its first byte on.
///
/// Byte by byte with a table: what is fast for whole blocks takes much longer for a byte at a time.
#[expect(
    clippy::indexing_slicing,
    reason = "there is a remainder for each byte"
)]
pub(crate) fn crc32c_of_prefixes(bytes: &[u8]) -> impl Iterator<Item = u32> {
    /// The remainder of each byte, divided by Castagnoli's polynomial, lowest bit first.
    const REMAINDERS: [u32; 256] = {
        let mut remainders = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut remainder = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                remainder = (remainder >> 1) ^ (0x82f6_3b78 * (remainder & 1));
                bit += 1;
            }
            remainders[byte] = remainder;
            byte += 1;
        }
        remainders
    };
    bytes.iter().scan(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        *crc = REMAINDERS[usize::from(low ^ byte)] ^ (*crc >> 8);
        Some(!*crc)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of every length up to several of the steps that the widest instructions take, at every alignment.
    #[test]
    fn checksums_are_those_of_a_second_implementation() {
        let bytes: Vec<u8> = (0..70_000u32)
            .map(|i| (i.wrapping_mul(i) >> 9) as u8)
            .collect();
        for start in 0..64 {
            let lens = (0..1100).chain([4096 + start, 16_389, 65_536 + start]);
            for part in lens.map(|len| &bytes[start..start + len]) {
                let expected = ::crc32c::crc32c(part);
                assert_eq!(crc32c(part), expected, "{start}, {}", part.len());
            }
        }
        let prefixes = (1..=300).map(|len| ::crc32c::crc32c(&bytes[..len]));
        assert!(crc32c_of_prefixes(&bytes[..300]).eq(prefixes));
    }
}
