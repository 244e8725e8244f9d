//! What is written first by who has a synchronous table and a store: a `ReadAt` that waits for each request.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::remote::BoxFuture;
use leveltable::{BlockCache, OpenOptions, ReadAt, Source, Table};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::{Open, Reader};

struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Whether batches are read by `get_ranges`, with its defaults.
    ranges: bool,
    runtime: Handle,
}

impl ReadAt for Object {
    fn size(&self) -> io::Result<u64> {
        Ok(self.runtime.block_on(self.store.head(&self.path))?.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = offset..offset + len as u64;
        Ok(self
            .runtime
            .block_on(self.store.get_range(&self.path, range))?)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        if !self.ranges {
            for (i, &(offset, len)) in parts.iter().enumerate() {
                each(i, self.read_at(offset, len));
            }
            return;
        }
        let ranges: Vec<_> = parts
            .iter()
            .map(|&(offset, len)| offset..offset + len as u64)
            .collect();
        let read = self
            .runtime
            .block_on(self.store.get_ranges(&self.path, &ranges));
        for (i, part) in read.unwrap().into_iter().enumerate() {
            each(i, Ok(part));
        }
    }
}

struct Blocking(Table);

impl Reader for Blocking {
    fn get(&self, key: String) -> BoxFuture<'_, Option<Bytes>> {
        let table = self.0.clone();
        Box::pin(async move {
            spawn_blocking(move || table.get(key).unwrap())
                .await
                .unwrap()
        })
    }

    fn get_many(&self, keys: Vec<String>) -> BoxFuture<'_, Vec<Option<Bytes>>> {
        let table = self.0.clone();
        Box::pin(async move {
            spawn_blocking(move || table.get_many(&keys).unwrap())
                .await
                .unwrap()
        })
    }

    fn scan(&self) -> BoxFuture<'_, u64> {
        let table = self.0.clone();
        let count = move || table.iter().map(|entry| entry.map(|_| 1).unwrap()).sum();
        Box::pin(async move { spawn_blocking(count).await.unwrap() })
    }
}

pub(crate) fn open(store: &Arc<dyn ObjectStore>, path: &Path, ranges: bool) -> Open {
    let (store, path) = (Arc::clone(store), path.clone());
    Box::new(move || {
        let object = Object {
            store: Arc::clone(&store),
            path: path.clone(),
            ranges,
            runtime: Handle::current(),
        };
        Box::pin(async move {
            let open = move || {
                let options = OpenOptions::new().cache(BlockCache::new(32 << 20));
                let table = options.open_source(Source::from(Arc::new(object)));
                Arc::new(Blocking(table.unwrap())) as Arc<dyn Reader>
            };
            spawn_blocking(open).await.unwrap()
        })
    })
}
