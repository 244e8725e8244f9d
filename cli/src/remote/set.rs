//! Sets of tables, which are read and published as one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use leveltable::{Error, ErrorKind, OpenOptions, Source};
use leveltable_object_store::set::{PublishErrorKind, SetOptions};
use leveltable_object_store::{ObjectSource, TableSet};
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use url::Url;

use super::object::Object;
use super::rows::{Direction, Rows, rows_of_set};
use super::{file_at, locate, object, runtime, wait};
use crate::failure::{Failure, is_not_found};
use crate::notation::quoted;
use crate::open::{Bounds, check_is_file, is_manifest};
use crate::output;
use crate::place::{check_url, is_url};

/// An open set.
pub(crate) struct Set {
    set: TableSet,
    /// The tables that are being copied.
    ahead: Ahead,
    /// The URL of the store. `None` for files.
    url: Option<Url>,
    runtime: &'static Runtime,
}

/// A table of a set.
pub(crate) struct Shard {
    /// A file or a URL.
    pub(crate) path: String,
    pub(crate) first_key: Vec<u8>,
    pub(crate) last_key: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) entries: Option<u64>,
}

/// What was published.
pub(crate) struct Published {
    pub(crate) shards: usize,
    pub(crate) bytes: u64,
    pub(crate) entries: Option<u64>,
}

impl Set {
    /// Opens the set whose manifest is at `path`. `None` if there is no manifest, but perhaps a table.
    pub(crate) fn open(path: &Path) -> Result<Option<Set>, Failure> {
        check_url(path)?;
        if !may_be_manifest(path)? {
            return Ok(None);
        }
        let (store, manifest) = locate(path)?;
        let runtime = runtime()?;
        // Every block is read once.
        let options = SetOptions::new().tables(OpenOptions::new().no_cache());
        let set = if is_url(path) && file_at(path).is_none() {
            open_read(path, &options, &store, &manifest).transpose()
        } else {
            None
        };
        match set.unwrap_or_else(|| wait(runtime, options.open(store.clone(), &manifest))) {
            Ok(set) => Ok(Some(Set {
                ahead: Ahead::new(set.clone(), store.clone()),
                set,
                url: store_of(path, &manifest),
                runtime,
            })),
            Err(e) if is_not_found(&e) => Ok(None),
            Err(e) => Err(e.at_path(path).into()),
        }
    }

    /// Returns the name of an object as the tool takes it.
    fn name(&self, path: &ObjectPath) -> String {
        name_of(self.url.as_ref(), path)
    }

    /// Returns the value of each key, `None` where there is none.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>> {
        wait(self.runtime, self.set.get_many(keys))
    }

    /// Returns the entries within `bounds`.
    pub(crate) fn rows(&self, bounds: Bounds, direction: Direction) -> Rows {
        rows_of_set(self.set.range(bounds), direction, self.runtime)
    }

    /// Returns a copy of table number `i`, one of [`shards`](Set::shards), as it was when the set was published. While it is read,
    /// the next ones are copied.
    pub(crate) fn source(&self, i: usize) -> leveltable::Result<Source> {
        let Some(shard) = self.set.shards().get(i) else {
            return Err(Error::new(ErrorKind::InvalidState, "no such table"));
        };
        let name = self.name(shard.path());
        let named =
            |e| Error::io("copying the table to a temporary file", e).at_path(name.as_ref());
        let file = self.ahead.copy(i, self.runtime, |path| self.name(path));
        Ok(Source::from(file.map_err(named)?).named(&name))
    }

    /// Returns how table number `i`, which is `shard` and has `entries`, differs from what the set lists: lookups would miss keys
    /// of it. `None` if it does not.
    pub(crate) fn difference(
        &self,
        i: usize,
        shard: &Shard,
        entries: u64,
    ) -> Result<Option<String>, Failure> {
        if let Some(listed) = shard.entries.filter(|&listed| listed != entries) {
            let listed = output::entries(listed);
            return Ok(Some(format!("the set lists {listed}")));
        }
        // All of it was checked before.
        let options = OpenOptions::new().no_filter().no_cache().check_order(false);
        let table = options.open_source(self.source(i)?)?;
        let mut cursor = table.cursor();
        let first = cursor.seek_to_first()?.then(|| cursor.key().to_vec());
        let last = cursor.seek_to_last()?.then(|| cursor.key().to_vec());
        let ends = [
            ("first", &shard.first_key, first),
            ("last", &shard.last_key, last),
        ];
        let differing = ends
            .into_iter()
            .find(|(_, listed, found)| found.as_ref() != Some(listed));
        Ok(differing.map(|(which, listed, found)| {
            let found = found.map_or_else(|| "none".to_owned(), |key| quoted(&key, 60));
            let listed = quoted(listed, 60);
            format!("its {which} key is {found}, and the set lists {listed}")
        }))
    }

    pub(crate) fn splits(&self, n: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        wait(self.runtime, self.set.splits(n))
    }

    /// Returns what tells this publication from any other.
    pub(crate) fn id(&self) -> String {
        self.set.version().to_string()
    }

    pub(crate) fn entries(&self) -> Option<u64> {
        self.set.entries()
    }

    /// Returns the tables, in the order of their keys.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = Shard> + '_ {
        self.set.shards().iter().map(move |shard| Shard {
            path: self.name(shard.path()),
            first_key: shard.first_key().to_vec(),
            last_key: shard.last_key().to_vec(),
            bytes: shard.size(),
            entries: shard.entries(),
        })
    }
}

/// Most tables of a set that are copied at a time.
const MOST_COPIES: usize = 4;

