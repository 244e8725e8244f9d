//! A table of a set.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use leveltable::OpenOptions;
use leveltable::remote::AsyncTable;
use object_store::ObjectStore;
use object_store::path::Path;

use super::settings::Settings;
use crate::Version;
use crate::source::UNKNOWN;
use crate::upload::LEAST_TAIL;

/// Maximum number of bytes at the end of an object that one request reads to open it. Opening asks for more if it needs
/// them.
pub(super) const MAX_TAIL: u64 = 4 << 30;

/// Length of a table's footer, and so the minimum length of a table.
const FOOTER_LEN: u64 = 48;

/// A table of a set: where it is, which keys it has, and what opening it with one request takes.
///
/// Made by [`describe`](Shard::describe), or from an earlier description: [`publish_shards`](super::SetOptions::publish_shards) checks
/// that its object still has this version and size, and opening it checks keys and number of entries against the table's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Where the table lies in the store.
    pub path: Path,
    /// The first key.
    pub first_key: Bytes,
    /// The last key.
    pub last_key: Bytes,
    /// Size of the object in bytes.
    pub size: u64,
    /// Number of bytes at the end of the object that opening reads.
    pub tail_len: u64,
    /// The version of the object. Another one at the same path is another shard.
    pub version: Version,
    /// Number of entries, if the table records it.
    pub entries: Option<u64>,
}

/// Few shards have the same path: those of a set, and of sets that it has replaced.
impl Hash for Shard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

impl Shard {
    /// Describes the table at `path`, with default options; see [`SetOptions::describe`](super::SetOptions::describe).
    ///
    /// # Errors
    ///
    /// Same as [`SetOptions::describe`](super::SetOptions::describe).
    pub async fn describe(
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> leveltable::Result<Option<Shard>> {
        Shard::describe_with(&Settings::new(), store, path).await
    }

    pub(super) async fn describe_with(
        settings: &Settings,
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> leveltable::Result<Option<Shard>> {
        let source = Arc::new(settings.source(store, path));
        let options = OpenOptions::new().no_cache();
        let table = options.open_async(Arc::clone(&source), None).await?;
        // The last 64 KiB say where the pieces of index and filter are, which are read when a lookup needs them. If these did not
        // suffice to open a table, it has no pieces, and everything after its data is read at once.
        let tail_len = match table.stats().source_reads {
            1 => LEAST_TAIL,
            _ => table.tail_len().clamp(LEAST_TAIL, MAX_TAIL),
        };
        let Some((first_key, last_key)) = ends(&table).await? else {
            return Ok(None);
        };
        Ok(Some(Shard {
            path: path.clone(),
            first_key,
            last_key,
            size: table.file_bytes(),
            tail_len: tail_len.min(table.file_bytes()),
            version: source.version().unwrap_or(UNKNOWN),
            entries: table.entries(),
        }))
    }

    /// Whether `key` lies between the first and the last key.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        self.first_key <= key && key <= self.last_key
    }

    /// Fails if no table can be such a shard. The error says why.
    pub(super) fn check(&self) -> Result<(), String> {
        let (tail, size) = (self.tail_len, self.size);
        if self.first_key > self.last_key {
            Err("its first key comes after its last".into())
        } else if tail > size {
            Err(format!(
                "its tail of {tail} bytes is longer than its {size} bytes"
            ))
        } else if tail > MAX_TAIL {
            Err(format!("its tail of {tail} bytes is longer than 4 GiB"))
        } else if size < FOOTER_LEN {
            Err(format!(
                "its {size} bytes are fewer than a table's footer has"
            ))
        } else {
            Ok(())
        }
    }
}

/// The first and the last key; `None` without entries.
async fn ends(table: &AsyncTable) -> leveltable::Result<Option<(Bytes, Bytes)>> {
    if let Some(properties) = table.properties()
        && let (Some(first), Some(last)) = (&properties.first_key, &properties.last_key)
    {
        return Ok(Some((first.clone().into(), last.clone().into())));
    }
    let first = table.range(..).next().await?;
    let last = table.range(..).reverse().next().await?;
    Ok(first.zip(last).map(|((first, _), (last, _))| (first, last)))
}
