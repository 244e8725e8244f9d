//! Any bytes as a log; and logs of arbitrary records, some bytes of which are changed.

#![no_main]

use arbitrary::Arbitrary;
use leveltable_database::{Batch, GapKind, LogItem, LogReader};
use leveltable_fuzz::log;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    any: &'a [u8],
    /// Lengths and bytes.
    records: Vec<(u16, u8)>,
    /// Where to change a byte, and how.
    changes: Vec<(u32, u8)>,
    cut: Option<u32>,
}

fuzz_target!(|input: Input<'_>| {
    read(input.any);
    let repaired = log::with_checksums(input.any);
    read(&repaired);
    let records: Vec<Vec<u8>> = { input.records.iter().take(20) }
        .map(|&(len, byte)| {
            // Few are longer than a block, so that there are many runs.
            let len = if byte < 250 { len % 300 } else { len };
            vec![byte; usize::from(len)]
        })
        .collect();
    let whole = log::encode(&records);
    assert_eq!(read(&whole), (records.clone(), vec![]));

    let mut damaged = whole.clone();
    let place = |at: u32| at as usize % whole.len().max(1);
    for &(at, by) in input.changes.iter().take(5) {
        if let Some(byte) = damaged.get_mut(place(at)) {
            *byte ^= by;
        }
    }
    if let Some(cut) = input.cut {
        damaged.truncate(place(cut));
    }
    let (found, gaps) = read(&damaged);
    // What is found was written, in this order; what is not is said.
    let mut rest = records.iter();
    for record in &found {
        assert!(
            rest.any(|written| written == record),
            "a record that nobody wrote"
        );
    }
    let cut_between = damaged == whole[..damaged.len()] && input.cut.is_some();
    assert!(found.len() == records.len() || !gaps.is_empty() || cut_between);
});

/// Reads a log to its end. Its records and gaps come in order.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<GapKind>) {
    let (mut records, mut gaps, mut end) = (Vec::new(), Vec::new(), 0);
    for item in LogReader::new(bytes) {
        match item.expect("memory can be read") {
            LogItem::Record(record) => {
                assert!(record.offset >= end);
                end = record.offset + record.payload.len() as u64 + 7;
                let _ = Batch::parse(&record.payload);
                records.push(record.payload);
            }
            LogItem::Gap(gap) => {
                assert!(gap.offset >= end && gap.bytes > 0, "{gap:?}");
                end = gap.offset + gap.bytes;
                gaps.push(gap.kind);
            }
        }
        assert!(end <= bytes.len() as u64);
    }
    (records, gaps)
}
