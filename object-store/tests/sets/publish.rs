//! Publishers that race, lose replies, or are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leveltable::{Comparator, ErrorKind, WriteOptions};
use leveltable_object_store::set::{
    PublishError, PublishErrorKind, Published, SetOptions, SetVersion,
};
use leveltable_object_store::{Retries, Shard, TableSet, Timeouts, UploadOptions, publish};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Model, collect, manifest, numbered, put, put_numbered, run, stores, table};
use crate::watched::{Fate, Watched};

type Store = Arc<dyn ObjectStore>;

/// Publishes three shards of 100 entries each, all of this version.
async fn put_and_publish(
    store: &Store,
    version: &str,
    previous: Option<&SetVersion>,
) -> Result<Published, PublishError> {
    let paths = put_shards(store, version).await;
    publish(Arc::clone(store), &manifest(), &paths, previous).await
}

async fn put_shards(store: &Store, version: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    for i in 0..3 {
        let path = format!("set/{version}/{i}.ldb");
        paths.push(put_numbered(&**store, &path, 100 * i..100 * (i + 1), version).await);
    }
    paths
}

/// All entries of the current set; `None` if there is none.
async fn contents(store: &Store) -> Option<Model> {
    let set = match TableSet::open(Arc::clone(store), &manifest()).await {
        Ok(set) => set,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            return None;
        }
    };
    Some(collect(set.range(..)).await.unwrap().into_iter().collect())
}

async fn current(store: &Store) -> SetVersion {
    let set = TableSet::open(Arc::clone(store), &manifest()).await;
    set.unwrap().version().clone()
}

fn all(version: &str) -> Option<Model> {
    Some(numbered(0..300, version))
}

fn few_retries() -> SetOptions {
    SetOptions::new().retries(Retries::new(2, Duration::from_millis(1)))
}

