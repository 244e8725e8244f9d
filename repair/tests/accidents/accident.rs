//! What happens to databases.

use std::fs;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use leveltable::Source;
use leveltable_database::{FileKind, LogItem, LogReader};
use leveltable_repair::{blocks, layout};

use crate::owned::{BATCH, Owned};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Accident {
    Nothing,
    CurrentLost,
    CurrentEmpty,
    CurrentNamesNothing,
    ManifestLost,
    /// To so many per cent.
    ManifestCut(u64),
    ManifestCutAtRecord,
    ManifestShort,
    ManifestFlipped,
    ManifestOlder,
    ManifestsTwo,
    RemovedTablesBack,
    TableLost,
    FooterCut,
    HalfTable,
    BlockFlipped,
    IndexFlipped,
    PageZeroed,
    LogCut,
    LogFlipped,
    LogLost,
    // The 23 end here.
    LargestTableLost,
    RemovedLogsBack,
}

use Accident::*;

pub(crate) const ALL: [Accident; 23] = [
    Nothing,
    CurrentLost,
    CurrentEmpty,
    CurrentNamesNothing,
    ManifestLost,
    ManifestCut(3),
    ManifestCut(40),
    ManifestCut(80),
    ManifestCutAtRecord,
    ManifestShort,
    ManifestFlipped,
    ManifestOlder,
    ManifestsTwo,
    RemovedTablesBack,
    TableLost,
    FooterCut,
    HalfTable,
    BlockFlipped,
    IndexFlipped,
    PageZeroed,
    LogCut,
    LogFlipped,
    LogLost,
];

/// What an accident did.
#[derive(Debug, Default, Clone)]
pub(crate) struct Strike {
    /// The file, and what became of it.
    pub(crate) what: String,
    /// Whether the log ends as after a crash, and nothing tells that it was longer.
    pub(crate) is_like_a_crash: bool,
    /// Keys of the block or the record that was hit.
    pub(crate) keys: usize,
}

