//! Seeds of the targets that take whole files.

use std::path::Path;
use std::{env, fs, io};

use leveltable::filter::FixedPrefix;
use leveltable::{Compression, WriteOptions};

use crate::naive::Entry;
use crate::parts::Parts;
use crate::tables;

/// Larger seeds are left out: small inputs are tried more often.
const MAX_BYTES: usize = 3000;

/// Writes the seeds if the variables `SEED_FROM`, the directory `testdata`, and `SEED_TO`, the corpus, say so.
///
/// They are the tables of `testdata` cut down to their first data blocks, and a few that the crate writes
/// with other codecs. A part of the targets themselves, so that the crate is not compiled once more for it.
pub fn write_if_asked() {
    if let (Some(from), Some(to)) = (env::var_os("SEED_FROM"), env::var_os("SEED_TO")) {
        write(Path::new(&from), Path::new(&to)).expect("the seeds can be written");
    }
}

fn write(testdata: &Path, corpus: &Path) -> io::Result<()> {
    let mut seeds = written_here();
    for file in fs::read_dir(testdata)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".ldb")
            && let Some(mut parts) = Parts::of(&fs::read(&path)?)
        {
            parts.truncate(2);
            seeds.push((name.into_owned(), parts.write(&[])));
        }
    }
    fs::create_dir_all(corpus)?;
    for (name, seed) in seeds.iter().filter(|(_, seed)| seed.len() <= MAX_BYTES) {
        fs::write(corpus.join(name), seed)?;
    }
    Ok(())
}

/// Tables in the ways that LevelDB does not write.
fn written_here() -> Vec<(String, Vec<u8>)> {
    let entry = |i: u32| -> Entry {
        let key = format!("key{:04}", i * i).into_bytes();
        (key, format!("value {i} value {i} value").into_bytes())
    };
    let entries: Vec<Entry> = (0..12).map(entry).collect();
    let table = |&codec: &Compression| {
        let options = WriteOptions::new().compression(codec).block_size(200);
        (format!("{codec:?}.ldb"), tables::build(&options, &entries))
    };
    let mut tables: Vec<_> = Compression::all().iter().map(table).collect();
    let options = WriteOptions::new()
        .block_size(200)
        .prefix_filter(FixedPrefix::new(5));
    tables.push(("prefixes.ldb".into(), tables::build(&options, &entries)));
    tables
}
