//! How much memory a build takes, and an upload. Alone in its program, since it measures the whole of it.

mod common;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Compression, ReadAt, WriteOptions};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use object_store::path::Path;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// 300 MB through a store that takes 10 seconds for each part, of a clock that moves only when all wait.
#[tokio::test(start_paused = true)]
async fn a_build_takes_eight_parts_and_the_filter_and_an_upload_seven() {
    let store = Arc::new(common::Odd::new(|_, _, response| response));
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = ObjectTableBuilder::create(store, Path::from("t"), &options).unwrap();
    let value = vec![7; 1000];
    let count = 300_000u64;
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    for i in 0..count {
        builder.add(i.to_be_bytes(), &value).await.unwrap();
    }
    let uploaded = builder.finish().await.unwrap();
    let used = MEMORY.peak_usage() - before;
    let size = uploaded.summary.file_bytes as usize;
    assert!(size > 300_000_000);
    // The builder keeps 8 bytes of each key, and 17 while it finishes; then the filter itself and the index.
    let (parts, filter) = (8 * (8 << 20), 19 * count as usize);
    let index = 40 * uploaded.summary.properties.data_blocks as usize;
    assert!(used < parts + filter + index, "{used} bytes");
    // Six parts were on their way at once.
    assert!(used > 6 * (8 << 20), "{used} bytes");

    let upload = UploadOptions::new();
    let store = Arc::new(common::Odd::new(|_, _, response| response));
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    upload.upload(store, Path::from("t"), &Zeros).await.unwrap();
    let used = MEMORY.peak_usage() - before;
    // Six parts on their way, and the next.
    let (six, some) = (6 * (8 << 20), 1 << 20);
    assert!(used > six && used < six + (8 << 20) + some, "{used} bytes");
}

/// A table that takes no memory.
struct Zeros;

impl ReadAt for Zeros {
    fn size(&self) -> io::Result<u64> {
        Ok(300_000_000)
    }

    fn read_at(&self, _: u64, len: usize) -> io::Result<Bytes> {
        Ok(vec![0; len].into())
    }
}
