//! Pruning removes what no set lists, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use leveltable::ErrorKind;
use leveltable_object_store::set::{SetOptions, read_local};
use leveltable_object_store::{TableSet, publish};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::common::{put, put_numbered, run, stores};
use crate::watched::{Fate, Watched};

const NOW: Duration = Duration::ZERO;

fn top() -> Path {
    Path::from("top")
}

async fn names(store: &Arc<dyn ObjectStore>) -> BTreeSet<String> {
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    let names = listed.into_iter().map(|object| object.location.to_string());
    names.collect()
}

async fn prune(store: &Arc<dyn ObjectStore>, age: Duration) -> BTreeSet<String> {
    let pruned = SetOptions::new().prune(store, &top(), age).await.unwrap();
    pruned
        .into_iter()
        .map(|object| object.location.to_string())
        .collect()
}

/// Two sets under one directory, one of them deeper, and what does not belong to either.
#[test]
fn what_is_listed_or_young_or_no_table_stays() {
    for (store, _guard) in stores() {
        run(async move {
            let store = &store;
            let words = [
                put_numbered(&**store, "top/words/a.ldb", 0..100, "a").await,
                put_numbered(&**store, "top/words/b.ldb", 200..300, "a").await,
            ];
            let names_of = [put_numbered(&**store, "top/names/deep/c.ldb", 0..100, "a").await];
            for (manifest, shards) in [
                ("top/words/manifest", &words[..]),
                ("top/names/now", &names_of),
            ] {
                publish(Arc::clone(store), &Path::from(manifest), shards, None)
                    .await
                    .unwrap();
            }
            put(
                &**store,
                &Path::from("top/words/README"),
                Bytes::from("no table"),
            )
            .await;
            put(&**store, &Path::from("top/words/empty"), Bytes::new()).await;
            put_numbered(&**store, "elsewhere/x.ldb", 0..10, "a").await;
            let before = names(store).await;
            assert_eq!(prune(store, NOW).await, BTreeSet::new());
            let orphans = ["top/words/left.ldb", "top/names/deep/left", "top/left.ldb"];
            for orphan in orphans {
                put_numbered(&**store, orphan, 0..100, "a").await;
            }
            let probe = "top/words/manifest.00.probe";
            put(&**store, &Path::from(probe), Bytes::new()).await;
            assert_eq!(
                prune(store, Duration::from_secs(3600)).await,
                BTreeSet::new()
            );
            // Only looking removes nothing.
            let unlisted = SetOptions::new()
                .unlisted(store, &top(), NOW)
                .await
                .unwrap();
            assert_eq!(unlisted.len(), 4);
            let expected = orphans
                .into_iter()
                .chain([probe])
                .map(str::to_owned)
                .collect();
            assert_eq!(prune(store, NOW).await, expected);
            assert_eq!(names(store).await, before);
            // What is replaced is unlisted then.
            let set = TableSet::open(Arc::clone(store), &Path::from("top/words/manifest"))
                .await
                .unwrap();
            let manifest = Path::from("top/words/manifest");
            let replaced = publish(
                Arc::clone(store),
                &manifest,
                &words[..1],
                Some(set.version()),
            );
            replaced.await.unwrap();
            assert_eq!(
                prune(store, NOW).await,
                ["top/words/b.ldb".to_owned()].into()
            );
        });
    }
}

#[test]
fn what_cannot_be_read_or_lies_elsewhere_stops_it() {
    for (store, guard) in stores() {
        run(async move {
            let (store, options) = (&store, SetOptions::new());
            let shard = [put_numbered(&**store, "top/words/a.ldb", 0..5000, "a").await];
            put_numbered(&**store, "top/left.ldb", 0..100, "a").await;
            // No manifest tells what is listed.
            let error = options.prune(store, &top(), NOW).await.unwrap_err();
            assert!(
                error.to_string().contains("there is no manifest"),
                "{error}"
            );
            let manifest = Path::from("top/words/manifest");
            publish(Arc::clone(store), &manifest, &shard, None)
                .await
                .unwrap();
            // Every byte of a second manifest, which lists top/a.ldb.
            put_numbered(&**store, "top/a.ldb", 0..100, "a").await;
            let other = Path::from("top/other");
            let at = match guard {
                Some(_) => Path::from("top/words/manifest/0000000001"),
                None => manifest.clone(),
            };
            let bytes = store.get(&at).await.unwrap().bytes().await.unwrap();
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 0x20;
                put(&**store, &other, damaged.into()).await;
                match options.unlisted(store, &top(), NOW).await {
                    Err(error) => assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::Corruption
                                | ErrorKind::Unsupported
                                | ErrorKind::Io
                                | ErrorKind::NotATable
                        ),
                        "{error}"
                    ),
                    // The manifest was read all the same, or does not end as a table does.
                    Ok(unlisted) => {
                        let is_lost = unlisted
                            .iter()
                            .any(|object| object.location.as_ref() == "top/a.ldb");
                        assert!(!is_lost || at + 8 >= bytes.len(), "{at}");
                    }
                }
            }
            store.delete(&other).await.unwrap();
            // A manifest whose tables lie above.
            let error = options
                .unlisted(store, &Path::from("top/words/manifest"), NOW)
                .await;
            if guard.is_some() {
                let error = error.unwrap_err();
                assert!(error.to_string().contains("which is not: prune"), "{error}");
                let path = Path::from("top/words/manifest/0000000002");
                put(&**store, &path, Bytes::new()).await;
                options.unlisted(store, &top(), NOW).await.unwrap_err();
                store.delete(&path).await.unwrap();
            }
            let expected = ["top/a.ldb", "top/left.ldb"].map(str::to_owned).into();
            assert_eq!(prune(store, NOW).await, expected);
        });
    }
}

