//! Sound tables of arbitrary entries and options, changed in arbitrary places, their checksums right: what
//! no checksum stops.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use leveltable::Compression;
use leveltable_fuzz::ask;
use leveltable_fuzz::parts::{Edit, Parts};
use leveltable_fuzz::tables::{self, Entries, Options};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Input {
    file: Vec<u8>,
    edits: Vec<Edit>,
}

impl Arbitrary<'_> for Input {
    fn arbitrary(u: &mut Unstructured) -> Result<Input> {
        let mut edits = Vec::new();
        for _ in 0..u.int_in_range(0..=5)? + 1 {
            edits.push(u.arbitrary()?);
        }
        let mut options: Options = u.arbitrary()?;
        if !matches!(options.compression, Compression::None | Compression::Snappy) {
            // Only the crate could take the table apart.
            options.write = options.write.compression(Compression::Snappy);
        }
        let is_database = u.arbitrary()?;
        let entries: Entries = u.arbitrary()?;
        let file = match is_database {
            true => tables::build_db(&options.write, &entries.into_versions(options.order)),
            false => tables::build(&options.write, &entries.in_order(options.order)),
        };
        Ok(Input { file, edits })
    }
}

fuzz_target!(|input: Input| {
    let parts = Parts::of(&input.file).expect("a sound table");
    let file = parts.write(&input.edits);
    ask::as_everything(&Bytes::from(file));
});
