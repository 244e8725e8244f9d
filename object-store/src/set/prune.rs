//! What lies under a directory, and no set lists any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use leveltable::{Error, ErrorKind, OpenOptions, Result};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::SetOptions;
use super::manifest::{FORMAT, Manifest};
use super::place::{Found, number_of};
use super::table_set::is_not_found;
use crate::ObjectSource;
use crate::attempts::Failure;

/// Most objects that are looked at at a time.
const MOST_AT_A_TIME: usize = 32;

/// What an object is.
enum Kind {
    /// A table that could be a shard.
    Table,
    Manifest(Manifest),
    /// Anything else, or gone since it was listed.
    Other,
}

impl SetOptions {
    /// Returns the tables under `directory` that no manifest under it lists, and the probes that publishers left there, if they were
    /// last changed at least `age` ago.
    ///
    /// Lists the directory, and reads the end of each object that is not listed by a manifest, since any of them may be one. Of the
    /// numbered manifests of a local directory, the highest counts.
    ///
    /// `age` must be longer than any table takes from its build to its publication, with what the clocks of this machine and
    /// of the store differ by. A set that is still read after it was replaced loses its tables.
    ///
    /// # Errors
    ///
    /// If an object cannot be read, or is a damaged table, which may be a manifest; if a manifest lists a table that does not lie under
    /// `directory`; [`NotFound`](io::ErrorKind::NotFound) if there is no manifest.
    pub async fn unlisted(
        &self,
        store: &Arc<dyn ObjectStore>,
        directory: &Path,
        age: Duration,
    ) -> Result<Vec<ObjectMeta>> {
        let failed = |doing: &str, error: io::Error| {
            Error::io(doing, error).at_path(directory.as_ref().as_ref())
        };
        let oldest = SystemTime::now().checked_sub(age);
        let objects: Vec<ObjectMeta> = store
            .list(Some(directory))
            .try_collect()
            .await
            .map_err(|error| failed("listing a directory", Failure::from(error).error))?;
        let is_old = |object: &ObjectMeta| {
            let changed = SystemTime::from(object.last_modified);
            oldest.is_some_and(|oldest| changed <= oldest)
        };
        let (mut pending, mut unlisted) = (Vec::new(), Vec::new());
        // Numbered manifests, by where they lie.
        let mut numbered: HashMap<Path, BTreeMap<u64, ObjectMeta>> = HashMap::new();
        for object in objects {
            let path = object.location.as_ref();
            if object.size == 0 && path.ends_with(".probe") {
                unlisted.extend(Some(object).filter(is_old));
            } else if let Some((parent, number)) = number_of(&object.location) {
                numbered.entry(parent).or_default().insert(number, object);
            } else {
                // Manifests seldom have a table's name, and the first of them spares reading the tables.
                let is_named_so = path.ends_with(".ldb") || path.ends_with(".sst");
                pending.push((is_named_so, object.location.clone(), object));
            }
        }
        for (path, mut manifests) in numbered {
            pending.extend(manifests.pop_last().map(|(_, last)| (false, path, last)));
        }
        pending.sort_by(|a, b| (a.0, a.2.size).cmp(&(b.0, b.2.size)));
        let (mut listed, mut has_manifest) = (HashSet::new(), false);
        for some in pending.chunks(MOST_AT_A_TIME) {
            let some = some
                .iter()
                .filter(|some| !listed.contains(&some.2.location));
            let kinds: Vec<(Kind, &ObjectMeta)> = stream::iter(some.collect::<Vec<_>>())
                .map(|(_, path, object)| async move {
                    let kind = self.kind(store, path, object).await;
                    Ok::<_, Error>((kind?, object))
                })
                .buffer_unordered(MOST_AT_A_TIME)
                .try_collect()
                .await?;
            for (kind, object) in kinds {
                match kind {
                    Kind::Manifest(manifest) => {
                        has_manifest = true;
                        listed.extend(manifest.shards.into_iter().map(|shard| shard.path));
                    }
                    Kind::Table => unlisted.extend(Some(object.clone()).filter(is_old)),
                    Kind::Other => {}
                }
            }
        }
        if !has_manifest {
            let why = "there is no manifest under it, so nothing tells which tables are listed";
            return Err(failed(
                "pruning",
                io::Error::new(io::ErrorKind::NotFound, why),
            ));
        }
        if let Some(outside) = listed.iter().find(|path| !path.prefix_matches(directory)) {
            let why = format!(
                "a manifest under it lists {outside}, which is not: prune the directory of both"
            );
            return Err(failed("pruning", io::Error::other(why)));
        }
        unlisted.retain(|object| !listed.contains(&object.location));
        Ok(unlisted)
    }

    /// Removes what [`unlisted`](SetOptions::unlisted) returns, and returns it. Looks twice, and removes what was unlisted both times:
    /// while the one manifest was read, a table may have come from there to another.
    ///
    /// # Errors
    ///
    /// As [`unlisted`](SetOptions::unlisted); and if an object could not be removed. Some then are.
    pub async fn prune(
        &self,
        store: &Arc<dyn ObjectStore>,
        directory: &Path,
        age: Duration,
    ) -> Result<Vec<ObjectMeta>> {
        let first = self.unlisted(store, directory, age).await?;
        let mut unlisted = self.unlisted(store, directory, age).await?;
        unlisted.retain(|object| first.contains(object));
        let paths: Vec<_> = unlisted
            .iter()
            .map(|object| Ok(object.location.clone()))
            .collect();
        let mut removed = store.delete_stream(stream::iter(paths).boxed());
        while let Some(removal) = removed.next().await {
            match removal {
                // Somebody else has removed it.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => {
                    let error = Error::io("removing a table", Failure::from(error).error);
                    return Err(error.at_path(directory.as_ref().as_ref()));
                }
            }
        }
        Ok(unlisted)
    }

    /// What `object` is, which would be the manifest of the set at `path`.
    async fn kind(
        &self,
        store: &Arc<dyn ObjectStore>,
        path: &Path,
        object: &ObjectMeta,
    ) -> Result<Kind> {
        let source = ObjectSource::new(Arc::clone(store), object.location.clone())
            .timeouts(self.timeouts.clone())
            .retries(self.retries.clone());
        let options = OpenOptions::new().no_filter().no_cache();
        let is_manifest = match options.open_async(source, None).await {
            Ok(table) => table.properties().is_some_and(|p| p.user(FORMAT).is_some()),
            Err(error) => match error.kind() {
                // Replaced while it was opened, as manifests are.
                ErrorKind::Replaced => true,
                // A manifest whose end is lost is one that nobody can read.
                ErrorKind::NotATable if *path != object.location => return Err(error),
                ErrorKind::NotATable | ErrorKind::DatabaseTable | ErrorKind::Comparator => {
                    return Ok(Kind::Other);
                }
                _ if error.source().is_some_and(is_not_found) => return Ok(Kind::Other),
                _ => return Err(error),
            },
        };
        if !is_manifest {
            return Ok(Kind::Table);
        }
        let client = self.client(Arc::clone(store));
        let read = client.read(&object.location, None);
        let name = object.location.as_ref().as_ref();
        match read
            .await
            .map_err(|error| Error::io("reading a manifest", error).at_path(name))?
        {
            Found::Manifest(bytes, _) => Ok(Kind::Manifest(Manifest::decode(bytes, path)?)),
            Found::Nothing | Found::Same => Ok(Kind::Other),
        }
    }
}
