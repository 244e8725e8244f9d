//! Positional reads of a file: one, or many at once. All code that depends on the operating system is here.

use std::fs::File;
use std::io;

use bytes::Bytes;

/// Number of reads in flight. A disk that takes 42 µs for one page takes 15 µs per page with this many.
const IN_FLIGHT: usize = 64;

/// Reads exactly `len` bytes at `offset`.
pub(crate) fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::new();
    // Not `vec![0; len]`, which ends the process if memory is short.
    buffer.try_reserve_exact(len)?;
    while buffer.len() < len {
        let at = offset + buffer.len() as u64;
        match read_some(file, &mut buffer, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            Ok(_) | Err(_) => {}
        }
    }
    // The allocator may have given more room than requested.
    buffer.truncate(len);
    Ok(buffer.into())
}

/// Reads all `parts`, each an offset and a length, and passes them to `each`. First passes those in the page cache, one by one, so
/// that each is still in the processor's caches when it is used. Then announces the others to the system before it waits for any, so
/// that the disk works on several at a time while the caller uses those that have arrived.
///
/// Asking the page cache pays even if it holds nothing: newer kernels (6.18 does) start to read what is missing, and then all parts
/// are in flight. Giving up after eight misses made 256 cold blocks take 1.3 to 1.5 times as long.
pub(crate) fn read_many_at(
    file: &File,
    parts: &[(u64, usize)],
    each: &mut dyn FnMut(usize, io::Result<Bytes>),
) {
    if let &[(offset, len)] = parts {
        return each(0, read_at(file, offset, len));
    }
    let missing = read_cached(file, parts, each);
    let mut coming = missing.iter();
    let mut announce_next = |count| {
        let next = coming.by_ref().take(count);
        next.for_each(|&(_, (offset, len))| announce(file, offset, len));
    };
    announce_next(IN_FLIGHT);
    for &(i, (offset, len)) in &missing {
        announce_next(1);
        each(i, read_at(file, offset, len));
    }
}

/// Appends to `buffer` what can be read immediately, up to its capacity. Returns the number of bytes.
#[cfg(unix)]
fn read_some(file: &File, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    // Avoids zeroing the buffer first.
    let room = rustix::buffer::spare_capacity(buffer);
    Ok(rustix::io::pread(file, room, offset)?)
}

#[cfg(windows)]
fn read_some(file: &File, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    let start = buffer.len();
    buffer.resize(buffer.capacity(), 0);
    let room = buffer.get_mut(start..).unwrap_or_default();
    let read = std::os::windows::fs::FileExt::seek_read(file, room, offset);
    buffer.truncate(start + *read.as_ref().unwrap_or(&0));
    read
}

/// Unsupported, as in the standard library, which opens no files there either.
#[cfg(not(any(unix, windows)))]
fn read_some(_: &File, _: &mut Vec<u8>, _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A part that is still to be read, with its position.
type Missing = (usize, (u64, usize));

/// Passes those of `parts` that lie completely in the page cache to `each`. Returns the others.
#[cfg(target_os = "linux")]
fn read_cached(
    file: &File,
    parts: &[(u64, usize)],
    each: &mut dyn FnMut(usize, io::Result<Bytes>),
) -> Vec<Missing> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    // Kernels before 4.14 and some file systems do not know the flag. After one failed call, no others are made.
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
    let mut missing = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        match read(part) {
            Some(bytes) => each(i, Ok(bytes)),
            None => missing.push((i, *part)),
        }
    }
    missing
}

#[cfg(not(target_os = "linux"))]
fn read_cached(
    _: &File,
    parts: &[(u64, usize)],
    _: &mut dyn FnMut(usize, io::Result<Bytes>),
) -> Vec<Missing> {
    parts.iter().copied().enumerate().collect()
}

/// Asks the system to start reading, without waiting for it. It is not an error if the system does not: the read then
/// takes longer.
fn announce(file: &File, offset: u64, len: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// In the page cache, dropped from it, and partly past the end.
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
            let mut results: Vec<_> = parts.iter().map(|_| None).collect();
            read_many_at(&file, &parts, &mut |i, read| {
                assert!(results[i].replace(read).is_none(), "part {i} comes once");
            });
            for (result, &(offset, len)) in results.into_iter().zip(&parts) {
                let result = result.expect("each part comes");
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