impl Accident {
    /// Whether nothing is lost and nothing in doubt.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(
            self,
            Nothing
                | CurrentLost
                | CurrentEmpty
                | CurrentNamesNothing
                | FooterCut
                | IndexFlipped
                | RemovedTablesBack
                | RemovedLogsBack
        )
    }

    /// Whether no data were hit: of a closed database, all must come back.
    pub(crate) fn spares_data(self) -> bool {
        let is_of_manifest = matches!(
            self,
            ManifestLost
                | ManifestCut(_)
                | ManifestCutAtRecord
                | ManifestShort
                | ManifestFlipped
                | ManifestOlder
                | ManifestsTwo
        );
        self.is_harmless() || is_of_manifest
    }

    /// Happens to the database in `dir`, a copy of `owned` that other accidents may have hit. `None` where it cannot.
    pub(crate) fn strike(
        self,
        dir: &Path,
        owned: &Owned,
        random: &mut fastrand::Rng,
    ) -> Option<Strike> {
        let mut strike = Strike::default();
        let manifest = dir.join(&owned.manifest);
        let len = fs::metadata(&manifest).map_or(0, |file| file.len());
        match self {
            Nothing => {}
            CurrentLost => fs::remove_file(dir.join("CURRENT")).ok()?,
            CurrentEmpty => fs::write(dir.join("CURRENT"), "").unwrap(),
            CurrentNamesNothing => fs::write(dir.join("CURRENT"), "MANIFEST-999999\n").unwrap(),
            ManifestLost => fs::remove_file(&manifest).ok()?,
            ManifestCut(percent) => cut(&manifest, len * percent / 100)?,
            ManifestCutAtRecord => {
                let reader = LogReader::open(owned.dir.join(&owned.manifest)).unwrap();
                let offset = |item| match item {
                    Ok(LogItem::Record(record)) => record.offset,
                    other => panic!("{other:?}"),
                };
                let records: Vec<u64> = reader.map(offset).collect();
                cut(&manifest, random.choice(records.get(1..)?).copied()?)?;
            }
            ManifestShort => cut(&manifest, len.checked_sub(5)?)?,
            ManifestFlipped => strike.what = flip(&manifest, 0, len, random)?,
            ManifestOlder | ManifestsTwo => {
                let older = owned.older_manifest.as_ref()?;
                let name = older.file_name()?.to_str()?;
                fs::copy(older, dir.join(name)).unwrap();
                if self == ManifestOlder {
                    fs::remove_file(&manifest).ok()?;
                    fs::write(dir.join("CURRENT"), format!("{name}\n")).unwrap();
                } else {
                    fs::remove_file(dir.join("CURRENT")).ok()?;
                }
            }
            RemovedTablesBack => bring_back(FileKind::Table, dir, owned),
            RemovedLogsBack => bring_back(FileKind::Log, dir, owned),
            LogCut | LogFlipped | LogLost => return self.strike_log(dir, owned, random),
            _ => return self.strike_table(dir, owned, random),
        }
        Some(strike)
    }

    fn strike_table(self, dir: &Path, owned: &Owned, random: &mut fastrand::Rng) -> Option<Strike> {
        let size = |name: &str| fs::metadata(dir.join(name)).map_or(0, |file| file.len());
        let there = { owned.tables.iter() }.filter(|(name, _)| dir.join(name).exists());
        let there: Vec<_> = there.collect();
        let (name, level) = if self == LargestTableLost {
            there.into_iter().max_by_key(|(name, _)| size(name))?
        } else {
            // Every byte is as likely to be hit.
            let all: u64 = there.iter().map(|(name, _)| size(name)).sum();
            let mut at = random.u64(..all.max(1));
            there.into_iter().find(|(name, _)| {
                let is_here = at < size(name);
                at = at.saturating_sub(size(name));
                is_here
            })?
        };
        let (path, whole) = (dir.join(name), owned.dir.join(name));
        let len = fs::metadata(&whole).unwrap().len();
        let mut strike = Strike::default();
        let mut what = String::new();
        match self {
            TableLost | LargestTableLost => fs::remove_file(&path).unwrap(),
            FooterCut => cut(&path, len - random.u64(1..=48))?,
            HalfTable => cut(&path, len / 2)?,
            BlockFlipped => {
                let mut blocks = blocks(Source::open(&whole).unwrap()).unwrap();
                let blocks: Vec<_> = std::iter::from_fn(|| {
                    let mut keys = 0;
                    let block = blocks.next_with(|_, _| keys += 1)?.unwrap();
                    Some((block.offset, block.stored_bytes, keys))
                })
                .collect();
                let &(offset, bytes, keys) = random.choice(&blocks)?;
                what = flip(&path, offset, bytes, random)?;
                strike.keys = keys;
            }
            IndexFlipped => {
                let index = layout(Source::open(&whole).unwrap()).unwrap().index;
                what = flip(&path, index.offset, index.stored_bytes, random)?;
            }
            PageZeroed => {
                let page = random.u64(..len.div_ceil(4096)) * 4096;
                let end = (page + 4096).min(fs::metadata(&path).unwrap().len());
                let zeros = vec![0; usize::try_from(end.checked_sub(page)?).unwrap()];
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&zeros, page).unwrap();
                what = format!("at {page}");
            }
            _ => unreachable!(),
        }
        strike.what = format!("{name} of level {level} {what}");
        Some(strike)
    }

    fn strike_log(self, dir: &Path, owned: &Owned, random: &mut fastrand::Rng) -> Option<Strike> {
        let there = { owned.logs.iter() }.filter(|name| dir.join(name).exists());
        let there: Vec<_> = there.collect();
        let (newest, name) = (*there.last()?, *random.choice(&there)?);
        let path = dir.join(name);
        let bytes = fs::read(&path).unwrap();
        let len = bytes.len() as u64;
        let mut strike = Strike {
            keys: BATCH,
            ..Strike::default()
        };
        let mut what = String::new();
        match self {
            LogCut => {
                let at = random.u64(..len.max(1));
                cut(&path, at)?;
                strike.is_like_a_crash = name == newest;
                what = format!("at {at}");
            }
            LogFlipped => {
                what = flip(&path, 0, len, random)?;
                strike.is_like_a_crash = name == newest && runs_past_end(&fs::read(&path).unwrap());
            }
            LogLost => {
                fs::remove_file(&path).unwrap();
                strike.is_like_a_crash = name == newest && there.len() > 1;
            }
            _ => unreachable!(),
        }
        strike.what = format!("{name} {what}");
        Some(strike)
    }
}

/// Whether the first record of a log that is not sound seems to be longer than the log, as after a crash.
fn runs_past_end(log: &[u8]) -> bool {
    let mut at = 0;
    while let Some(header) = log.get(at..at + 7) {
        let left = 32768 - at % 32768;
        if left < 7 {
            at += left;
            continue;
        }
        let end = at + 7 + usize::from(u16::from_le_bytes([header[4], header[5]]));
        if end > log.len() {
            return end - at <= left;
        }
        let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let unmasked = stored.wrapping_sub(0xa282_ead8).rotate_left(15);
        if end - at > left || crc32c::crc32c(&log[at + 6..end]) != unmasked {
            return false;
        }
        at = end;
    }
    false
}

fn cut(path: &Path, len: u64) -> Option<()> {
    let file = OpenOptions::new().write(true).open(path).ok()?;
    // Another accident may have cut off more.
    let is_longer = file.metadata().unwrap().len() > len;
    is_longer.then(|| file.set_len(len).unwrap())
}

/// Flips a bit of these bytes.
fn flip(path: &Path, offset: u64, bytes: u64, random: &mut fastrand::Rng) -> Option<String> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let (at, bit) = (offset + random.u64(..bytes.max(1)), 1u8 << random.u32(..8));
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).ok()?;
    file.write_all_at(&[byte[0] ^ bit], at).unwrap();
    Some(format!("bit {bit:#x} at {at}"))
}

/// Copies what LevelDB has removed.
fn bring_back(kind: FileKind, dir: &Path, owned: &Owned) {
    for file in fs::read_dir(&owned.removed).unwrap() {
        let file = file.unwrap();
        let name = file.file_name();
        let is_removed = !owned.dir.join(&name).exists();
        if FileKind::of(name.to_str().unwrap()).0 == kind && is_removed {
            fs::copy(file.path(), dir.join(name)).unwrap();
        }
    }
}