fn assert_kind<T: std::fmt::Debug>(result: Result<T, PublishError>, kind: PublishErrorKind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn one_publication_follows_another() {
    for (store, _directory) in stores() {
        run(async move {
            let first = put_and_publish(&store, "a", None).await.unwrap();
            let second = put_and_publish(&store, "b", Some(&first.version)).await;
            let second = second.unwrap();
            assert_eq!(contents(&store).await, all("b"));
            assert_eq!(current(&store).await, second.version);
            // By what was read instead of what was returned.
            let third = put_and_publish(&store, "c", Some(&current(&store).await)).await;
            assert_eq!(contents(&store).await, all("c"));
            for late in [None, Some(&first.version), Some(&second.version)] {
                assert_kind(
                    put_and_publish(&store, "d", late).await,
                    PublishErrorKind::Conflict,
                );
            }
            assert_eq!(contents(&store).await, all("c"));
            assert_eq!(current(&store).await, third.unwrap().version);
        });
    }
}

/// Many publications later, a publisher is still told that it is late.
#[test]
fn a_late_publisher_is_told_so_after_a_hundred_others() {
    for (store, _directory) in stores() {
        run(async move {
            let first = put_and_publish(&store, "a", None).await.unwrap();
            let mut version = first.version.clone();
            let shards = first.shards.clone();
            for _ in 0..100 {
                version = SetOptions::new()
                    .publish_shards(
                        Arc::clone(&store),
                        &manifest(),
                        shards.clone(),
                        Some(&version),
                    )
                    .await
                    .unwrap()
                    .version;
            }
            for late in [None, Some(&first.version)] {
                assert_kind(
                    put_and_publish(&store, "d", late).await,
                    PublishErrorKind::Conflict,
                );
            }
            assert_eq!(current(&store).await, version);
        });
    }
}

/// Of publishers that replace the same publication at the same time, one succeeds, and the others are told.
#[test]
fn of_many_at_once_one_wins() {
    for (store, _directory) in stores() {
        run(async move {
            let mut previous = None;
            for round in 0..20 {
                let mut tasks = Vec::new();
                for task in 0..6 {
                    let name = format!("{round}-{task}");
                    let paths = put_shards(&store, &name).await;
                    let (store, previous) = (Arc::clone(&store), previous.clone());
                    let publishing = async move {
                        let path = manifest();
                        let published = publish(store, &path, &paths, previous.as_ref());
                        (name, published.await)
                    };
                    tasks.push(publishing);
                }
                let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
                let mut winners = Vec::new();
                for task in tasks {
                    match task.await.unwrap() {
                        (name, Ok(published)) => winners.push((name, published)),
                        (_, Err(error)) => {
                            assert_eq!(error.kind(), PublishErrorKind::Conflict, "{error}");
                        }
                    }
                }
                assert_eq!(winners.len(), 1);
                let (name, published) = winners.pop().unwrap();
                assert_eq!(contents(&store).await, all(&name));
                previous = Some(published.version);
            }
        });
    }
}

/// What reclaims the space of earlier manifests in a directory does not let a late publisher win.
#[test]
fn truncated_manifests_keep_their_numbers() {
    let (store, _directory) = stores().pop().unwrap();
    run(async move {
        let first = put_and_publish(&store, "a", None).await.unwrap();
        let second = put_and_publish(&store, "b", Some(&first.version)).await;
        let numbered = |number| Path::from(format!("set/manifest/{number:010}"));
        let old = store.get(&numbered(1)).await.unwrap();
        assert!(old.meta.size > 0);
        put(&*store, &numbered(1), Vec::new().into()).await;
        assert_eq!(contents(&store).await, all("b"));
        for late in [None, Some(&first.version)] {
            let late = put_and_publish(&store, "c", late).await;
            let message = late.as_ref().unwrap_err().to_string();
            assert!(
                message.ends_with("open it, and pass its version"),
                "{message}"
            );
            assert_kind(late, PublishErrorKind::Conflict);
        }
        let third = put_and_publish(&store, "c", Some(&second.unwrap().version)).await;
        third.unwrap();
        assert_eq!(contents(&store).await, all("c"));
        assert!(store.get(&numbered(3)).await.is_ok());
    });
}

/// A loss of power leaves an empty manifest: the error says what to remove, and that is enough.
#[test]
fn an_empty_last_manifest_is_named() {
    let (store, _directory) = stores().pop().unwrap();
    run(async move {
        let first = put_and_publish(&store, "a", None).await.unwrap();
        let empty = Path::from("set/manifest/0000000002");
        put(&*store, &empty, Vec::new().into()).await;
        let opened = TableSet::open(Arc::clone(&store), &manifest()).await;
        let text = opened.unwrap_err().to_string();
        assert!(text.contains(empty.as_ref()), "{text}");
        assert!(text.contains("remove it"), "{text}");
        store.delete(&empty).await.unwrap();
        assert_eq!(contents(&store).await, all("a"));
        put_and_publish(&store, "b", Some(&first.version))
            .await
            .unwrap();
        assert_eq!(contents(&store).await, all("b"));
    });
}

/// Whatever request fails, is lost or never ends, readers see the old set or the new one, the publisher is told which if it can
/// be known, and the next one can publish.
#[test]
fn a_publisher_may_fail_or_die_at_any_request() {
    // The last two never end, and the publisher is killed when they tell.
    let fates: [fn(Arc<Notify>) -> Fate; 4] = [
        |_| Fate::Lost,
        |_| Fate::reply_lost(),
        |reached| {
            Fate::After(Box::pin(async move {
                reached.notify_one();
                std::future::pending().await
            }))
        },
        |reached| {
            let tell = Box::pin(async move { reached.notify_one() });
            Fate::ReplyLost(tell, None)
        },
    ];
    for has_previous in [false, true] {
        for fate in fates {
            for retries in [Retries::none(), Retries::new(2, Duration::from_millis(1))] {
                for failing in 0.. {
                    let (mut failed, mut cases) = (false, 0);
                    for (store, _directory) in stores() {
                        let retries = retries.clone();
                        cases += 1;
                        failed |= run(async move {
                            let old = match has_previous {
                                true => Some(put_and_publish(&store, "a", None).await.unwrap()),
                                false => None,
                            };
                            let paths = put_shards(&store, "b").await;
                            let hits = Arc::new(AtomicUsize::new(0));
                            let hit = Arc::clone(&hits);
                            let killed = Arc::new(Notify::new());
                            let kill = Arc::clone(&killed);
                            let watched = Watched::with(Arc::clone(&store), move |n, _| {
                                if n == failing {
                                    hit.fetch_add(1, Ordering::Relaxed);
                                    fate(Arc::clone(&kill))
                                } else {
                                    Fate::Served
                                }
                            });
                            let options = SetOptions::new().retries(retries.clone());
                            let previous = old.as_ref().map(|old| &old.version);
                            let path = manifest();
                            let publishing = options.publish(watched, &path, &paths, previous);
                            let published = tokio::select! {
                                published = publishing => Some(published),
                                () = killed.notified() => None,
                            };
                            let found = contents(&store).await;
                            let before = old.as_ref().and_then(|_| all("a"));
                            let is_new = found == all("b");
                            assert!(is_new || found == before, "neither old nor new");
                            match published {
                                None => {}
                                Some(Ok(published)) => {
                                    assert!(is_new);
                                    assert_eq!(published.version, current(&store).await);
                                }
                                Some(Err(error)) => {
                                    assert!(retries == Retries::none(), "{error}");
                                    assert!(
                                        !is_new || error.kind() == PublishErrorKind::Unconfirmed,
                                        "{error}"
                                    );
                                    assert_ne!(error.kind(), PublishErrorKind::Conflict);
                                }
                            }
                            let previous = match found {
                                Some(_) => Some(current(&store).await),
                                None => None,
                            };
                            put_and_publish(&store, "c", previous.as_ref())
                                .await
                                .unwrap();
                            assert_eq!(contents(&store).await, all("c"));
                            hits.load(Ordering::Relaxed) > 0
                        });
                    }
                    assert_eq!(cases, 2);
                    if !failed {
                        // Three shards, three questions if there was none before, and the manifest.
                        assert!(failing >= if has_previous { 4 } else { 7 }, "{failing}");
                        break;
                    }
                }
            }
        }
    }
}

/// What a client of the store says if its first request was carried out, the reply was lost, and it made the request again.
fn refused(is_new: bool) -> Error {
    let (path, source) = ("set/manifest".into(), "condition not met".into());
    match is_new {
        true => Error::AlreadyExists { path, source },
        false => Error::Precondition { path, source },
    }
}

fn is_manifest(request: &str) -> bool {
    request == "put set/manifest" || request.starts_with("put set/manifest/")
}

/// Publishes "b" in a store that does `fate` to the first request that publishes.
async fn publish_with(
    store: &Store,
    previous: Option<&SetVersion>,
    fate: Fate,
) -> Result<Published, PublishError> {
    let paths = put_shards(store, "b").await;
    let mut fate = Some(fate);
    let watched = Watched::with(Arc::clone(store), move |_, request| {
        let fate = fate.take_if(|_| is_manifest(request));
        fate.unwrap_or(Fate::Served)
    });
    let path = manifest();
    let options = few_retries();
    options.publish(watched, &path, &paths, previous).await
}

/// Another publisher, which replaces what is there now.
fn other(store: &Store) -> futures_util::future::BoxFuture<'static, ()> {
    let store = Arc::clone(store);
    Box::pin(async move {
        let previous = match contents(&store).await {
            Some(_) => Some(current(&store).await),
            None => None,
        };
        put_and_publish(&store, "other", previous.as_ref())
            .await
            .unwrap();
    })
}

