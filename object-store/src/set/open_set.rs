//! The state of an open set, which opens its shards.

use std::sync::Arc;

use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Error, ErrorKind, Result};
use object_store::ObjectStore;
use object_store::path::Path;

use super::manifest::Manifest;
use super::place::{Place, SetVersion, is_not_found};
use super::settings::Settings;
use super::shard::Shard;
use super::shelf::Shelf;

#[derive(Debug)]
pub(super) struct OpenSet {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) settings: Settings,
    pub(super) manifest: Path,
    pub(super) version: SetVersion,
    /// In the order of their keys.
    pub(super) shards: Vec<Shard>,
    pub(super) shelf: Arc<Shelf>,
}

impl OpenSet {
    /// The set that `manifest`, which was read at `path`, lists.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        settings: &Settings,
        path: &Path,
        (manifest, place): (Manifest, Place),
        shelf: Arc<Shelf>,
    ) -> Arc<OpenSet> {
        Arc::new(OpenSet {
            store,
            settings: settings.clone(),
            manifest: path.clone(),
            version: SetVersion {
                lineage: manifest.lineage,
                place,
            },
            shards: manifest.shards,
            shelf,
        })
    }

    /// The shard that `key` would be in.
    pub(super) fn shard_of(&self, key: &[u8]) -> Option<&Shard> {
        let shards = &self.shards;
        let found = shards.partition_point(|shard| shard.last_key < key);
        shards.get(found).filter(|shard| shard.covers(key))
    }

    /// The table of `shard`, opened by one request if it is not open.
    pub(super) async fn table(self: &Arc<OpenSet>, shard: &Shard) -> Result<AsyncTable> {
        self.shelf.table(shard, || self.open_shard(shard)).await
    }

    fn open_shard(self: &Arc<OpenSet>, shard: &Shard) -> BoxFuture<'static, Result<AsyncTable>> {
        let (set, shard) = (Arc::clone(self), shard.clone());
        Box::pin(async move {
            let OpenSet {
                store,
                settings,
                shelf,
                ..
            } = &*set;
            let open = || {
                let source = { settings.source(Arc::clone(store), &shard.path) }
                    .pinned_to(shard.version.clone())
                    .sized(shard.size)
                    .limited(Arc::clone(&shelf.limit));
                settings.tables.open_async(source, Some(shard.tail_len))
            };
            let opened = match open().await {
                // It may have been damaged in transit.
                Err(error) if error.kind() == ErrorKind::Corruption => open().await,
                opened => opened,
            };
            let name = std::path::Path::new(shard.path.as_ref());
            let table = opened.map_err(|error| {
                if !is_not_found(&error) {
                    return error;
                }
                let why = "the shard was removed since the set was published";
                Error::new(ErrorKind::Replaced, why).at_path(name)
            })?;
            matches_record(&table, &shard).map_err(|error| error.at_path(name))?;
            Ok(table)
        })
    }
}

/// Compares the table's properties with the manifest's record. Lookups rely on the record, and would miss entries silently if it
/// were wrong.
fn matches_record(table: &AsyncTable, shard: &Shard) -> Result<()> {
    let properties = table.properties();
    let first_key = properties.and_then(|p| p.first_key.as_deref());
    let last_key = properties.and_then(|p| p.last_key.as_deref());
    let key = |key: &[u8]| key.escape_ascii().to_string();
    let number = |entries: u64| entries.to_string();
    let (recorded, found) = (shard.entries, table.entries());
    for (what, recorded, found) in [
        ("first key", Some(key(&shard.first_key)), first_key.map(key)),
        ("last key", Some(key(&shard.last_key)), last_key.map(key)),
        ("number of entries", recorded.map(number), found.map(number)),
    ] {
        if let (Some(recorded), Some(found)) = (recorded, found)
            && recorded != found
        {
            let why = format!("the manifest says that its {what} is {recorded}, the table {found}");
            return Err(Error::new(ErrorKind::Corruption, why));
        }
    }
    Ok(())
}
