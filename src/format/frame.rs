//! The frame of a block in the file: payload, codec, checksum.
//!
//! ```text
//! payload (the block, perhaps compressed)   1 byte: codec   fixed32: masked CRC-32C of payload and codec
//! ```

use std::io;

use bytes::Bytes;

use super::Defect;
use super::buffer::Buffer;
use super::checksum::{crc32c, mask};
use super::codec::{self, Compressor, RAW};

/// Bytes after each payload: the codec and the checksum.
pub(crate) const TRAILER_LEN: usize = 5;

fn masked_crc(bytes: &[u8]) -> u32 {
    mask(crc32c(bytes))
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

/// Appends the frame of `block` to `out`, uncompressed. A filter block is never compressed.
pub(crate) fn seal_raw(block: &[u8], out: &mut Buffer) {
    let start = out.len();
    out.extend(block);
    finish(out, start, RAW);
}

/// Appends the trailer to the payload that begins at `start` of `out`.
#[expect(clippy::indexing_slicing, reason = "`out` has grown since `start`")]
fn finish(out: &mut Buffer, start: usize, codec: u8) {
    out.extend(&[codec]);
    let crc = masked_crc(&out.as_slice()[start..]);
    out.extend(&crc.to_le_bytes());
}

/// Checks a frame's checksum, which covers payload and codec.
pub(crate) fn verify(frame: &[u8]) -> Result<(), Defect> {
    let Frame {
        covered, checksum, ..
    } = split(frame)?;
    let computed = masked_crc(covered);
    if checksum == computed {
        return Ok(());
    }
    Err(Defect::new(
        format!("checksum {checksum:#010x} (stored)"),
        format!("{computed:#010x} (computed from {} bytes)", covered.len()),
    ))
}

/// Whether the payload of a frame is the block itself, uncompressed.
pub(crate) fn is_raw(frame: &[u8]) -> bool {
    split(frame).is_ok_and(|frame| frame.codec == RAW)
}

/// The block in a frame: a slice of the frame if the block is stored raw, else decompressed.
pub(crate) fn open(frame: &Bytes) -> Result<Bytes, Defect> {
    open_within(frame, u64::MAX)
}

/// Opens a frame as [`open`] does, but decompresses at most `most` bytes.
pub(crate) fn open_within(frame: &Bytes, most: u64) -> Result<Bytes, Defect> {
    let Frame { payload, codec, .. } = split(frame)?;
    if codec == RAW {
        Ok(frame.slice(..payload.len()))
    } else {
        codec::decompress(codec, payload, most).map(Bytes::from)
    }
}

/// The name of the codec of a frame's payload.
pub(crate) fn codec_name(frame: &[u8]) -> Result<&'static str, Defect> {
    let Frame { payload, codec, .. } = split(frame)?;
    Ok(codec::name(codec, payload))
}

struct Frame<'a> {
    payload: &'a [u8],
    codec: u8,
    /// Payload and codec: the bytes that the checksum covers.
    covered: &'a [u8],
    checksum: u32,
}

fn split(frame: &[u8]) -> Result<Frame<'_>, Defect> {
    if let Some((covered, checksum)) = frame.split_last_chunk()
        && let Some((&codec, payload)) = covered.split_last()
    {
        return Ok(Frame {
            payload,
            codec,
            covered,
            checksum: u32::from_le_bytes(*checksum),
        });
    }
    Err(Defect::new(
        format!("a frame of at least {TRAILER_LEN} bytes"),
        format!("{}", frame.len()),
    ))
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