#[test]
fn a_lost_reply_is_told_from_a_lost_race() {
    for has_previous in [false, true] {
        for is_repeated in [false, true] {
            for (store, _directory) in stores() {
                run(async move {
                    let previous = match has_previous {
                        true => Some(put_and_publish(&store, "a", None).await.unwrap().version),
                        false => None,
                    };
                    let error = || match is_repeated {
                        true => refused(!has_previous),
                        false => crate::watched::failure(),
                    };
                    let nothing = Box::pin(async {});
                    let fate = Fate::ReplyLost(nothing, Some(error()));
                    let published = publish_with(&store, previous.as_ref(), fate).await;
                    let published = published.unwrap();
                    assert_eq!(contents(&store).await, all("b"));
                    // Others have replaced it before it was read back: it was published all the same.
                    let fate = Fate::ReplyLost(other(&store), Some(error()));
                    let again = publish_with(&store, Some(&published.version), fate).await;
                    let again = again.unwrap();
                    assert_eq!(contents(&store).await, all("other"));
                    // And cannot be replaced, since it is not there.
                    let late = put_and_publish(&store, "c", Some(&again.version)).await;
                    assert_kind(late, PublishErrorKind::Conflict);
                    // The race was lost.
                    let previous = current(&store).await;
                    let fate = Fate::After(other(&store));
                    let lost = publish_with(&store, Some(&previous), fate).await;
                    assert_kind(lost, PublishErrorKind::Conflict);
                    assert_eq!(contents(&store).await, all("other"));
                });
            }
        }
    }
}