/// Copies of tables in temporary files, some of them on their way.
struct Ahead {
    set: TableSet,
    store: Arc<dyn ObjectStore>,
    /// By the numbers of the tables. One that was used is kept until a later one is.
    copies: Mutex<BTreeMap<usize, Copy>>,
}

enum Copy {
    OnItsWay(JoinHandle<io::Result<File>>),
    Done(File),
}

impl Ahead {
    fn new(set: TableSet, store: Arc<dyn ObjectStore>) -> Ahead {
        Ahead {
            set,
            store,
            copies: Mutex::default(),
        }
    }

    /// Returns a copy of table number `i`, and begins with the next ones.
    fn copy(
        &self,
        i: usize,
        runtime: &Runtime,
        name: impl Fn(&ObjectPath) -> String,
    ) -> io::Result<File> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.retain(|&number, _| number >= i);
        for (number, shard) in self
            .set
            .shards()
            .iter()
            .enumerate()
            .skip(i)
            .take(MOST_COPIES)
        {
            let copy = || {
                let source = ObjectSource::new(self.store.clone(), shard.path().clone())
                    .pinned_to(shard.version().clone())
                    .sized(shard.size())
                    .named(name(shard.path()));
                let copy = async move { Object::new(source)?.download(|_, _| {}).await };
                Copy::OnItsWay(runtime.spawn(copy))
            };
            copies.entry(number).or_insert_with(copy);
        }
        let file = match copies.remove(&i) {
            Some(Copy::OnItsWay(copy)) => runtime.block_on(copy)??,
            Some(Copy::Done(file)) => file,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        copies.insert(i, Copy::Done(file.try_clone()?));
        Ok(file)
    }
}

/// Opens the set whose manifest is the object at the URL `path`, which was read before, at least its end. `None` if there is no
/// object.
fn open_read(
    path: &Path,
    options: &SetOptions,
    store: &Arc<dyn ObjectStore>,
    manifest: &ObjectPath,
) -> leveltable::Result<Option<TableSet>> {
    let object = object(path)?;
    match object.all() {
        Ok(bytes) => {
            let set = options.open_manifest(store.clone(), manifest, bytes, object.version());
            set.map(Some)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the manifest", e)),
    }
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
fn may_be_manifest(path: &Path) -> Result<bool, Failure> {
    let local = if is_url(path) {
        file_at(path)
    } else {
        Some(path.to_owned())
    };
    match local.map(fs::metadata) {
        // In a directory, manifests are numbered.
        Some(Ok(metadata)) if metadata.is_dir() => return Ok(true),
        Some(Ok(metadata)) if !metadata.is_file() => return Ok(false),
        Some(Err(_)) => return Ok(false),
        Some(Ok(_)) | None => {}
    }
    // There may be numbered manifests.
    Ok(is_manifest(path).unwrap_or_else(|e| is_not_found(&e)))
}

/// Makes the tables at `shards` one set, whose manifest appears at `manifest`, or replaces the one there by `force`.
pub(crate) fn publish(
    manifest: &Path,
    shards: &[PathBuf],
    force: bool,
) -> Result<Published, Failure> {
    check_url(manifest)?;
    let runtime = runtime()?;
    let (store, object) = locate(manifest)?;
    let store_url = store_of(manifest, &object);
    let mut objects = Vec::new();
    for shard in shards {
        check_url(shard)?;
        let (_, table) = locate(shard)?;
        if store_of(shard, &table) != store_url {
            let what = "is not in the store of the manifest, under whose directory all tables of a set lie";
            return Err(Failure::new(what).at(shard.display()));
        }
        check_is_file(shard)?;
        objects.push(table);
    }
    // Messages call tables as the user does.
    let prefix = format!("{store}/");
    let as_given = |word: &str| {
        let name = word.trim_end_matches([':', ',']);
        let object = name.strip_prefix(&prefix).unwrap_or(name);
        let at = objects.iter().position(|other| other.as_ref() == object);
        match at.and_then(|at| shards.get(at)) {
            Some(shard) => word.replace(name, &shard.to_string_lossy()),
            None => word.to_owned(),
        }
    };
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
    let published = options.publish(store, &object, &objects, previous.as_ref());
    let published = wait(runtime, published).map_err(|e| {
        let failure = match e.kind() {
            PublishErrorKind::Conflict if !force => {
                Failure::new("a set is published here already: use --force to replace it")
            }
            _ => {
                let words: Vec<String> = e.to_string().split(' ').map(as_given).collect();
                Failure::new(words.join(" "))
            }
        };
        failure.at(manifest.display())
    })?;
    let shards = &published.shards;
    Ok(Published {
        shards: shards.len(),
        bytes: shards.iter().map(|shard| shard.size()).sum(),
        entries: shards.iter().map(|shard| shard.entries()).sum(),
    })
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

/// Returns the name of an object in `store`, as the tool takes it.
fn name_of(store: Option<&Url>, path: &ObjectPath) -> String {
    match store {
        Some(url) => url_of(url, path).to_string(),
        None => format!("/{path}"),
    }
}

/// Returns what lies under `directory` for at least `age` and no manifest there lists: names and sizes. Removes it if `delete`.
pub(crate) fn prune(
    directory: &Path,
    age: Duration,
    delete: bool,
) -> Result<Vec<(String, u64)>, Failure> {
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

/// Returns the URL of an object in `store`.
fn url_of(store: &Url, object: &ObjectPath) -> Url {
    let mut url = store.clone();
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
    url
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use object_store::{ObjectStoreScheme, path::Path as ObjectPath};
    use url::Url;

    use super::{store_of, url_of};

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
            assert_eq!(url_of(&found, &path).as_str(), written);
        }
        assert_eq!(store_of(Path::new("/a/b"), &ObjectPath::from("a/b")), None);
    }
}
