//! Compresses and decompresses the payloads of blocks. Everything that depends on optional codecs is here.
//!
//! | type | codec | written by | feature |
//! |---|---|---|---|
//! | 0 | none | all | |
//! | 1 | Snappy | all | |
//! | 2 | Zstandard, which begins with `28 b5 2f fd` | LevelDB since 2023 | `zstd` |
//! | 2 | zlib, which begins with a byte `x8` | Mojang's fork (Minecraft), RocksDB | `zlib` |
//! | 4 | raw deflate | Mojang's fork | `zlib` |
//!
//! No decoder trusts a length that the payload states. Each compares it with the maximum of its format.

use std::fmt;
use std::io;
#[cfg(feature = "zlib")]
use std::io::Read;
use std::ops::RangeInclusive;
use std::str::FromStr;

#[cfg(feature = "zlib")]
use flate2::bufread::{DeflateDecoder, DeflateEncoder, ZlibDecoder, ZlibEncoder};

use super::buffer::Buffer;
use super::{Defect, require};
use crate::error::{Error, ErrorKind};

/// The type byte of a block that is stored uncompressed.
pub(crate) const RAW: u8 = 0;

const SNAPPY: u8 = 1;
const ZSTD_OR_ZLIB: u8 = 2;
const DEFLATE: u8 = 4;

/// How blocks are compressed when a table is written.
///
/// Readers find the codec in each block. A block that does not shrink by an eighth is stored uncompressed. See
/// [`WriteOptions::compression`](crate::WriteOptions::compression).
///
/// ```
/// use leveltable::Compression;
///
/// let codec: Compression = "snappy".parse()?;
/// assert_eq!(codec, Compression::default());
/// assert_eq!(codec.name(), "snappy");
/// assert_eq!(codec.level(), None);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Blocks are stored uncompressed. The file of [`WriteOptions::leveldb`](crate::WriteOptions::leveldb) is then byte
    /// for byte the one that C++ LevelDB writes.
    None,
    /// Snappy, LevelDB's default: fast, and about half the size on text.
    #[default]
    Snappy,
    /// Zstandard at this level, as written by LevelDB since 2023. LevelDB's default level is 1.
    #[cfg(feature = "zstd")]
    Zstd(i32),
    /// zlib at this level, 0 to 9, as in older Minecraft worlds. Stock LevelDB cannot read it.
    #[cfg(feature = "zlib")]
    Zlib(i32),
    /// Raw deflate at this level, 0 to 9, as in Minecraft worlds. Stock LevelDB cannot read it.
    #[cfg(feature = "zlib")]
    Deflate(i32),
}

