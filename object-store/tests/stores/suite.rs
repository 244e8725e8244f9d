//! What must hold in every store.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Compression, ErrorKind, OpenOptions, ReadAt, Summary, Table, WriteOptions};
use leveltable_object_store::{ObjectSource, ObjectTableBuilder, UploadOptions, Uploaded, open};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// Keys `from..to`, each with a value of 100 bytes.
pub(crate) fn entries(range: std::ops::Range<u64>) -> impl Iterator<Item = (String, [u8; 100])> {
    range.map(|i| {
        let mut value = [0; 100];
        let mut state = i;
        for byte in &mut value {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 33) as u8;
        }
        (format!("{i:016}"), value)
    })
}

pub(crate) fn options() -> WriteOptions {
    WriteOptions::new().compression(Compression::None)
}

/// The same table, built in memory.
pub(crate) fn local(range: std::ops::Range<u64>) -> (Vec<u8>, Summary) {
    let mut builder = options().build(Vec::new());
    for (key, value) in entries(range) {
        builder.add(key, value).unwrap();
    }
    builder.finish_into_writer().unwrap()
}

pub(crate) async fn upload(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    range: std::ops::Range<u64>,
) -> Uploaded {
    let mut builder =
        ObjectTableBuilder::create(Arc::clone(store), path.clone(), &options()).unwrap();
    for (key, value) in entries(range) {
        builder.add(key, value).await.unwrap();
    }
    builder.finish().await.unwrap()
}

async fn contents(store: &Arc<dyn ObjectStore>, path: &Path) -> Bytes {
    store.get(path).await.unwrap().bytes().await.unwrap()
}

/// Runs all of it. A store that ignores the conditions of a write cannot be kept from replacing an object.
pub(crate) async fn run(store: Arc<dyn ObjectStore>, keeps_conditions: bool) {
    round_trip(&store).await;
    replaced(&store).await;
    removed(&store).await;
    ends(&store).await;
    copied(&store).await;
    if keeps_conditions {
        kept(&store).await;
    }
}

/// An uploaded object has the bytes of a local file, whether by one request or in parts, and reads the same.
async fn round_trip(store: &Arc<dyn ObjectStore>) {
    for (name, count) in [
        ("none", 0),
        ("one", 1),
        ("small", 10_000),
        ("parts", 200_000),
    ] {
        let path = Path::from(format!("round/{name}.ldb"));
        let uploaded = upload(store, &path, 0..count).await;
        let (file, summary) = local(0..count);
        assert_eq!(uploaded.summary, summary);
        assert!(contents(store, &path).await == file, "{name} differs");
        assert!(uploaded.version.e_tag.is_some());

        let source = ObjectSource::new(Arc::clone(store), path.clone());
        let source = Arc::new(source.pinned_to(uploaded.version.clone()));
        let tail_len = Some(uploaded.tail_len);
        let table = OpenOptions::new()
            .open_async(Arc::clone(&source), tail_len)
            .await;
        let table = table.unwrap();
        assert_eq!(source.version().unwrap().e_tag, uploaded.version.e_tag);
        let least = (64 << 10).min(table.file_bytes());
        assert_eq!(uploaded.tail_len, table.tail_len().max(least));
        assert_eq!(table.stats().source_reads, 1, "{name}");
        let local = OpenOptions::new().open_source(file).unwrap();
        compare(&table, &local, count).await;
        compare(&open(Arc::clone(store), path).await.unwrap(), &local, count).await;
    }
}

async fn compare(table: &leveltable::remote::AsyncTable, local: &Table, count: u64) {
    assert_eq!(table.entries(), Some(count));
    let keys: Vec<String> = (0..300)
        .map(|i| format!("{:016}", (i * 7919) % (count + 2)))
        .collect();
    let many = table.get_many(&keys).await.unwrap();
    assert_eq!(many, local.get_many(&keys).unwrap());
    for key in &keys[..20] {
        assert_eq!(table.get(key).await.unwrap(), local.get(key).unwrap());
    }
    let mut remote = table.range(..);
    for entry in local.iter() {
        assert_eq!(remote.next().await.unwrap(), Some(entry.unwrap()));
    }
    assert_eq!(remote.next().await.unwrap(), None);
}

