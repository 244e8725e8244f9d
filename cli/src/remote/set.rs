//! Sets of tables, which are read and published together.

use std::iter;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use leveltable::{Error, OpenOptions, Source};
use leveltable_object_store::set::{self, PublishErrorKind, SetOptions};
use leveltable_object_store::{ObjectSource, TableSet, Version};
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use url::Url;

use super::object::Object;
use super::runtime::{RUNTIME, wait};
use super::store::locate;
use super::{file_at, not_copied, object, row};
use crate::failure::{Failure, is_not_found};
use crate::key::Key;
use crate::open::check_is_file;
use crate::path::is_url;
use crate::place::check_url;
use crate::row::{RowSource, Walk};
use crate::set::{Set, Shard};

/// An open set.
struct OpenSet {
    set: TableSet,
    store: Arc<dyn ObjectStore>,
    /// The URL of the store. `None` for files.
    url: Option<Url>,
}

/// Maximum number of tables of a set that are copied at a time.
const MAX_COPIES: usize = 4;

/// Opens the set whose manifest is at `path`, unless a table is there. `None` if there is nothing.
pub(crate) fn open_set(path: &Path) -> Result<Option<Box<dyn Set>>, Failure> {
    let (store, manifest) = locate(path)?;
    // Every block is read once.
    let options = SetOptions::new().tables(OpenOptions::new().no_cache());
    let opened = if file_at(path).is_some() {
        wait(options.open(store.clone(), &manifest))
    } else {
        // At least the end of the object has been read before.
        let object = object(path)?;
        let read = object.all();
        read.map_err(|e| Error::io("reading the manifest", e))
            .and_then(|bytes| {
                options.open_manifest(store.clone(), &manifest, bytes, object.version())
            })
    };
    match opened {
        Ok(set) => Ok(Some(Box::new(OpenSet {
            set,
            store,
            url: store_of(path, &manifest),
        }))),
        Err(e) if is_not_found(&e) => Ok(None),
        Err(e) => Err(e.at_path(path).into()),
    }
}

impl Set for OpenSet {
    fn id(&self) -> String {
        self.set.version().to_string()
    }

    fn shards(&self) -> Vec<Shard> {
        let shards = self.set.shards().iter();
        shards.map(|shard| told(shard, self.url.as_ref())).collect()
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>> {
        wait(self.set.get_many(keys))
    }

    fn rows(&self, walk: &Walk) -> RowSource {
        let mut range = self.set.range(walk.bounds.clone());
        if walk.is_whole {
            range = range.expect_all();
        }
        if walk.reverse {
            range = range.reverse();
        }
        Box::new(iter::from_fn(move || row(wait(range.next()))))
    }

    fn splits(&self, n: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        wait(self.set.splits(n))
    }

    fn copies(&self) -> Box<dyn Iterator<Item = leveltable::Result<Source>> + '_> {
        let copies = self.set.shards().iter().map(|shard| {
            let name = name_of(self.url.as_ref(), &shard.path);
            let source = ObjectSource::new(self.store.clone(), shard.path.clone())
                .pinned_to(shard.version.clone())
                .sized(shard.size)
                .named(&name);
            // Continues while earlier copies are used.
            let copy = RUNTIME.spawn(async move { Object::new(source).download(|_| {}).await });
            async move {
                let copied = copy.await.unwrap_or_else(|e| Err(e.into()));
                Ok(Source::from(copied.map_err(|e| not_copied(e, name.as_ref()))?).named(&name))
            }
        });
        let mut copies = Box::pin(stream::iter(copies).buffered(MAX_COPIES));
        Box::new(iter::from_fn(move || wait(copies.next())))
    }
}

/// Returns the tool's record of a table in the store at this URL.
fn told(shard: &set::Shard, store: Option<&Url>) -> Shard {
    Shard {
        path: name_of(store, &shard.path),
        first_key: Key::of(&shard.first_key, false),
        last_key: Key::of(&shard.last_key, false),
        bytes: shard.size,
        tail_bytes: shard.tail_len,
        e_tag: shard.version.e_tag.clone(),
        version: shard.version.version.clone(),
        entries: shard.entries,
    }
}

/// Returns the table at `path` of the store that belongs to this record.
fn as_told(shard: Shard, path: ObjectPath) -> set::Shard {
    set::Shard {
        path,
        first_key: shard.first_key.key,
        last_key: shard.last_key.key,
        size: shard.bytes,
        tail_len: shard.tail_bytes,
        version: Version {
            e_tag: shard.e_tag,
            version: shard.version,
        },
        entries: shard.entries,
    }
}

/// Returns the record of the table at `path`; `None` if it has no entries.
pub(crate) fn describe(path: &Path) -> leveltable::Result<Option<Shard>> {
    let (store, object) = locate(path)?;
    let described = wait(set::Shard::describe(store, &object));
    let described = described.map_err(|e| e.at_path(path))?;
    Ok(described.map(|shard| told(&shard, store_of(path, &object).as_ref())))
}

