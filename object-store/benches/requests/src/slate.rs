//! SlateDB, with its defaults, reading the same entries.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use leveltable::remote::BoxFuture;
use object_store::ObjectStore;
use slatedb::config::{DbReaderOptions, ScanOptions};
use slatedb::{Db, DbReader};

use crate::{COUNT, Open, Reader, key, value};

const PATH: &str = "slate";

/// Writes the entries, in order.
pub(crate) async fn load(store: Arc<dyn ObjectStore>) {
    let db = Db::open(PATH, store).await.unwrap();
    for i in 0..COUNT {
        drop(db.put(key(i), value(i)).await.unwrap());
    }
    db.close().await.unwrap();
}

struct Slate(DbReader);

impl Reader for Slate {
    fn get(&self, key: String) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.0.get(key).await.unwrap() })
    }

    /// It has no such call: 32 at a time.
    fn get_many(&self, keys: Vec<String>) -> BoxFuture<'_, Vec<Option<Bytes>>> {
        let gets = stream::iter(keys).map(|key| self.get(key));
        Box::pin(gets.buffered(32).collect())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.close().await.unwrap() })
    }

    /// With requests as large as those of this crate, since its default is one for each block.
    fn scan(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let options = ScanOptions {
                read_ahead_bytes: 8 << 20,
                max_fetch_tasks: 4,
                ..ScanOptions::default()
            };
            let mut all = self.0.scan_with_options(.., &options).await.unwrap();
            let mut count = 0;
            while all.next().await.unwrap().is_some() {
                count += 1;
            }
            count
        })
    }
}

pub(crate) fn open(store: &Arc<dyn ObjectStore>) -> Open {
    let store = Arc::clone(store);
    Box::new(move || {
        let store = Arc::clone(&store);
        Box::pin(async move {
            let options = DbReaderOptions {
                skip_wal_replay: true,
                ..DbReaderOptions::default()
            };
            let builder = DbReader::builder(PATH, store).with_options(options);
            Arc::new(Slate(builder.build().await.unwrap())) as Arc<dyn Reader>
        })
    })
}
