//! Reading sets, against a map in memory.

use std::sync::Arc;

use leveltable::WriteOptions;
use leveltable_object_store::{TableSet, publish};
use object_store::path::Path;

use crate::common::{Model, collect, put, run, stores, table};

#[test]
fn a_published_set_is_opened_and_read() {
    for (store, _directory) in stores() {
        run(async move {
            let model: Model = (0..300u32)
                .map(|i| (format!("{i:03}").into_bytes(), i.to_le_bytes().to_vec()))
                .collect();
            let mut paths = Vec::new();
            for hundred in 0..3 {
                let entries = model.iter().skip(100 * hundred).take(100);
                let path = Path::from(format!("set/{hundred}.ldb"));
                put(&*store, &path, table(&WriteOptions::new(), entries)).await;
                paths.push(path);
            }
            let manifest = Path::from("set/manifest");
            let published = publish(Arc::clone(&store), &manifest, &paths, None)
                .await
                .unwrap();
            assert_eq!(published.shards.len(), 3);
            let set = TableSet::open(store, &manifest).await.unwrap();
            assert_eq!(set.entries(), Some(300));
            assert_eq!(set.version(), &published.version);
            for (key, value) in &model {
                assert_eq!(set.get(key).await.unwrap().unwrap(), value);
            }
            assert_eq!(set.get("0999").await.unwrap(), None);
            let all = collect(set.range(..)).await.unwrap();
            assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        });
    }
}