#[test]
fn a_request_that_had_no_effect_is_made_again() {
    for (store, _directory) in stores() {
        run(async move {
            let first = publish_with(&store, None, Fate::Lost).await.unwrap();
            assert_eq!(contents(&store).await, all("b"));
            publish_with(&store, Some(&first.version), Fate::Lost)
                .await
                .unwrap();
            assert_eq!(contents(&store).await, all("b"));
        });
    }
}

#[test]
fn a_request_that_is_not_permitted_is_an_error_of_its_own() {
    for (store, _directory) in stores() {
        run(async move {
            let first = put_and_publish(&store, "a", None).await.unwrap();
            let (path, source) = ("set/manifest".into(), "read only".into());
            let denied = Fate::Denied(Error::PermissionDenied { path, source });
            let published = publish_with(&store, Some(&first.version), denied).await;
            assert_kind(published, PublishErrorKind::Io);
            assert_eq!(contents(&store).await, all("a"));
        });
    }
}

/// Publishes "b" in place of "a", while the requests that publish meet these fates in turn, and what reads the manifest is served.
async fn replace_with(store: &Store, fates: Vec<Fate>) -> Result<Published, PublishError> {
    let first = put_and_publish(store, "a", None).await.unwrap();
    let paths = put_shards(store, "b").await;
    let mut fates = fates.into_iter();
    let watched = Watched::with(Arc::clone(store), move |_, request| {
        let fate = is_manifest(request).then(|| fates.next()).flatten();
        fate.unwrap_or(Fate::Served)
    });
    let path = manifest();
    let options = few_retries();
    options
        .publish(watched, &path, &paths, Some(&first.version))
        .await
}

/// An attempt without an answer may yet be carried out, whatever the answer to the next one.
#[test]
fn what_is_not_permitted_later_may_have_been_published_before() {
    for (store, _directory) in stores() {
        run(async move {
            let (path, source) = ("set/manifest".into(), "expired".into());
            let denied = Fate::Denied(Error::PermissionDenied { path, source });
            let published = replace_with(&store, vec![Fate::Lost, denied]).await;
            assert_kind(published, PublishErrorKind::Unconfirmed);
        });
    }
}

/// The reply is lost, and others have put something else there, or have removed the manifest.
#[test]
fn what_cannot_be_read_back_is_not_known() {
    for is_removed in [false, true] {
        let store: Store = Arc::new(object_store::memory::InMemory::new());
        run(async move {
            let other = Arc::clone(&store);
            let meanwhile = Box::pin(async move {
                match is_removed {
                    true => other.delete(&manifest()).await.unwrap(),
                    false => put(&*other, &manifest(), vec![b'x'; 1000].into()).await,
                }
            });
            let lost = Fate::ReplyLost(meanwhile, Some(crate::watched::failure()));
            let published = replace_with(&store, vec![lost]).await;
            assert_kind(published, PublishErrorKind::Unconfirmed);
        });
    }
}

