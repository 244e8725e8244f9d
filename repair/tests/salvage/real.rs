//! Tables that real programs wrote.

use std::sync::Arc;

use leveltable::db::{InternalKeyComparator, KeyKind};
use leveltable::{BytewiseComparator, Comparator, OpenOptions, WriteOptions};
use leveltable_repair::{SalvageOptions, VerifyOptions, salvage, verify};

use sha2::Digest;

use super::common::take_varint;
use super::{content, destroy};

/// Tables by other programs, whose content is known from elsewhere: `tests/corpus.rs` says what the folder
/// holds.
#[test]
#[ignore = "needs a folder of real tables, named by LEVELTABLE_CORPUS"]
fn real_tables_are_salvaged_without_index_and_footer() {
    let folder = std::path::PathBuf::from(std::env::var_os("LEVELTABLE_CORPUS").unwrap());
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let mut tables = 0;
    for line in manifest.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(expected) = line["kv_sha256"].as_str() else {
            continue;
        };
        let name = line["file"].as_str().unwrap();
        let is_internal = line["internal_keys"] == true;
        let file = std::fs::read(folder.join(name)).unwrap();
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        if verified
            .findings
            .iter()
            .any(|f| f.found().contains("this build cannot read"))
        {
            println!("{name}: codec not built in");
            continue;
        }
        assert!(verified.is_sound(), "{name}: {verified}");
        assert_eq!(verified.keys == KeyKind::Database, is_internal, "{name}");
        let mut handles = &file[file.len() - 48..];
        let [_, _, index, _] = [(); 4].map(|()| take_varint(&mut handles));
        for damage in [file.len() - 48..file.len(), index..file.len(), 0..0] {
            let mut damaged = file.clone();
            destroy(&mut damaged, damage.clone());
            let mut rescued = Vec::new();
            let report = if is_internal {
                let mut builder = WriteOptions::leveldb().build_db(&mut rescued);
                let report = salvage(damaged, builder.table_mut(), SalvageOptions::new()).unwrap();
                builder.finish().unwrap();
                report
            } else {
                let mut builder = WriteOptions::leveldb().build(&mut rescued);
                let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
                builder.finish().unwrap();
                report
            };
            let order: Arc<dyn Comparator> = if is_internal {
                Arc::new(InternalKeyComparator::new(BytewiseComparator))
            } else {
                Arc::new(BytewiseComparator)
            };
            let table = OpenOptions::new()
                .comparator(order)
                .open_source(rescued)
                .unwrap();
            let mut hash = sha2::Sha256::new();
            for (key, value) in content(table.iter()) {
                for part in [key, value] {
                    hash.update((part.len() as u32).to_le_bytes());
                    hash.update(&part);
                }
            }
            let hash: String = hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hash, expected, "{name} without {damage:?}: {report}");
        }
        tables += 1;
    }
    assert!(tables > 10);
    println!("{tables} tables");
}
