//! How a block lies in the file: payload, codec, checksum.
//!
//! ```text
//! payload (the block, perhaps compressed)   1 byte: codec   fixed32: masked CRC-32C of all before
//! ```

use std::io;

use bytes::Bytes;

use super::Defect;
use super::buffer::Buffer;
use super::codec::{self, Compressor, RAW};
use crate::coding::fixed32_at;

/// Bytes behind each payload: the codec and the checksum.
pub(crate) const TRAILER_LEN: usize = 5;

/// The form in which a CRC-32C is stored: LevelDB masks checksums because a CRC of bytes that hold a CRC
/// loses its strength.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The CRC-32C whose stored form is `masked`.
pub(crate) fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn masked_crc(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

/// Appends the frame of `block` to `out`, compressed if that pays.
///
/// # Errors
///
/// The compressor's; `out` is then as it was.
pub(crate) fn seal(block: &[u8], compressor: &mut Compressor, out: &mut Buffer) -> io::Result<()> {
    let start = out.len();
    match compressor.append(block, out)? {
        Some(codec) => finish(out, start, codec),
        None => seal_raw(block, out),
    }
    Ok(())
}

/// Appends the frame of `block` to `out`, uncompressed: what the filter block always gets.
pub(crate) fn seal_raw(block: &[u8], out: &mut Buffer) {
    let start = out.len();
    out.extend(block);
    finish(out, start, RAW);
}

/// Closes the frame whose payload began at `start` of `out`.
fn finish(out: &mut Buffer, start: usize, codec: u8) {
    out.extend(&[codec]);
    let crc = masked_crc(out.as_slice().get(start..).unwrap_or_default());
    out.extend(&crc.to_le_bytes());
}

/// Checks a frame's checksum, which covers payload and codec.
pub(crate) fn verify(frame: &[u8]) -> Result<(), Defect> {
    let (covered, stored) = split(frame, 4)?;
    let stored = fixed32_at(stored, 0).unwrap_or_default();
    let computed = masked_crc(covered);
    if stored == computed {
        Ok(())
    } else {
        Err(Defect::new(
            format!(
                "checksum {computed:#010x}, which its {} bytes have",
                covered.len()
            ),
            format!("{stored:#010x}"),
        ))
    }
}

/// Whether the payload of a frame is the block as it is.
pub(crate) fn is_raw(frame: &[u8]) -> bool {
    split(frame, TRAILER_LEN).is_ok_and(|(_, trailer)| trailer.first() == Some(&RAW))
}

/// The block inside a frame: a slice of it where it is stored raw, decompressed otherwise.
pub(crate) fn open(frame: &Bytes) -> Result<Bytes, Defect> {
    let (payload, trailer) = split(frame, TRAILER_LEN)?;
    match trailer.first() {
        Some(&RAW) => Ok(frame.slice(..payload.len())),
        Some(&codec) => codec::decompress(codec, payload).map(Bytes::from),
        None => Err(too_short(frame)),
    }
}

/// The name of the codec that a frame's payload is stored with.
pub(crate) fn codec_name(frame: &[u8]) -> &'static str {
    match split(frame, TRAILER_LEN) {
        Ok((payload, [codec, ..])) => codec::name(*codec, payload),
        _ => "unknown",
    }
}

fn split(frame: &[u8], tail: usize) -> Result<(&[u8], &[u8]), Defect> {
    if frame.len() < TRAILER_LEN {
        return Err(too_short(frame));
    }
    Ok(frame.split_at(frame.len() - tail))
}

fn too_short(frame: &[u8]) -> Defect {
    Defect::new(
        format!("a frame of at least {TRAILER_LEN} bytes"),
        format!("{}", frame.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::Compression;

    fn sealed(block: &[u8], compression: Compression) -> Vec<u8> {
        let mut out = Buffer::default();
        out.extend(b"before");
        seal(block, &mut Compressor::new(compression), &mut out).unwrap();
        assert_eq!(&out.as_slice()[..6], b"before");
        out.as_slice()[6..].to_vec()
    }

    /// Trailer of an empty block as C++ LevelDB writes it (metaindex of `format/mod.rs`'s example).
    #[test]
    fn an_empty_block_is_framed_as_by_leveldb() {
        let empty = [0, 0, 0, 0, 1, 0, 0, 0];
        let frame = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0xc0, 0xf2, 0xa1, 0xb0];
        for compression in [Compression::None, Compression::Snappy] {
            assert_eq!(sealed(&empty, compression), frame);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        for block in [&b"some block"[..], &[7; 300]] {
            let frame = sealed(block, Compression::Snappy);
            for bit in 0..frame.len() * 8 {
                let mut frame = frame.clone();
                frame[bit / 8] ^= 1 << (bit % 8);
                assert!(verify(&frame).is_err());
                let _ = open(&frame.into());
            }
            for cut in 0..frame.len() {
                assert!(verify(&frame[..cut]).is_err());
                let _ = open(&Bytes::copy_from_slice(&frame[..cut]));
            }
        }
    }
}