/// Of two publishers in such a store, both would be told that they were the first.
#[test]
fn a_store_that_creates_what_exists_is_refused() {
    for (store, _directory) in stores() {
        run(async move {
            let paths = put_shards(&store, "a").await;
            let lax = Watched::new(Arc::clone(&store));
            lax.ignore_create();
            let published = publish(lax, &manifest(), &paths, None).await;
            assert_kind(published, PublishErrorKind::Unsupported);
            assert_eq!(contents(&store).await, None);
            publish(Arc::clone(&store), &manifest(), &paths, None)
                .await
                .unwrap();
            // No probe is left.
            let listed = store.list_with_delimiter(Some(&Path::from("set"))).await;
            let listed = listed.unwrap().objects.into_iter();
            let others: Vec<_> = listed.filter(|it| it.location != manifest()).collect();
            assert!(others.is_empty(), "{others:?}");
        });
    }
}

/// If neither a reply comes nor the manifest can be read back, nobody knows.
#[test]
fn without_any_reply_nothing_is_claimed() {
    for has_effect in [false, true] {
        for (store, _directory) in stores() {
            run(async move {
                let paths = put_shards(&store, "b").await;
                let mut is_down = false;
                let watched = Watched::with(Arc::clone(&store), move |_, request| {
                    let was_down = is_down;
                    is_down |= is_manifest(request);
                    match (is_down, was_down) {
                        (false, _) => Fate::Served,
                        (true, false) if has_effect => Fate::reply_lost(),
                        (true, _) => Fate::Lost,
                    }
                });
                let path = manifest();
                let published = few_retries().publish(watched, &path, &paths, None).await;
                assert_kind(published, PublishErrorKind::Unconfirmed);
                let expected = if has_effect { all("b") } else { None };
                assert_eq!(contents(&store).await, expected);
            });
        }
    }
}

/// Against a store that answers nothing, publishing and reading end when their time is over.
#[test]
fn no_request_is_without_an_end() {
    for (store, _directory) in stores() {
        run(async move {
            let paths = put_shards(&store, "a").await;
            let options = SetOptions::new()
                .retries(Retries::new(1, Duration::from_millis(1)))
                .timeouts(Timeouts::new(Duration::from_millis(600), 1 << 20));
            let path = manifest();
            let watched = |stalls: fn(&str) -> bool| {
                Watched::with(Arc::clone(&store), move |_, request| {
                    match stalls(request) {
                        true => Fate::Stalled,
                        false => Fate::Served,
                    }
                })
            };
            let end = async |stalls, kind| {
                let published = options.publish(watched(stalls), &path, &paths, None);
                let published = timeout(Duration::from_secs(60), published).await.unwrap();
                assert_kind(published, kind);
            };
            end(|_| true, PublishErrorKind::Shard).await;
            end(|request| request.ends_with(".probe"), PublishErrorKind::Io).await;
            end(is_manifest, PublishErrorKind::Unconfirmed).await;
            let patient = SetOptions::new();
            let published = patient.publish(Arc::clone(&store), &path, &paths, None);
            published.await.unwrap();

            let end = async |stalls| {
                let read = async {
                    let set = options.open(watched(stalls), &path).await?;
                    set.get("00000007").await
                };
                let read = timeout(Duration::from_secs(60), read).await.unwrap();
                let error = read.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Io);
                assert!(error.to_string().contains("not complete"), "{error}");
            };
            end(|_| true).await;
            end(|request| request == "get set/a/0.ldb").await;
        });
    }
}

/// The manifest was written again with the same bytes, as by a copy onto itself.
#[test]
fn the_same_manifest_in_another_version_is_replaced() {
    for (store, directory) in stores() {
        run(async move {
            let first = put_and_publish(&store, "a", None).await.unwrap();
            if directory.is_none() {
                let object = store.get(&manifest()).await.unwrap();
                let bytes = object.bytes().await.unwrap();
                put(&*store, &manifest(), bytes).await;
                assert_ne!(current(&store).await, first.version);
            }
            put_and_publish(&store, "b", Some(&first.version))
                .await
                .unwrap();
            assert_eq!(contents(&store).await, all("b"));
        });
    }
}

