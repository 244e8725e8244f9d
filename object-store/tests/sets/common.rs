//! Stores with tables in them, and what is known to be in these.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::WriteOptions;
use leveltable_object_store::set::SetRange;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// The entries that a set or a table should have.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs `work` as a task that may move between threads.
pub(crate) fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::spawn(work).await.unwrap() })
}

/// A store in memory, and one in a directory that goes with the guard.
pub(crate) fn stores() -> Vec<(Arc<dyn ObjectStore>, Option<tempfile::TempDir>)> {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    vec![
        (Arc::new(InMemory::new()), None),
        (Arc::new(local), Some(directory)),
    ]
}

/// The bytes of a table of these entries.
pub(crate) fn table<'a>(
    options: &WriteOptions,
    entries: impl IntoIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Bytes {
    let mut builder = options.build(Vec::new());
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

pub(crate) async fn put(store: &dyn ObjectStore, path: &Path, bytes: Bytes) {
    store.put(path, bytes.into()).await.unwrap();
}

/// All entries of `range`, every third one returned, and the others lent.
pub(crate) async fn collect(mut range: SetRange) -> leveltable::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    let end = loop {
        let next = match entries.len() % 3 {
            0 => range.next().await,
            _ => {
                let moved = range.advance().await;
                moved.map(|moved| moved.then(|| range.entry()))
            }
        };
        match next {
            Ok(Some((key, value))) => {
                assert_eq!((range.key(), range.value()), (&key[..], &value[..]));
                entries.push((key.to_vec(), value.to_vec()));
            }
            end => break end,
        }
    };
    assert!(
        !range.advance().await?,
        "the end is the end, and so is an error"
    );
    assert_eq!((range.key(), range.value()), (&[][..], &[][..]));
    assert_eq!(range.entry(), Default::default());
    end.map(|_| entries)
}

/// The entries `from` up to `to`: keys of eight digits, and values that say which version they are of.
pub(crate) fn numbered(range: std::ops::Range<u32>, version: &str) -> Model {
    let entry = |i| {
        let key = format!("{i:08}").into_bytes();
        (key, format!("{version} {i}").into_bytes())
    };
    range.map(entry).collect()
}

/// Puts a table of these entries.
pub(crate) async fn put_numbered(
    store: &dyn ObjectStore,
    path: &str,
    range: std::ops::Range<u32>,
    version: &str,
) -> Path {
    let path = Path::from(path);
    let table = table(&WriteOptions::new(), &numbered(range, version));
    put(store, &path, table).await;
    path
}

pub(crate) fn manifest() -> Path {
    Path::from("set/manifest")
}
