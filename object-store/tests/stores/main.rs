//! Tables in object stores: in memory, in a local directory, on servers.

mod suite;

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    suite::run(Arc::new(InMemory::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_local_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    suite::run(Arc::new(store)).await;
}
