//! Any bytes at all, opened and asked everything; and once more with their checksums made right.

#![no_main]

use bytes::Bytes;
use leveltable_fuzz::{ask, naive, seeds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: seeds::write_if_asked(), |file: &[u8]| {
    ask::as_everything(&Bytes::copy_from_slice(file));
    let mut repaired = file.to_vec();
    naive::repair_checksums(&mut repaired);
    if repaired != file {
        ask::as_everything(&Bytes::from(repaired));
    }
});
