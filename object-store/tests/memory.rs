//! How much memory a build takes. Alone in its program, since it measures the whole of it.

mod common;

use std::sync::Arc;

use leveltable::{Compression, WriteOptions};
use leveltable_object_store::ObjectTableBuilder;
use object_store::path::Path;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// 300 MB through a store that takes 10 seconds for each part, of a clock that moves only when all wait.
#[tokio::test(start_paused = true)]
async fn a_build_takes_eight_parts_and_the_filter() {
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
    let index = 40 * uploaded.summary.data_blocks as usize;
    assert!(used < parts + filter + index, "{used} bytes");
    // Six parts were on their way at once.
    assert!(used > 6 * (8 << 20), "{used} bytes");
}