#[test]
fn what_is_no_set_is_not_replaced() {
    for (store, _directory) in stores() {
        run(async move {
            put_numbered(&*store, "set/manifest", 0..10, "a").await;
            if let Err(error) = put_and_publish(&store, "b", None).await {
                // A directory's manifests lie in a directory, which this file is in the way of.
                let kinds = [PublishErrorKind::Conflict, PublishErrorKind::Unconfirmed];
                assert!(kinds.contains(&error.kind()), "{error}");
            } else {
                panic!("replaced a table");
            }
            let error = TableSet::open(store, &manifest()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotATable, "{error}");
        });
    }
}

#[test]
fn overlapping_shards_are_refused() {
    for (store, _directory) in stores() {
        run(async move {
            let a = put_numbered(&*store, "set/a.ldb", 0..100, "a").await;
            let b = put_numbered(&*store, "set/b.ldb", 99..200, "a").await;
            let c = put_numbered(&*store, "set/c.ldb", 100..200, "a").await;
            let within = put_numbered(&*store, "set/w.ldb", 120..130, "a").await;
            let at = manifest();
            for shards in [
                [a.clone(), b.clone()],
                [b, a.clone()],
                [a.clone(), a.clone()],
                [within, c.clone()],
            ] {
                let published = publish(Arc::clone(&store), &at, &shards, None).await;
                assert_kind(published, PublishErrorKind::Overlap);
            }
            // The message is the same whichever is read first.
            let same = put_numbered(&*store, "set/0.ldb", 0..50, "a").await;
            for shards in [[a.clone(), same.clone()], [same, a.clone()]] {
                let published = publish(Arc::clone(&store), &at, &shards, None).await;
                let message = published.unwrap_err().to_string();
                assert!(
                    message.contains("shards set/0.ldb and set/a.ldb overlap"),
                    "{message}"
                );
            }
            assert_eq!(contents(&store).await, None);
            publish(store, &at, &[c, a], None).await.unwrap();
        });
    }
}

#[derive(Debug)]
struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

#[test]
fn what_cannot_be_a_shard_is_refused_by_name() {
    for (store, _directory) in stores() {
        run(async move {
            let good = put_numbered(&*store, "set/good.ldb", 0..100, "a").await;
            let reverse = Path::from("set/reverse.ldb");
            let mut builder = WriteOptions::new().comparator(Reverse).build(Vec::new());
            builder.add("b", "").unwrap();
            builder.add("a", "").unwrap();
            let file = builder.finish_into_writer().unwrap().0;
            put(&*store, &reverse, file.into()).await;
            let text = Path::from("set/text.ldb");
            put(&*store, &text, vec![b'x'; 100_000].into()).await;
            let cut = Path::from("set/cut.ldb");
            let whole = table(&WriteOptions::new(), &numbered(0..100, "a"));
            put(&*store, &cut, whole.slice(..whole.len() - 1)).await;
            let outside = put_numbered(&*store, "outside.ldb", 200..300, "a").await;
            let missing = Path::from("set/missing.ldb");
            for (bad, message) in [
                (reverse, "test.Reverse"),
                (text, "plain text"),
                (cut, ""),
                (outside, "does not lie under the directory \"set\" of"),
                (missing, "not found"),
            ] {
                let shards = [good.clone(), bad.clone()];
                let published = publish(Arc::clone(&store), &manifest(), &shards, None).await;
                let error = published.unwrap_err();
                assert_eq!(error.kind(), PublishErrorKind::Shard);
                let text = error.to_string();
                assert!(text.contains(bad.as_ref()), "{text}");
                assert!(
                    text.to_lowercase().contains(&message.to_lowercase()),
                    "{text}"
                );
            }
            assert_eq!(contents(&store).await, None);
        });
    }
}

