//! Finds objects under a directory that no set lists any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use leveltable::remote::AsyncReadAt;
use leveltable::{Error, ErrorKind, OpenOptions, Result};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::manifest::{FORMAT, Manifest};
#[cfg(doc)]
use super::options::SetOptions;
use super::place::{Client, is_not_found};
use super::record::number_of;
use super::settings::Settings;
use super::{MAX_AT_A_TIME, each};
use crate::attempts::Failure;

/// The last bytes of every table.
const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();

/// The kind of an object.
enum Kind {
    /// A table that could be a shard.
    Table,
    Manifest(Manifest),
    /// Anything else, or an object that has disappeared since it was listed.
    Other,
}

/// The objects under `directory` that no manifest under it lists; see [`SetOptions::unlisted`].
pub(super) async fn unlisted(
    settings: &Settings,
    store: &Arc<dyn ObjectStore>,
    directory: &Path,
    age: Duration,
) -> Result<Vec<ObjectMeta>> {
    let failed = |doing: &str, error: io::Error| {
        Error::io(doing, error).at_path(directory.as_ref().as_ref())
    };
    let objects = store.list(Some(directory)).try_collect().await;
    let objects =
        objects.map_err(|error| failed("listing a directory", Failure::from(error).error))?;
    let (pending, mut unlisted) = sort(objects);
    let (mut listed, mut has_manifest) = (HashSet::new(), false);
    for some in pending.chunks(MAX_AT_A_TIME) {
        let some = some.iter();
        let some = some.filter(|(_, object)| !listed.contains(&object.location));
        let kinds = each(some, |(path, object)| async move {
            let kind = kind_of(settings, store, path, &object.location).await?;
            Ok::<_, Error>((kind, object))
        });
        let kinds: Vec<(Kind, &ObjectMeta)> = kinds.await?;
        for (kind, object) in kinds {
            match kind {
                Kind::Manifest(manifest) => {
                    has_manifest = true;
                    listed.extend(manifest.shards.into_iter().map(|shard| shard.path));
                }
                Kind::Table => unlisted.push(object.clone()),
                Kind::Other => {}
            }
        }
    }
    if !has_manifest {
        let why = "there is no manifest under it, so nothing tells which tables are listed";
        let none = io::Error::new(io::ErrorKind::NotFound, why);
        return Err(failed("pruning", none));
    }
    if let Some(outside) = listed.iter().find(|path| !path.prefix_matches(directory)) {
        let why = format!(
            "a manifest under it lists {outside}, which is not: prune the directory of both"
        );
        return Err(failed("pruning", io::Error::other(why)));
    }
    let oldest = SystemTime::now().checked_sub(age);
    unlisted.retain(|object| {
        let is_old = oldest.is_some_and(|oldest| SystemTime::from(object.last_modified) <= oldest);
        is_old && !listed.contains(&object.location)
    });
    Ok(unlisted)
}

/// Removes them; see [`SetOptions::prune`].
pub(super) async fn prune(
    settings: &Settings,
    store: &Arc<dyn ObjectStore>,
    directory: &Path,
    age: Duration,
) -> Result<Vec<ObjectMeta>> {
    let first = unlisted(settings, store, directory, age).await?;
    let mut unlisted = unlisted(settings, store, directory, age).await?;
    unlisted.retain(|object| first.contains(object));
    let paths: Vec<_> = unlisted
        .iter()
        .map(|object| Ok(object.location.clone()))
        .collect();
    let mut removed = store.delete_stream(stream::iter(paths).boxed());
    while let Some(removal) = removed.next().await {
        match removal {
            // Somebody else has removed it already.
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => {
                let error = Error::io("removing a table", Failure::from(error).error);
                return Err(error.at_path(directory.as_ref().as_ref()));
            }
        }
    }
    Ok(unlisted)
}

/// The kind of the object at `location`, which would be the manifest of the set at `path`.
async fn kind_of(
    settings: &Settings,
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    location: &Path,
) -> Result<Kind> {
    let source = || settings.source(Arc::clone(store), location);
    let opened = OpenOptions::new().no_cache().open_async(source(), None);
    let is_manifest = match opened.await {
        Ok(table) => table.properties().is_some_and(|p| p.user(FORMAT).is_some()),
        Err(error) => match error.kind() {
            // Replaced while it was opened, as only manifests are.
            ErrorKind::Replaced => true,
            // A manifest with a damaged end cannot be read by anybody.
            ErrorKind::NotATable => {
                let end = source().read_tail(MAGIC.len() as u64).await;
                return match end {
                    Ok(end) if *end.bytes != MAGIC && path == location => Ok(Kind::Other),
                    _ => Err(error),
                };
            }
            ErrorKind::DatabaseTable | ErrorKind::Comparator => return Ok(Kind::Other),
            _ if is_not_found(&error) => return Ok(Kind::Other),
            _ => return Err(error),
        },
    };
    if !is_manifest {
        return Ok(Kind::Table);
    }
    match Client::new(settings, Arc::clone(store))
        .find(location, None)
        .await
    {
        Ok(Some((bytes, _))) => Ok(Kind::Manifest(Manifest::decode(bytes, path)?)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let name = location.as_ref().as_ref();
            Err(Error::io("reading a manifest", error).at_path(name))
        }
        _ => Ok(Kind::Other),
    }
}

/// The objects to examine, each with the path of the manifest that it would be, and the probes.
fn sort(objects: Vec<ObjectMeta>) -> (Vec<(Path, ObjectMeta)>, Vec<ObjectMeta>) {
    let (mut pending, mut probes) = (Vec::new(), Vec::new());
    // Numbered manifests, by their directories.
    let mut numbered: HashMap<Path, BTreeMap<u64, ObjectMeta>> = HashMap::new();
    for object in objects {
        if object.size == 0 && object.location.as_ref().ends_with(".probe") {
            probes.push(object);
        } else if let Some((parent, number)) = number_of(&object.location) {
            numbered.entry(parent).or_default().insert(number, object);
        } else {
            pending.push((object.location.clone(), object));
        }
    }
    for (path, mut manifests) in numbered {
        pending.extend(manifests.pop_last().map(|(_, last)| (path, last)));
    }
    // Manifests rarely have a table's name, and finding one first saves reading the tables.
    pending.sort_by_key(|(_, object)| {
        let extension = object.location.extension();
        (matches!(extension, Some("ldb" | "sst")), object.size)
    });
    (pending, probes)
}