impl Compression {
    /// Every built-in codec, at the level that its writers use by default.
    ///
    /// ```
    /// use leveltable::Compression;
    ///
    /// assert!(Compression::all().contains(&Compression::Snappy));
    /// ```
    pub const fn all() -> &'static [Compression] {
        &[
            Compression::None,
            Compression::Snappy,
            #[cfg(feature = "zstd")]
            Compression::Zstd(1),
            #[cfg(feature = "zlib")]
            Compression::Zlib(6),
            #[cfg(feature = "zlib")]
            Compression::Deflate(6),
        ]
    }

    /// The codec's name, such as `snappy`.
    pub const fn name(self) -> &'static str {
        self.words().0
    }

    /// Description for the tool's help.
    #[doc(hidden)]
    pub const fn about(self) -> &'static str {
        self.words().1
    }

    /// Its name and its description.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Compression::None => ("none", "No compression"),
            Compression::Snappy => ("snappy", "LevelDB's default"),
            #[cfg(feature = "zstd")]
            Compression::Zstd(_) => ("zstd", "Zstandard: smaller; LevelDB reads it since 2023"),
            #[cfg(feature = "zlib")]
            Compression::Zlib(_) => ("zlib", "zlib; Mojang's LevelDB (Minecraft) reads it"),
            #[cfg(feature = "zlib")]
            Compression::Deflate(_) => (
                "deflate",
                "Raw deflate; Mojang's LevelDB (Minecraft) reads it",
            ),
        }
    }

    /// The codec's level and the levels that it has; `None` if it has no levels.
    pub fn level(self) -> Option<(i32, RangeInclusive<i32>)> {
        match self {
            Compression::None | Compression::Snappy => None,
            #[cfg(feature = "zstd")]
            Compression::Zstd(level) => Some((level, zstd::compression_level_range())),
            #[cfg(feature = "zlib")]
            Compression::Zlib(level) | Compression::Deflate(level) => Some((level, 0..=9)),
        }
    }

    /// The same codec at another level.
    ///
    /// ```
    /// use leveltable::Compression;
    ///
    /// let error = Compression::Snappy.at_level(3).unwrap_err();
    /// assert_eq!(error.to_string(), "snappy has no levels");
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidState`]: the codec does not have this level.
    #[cfg_attr(not(any(feature = "zstd", feature = "zlib")), expect(unused_variables))]
    pub fn at_level(self, level: i32) -> Result<Compression, Error> {
        let codec = match self {
            Compression::None | Compression::Snappy => Err(format!("{self} has no levels")),
            #[cfg(feature = "zstd")]
            Compression::Zstd(_) => Ok(Compression::Zstd(level)),
            #[cfg(feature = "zlib")]
            Compression::Zlib(_) => Ok(Compression::Zlib(level)),
            #[cfg(feature = "zlib")]
            Compression::Deflate(_) => Ok(Compression::Deflate(level)),
        };
        let checked = codec.and_then(|codec: Compression| codec.check().map(|()| codec));
        checked.map_err(|why| Error::new(ErrorKind::InvalidState, why))
    }

    /// Checks the codec's level; `Err` names the allowed range.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.level() {
            Some((level, levels)) if !levels.contains(&level) => {
                let (name, (least, most)) = (self.name(), levels.into_inner());
                Err(format!(
                    "{name} has levels from {least} to {most}, not {level}"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The codec's [name](Compression::name).
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The codec of this [name](Compression::name), at the level that its writers use by default. A codec that is not built in is an
/// error of kind [`ErrorKind::Unsupported`].
impl FromStr for Compression {
    type Err = Error;

    fn from_str(name: &str) -> Result<Compression, Error> {
        let mut all = Compression::all().iter();
        all.find(|codec| codec.name() == name)
            .copied()
            .ok_or_else(|| {
                let names: Vec<&str> = Compression::all().iter().map(|it| it.name()).collect();
                let message = format!("{name:?} is none of {}", names.join(", "));
                Error::new(ErrorKind::Unsupported, message)
            })
    }
}

/// Compresses blocks. Keeps the codecs' tables, so that they are set up once; Snappy's are boxed, since 2 KiB would be
/// copied each time the owner moves.
pub(crate) struct Compressor {
    pub(crate) compression: Compression,
    snappy: Box<snap::raw::Encoder>,
    /// Set up with the first block.
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Compressor {
        Compressor {
            compression,
            snappy: Box::new(snap::raw::Encoder::new()),
            #[cfg(feature = "zstd")]
            zstd: None,
        }
    }

    /// Appends `block` to `out`, compressed, and returns its type byte. Appends it raw if it does not shrink by an eighth, or shrinks
    /// so much that readers would reject it.
    ///
    /// # Errors
    ///
    /// Errors of the codec.
    pub(crate) fn append(&mut self, block: &[u8], out: &mut Buffer) -> io::Result<u8> {
        let start = out.len();
        let codec = match self.compression {
            // Snappy does not accept a block of nearly 4 GiB.
            Compression::Snappy if snap::raw::max_compress_len(block.len()) > 0 => {
                let room = out.room(snap::raw::max_compress_len(block.len()));
                let len = self.snappy.compress(block, room)?;
                out.commit(len);
                SNAPPY
            }
            Compression::None | Compression::Snappy => RAW,
            #[cfg(feature = "zstd")]
            Compression::Zstd(level) => {
                let compressor = match &mut self.zstd {
                    Some(compressor) => compressor,
                    none => none.insert(zstd::bulk::Compressor::new(level)?),
                };
                let room = out.room(zstd::zstd_safe::compress_bound(block.len()));
                let len = compressor.compress_to_buffer(block, room)?;
                out.commit(len);
                ZSTD_OR_ZLIB
            }
            #[cfg(feature = "zlib")]
            Compression::Zlib(level) => {
                let encoder = ZlibEncoder::new(block, flate2::Compression::new(level as u32));
                append_all(encoder, ZSTD_OR_ZLIB, out)?
            }
            #[cfg(feature = "zlib")]
            Compression::Deflate(level) => {
                let encoder = DeflateEncoder::new(block, flate2::Compression::new(level as u32));
                append_all(encoder, DEFLATE, out)?
            }
        };
        let len = out.len() - start;
        // No other codec reaches Zstandard's limit.
        let shrank = len < block.len() - block.len() / 8 && block.len() as u64 <= zstd_bound(len);
        if codec != RAW && shrank {
            return Ok(codec);
        }
        out.truncate(start);
        out.extend(block);
        Ok(RAW)
    }
}

/// Appends the output of `encoder`. Returns its codec's type byte.
#[cfg(feature = "zlib")]
fn append_all(mut encoder: impl Read, codec: u8, out: &mut Buffer) -> io::Result<u8> {
    let mut compressed = Vec::new();
    encoder.read_to_end(&mut compressed)?;
    out.extend(&compressed);
    Ok(codec)
}

/// Decompresses a payload of type `codec`, which is not [`RAW`].
///
/// A block can be at most 64/3 times as long as its payload with Snappy, and 1032 times with deflate. Zstandard has no such limit: a block
/// of more than 16 MiB plus 1032 times the payload is rejected. Snappy and Zstandard state the block's length, which is checked before the
/// memory is allocated at once. For deflate, memory grows, and takes up to three times the block's length for a moment.
pub(crate) fn decompress(codec: u8, payload: &[u8]) -> Result<Vec<u8>, Defect> {
    match (codec, payload) {
        (SNAPPY, _) => unsnap(payload),
        #[cfg(feature = "zstd")]
        (ZSTD_OR_ZLIB, [0x28, 0xb5, 0x2f, 0xfd, ..]) => unzstd(payload),
        #[cfg(feature = "zlib")]
        (ZSTD_OR_ZLIB, [first, ..]) if first & 0x0f == 8 => {
            let broken = |e: io::Error| Defect::new("zlib data", e.to_string());
            inflate(ZlibDecoder::new(payload), broken)
        }
        #[cfg(feature = "zlib")]
        (DEFLATE, _) => {
            let mut rest = payload;
            let block = inflate(DeflateDecoder::new(&mut rest), |_| unknown(codec, payload))?;
            // LZ4 data may begin as deflate data does. The block's checksum was correct, so this is not damage.
            let whole = rest.is_empty().then_some(block);
            whole.ok_or_else(|| unknown(codec, payload))
        }
        _ => Err(unknown(codec, payload)),
    }
}

/// The name of the codec of type `codec` that made `payload`.
pub(crate) fn name(codec: u8, payload: &[u8]) -> &'static str {
    match (codec, payload) {
        (RAW, _) => "none",
        (SNAPPY, _) => "snappy",
        (ZSTD_OR_ZLIB, [0x28, 0xb5, 0x2f, 0xfd, ..]) => "zstd",
        (ZSTD_OR_ZLIB, _) => "zlib",
        (DEFLATE, _) => "deflate",
        _ => "unknown",
    }
}

fn unsnap(payload: &[u8]) -> Result<Vec<u8>, Defect> {
    let corrupt = |e: snap::Error| Defect::new("Snappy data", e.to_string());
    let claimed = snap::raw::decompress_len(payload).map_err(corrupt)?;
    // An element of three bytes yields at most 64 bytes.
    let most = (payload.len() as u64).saturating_mul(64) / 3;
    let mut block = reserve(claimed as u64, most, payload)?;
    block.resize(claimed, 0);
    let decompressed = snap::raw::Decoder::new().decompress(payload, &mut block);
    decompressed.map(|_| block).map_err(corrupt)
}

/// Memory for a block of `claimed` bytes. Rejects a length that the payload cannot decompress to. An allowed length can still
/// exceed this machine's memory, which is an error and must not end the process.
fn reserve(claimed: u64, most: u64, payload: &[u8]) -> Result<Vec<u8>, Defect> {
    let len = payload.len();
    let expected = || format!("at most {most} bytes from {len} compressed ones");
    let found = || format!("a claim of {claimed}");
    require(claimed <= most, expected, found)?;
    let mut block = Vec::new();
    // A length that does not fit a `usize` cannot be reserved, and neither can its maximum.
    let reserved = block.try_reserve_exact(usize::try_from(claimed).unwrap_or(usize::MAX));
    reserved.map_err(|e| Defect::unsupported(format!("takes {claimed} bytes of memory: {e}")))?;
    Ok(block)
}

/// Names the codec, if it is one that other implementations use. RocksDB uses some type bytes in its own way.
#[cold]
fn unknown(codec: u8, payload: &[u8]) -> Defect {
    let name = match (codec, payload) {
        (ZSTD_OR_ZLIB, [0x28, 0xb5, 0x2f, 0xfd, ..]) => "Zstandard, which needs the feature `zstd`",
        (ZSTD_OR_ZLIB, [first, ..]) if first & 0x0f == 8 => "zlib, which needs the feature `zlib`",
        (3, _) => "bzip2, as RocksDB writes it",
        (DEFLATE, _) if cfg!(feature = "zlib") => "LZ4, as RocksDB writes it, not raw deflate",
        (DEFLATE, _) => {
            "raw deflate (as in Minecraft worlds), which needs the feature `zlib`, or LZ4, as RocksDB writes it"
        }
        (5, _) => "LZ4HC, as RocksDB writes it",
        (7, _) => "Zstandard, as RocksDB writes it",
        _ => "an unknown codec",
    };
    Defect::unsupported(format!(
        "is compressed with {name} (type {codec}): this build cannot read it"
    ))
}

/// The highest ratio that deflate reaches: 258 bytes from two bits.
const MAX_DEFLATED: u64 = 1032;

/// Maximum size that `compressed` bytes of Zstandard may expand to: 16 MiB plus deflate's ratio.
fn zstd_bound(compressed: usize) -> u64 {
    (16u64 << 20).saturating_add((compressed as u64).saturating_mul(MAX_DEFLATED))
}

#[cfg(feature = "zstd")]
fn unzstd(payload: &[u8]) -> Result<Vec<u8>, Defect> {
    use std::cell::Cell;
    use zstd::bulk::Decompressor;

    thread_local! {
        /// The thread's decompressor, of about 100 KiB. Setting one up takes longer than decompressing a block of 4
        /// KiB.
        static UNZSTD: Cell<Option<Decompressor<'static>>> = const { Cell::new(None) };
    }
    // Like LevelDB: the frame must state its length, and the length must not be 0.
    let claimed = match zstd::zstd_safe::get_frame_content_size(payload) {
        Ok(Some(claimed)) if claimed > 0 => claimed,
        _ => {
            let expected = "a Zstandard frame that states its length";
            return Err(Defect::new(expected, "none"));
        }
    };
    // Decoded in one call, into memory of that length. Streaming would allocate a window of any size that the frame states.
    let mut block = reserve(claimed, zstd_bound(payload.len()), payload)?;
    // There is none while a thread exits.
    let mut decompressor = match UNZSTD.try_with(Cell::take) {
        Ok(Some(decompressor)) => decompressor,
        _ => Decompressor::new()
            .map_err(|e| Defect::unsupported(format!("needs a decompressor: {e}")))?,
    };
    let decompressed = decompressor.decompress_to_buffer(payload, &mut block);
    let _ = UNZSTD.try_with(|kept| kept.set(Some(decompressor)));
    let corrupt = |e: io::Error| Defect::new("Zstandard data", e.to_string());
    decompressed.map(|_| block).map_err(corrupt)
}

/// The output of `decoder`; `broken` is the defect of a payload that it cannot decode. The stream does not state its length,
/// so memory grows with it, up to [`MAX_DEFLATED`] bytes for each of the payload.
#[cfg(feature = "zlib")]
fn inflate(
    mut decoder: impl Read,
    broken: impl FnOnce(io::Error) -> Defect,
) -> Result<Vec<u8>, Defect> {
    let mut block = Vec::new();
    decoder
        .read_to_end(&mut block)
        .map_err(|e| match e.kind() {
            io::ErrorKind::OutOfMemory => {
                Defect::unsupported(format!("takes too much memory: {e}"))
            }
            _ => broken(e),
        })?;
    // Growth can leave twice the necessary memory allocated, and a block may stay in a cache for long.
    block.shrink_to_fit();
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every codec of this build that compresses, with its type byte.
    fn codecs() -> impl Iterator<Item = (Compression, u8)> {
        Compression::all().iter().filter_map(|codec| match codec {
            Compression::None => None,
            Compression::Snappy => Some((*codec, 1)),
            #[cfg(feature = "zstd")]
            Compression::Zstd(_) => Some((*codec, 2)),
            #[cfg(feature = "zlib")]
            Compression::Zlib(_) => Some((*codec, 2)),
            #[cfg(feature = "zlib")]
            Compression::Deflate(_) => Some((*codec, 4)),
        })
    }

    /// A variant that is missing in the list could be neither named nor tested.
    #[test]
    fn every_variant_is_in_the_list() {
        let code = include_str!("codec.rs");
        let part = |start: &str, end: &str| {
            let (_, part) = code.split_once(start).unwrap();
            part.split_once(end).unwrap().0
        };
        let variants = part("pub enum Compression {", "\n}").lines();
        let variants = variants.filter(|line| line.trim_start().starts_with(char::is_uppercase));
        let listed = part("-> &'static [Compression] {", "\n    }");
        assert_eq!(
            variants.count(),
            listed.matches("Compression::").count(),
            "{listed}"
        );
    }

    #[test]
    fn names_and_levels_are_those_of_the_list() {
        for &codec in Compression::all() {
            assert_eq!(codec.name().parse::<Compression>().unwrap(), codec);
            assert!(codec.check().is_ok());
            let level = codec.level().map(|(_, levels)| *levels.end());
            let at_level = codec.at_level(level.unwrap_or(3)).ok();
            let set = at_level.and_then(Compression::level);
            assert_eq!(set.map(|(level, _)| level), level);
            assert!(codec.at_level(i32::MAX).is_err());
        }
    }

    #[test]
    fn the_format_lists_every_codec() {
        let format = include_str!("../../docs/format.md");
        let (_, line) = format.split_once("- **Codecs**: 0 none,").unwrap();
        let (line, _) = line.split_once("A writer").unwrap();
        for (codec, type_byte) in codecs() {
            let listed = line.contains(&format!(" {type_byte} "));
            assert!(listed, "{codec} has type {type_byte}: {line}");
        }
    }

    fn noise(len: u32) -> Vec<u8> {
        (0..len)
            .map(|i| crc32c::crc32c(&i.to_le_bytes()) as u8)
            .collect()
    }

    #[test]
    fn a_block_is_compressed_only_if_it_shrinks_by_an_eighth() {
        for (compression, codec) in codecs() {
            // Noise does not shrink; with enough zeros after it, it does.
            let mut kept = Vec::new();
            for tail in 0..400 {
                let mut block = noise(1000);
                block.resize(1000 + tail, 0);
                let mut out = Buffer::default();
                out.extend(b"before");
                let stored = Compressor::new(compression)
                    .append(&block, &mut out)
                    .unwrap();
                let (before, payload) = out.as_slice().split_at(6);
                assert_eq!(before, b"before");
                if stored == RAW {
                    assert_eq!(payload, block);
                } else {
                    assert_eq!(stored, codec);
                    assert_eq!(name(codec, payload), compression.name());
                    assert!(payload.len() < block.len() - block.len() / 8);
                    assert_eq!(decompress(codec, payload).unwrap(), block);
                }
                kept.push(stored != RAW);
            }
            assert!(!kept[0] && kept[399] && kept.is_sorted(), "{compression:?}");
        }
    }

    #[test]
    fn dense_blocks_pass_and_damaged_ones_do_not_panic() {
        for (compression, codec) in codecs() {
            let block = vec![b'x'; 1 << 20];
            let mut out = Buffer::default();
            Compressor::new(compression)
                .append(&block, &mut out)
                .unwrap();
            let mut payload = out.as_slice().to_vec();
            assert_eq!(decompress(codec, &payload).unwrap(), block);
            payload.truncate(200);
            for bit in 0..payload.len() * 8 {
                payload[bit / 8] ^= 1 << (bit % 8);
                let _ = decompress(codec, &payload);
                let _ = decompress(codec, &payload[..bit / 8]);
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn levels_that_do_not_exist_are_refused() {
        for (compression, _) in codecs() {
            assert_eq!(compression.check(), Ok(()));
        }
        #[cfg(feature = "zstd")]
        assert_eq!(
            Compression::Zstd(23).check().unwrap_err(),
            "zstd has levels from -131072 to 22, not 23"
        );
        #[cfg(feature = "zlib")]
        assert_eq!(
            Compression::Deflate(10).check().unwrap_err(),
            "deflate has levels from 0 to 9, not 10"
        );
    }

    #[test]
    fn bombs_are_refused_before_they_allocate() {
        // A Snappy length of 4 GiB - 1 in front of two bytes.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        let error = decompress(SNAPPY, &bomb).unwrap_err();
        assert!(
            format!("{error:?}").contains("claim of 4294967295"),
            "{error:?}"
        );
        #[cfg(feature = "zstd")]
        {
            // A Zstandard frame header with an 8-byte content size of 2^40, then one empty last block.
            let bomb = [
                0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0,
            ];
            let error = decompress(ZSTD_OR_ZLIB, &bomb).unwrap_err();
            assert!(
                format!("{error:?}").contains("claim of 1099511627776"),
                "{error:?}"
            );
            // And one of length 0, which LevelDB rejects.
            let empty = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
            assert!(decompress(ZSTD_OR_ZLIB, &empty).is_err());
        }
    }

    /// A length that the payload could have, but that no vector of a 32-bit machine can hold.
    #[test]
    #[cfg(all(feature = "zstd", target_pointer_width = "32"))]
    fn a_block_beyond_the_address_space_is_an_error() {
        // A frame header with an 8-byte content size of 3 GiB. The rest is never decoded.
        let mut payload = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0xc0, 0, 0, 0, 0];
        payload.resize(4 << 20, 0);
        let error = decompress(ZSTD_OR_ZLIB, &payload).unwrap_err();
        assert!(
            format!("{error:?}").contains("takes 3221225472 bytes of memory"),
            "{error:?}"
        );
    }

    /// A zlib stream made by Python's `zlib.compress(b"leveltable" * 30, 9)`, and its raw form.
    #[test]
    #[cfg(feature = "zlib")]
    fn foreign_zlib_and_deflate_are_read() {
        let zlib = &[
            0x78, 0xda, 0xcb, 0x49, 0x2d, 0x4b, 0xcd, 0x29, 0x49, 0x4c, 0xca, 0x49, 0xcd, 0x19,
            0x65, 0x11, 0x60, 0x01, 0x00, 0xcc, 0xae, 0x7b, 0xc1,
        ];
        let expected = b"leveltable".repeat(30);
        assert_eq!(decompress(ZSTD_OR_ZLIB, zlib).unwrap(), expected);
        assert_eq!(
            decompress(DEFLATE, &zlib[2..zlib.len() - 4]).unwrap(),
            expected
        );
    }

    #[test]
    fn codecs_that_cannot_be_read_are_named() {
        for (payload, codec, name) in [
            #[cfg(not(feature = "zstd"))]
            (&[0x28, 0xb5, 0x2f, 0xfd, 0][..], 2, "`zstd`"),
            #[cfg(not(feature = "zlib"))]
            (&[0x78, 0x9c, 0][..], 2, "`zlib`"),
            #[cfg(not(feature = "zlib"))]
            (&[0][..], 4, "raw deflate"),
            (&[0][..], 3, "bzip2"),
            (&[0][..], 9, "unknown codec (type 9)"),
        ] {
            let error = decompress(codec, payload).unwrap_err();
            let error = error.locate(crate::error::Section::Data, 0);
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
