//! The frame of a block in the file: payload, codec, checksum.
//!
//! ```text
//! payload (the block, perhaps compressed)   1 byte: codec   fixed32: masked CRC-32C of payload and codec
//! ```

use std::io;

use bytes::Bytes;

use super::buffer::Buffer;
use super::checksum::{crc32c, mask};
use super::codec::{self, Compressor, RAW};
use super::{Defect, require};

/// Number of bytes after each payload: codec and checksum.
pub(crate) const TRAILER_LEN: usize = 5;

/// Appends the frame of `block` to `out`; uncompressed without a compressor, or if compression does not pay.
///
/// # Errors
///
/// Errors of the compressor.
#[expect(clippy::indexing_slicing, reason = "`out` has grown since `start`")]
pub(crate) fn seal(
    block: &[u8],
    compressor: Option<&mut Compressor>,
    out: &mut Buffer,
) -> io::Result<()> {
    let start = out.len();
    let codec = match compressor {
        Some(compressor) => compressor.append(block, out)?,
        None => {
            out.extend(block);
            RAW
        }
    };
    out.extend(&[codec]);
    let crc = mask(crc32c(&out.as_slice()[start..]));
    out.extend(&crc.to_le_bytes());
    Ok(())
}

/// Checks the checksum of a frame, which covers payload and codec.
///
/// # Errors
///
/// The checksum is wrong, or the frame is shorter than its trailer.
pub fn verify(frame: &[u8]) -> Result<(), Defect> {
    let (payload, _, stored) = split(frame)?;
    let covered = frame.get(..=payload.len()).unwrap_or(&[]);
    let computed = mask(crc32c(covered));
    let expected = || format!("checksum {stored:#010x} (stored)");
    let found = || format!("{computed:#010x} (computed from {} bytes)", covered.len());
    require(stored == computed, expected, found)
}

/// Whether the payload of a frame is the block itself, uncompressed.
pub(crate) fn is_raw(frame: &[u8]) -> bool {
    split(frame).is_ok_and(|(_, codec, _)| codec == RAW)
}

/// The block in a frame: a slice of the frame if the block is stored raw, else decompressed. Does not [check](verify) the checksum.
///
/// # Errors
///
/// The payload cannot be decompressed, or its codec is not built in.
pub fn open(frame: &Bytes) -> Result<Bytes, Defect> {
    let (payload, codec, _) = split(frame)?;
    if codec == RAW {
        Ok(frame.slice(..payload.len()))
    } else {
        codec::decompress(codec, payload).map(Bytes::from)
    }
}

/// The name of the codec of a frame's payload, as [`Compression::name`](crate::Compression::name) has it, or `unknown`.
///
/// # Errors
///
/// The frame is shorter than its trailer.
pub fn codec_name(frame: &[u8]) -> Result<&'static str, Defect> {
    let (payload, codec, _) = split(frame)?;
    Ok(codec::name(codec, payload))
}

/// The payload of a frame, its codec, and the stored checksum.
fn split(frame: &[u8]) -> Result<(&[u8], u8, u32), Defect> {
    match frame.split_last_chunk::<TRAILER_LEN>() {
        Some((payload, &[codec, a, b, c, d])) => {
            Ok((payload, codec, u32::from_le_bytes([a, b, c, d])))
        }
        None => {
            let expected = format!("a frame of at least {TRAILER_LEN} bytes");
            Err(Defect::new(expected, format!("{}", frame.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::Compression;

    fn sealed(block: &[u8], compression: Compression) -> Vec<u8> {
        let mut out = Buffer::default();
        out.extend(b"before");
        let mut compressor = Compressor::new(compression);
        seal(block, Some(&mut compressor), &mut out).unwrap();
        assert_eq!(&out.as_slice()[..6], b"before");
        out.as_slice()[6..].to_vec()
    }

    /// The trailer of an empty block by C++ LevelDB: the metaindex in the worked example of `format/mod.rs`.
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
