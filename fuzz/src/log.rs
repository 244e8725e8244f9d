//! A second encoder of LevelDB's logs.

const BLOCK: usize = 32 * 1024;

/// A log of these records.
pub fn encode(records: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut log = Vec::new();
    for record in records {
        let mut rest = record.as_ref();
        let mut is_first = true;
        loop {
            let left = BLOCK - log.len() % BLOCK;
            if left < 7 {
                log.resize(log.len() + left, 0);
                continue;
            }
            let (part, after) = rest.split_at(rest.len().min(left - 7));
            let kind = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            log.extend(checksum(kind, part).to_le_bytes());
            log.extend((part.len() as u16).to_le_bytes());
            log.push(kind);
            log.extend(part);
            (rest, is_first) = (after, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    log
}

/// The same bytes, as far as they are fragments one after the other, with right checksums.
pub fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut log = bytes.to_vec();
    for block in log.chunks_mut(BLOCK) {
        let mut at = 0;
        while let Some([_, _, _, _, low, high, kind]) =
            block.get(at..).and_then(<[u8]>::first_chunk)
        {
            let end = at + 7 + usize::from(u16::from_le_bytes([*low, *high]));
            let Some(part) = block.get(at + 7..end) else {
                break;
            };
            let checksum = checksum(*kind, part).to_le_bytes();
            block[at..at + 4].copy_from_slice(&checksum);
            at = end;
        }
    }
    log
}

fn checksum(kind: u8, part: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind]), part);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