/// What was opened before is an error, not a mixture.
async fn replaced(store: &Arc<dyn ObjectStore>) {
    let path = Path::from("replaced.ldb");
    let first = upload(store, &path, 0..10_000).await;
    let table = open(Arc::clone(store), path.clone()).await.unwrap();
    // As long as the first, and with other values.
    let mut builder =
        ObjectTableBuilder::create(Arc::clone(store), path.clone(), &options()).unwrap();
    for (key, mut value) in entries(0..10_000) {
        value.reverse();
        builder.add(key, value).await.unwrap();
    }
    let second = builder.finish().await.unwrap();
    assert_eq!(first.summary.file_bytes, second.summary.file_bytes);
    assert_ne!(first.version, second.version);
    let error = table.get("0000000000000007").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
    let error = table.range(..).next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");

    let source = ObjectSource::new(Arc::clone(store), path.clone()).pinned_to(first.version);
    let error = OpenOptions::new()
        .open_async(source, None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
    open(Arc::clone(store), path).await.unwrap();
}

async fn removed(store: &Arc<dyn ObjectStore>) {
    let path = Path::from("removed.ldb");
    let uploaded = upload(store, &path, 0..10_000).await;
    let table = open(Arc::clone(store), path.clone()).await.unwrap();
    store.delete(&path).await.unwrap();
    let error = table.get("0000000000000007").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");

    let error = open(Arc::clone(store), path.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
    // Azure does not tell a missing object from another version if it is asked for one.
    let source = ObjectSource::new(Arc::clone(store), path).pinned_to(uploaded.version);
    let error = OpenOptions::new()
        .open_async(source, None)
        .await
        .unwrap_err();
    let is_replaced = error.kind() == ErrorKind::Replaced;
    assert!(is_replaced || io::Error::from(error).kind() == io::ErrorKind::NotFound);
}

/// Objects that are no tables, and tails of odd lengths.
async fn ends(store: &Arc<dyn ObjectStore>) {
    let path = Path::from("ends.ldb");
    store
        .put(&path, "nothing like a table".into())
        .await
        .unwrap();
    let error = open(Arc::clone(store), path.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotATable, "{error}");
    store.put(&path, Bytes::new().into()).await.unwrap();
    let error = open(Arc::clone(store), path.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotATable, "{error}");

    let uploaded = upload(store, &path, 0..10_000).await;
    let size = uploaded.summary.file_bytes;
    for len in [
        0,
        1,
        48,
        uploaded.tail_len - 1,
        size - 1,
        size,
        size + 1,
        u64::MAX,
    ] {
        let source = ObjectSource::new(Arc::clone(store), path.clone());
        let table = OpenOptions::new()
            .open_async(source, Some(len))
            .await
            .unwrap();
        assert!(
            table.get("0000000000009999").await.unwrap().is_some(),
            "{len}"
        );
    }
}

/// Bytes that are there already are uploaded as they are, whether by one request or in parts.
async fn copied(store: &Arc<dyn ObjectStore>) {
    const PART: usize = 8 << 20;
    let path = Path::from("copied.ldb");
    let upload_options = UploadOptions::new();
    for len in [0, 1, PART, PART + 1, 3 * PART - 1] {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 1000) as u8).collect();
        let bytes = Bytes::from(bytes);
        let version = upload_options.upload(Arc::clone(store), path.clone(), &bytes);
        assert!(version.await.unwrap().e_tag.is_some());
        assert!(contents(store, &path).await == bytes, "{len} bytes differ");
    }
    // A file that ends early, as one that is cut meanwhile, of which reads fail or are short.
    struct Cut {
        bytes: Bytes,
        is_short: bool,
    }
    impl ReadAt for Cut {
        fn size(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64 + 1)
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            let left = self.bytes.len() - offset as usize;
            let len = if self.is_short { len.min(left) } else { len };
            self.bytes.read_at(offset, len)
        }
    }
    for (len, is_short) in [
        (1000, false),
        (2 * PART, false),
        (1000, true),
        (2 * PART, true),
    ] {
        let before = contents(store, &path).await;
        let bytes = vec![1; len].into();
        let cut = Cut { bytes, is_short };
        let uploaded = upload_options.upload(Arc::clone(store), path.clone(), &cut);
        let error = uploaded.await.unwrap_err();
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::UnexpectedEof);
        assert!(contents(store, &path).await == before);
    }
}

/// `replace_existing(false)`: an object that is there stays.
async fn kept(store: &Arc<dyn ObjectStore>) {
    let path = Path::from("kept.ldb");
    let upload_options = UploadOptions::new().replace_existing(false);
    for count in [1000, 100_000] {
        for (is_there, path) in [(false, path.clone()), (true, path.clone())] {
            let mut builder = upload_options
                .create(Arc::clone(store), path.clone(), &options())
                .unwrap();
            // Other entries the second time: an object with the same bytes is taken for the one that is written.
            for (key, value) in entries(0..count + u64::from(is_there)) {
                builder.add(key, value).await.unwrap();
            }
            let before = if is_there {
                Some(contents(store, &path).await)
            } else {
                None
            };
            let finished = builder.finish().await;
            match before {
                None => drop(finished.unwrap()),
                Some(before) => {
                    let error = finished.unwrap_err();
                    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AlreadyExists);
                    assert_eq!(contents(store, &path).await, before);
                    let mut other = before.to_vec();
                    other.push(0);
                    let other = Bytes::from(other);
                    let uploaded = upload_options.upload(Arc::clone(store), path.clone(), &other);
                    let error = uploaded.await.unwrap_err();
                    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AlreadyExists);
                    assert_eq!(contents(store, &path).await, before);
                }
            }
        }
        store.delete(&path).await.unwrap();
    }
}
