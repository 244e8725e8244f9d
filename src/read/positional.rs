//! Positional reads of a file: one, or many at once. All that depends on the operating system is here.

use std::fs::File;
use std::io;

use bytes::Bytes;

/// Number of reads that are under way while one is waited for. A disk that takes 42 µs for one page takes 15 µs a page with
/// this many.
const IN_FLIGHT: usize = 64;

/// Reads the `len` bytes at `offset`, all of them.
pub(super) fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::new();
    // Not `vec![0; len]`, which ends the process if there is no such memory.
    buffer.try_reserve_exact(len)?;
    sys::read_exact_at(file, &mut buffer, offset, len)?;
    Ok(buffer.into())
}

/// Reads all `parts`, each an offset and a length, and gives each to `each`. First copies what is in the page cache, then
/// announces the rest to the system before it waits for each, so that the disk works on several at a time, and meanwhile the
/// caller on those that are there.
///
/// Asking the page cache pays even if it holds nothing: newer kernels (6.18 does) start to read what is missing, and then all parts
/// are on their way. Giving up after eight misses made 256 cold blocks take 1.3 to 1.5 times as long.
pub(super) fn read_many_at(
    file: &File,
    parts: &[(u64, usize)],
    each: &mut dyn FnMut(usize, io::Result<Bytes>),
) {
    if let &[(offset, len)] = parts {
        return each(0, read_at(file, offset, len));
    }
    let cached = sys::read_cached(file, parts);
    let is_missing = |(part, cached): (_, &Option<Bytes>)| cached.is_none().then_some(part);
    let missing: Vec<(u64, usize)> = parts
        .iter()
        .zip(&cached)
        .filter_map(is_missing)
        .copied()
        .collect();
    let mut coming = missing.iter();
    let mut announce = |count| {
        let next = coming.by_ref().take(count);
        next.for_each(|&(offset, len)| sys::announce(file, offset, len));
    };
    announce(IN_FLIGHT);
    for (i, (cached, &(offset, len))) in cached.into_iter().zip(parts).enumerate() {
        let read = match cached {
            Some(bytes) => Ok(bytes),
            None => {
                announce(1);
                read_at(file, offset, len)
            }
        };
        each(i, read);
    }
}

#[cfg(unix)]
mod sys {
    use super::*;
    use rustix::io::Errno;

    /// Reads `len` bytes into an empty buffer that has room for them. They are not set to zero before.
    pub(super) fn read_exact_at(
        file: &File,
        buffer: &mut Vec<u8>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        while buffer.len() < len {
            let at = offset + buffer.len() as u64;
            match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // The allocator may have given more room than was asked for.
        buffer.truncate(len);
        Ok(())
    }

    /// Those of `parts` that lie in the page cache as a whole.
    #[cfg(target_os = "linux")]
    pub(super) fn read_cached(file: &File, parts: &[(u64, usize)]) -> Vec<Option<Bytes>> {
        use rustix::io::{ReadWriteFlags, preadv2};
        // Kernels before 4.14 and some file systems do not know the flag. One failed call tells for all parts.
        let mut is_refused = false;
        let mut read = |&(offset, len): &(u64, usize)| {
            let mut buffer = Vec::new();
            if is_refused || buffer.try_reserve_exact(len).is_err() {
                return None;
            }
            buffer.resize(len, 0);
            let into = &mut [io::IoSliceMut::new(&mut buffer)];
            match preadv2(file, into, offset, ReadWriteFlags::NOWAIT) {
                Ok(n) if n == len => return Some(buffer.into()),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => is_refused = true,
            }
            None
        };
        parts.iter().map(&mut read).collect()
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read_cached(_: &File, parts: &[(u64, usize)]) -> Vec<Option<Bytes>> {
        vec![None; parts.len()]
    }

    /// Asks the system to start reading, without waiting for it. A system that does not is no error: the read that follows
    /// takes longer.
    pub(super) fn announce(file: &File, offset: u64, len: usize) {
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        if let Some(len) = std::num::NonZeroU64::new(len as u64) {
            let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed);
        }
        #[cfg(target_vendor = "apple")]
        let _ = rustix::fs::fcntl_rdadvise(file, offset, len as u64);
        #[cfg(not(any(
            target_os = "linux",
            target_os = "android",
            target_os = "freebsd",
            target_vendor = "apple"
        )))]
        let _ = (file, offset, len);
    }
}

#[cfg(not(unix))]
mod sys {
    use super::*;

    pub(super) fn read_exact_at(
        file: &File,
        buffer: &mut Vec<u8>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        buffer.resize(len, 0);
        let mut rest = &mut buffer[..];
        let mut at = offset;
        while !rest.is_empty() {
            match read_some_at(file, rest, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    (_, rest) = rest.split_at_mut(n);
                    at += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    #[cfg(windows)]
    fn read_some_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
    }

    /// As the standard library, which opens no file there either.
    #[cfg(not(windows))]
    fn read_some_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read_cached(_: &File, parts: &[(u64, usize)]) -> Vec<Option<Bytes>> {
        vec![None; parts.len()]
    }

    pub(super) fn announce(_: &File, _: u64, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// In the page cache, dropped from it, and in part past the end.
    #[test]
    fn many_parts_read_as_one_by_one() {
        let content: Vec<u8> = (0..1_000_003u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let parts: Vec<(u64, usize)> = (0..300u64)
            .map(|i| (i * 7919 % 1_000_100, (i * 61 % 9000) as usize))
            .chain([(1_000_003, 0), (1_000_003, 1)])
            .collect();
        for is_cold in [false, true] {
            #[cfg(target_os = "linux")]
            if is_cold {
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            let mut results = Vec::new();
            read_many_at(&file, &parts, &mut |i, read| {
                assert_eq!(i, results.len());
                results.push(read);
            });
            assert_eq!(results.len(), parts.len());
            for (result, &(offset, len)) in results.into_iter().zip(&parts) {
                let expected = usize::try_from(offset)
                    .ok()
                    .and_then(|start| content.get(start..start.checked_add(len)?));
                match (result, expected) {
                    (Ok(bytes), Some(expected)) => assert_eq!(bytes, expected, "{is_cold}"),
                    (Err(error), None) => {
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                    }
                    (result, expected) => panic!("{offset} {len}: {result:?} {expected:?}"),
                }
            }
        }
        read_many_at(&file, &[], &mut |_, _| panic!("no part was asked for"));
    }
}