/// Publishes the tables at `tables`, and those `described` before, as one set, whose manifest appears at `manifest`, or with
/// `force` replaces the one there. Returns them in the order of their keys.
pub(crate) fn publish(
    manifest: &Path,
    tables: &[PathBuf],
    described: Vec<Shard>,
    force: bool,
) -> Result<Vec<Shard>, Failure> {
    check_url(manifest)?;
    let (store, object) = locate(manifest)?;
    let url = store_of(manifest, &object);
    let mut names = Vec::new();
    let mut object_at = |path: &Path| {
        check_url(path)?;
        let (_, table) = locate(path)?;
        if store_of(path, &table) != url {
            let what = "is not in the store of the manifest, under whose directory all tables of a set lie";
            return Err(Failure::of(path, what));
        }
        names.push((table.clone(), path.to_string_lossy().into_owned()));
        Ok(table)
    };
    let mut objects = Vec::new();
    for table in tables {
        objects.push(object_at(table)?);
        check_is_file(table)?;
    }
    let mut shards = Vec::new();
    for shard in described {
        let table = object_at(Path::new(&shard.path))?;
        shards.push(as_told(shard, table));
    }
    let options = SetOptions::new();
    let previous = match force.then(|| wait(options.open(store.clone(), &object))) {
        Some(Ok(set)) => Some(set.version().clone()),
        Some(Err(e)) if !is_not_found(&e) => return Err(e.at_path(manifest).into()),
        _ => None,
    };
    let published = async {
        if shards.is_empty() {
            let published = options.publish(store.clone(), &object, &objects, previous.as_ref());
            return Ok(published.await);
        }
        for path in &objects {
            shards.extend(options.describe(store.clone(), path).await?);
        }
        let published = options.publish_shards(store.clone(), &object, shards, previous.as_ref());
        Ok::<_, Error>(published.await)
    };
    let published = wait(published)?.map_err(|e| match e.kind() {
        PublishErrorKind::Conflict if !force => {
            let what = "a set is published here already: use --force to replace it";
            Failure::of(manifest, what)
        }
        _ => Failure::of(manifest, as_given(&e.to_string(), &store, &names)),
    })?;
    let shards = published.shards.iter();
    Ok(shards.map(|shard| told(shard, url.as_ref())).collect())
}

/// Returns `message` with the names of `store`'s objects replaced by those that the user gave.
fn as_given(message: &str, store: &dyn ObjectStore, names: &[(ObjectPath, String)]) -> String {
    let prefix = format!("{store}/");
    let word = |word: &str| {
        let name = word.trim_end_matches([':', ',']);
        let object = name.strip_prefix(&prefix).unwrap_or(name);
        let given = names.iter().find(|(other, _)| other.as_ref() == object);
        given.map_or_else(|| word.to_owned(), |(_, given)| word.replace(name, given))
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the URL of the store that holds `object`, which is at `path`: everything before the object's own path, since some
/// URLs have the bucket in their path. `None` for files, which are all in one store.
fn store_of(path: &Path, object: &ObjectPath) -> Option<Url> {
    let mut url = Url::parse(path.to_str()?).ok().filter(|_| is_url(path))?;
    if url.scheme() == "file" {
        return None;
    }
    let path = url.path();
    let mut slashes = path.match_indices('/').map(|(at, _)| at);
    let is_object = |rest: &str| ObjectPath::from_url_path(rest).is_ok_and(|path| path == *object);
    let at = slashes.find(|&at| path.get(at..).is_some_and(is_object));
    let store = at.and_then(|at| path.get(..at)).unwrap_or(path).to_owned();
    url.set_path(&store);
    Some(url)
}

/// Returns the names and sizes of objects under `directory` that are at least `age` old and that no manifest there lists. With
/// `delete`, removes them.
pub(crate) fn prune(
    directory: &Path,
    age: Duration,
    delete: bool,
) -> leveltable::Result<Vec<(String, u64)>> {
    let (store, object) = locate(directory)?;
    let (options, url) = (SetOptions::new(), store_of(directory, &object));
    let found = if delete {
        wait(options.prune(&store, &object, age))
    } else {
        wait(options.unlisted(&store, &object, age))
    };
    let found = found?.into_iter();
    let named = found.map(|found| (name_of(url.as_ref(), &found.location), found.size));
    Ok(named.collect())
}

/// Returns the name of an object in `store`, as the tool accepts it.
fn name_of(store: Option<&Url>, object: &ObjectPath) -> String {
    let Some(mut url) = store.cloned() else {
        return format!("/{object}");
    };
    // Every URL of a store has a path.
    if let Ok(mut segments) = url.path_segments_mut() {
        let names = object.parts();
        segments
            .pop_if_empty()
            .extend(names.map(|name| name.as_ref().to_owned()));
    }
    // An @ could end a password, so the tool does not accept it.
    let path = url.path().replace('@', "%40");
    url.set_path(&path);
    url.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use object_store::{ObjectStoreScheme, path::Path as ObjectPath};
    use url::Url;

    use super::{name_of, store_of};

    #[test]
    fn a_store_is_the_url_without_the_path_in_it() {
        for (store, object) in [
            ("s3://bucket", "words/1.ldb"),
            ("az://container", "1.ldb"),
            ("abfss://container@account.dfs.core.windows.net", "1.ldb"),
            ("https://bucket.s3.eu-west-1.amazonaws.com", "words/1.ldb"),
            ("https://s3.eu-west-1.amazonaws.com/bucket", "words/1.ldb"),
            ("https://s3.eu-west-1.amazonaws.com/a", "a/a"),
            (
                "https://account.r2.cloudflarestorage.com/bucket",
                "words/1.ldb",
            ),
            ("https://account.blob.core.windows.net/container", "1.ldb"),
            (
                "https://account.blob.core.windows.net/container",
                "a%20b/%C3%A4%25%23%40.ldb",
            ),
        ] {
            let written = format!("{store}/{object}");
            let url = Url::parse(&written).unwrap();
            let (_, path) = ObjectStoreScheme::parse(&url).unwrap();
            let found = store_of(Path::new(&written), &path).unwrap();
            assert_eq!(found.as_str().trim_end_matches('/'), store);
            assert_eq!(name_of(Some(&found), &path), written);
        }
        assert_eq!(store_of(Path::new("/a/b"), &ObjectPath::from("a/b")), None);
    }
}
