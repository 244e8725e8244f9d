//! The contents of MANIFESTs, and which of them counts.

use std::collections::{BTreeMap, BTreeSet};

use leveltable::{Result, Section};
use leveltable_database::sister_crates::{Directory, check_foreign};
use leveltable_database::{Edit, FileKind, LogItem, TableMetadata};

use super::log;
use super::report::{Grade, RepairFinding};

/// The contents of the sound records of a MANIFEST.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) number: u64,
    /// Number of sound records.
    pub(super) records: u64,
    /// Whether it contains anything but sound records, or a newer one has none.
    pub(super) is_damaged: bool,
    pub(super) comparator: Option<String>,
    /// The tables that it lists, by number, with their levels.
    pub(super) live: BTreeMap<u64, (u32, TableMetadata)>,
    /// Tables that it deletes and does not add again.
    pub(super) deleted: BTreeSet<u64>,
    /// The highest log number, if one is recorded.
    pub(super) log: Option<u64>,
    pub(super) previous_log: Option<u64>,
    pub(super) next_file: u64,
    pub(super) last_sequence: u64,
}

impl Manifest {
    pub(super) fn read(dir: &dyn Directory, name: &str) -> Result<Manifest> {
        let mut manifest = Manifest {
            name: name.to_owned(),
            number: FileKind::of(name).1.unwrap_or(0),
            ..Manifest::default()
        };
        let path = dir.path().join(name);
        let refuse = |offset, found: &str| check_foreign(Section::Manifest, &path, offset, found);
        for item in log::open(dir, name)? {
            match item {
                Ok(LogItem::Record(record)) => match Edit::parse(&record.payload) {
                    Ok(edit) => {
                        manifest.apply(edit);
                        continue;
                    }
                    Err(defect) => refuse(record.offset, &defect.found)?,
                },
                Ok(LogItem::Gap(gap)) => refuse(gap.offset, &gap.found)?,
                Err(_) => {}
            }
            manifest.is_damaged = true;
        }
        Ok(manifest)
    }

    fn apply(&mut self, edit: Edit) {
        self.records += 1;
        for (_, number) in edit.deleted {
            self.live.remove(&number);
            self.deleted.insert(number);
        }
        for (level, file) in edit.added {
            self.deleted.remove(&file.number);
            self.live.insert(file.number, (level, file));
        }
        if let Some(name) = edit.comparator {
            self.comparator = Some(String::from_utf8_lossy(&name).into_owned());
        }
        // After damage, this record may be older than a lost one.
        self.log = self.log.max(edit.log_number);
        self.previous_log = edit.prev_log_number.or(self.previous_log);
        self.next_file = self.next_file.max(edit.next_file_number.unwrap_or(0));
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
    }

    /// Sizes of the tables that compactions left.
    pub(super) fn compacted(&self) -> impl Iterator<Item = u64> {
        let compacted = self.live.values().filter(|(level, _)| *level > 0);
        compacted.map(|(_, file)| file.size)
    }
}

/// All MANIFESTs of a directory, and which of them counts.
#[derive(PartialEq, Eq)]
pub(super) struct Manifests {
    pub(super) all: Vec<Manifest>,
    /// Whether CURRENT can be read.
    has_current: bool,
    /// The one that CURRENT names.
    pub(super) current: Option<usize>,
    /// The one that is used: it has a sound record.
    pub(super) chosen: Option<usize>,
}

impl Manifests {
    pub(super) fn read(dir: &dyn Directory, names: &[String]) -> Result<Manifests> {
        let all = names.iter().map(|name| Manifest::read(dir, name));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        let text = dir.read("CURRENT", 1000);
        let has_current = text.is_ok();
        let text = text.unwrap_or_default();
        let named = String::from_utf8_lossy(&text);
        let current = all.iter().position(|own| own.name == named.trim());
        let newest = (0..all.len()).max_by_key(|&at| {
            let age = |own: &Manifest| (own.last_sequence, own.number);
            all.get(at).map(age)
        });
        let chosen = current.or(newest);
        if let (None, Some(chosen)) = (current, chosen) {
            let number = all.get(chosen).map_or(0, |own| own.number);
            let is_newer = |own: &Manifest| own.number > number && own.records == 0;
            let is_doubtful = all.iter().any(is_newer);
            all.iter_mut().for_each(|own| own.is_damaged |= is_doubtful);
        }
        let is_sound = |&at: &usize| all.get(at).is_some_and(|own| own.records > 0);
        Ok(Manifests {
            has_current,
            current,
            chosen: chosen.filter(is_sound),
            all,
        })
    }

    pub(super) fn chosen(&self) -> Option<&Manifest> {
        self.chosen.and_then(|at| self.all.get(at))
    }

    /// The state of the MANIFEST of this name for the report, and the number of its sound records. CURRENT has none.
    pub(super) fn state(&self, name: &str) -> (u64, &'static str) {
        let Some(at) = self.all.iter().position(|own| own.name == name) else {
            let named = self.current.map_or(
                "names no MANIFEST of this directory",
                |_| "names the MANIFEST",
            );
            return (0, named);
        };
        let own = self.all.get(at);
        let state = match own {
            Some(own) if own.records == 0 => "without a sound record",
            _ if self.chosen != Some(at) => "not the one that counts",
            Some(own) if own.is_damaged => "says which tables count, damaged",
            _ => "says which tables count",
        };
        (own.map_or(0, |own| own.records), state)
    }

    /// Reports which MANIFEST is used if it is not the one in CURRENT.
    pub(super) fn findings(&self) -> Vec<RepairFinding> {
        let (None, Some(chosen)) = (self.current, self.chosen()) else {
            return Vec::new();
        };
        let why = if self.has_current {
            "it names no MANIFEST of this directory"
        } else {
            "it is missing or unreadable"
        };
        let reason = format!("{why}: {} is used", chosen.name);
        let file = Some("CURRENT".to_owned());
        vec![RepairFinding::new(Grade::Note, file, reason, (None, None))]
    }

    /// The name of the comparator: from the MANIFEST that is used, or else from another one.
    pub(super) fn comparator(&self) -> Option<&str> {
        let others = self.all.iter().rev();
        let mut all = self.chosen().into_iter().chain(others);
        all.find_map(|own| own.comparator.as_deref())
    }
}
