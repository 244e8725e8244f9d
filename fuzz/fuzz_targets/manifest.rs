//! Any bytes as a version edit, and as a batch.

#![no_main]

use leveltable_database::{Batch, Edit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    if let Ok(edit) = Edit::parse(payload) {
        // What was read takes its place in the payload, so there is no more of it.
        let keys = edit
            .added
            .iter()
            .map(|(_, file)| file.smallest.len() + file.largest.len());
        assert!(keys.sum::<usize>() <= payload.len());
        assert!(2 * edit.deleted.len() <= payload.len());
        // Cut, it is another edit or none, and never a panic.
        for len in 0..payload.len() {
            let _ = Edit::parse(&payload[..len]);
        }
    }
    if let Ok(batch) = Batch::parse(payload) {
        let bytes: usize = batch
            .changes
            .iter()
            .map(|change| {
                change.user_key.len() + change.version.clone().into_value().map_or(0, |v| v.len())
            })
            .sum();
        assert!(bytes + 12 <= payload.len());
    }
});
