//! Sets of tables, which are read and published as one.

use std::fs;
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
use tokio::runtime::Runtime;
use url::Url;

use super::object::Object;
use super::{file_at, locate, not_copied, object, row, runtime, wait};
use crate::failure::{Failure, is_not_found};
use crate::info::Key;
use crate::open::{Bounds, Direction, check_is_file, is_manifest};
use crate::place::{check_url, is_url};
use crate::row::RowSource;
use crate::set::{Set, Shard};

/// A set that is open.
struct OpenSet {
    set: TableSet,
    store: Arc<dyn ObjectStore>,
    /// The URL of the store. `None` for files.
    url: Option<Url>,
    runtime: &'static Runtime,
}

/// Most tables of a set that are copied at a time.
const MAX_COPIES: usize = 4;

/// Opens the set whose manifest is at `path`. `None` if there is no manifest, but perhaps a table.
pub(crate) fn open_set(path: &Path) -> Result<Option<Box<dyn Set>>, Failure> {
    check_url(path)?;
    if !may_be_manifest(path) {
        return Ok(None);
    }
    let (store, manifest) = locate(path)?;
    let runtime = runtime()?;
    // Every block is read once.
    let options = SetOptions::new().tables(OpenOptions::new().no_cache());
    let opened = if file_at(path).is_some() {
        wait(runtime, options.open(store.clone(), &manifest))
    } else {
        open_read(path, &options, &store, &manifest)
    };
    match opened {
        Ok(set) => Ok(Some(Box::new(OpenSet {
            set,
            store,
            url: store_of(path, &manifest),
            runtime,
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
        wait(self.runtime, self.set.get_many(keys))
    }

    fn rows(&self, bounds: Bounds, direction: Direction) -> RowSource {
        let (mut range, runtime) = (self.set.range(bounds), self.runtime);
        if direction.is_whole {
            range = range.expect_all();
        }
        if direction.reverse {
            range = range.reverse();
        }
        Box::new(iter::from_fn(move || row(wait(runtime, range.next()))))
    }

    fn splits(&self, n: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        wait(self.runtime, self.set.splits(n))
    }

    fn copies(&self) -> Box<dyn Iterator<Item = leveltable::Result<Source>> + '_> {
        let copies = self.set.shards().iter().map(|shard| {
            let name = name_of(self.url.as_ref(), &shard.path);
            let source = ObjectSource::new(self.store.clone(), shard.path.clone())
                .pinned_to(shard.version.clone())
                .sized(shard.size)
                .named(&name);
            // Goes on while the copies before are used.
            let copy = async move { Object::new(source)?.download(|_, _| {}).await };
            let copy = self.runtime.spawn(copy);
            async move {
                let copied = copy.await.unwrap_or_else(|e| Err(e.into()));
                Ok(Source::from(copied.map_err(|e| not_copied(e, name.as_ref()))?).named(&name))
            }
        });
        let mut copies = Box::pin(stream::iter(copies).buffered(MAX_COPIES));
        Box::new(iter::from_fn(move || wait(self.runtime, copies.next())))
    }
}

/// Returns the record of a table in the store of this URL.
fn told(shard: &set::Shard, store: Option<&Url>) -> Shard {
    Shard {
        path: name_of(store, &shard.path),
        first_key: Key::plain(&shard.first_key),
        last_key: Key::plain(&shard.last_key),
        bytes: shard.size,
        tail_bytes: shard.tail_len,
        e_tag: shard.version.e_tag.clone(),
        version: shard.version.version.clone(),
        entries: shard.entries,
    }
}

/// Returns the table at `path` of the store, of which this record was made.
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
    let described = wait(runtime()?, set::Shard::describe(store, &object));
    let described = described.map_err(|e| e.at_path(path))?;
    Ok(described.map(|shard| told(&shard, store_of(path, &object).as_ref())))
}

/// Opens the set whose manifest is the object at the URL `path`, which was read before, at least its end.
fn open_read(
    path: &Path,
    options: &SetOptions,
    store: &Arc<dyn ObjectStore>,
    manifest: &ObjectPath,
) -> leveltable::Result<TableSet> {
    let object = object(path)?;
    let bytes = object
        .all()
        .map_err(|e| Error::io("reading the manifest", e))?;
    options.open_manifest(store.clone(), manifest, bytes, object.version())
}

/// Returns whether numbered manifests are in a directory.
pub(crate) fn holds_manifests(directory: &Path) -> bool {
    let is_number = |name: &str| name.len() >= 10 && name.bytes().all(|b| b.is_ascii_digit());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| is_number(&name))
}

/// Returns whether the set's manifest, and no table, may be at `path`. Reading a large table to find that out would take long.
fn may_be_manifest(path: &Path) -> bool {
    match file_at(path).map(fs::metadata) {
        // In a directory, manifests are numbered.
        Some(Ok(metadata)) if metadata.is_dir() => true,
        Some(Ok(metadata)) if !metadata.is_file() => false,
        Some(Err(_)) => false,
        // There may be numbered manifests.
        Some(Ok(_)) | None => is_manifest(path).unwrap_or_else(|e| is_not_found(&e)),
    }
}

/// Makes the tables at `tables`, and those that were `described` before, one set, whose manifest appears at `manifest`, or replaces
/// the one there by `force`. Returns them in the order of their keys.
pub(crate) fn publish(
    manifest: &Path,
    tables: &[PathBuf],
    described: Vec<Shard>,
    force: bool,
) -> Result<Vec<Shard>, Failure> {
    check_url(manifest)?;
    let runtime = runtime()?;
    let (store, object) = locate(manifest)?;
    let url = store_of(manifest, &object);
    let object_at = |path: &Path| {
        check_url(path)?;
        let (_, table) = locate(path)?;
        if store_of(path, &table) != url {
            let what = "is not in the store of the manifest, under whose directory all tables of a set lie";
            return Err(Failure::new(what).at(path.display()));
        }
        Ok(table)
    };
    let (mut objects, mut names) = (Vec::new(), Vec::new());
    for table in tables {
        objects.push(object_at(table)?);
        check_is_file(table)?;
        names.push(table.to_string_lossy().into_owned());
    }
    let mut shards = Vec::new();
    for shard in described {
        let table = object_at(Path::new(&shard.path))?;
        names.push(shard.path.clone());
        shards.push(as_told(shard, table));
    }
    let options = SetOptions::new();
    let previous = if force {
        match wait(runtime, options.open(store.clone(), &object)) {
            Ok(set) => Some(set.version().clone()),
            Err(e) if is_not_found(&e) => None,
            Err(e) => return Err(e.at_path(manifest).into()),
        }
    } else {
        None
    };
    let all: Vec<ObjectPath> = { objects.iter() }
        .chain(shards.iter().map(|shard| &shard.path))
        .cloned()
        .collect();
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
    let published = wait(runtime, published)?.map_err(|e| {
        let failure = match e.kind() {
            PublishErrorKind::Conflict if !force => {
                Failure::new("a set is published here already: use --force to replace it")
            }
            _ => Failure::new(as_given(&e.to_string(), &store, &all, &names)),
        };
        failure.at(manifest.display())
    })?;
    let shards = published.shards.iter();
    Ok(shards.map(|shard| told(shard, url.as_ref())).collect())
}

/// Returns `message` with the `objects` of `store` called by their `names`, as the user does.
fn as_given(
    message: &str,
    store: &dyn ObjectStore,
    objects: &[ObjectPath],
    names: &[String],
) -> String {
    let prefix = format!("{store}/");
    let word = |word: &str| {
        let name = word.trim_end_matches([':', ',']);
        let object = name.strip_prefix(&prefix).unwrap_or(name);
        let mut named = objects.iter().zip(names);
        let given = named.find(|(other, _)| other.as_ref() == object);
        given.map_or_else(|| word.to_owned(), |(_, given)| word.replace(name, given))
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the URL of the store that holds `object`, which is at `path`: all that comes before the object's own path, since some
/// URLs name the bucket in theirs. `None` for files, which are all in one store.
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

/// Returns what lies under `directory` for at least `age` and no manifest there lists: names and sizes. Removes it if `delete`.
pub(crate) fn prune(
    directory: &Path,
    age: Duration,
    delete: bool,
) -> leveltable::Result<Vec<(String, u64)>> {
    let runtime = runtime()?;
    let (store, object) = locate(directory)?;
    let (options, url) = (SetOptions::new(), store_of(directory, &object));
    let found = if delete {
        wait(runtime, options.prune(&store, &object, age))
    } else {
        wait(runtime, options.unlisted(&store, &object, age))
    };
    let found = found?.into_iter();
    let named = found.map(|found| (name_of(url.as_ref(), &found.location), found.size));
    Ok(named.collect())
}

/// Returns the name of an object in `store`, as the tool takes it.
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
    // It could end a password, so the tool does not take it.
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