/// Publishers replace a set by new tables and listed ones, while others prune what has been unlisted for a while, and are killed at
/// any request. What is listed at the end, or is young, is there.
#[test]
fn pruning_beside_publishers_removes_nothing_that_is_listed() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> =
            Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
        let manifests = ["top/one/manifest", "top/two/manifest"].map(Path::from);
        // Longer than any table takes here from its build to its publication.
        let age = Duration::from_secs(6);
        let mut pruned = 0;
        let start = Instant::now();
        for round in 0u32.. {
            if start.elapsed() > 2 * age {
                break;
            }
            // More rounds would show no more, and keep other tests from the processors.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let mut publishers = Vec::new();
            for (i, manifest) in manifests.iter().enumerate() {
                let directory = manifest.as_ref().rsplit_once('/').unwrap().0;
                let path = format!("{directory}/{round}.ldb");
                let first = 10 * (round % 5);
                let new = put_numbered(&*store, &path, first..first + 5, "a").await;
                let (store, manifest) = (Arc::clone(&store), manifest.clone());
                publishers.push(tokio::spawn(async move {
                    let (previous, mut shards) = match TableSet::open(Arc::clone(&store), &manifest)
                        .await
                    {
                        Ok(set) => {
                            let kept = set.shards().iter().filter(|shard| {
                                shard.first_key != format!("{first:08}").as_bytes()
                            });
                            let kept: Vec<Path> = kept.map(|shard| shard.path.clone()).collect();
                            (Some(set.version().clone()), kept)
                        }
                        Err(_) => (None, Vec::new()),
                    };
                    shards.push(new);
                    tokio::time::sleep(Duration::from_millis(u64::from(round % 3) * i as u64))
                        .await;
                    publish(store, &manifest, &shards, previous.as_ref())
                        .await
                        .unwrap();
                }));
            }
            // Killed at a request that is another one each time.
            let kill_at = round as usize % 12;
            let dying = Watched::with(Arc::clone(&store), move |n, _| {
                if n >= kill_at {
                    Fate::Stalled
                } else {
                    Fate::Served
                }
            });
            let dying: Arc<dyn ObjectStore> = dying;
            let one = async {
                let options = SetOptions::new();
                let top = top();
                let pruning = options.prune(&dying, &top, age);
                let _ = tokio::time::timeout(Duration::from_millis(20), pruning).await;
            };
            let other = async {
                match SetOptions::new()
                    .prune(&store, &Path::from("top"), age)
                    .await
                {
                    Ok(pruned) => pruned.len(),
                    // Before the first publication, or while another prunes.
                    Err(_) => 0,
                }
            };
            let (_, count) = futures_util::join!(one, other);
            pruned += count;
            for publisher in publishers {
                publisher.await.unwrap();
            }
            for manifest in &manifests {
                let set = TableSet::open(Arc::clone(&store), manifest).await.unwrap();
                for shard in set.shards() {
                    let key = shard.first_key.to_vec();
                    assert!(set.get(key).await.unwrap().is_some());
                }
            }
        }
        assert!(pruned > 20, "{pruned}");
        // Without a runtime.
        let root = directory.path().join("top/one");
        let shards = read_local(&root.join("manifest")).unwrap();
        assert_eq!(shards.len(), 5);
        for shard in shards {
            let table = leveltable::Table::open(root.join(shard.path.as_ref())).unwrap();
            assert!(table.get(shard.first_key).unwrap().is_some());
        }
        fs::write(root.join("manifest/9999999999"), b"").unwrap();
        assert_eq!(
            read_local(&root.join("manifest")).unwrap_err().kind(),
            ErrorKind::NotATable
        );
    });
}
