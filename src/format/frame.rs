//! How a block lies in the file: payload, codec, checksum.
//!
//! ```text
//! payload (the block, perhaps compressed)   1 byte: codec   fixed32: masked CRC-32C of all before
//! ```

use bytes::Bytes;

use super::Defect;
use crate::coding::{fixed32_at, put_fixed32};

/// Bytes behind each payload: the codec and the checksum.
pub(crate) const TRAILER_LEN: usize = 5;

const RAW: u8 = 0;
const SNAPPY: u8 = 1;

/// How blocks are compressed when a table is written.
///
/// Readers find the codec in each block. A block that does not shrink by an eighth is stored raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Blocks are stored as they are; the file is then, byte for byte, what C++ LevelDB writes.
    None,
    /// Snappy, LevelDB's default: fast, and about half the size on text.
    #[default]
    Snappy,
}

/// The CRC-32C of `bytes`, masked as it is stored.
///
/// LevelDB masks checksums because a CRC of bytes that hold a CRC loses its strength.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// Seals blocks into frames. Holds the compressor's tables, so that they are set up once.
pub(crate) struct Sealer {
    compression: Compression,
    snappy: snap::raw::Encoder,
}

impl Sealer {
    pub(crate) fn new(compression: Compression) -> Sealer {
        Sealer {
            compression,
            snappy: snap::raw::Encoder::new(),
        }
    }

    /// Appends the frame of `block` to `out`, compressed if that pays.
    pub(crate) fn seal(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let compressed = match self.compression {
            Compression::None => false,
            Compression::Snappy => self.append_snappy(block, out),
        };
        match compressed {
            true => finish(out, start, SNAPPY),
            false => {
                out.truncate(start);
                seal_raw(block, out);
            }
        }
    }

    /// Appends `block` compressed; `false`, with rubbish appended, where it shrinks by less than an
    /// eighth or is too large for Snappy.
    fn append_snappy(&mut self, block: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // Compresses in place at the end of `out`; the length bound is 0 for what Snappy cannot take.
        out.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let Some(dst) = out.get_mut(start..) else {
            return false;
        };
        match self.snappy.compress(block, dst) {
            Ok(len) if len < block.len() - block.len() / 8 => {
                out.truncate(start + len);
                true
            }
            _ => false,
        }
    }
}

/// Appends the frame of `block` to `out`, uncompressed: what the filter block always gets.
pub(crate) fn seal_raw(block: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(block);
    finish(out, start, RAW);
}

