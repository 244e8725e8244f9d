//! Tables in object stores: in memory, in a local directory, on servers.
//!
//! The tests that need servers are ignored unless asked for: install them with `object-store/tests/servers/install`, then
//! `cargo test -p leveltable-object-store -- --ignored`.

mod campaign;
mod faults;
mod figures;
mod proxy;
mod servers;
mod sets;
mod suite;

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use tokio::sync::Mutex;

/// Held by tests that measure time, and by the one that keeps the machine busy.
static BUSY: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    suite::run(Arc::new(InMemory::new()), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_local_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    suite::run(Arc::new(store), true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_seaweedfs() {
    suite::run(servers::seaweed().store(), true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_azurite() {
    suite::run(servers::azurite().store(), true).await;
}

/// It is right, though the server is not.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_s3rver() {
    suite::run(servers::s3rver().store(), false).await;
}