#[test]
fn shards_that_were_replaced_are_refused_and_found() {
    for (store, _directory) in stores() {
        run(async move {
            let a = put_numbered(&*store, "set/a.ldb", 0..100, "a").await;
            let b = put_numbered(&*store, "set/b.ldb", 100..200, "a").await;
            let mut described = Vec::new();
            for path in [&a, &b] {
                let shard = Shard::describe(Arc::clone(&store), path).await.unwrap();
                described.push(shard.unwrap());
            }
            let options = SetOptions::new();
            let path = manifest();
            let publish = |described: &[Shard]| {
                let store = Arc::clone(&store);
                options.publish_shards(store, &path, described.to_vec(), None)
            };
            // Replaced between its description and the publication, with as many bytes.
            put_numbered(&*store, "set/b.ldb", 100..200, "b").await;
            assert_kind(publish(&described).await, PublishErrorKind::Shard);
            described[1] = Shard::describe(Arc::clone(&store), &b)
                .await
                .unwrap()
                .unwrap();
            publish(&described).await.unwrap();
            // Replaced and removed since the publication.
            let set = TableSet::open(Arc::clone(&store), &path).await.unwrap();
            let kept = TableSet::open(Arc::clone(&store), &path).await.unwrap();
            kept.get("00000150").await.unwrap().unwrap();
            put_numbered(&*store, "set/b.ldb", 100..200, "c").await;
            store.delete(&a).await.unwrap();
            for set in [set, kept] {
                for key in ["00000050", "00000101", "00000199"] {
                    // The block that is in the cache is of the version that the set names.
                    match set.get(key).await {
                        Ok(value) => assert!(value.unwrap().starts_with(b"b ")),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Replaced, "{error}"),
                    }
                }
                let error = set.get("00000050").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
                assert!(error.to_string().contains("set/a.ldb"), "{error}");
                let error = collect(set.range(..)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
            }
        });
    }
}

/// A reader that lists the manifests of a directory while others are published sees one of them.
#[test]
fn readers_see_one_set_while_others_are_published() {
    for (store, _directory) in stores() {
        run(async move {
            let first = put_and_publish(&store, "0", None).await.unwrap();
            let writer = Arc::clone(&store);
            let writer = tokio::spawn(async move {
                let mut version = first.version;
                for i in 1..30 {
                    let name = i.to_string();
                    let published = put_and_publish(&writer, &name, Some(&version));
                    version = published.await.unwrap().version;
                }
            });
            let mut last = 0;
            while !writer.is_finished() {
                let contents = contents(&store).await.unwrap();
                let value = std::str::from_utf8(&contents[&b"00000000"[..]]).unwrap();
                let version = value.split(' ').next().unwrap().to_owned();
                assert_eq!(Some(contents), all(&version), "a mixture");
                let number: u32 = version.parse().unwrap();
                assert!(number >= last, "{number} after {last}");
                last = number;
                // In memory, nothing waits, and the writer could be left in this thread's queue.
                tokio::task::yield_now().await;
            }
            writer.await.unwrap();
            assert_eq!(contents(&store).await, all("29"));
        });
    }
}

/// A client repeats a write whose reply was lost: the store says that there is an object, which is the one that was written.
#[test]
fn a_shard_that_was_written_once_too_often_is_not_another_one() {
    for (store, _directory) in stores() {
        run(async move {
            let (path, source) = ("set/0.ldb".into(), "it exists".into());
            let mut error = Some(Error::AlreadyExists { path, source });
            let watched = Watched::with(Arc::clone(&store), move |_, request| {
                match error.take_if(|_| request == "put set/0.ldb") {
                    Some(error) => Fate::ReplyLost(Box::pin(async {}), Some(error)),
                    None => Fate::Served,
                }
            });
            let upload = UploadOptions::new().replace_existing(false);
            let build = async |value| {
                let (store, path) = (Arc::clone(&watched) as _, Path::from("set/0.ldb"));
                let mut builder = upload.create(store, path, &WriteOptions::new())?;
                builder.add("key", value).await?;
                builder.finish().await
            };
            let uploaded = build("value").await.unwrap();
            let found = store.head(&Path::from("set/0.ldb")).await.unwrap();
            assert_eq!(uploaded.version.e_tag, found.e_tag);
            // Also if another has built the same.
            assert_eq!(build("value").await.unwrap(), uploaded);
            let error = build("other").await.unwrap_err();
            let error = std::io::Error::from(error);
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        });
    }
}