/// Closes the frame whose payload began at `start` of `out`.
fn finish(out: &mut Vec<u8>, start: usize, codec: u8) {
    out.push(codec);
    let crc = masked_crc(out.get(start..).unwrap_or_default());
    put_fixed32(out, crc);
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

/// The payload of a frame that is stored raw; `None` for a compressed one.
#[inline]
pub(crate) fn raw_payload(frame: &[u8]) -> Option<&[u8]> {
    let (payload, trailer) = frame.split_at_checked(frame.len().checked_sub(TRAILER_LEN)?)?;
    (trailer.first() == Some(&RAW)).then_some(payload)
}

/// The block inside a frame: a slice of it where it is stored raw, decompressed otherwise.
///
/// Allocates at most 64 / 3 of the frame's length, whatever the payload claims: no Snappy element
/// yields more than 64 bytes from its three.
pub(crate) fn open(frame: &Bytes) -> Result<Bytes, Defect> {
    let (payload, trailer) = split(frame, TRAILER_LEN)?;
    match trailer.first() {
        Some(&RAW) => Ok(frame.slice(..payload.len())),
        Some(&SNAPPY) => unsnap(payload).map(Bytes::from),
        Some(&codec) => Err(unknown(codec, payload)),
        None => Err(too_short(frame)),
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

fn unsnap(payload: &[u8]) -> Result<Vec<u8>, Defect> {
    let corrupt = |e: snap::Error| Defect::new("Snappy data", format!("{e}"));
    let claimed = snap::raw::decompress_len(payload).map_err(corrupt)?;
    let most = (payload.len() as u64).saturating_mul(64) / 3;
    if claimed as u64 > most {
        return Err(Defect::new(
            format!("at most {most} bytes from {} of Snappy data", payload.len()),
            format!("a claim of {claimed}"),
        ));
    }
    let mut block = vec![0; claimed];
    let len = snap::raw::Decoder::new()
        .decompress(payload, &mut block)
        .map_err(corrupt)?;
    block.truncate(len);
    Ok(block)
}

/// Names the codecs that are seen in the wild. Type bytes were reused: 2 is Zstandard in LevelDB and
/// zlib in Mojang's fork and RocksDB; 4 is raw deflate in Mojang's fork and LZ4 in RocksDB.
#[cold]
fn unknown(codec: u8, payload: &[u8]) -> Defect {
    let name = match (codec, payload) {
        (2, [0x28, 0xb5, 0x2f, 0xfd, ..]) => "Zstandard",
        (2, [first, ..]) if first & 0x0f == 8 => "zlib",
        (3, _) => "bzip2, as RocksDB writes it",
        (4, _) => "raw deflate (as in Minecraft worlds) or LZ4 (as in RocksDB)",
        (5, _) => "LZ4HC, as RocksDB writes it",
        (7, _) => "Zstandard, as RocksDB writes it",
        _ => "a codec that is not known",
    };
    Defect::unsupported(format!(
        "is compressed with {name} (type {codec}), which this build cannot read"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(block: &[u8], compression: Compression) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Sealer::new(compression).seal(block, &mut out);
        assert_eq!(&out[..6], b"before");
        out.split_off(6)
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
    fn a_block_is_compressed_only_if_it_shrinks_by_an_eighth() {
        // Snappy stores incompressible bytes as literals: longer than they were.
        let noise: Vec<u8> = (0..1000u32)
            .map(|i| crc32c::crc32c(&i.to_le_bytes()) as u8)
            .collect();
        assert_eq!(sealed(&noise, Compression::Snappy)[1000], RAW);
        // The same with a compressible tail of growing length crosses the line once.
        let mut kept = Vec::new();
        for tail in 0..400 {
            let mut block = noise.clone();
            block.resize(1000 + tail, 0);
            let frame = sealed(&block, Compression::Snappy);
            let stored = frame.len() - TRAILER_LEN;
            let compressed = frame[stored] == SNAPPY;
            assert!(!compressed || stored < block.len() - block.len() / 8);
            kept.push(compressed);
            verify(&frame).unwrap();
            assert_eq!(open(&frame.into()).unwrap(), block);
        }
        assert!(!kept[0] && kept[399] && kept.is_sorted());
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

    #[test]
    fn a_snappy_bomb_is_refused_before_it_allocates() {
        // A length of 4 GiB - 1 in front of two bytes.
        let bomb = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, SNAPPY, 0, 0, 0, 0]);
        let error = open(&bomb).unwrap_err();
        assert!(
            format!("{error:?}").contains("claim of 4294967295"),
            "{error:?}"
        );
        // The densest honest input passes: one literal, then copies of 64 bytes.
        let block = vec![b'x'; 100_000];
        let frame = sealed(&block, Compression::Snappy);
        assert!(frame.len() < 5000);
        assert_eq!(open(&frame.into()).unwrap(), block);
    }

    #[test]
    fn codecs_that_cannot_be_read_are_named() {
        for (payload, codec, name) in [
            (&[0x28, 0xb5, 0x2f, 0xfd, 0][..], 2, "Zstandard"),
            (&[0x78, 0x9c, 0][..], 2, "zlib"),
            (&[0][..], 4, "raw deflate"),
            (&[0][..], 9, "not known"),
        ] {
            let mut frame = payload.to_vec();
            finish(&mut frame, 0, codec);
            let error = open(&frame.into()).unwrap_err();
            let error = error.locate(crate::error::Section::Data, 0);
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
