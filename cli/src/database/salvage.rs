//! `salvage` of a database: copies the readable parts of its tables and logs to one table.

use std::path::Path;

use leveltable::Sorter;
use leveltable_database::{Database, DatabaseFile, FileKind, FileState, GapKind};

use super::options;
use super::records::{self, Record};
use crate::Answer;
use crate::failure::Failure;
use crate::open::{Keys, check_is_file};
use crate::output::{complain, count, note, print};
use crate::path::is_database;
use crate::salvage::{Args, lines_of, rescue};
use crate::sort::{KeyOrder, drain, sort_failed, sorter};
use crate::write::{check_out, write_table};

/// Memory for sorting the entries.
const MEMORY: usize = 256 << 20;

/// The contents found in the files of a database.
struct Found {
    order: KeyOrder,
    versions: Sorter,
    tables: u64,
    logs: u64,
    /// A line for each part that is left out and may hold entries.
    left_out: Vec<String>,
}

/// Copies all versions that tables and logs of the database `args.input` still hold.
pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    check_out(&args.out, args.force)?;
    let input = &args.input;
    let db = options(true).open_read_only(input).or_else(|e| {
        // An error without a hint: the directory has no file of a database.
        if !is_database(input) && e.hint().is_none() {
            check_is_file(input)?;
        }
        let what = format!("{}; taking all tables and logs", Failure::from(e));
        complain("note", &what);
        Ok::<_, Failure>(options(true).open_without_manifest(input)?)
    });
    let db = db?;
    let order = KeyOrder::of_database(&db.comparator()).ok_or_else(|| {
        let what = "is in an order that is not known: salvage its tables one by one";
        Failure::of(input, what)
    })?;
    let found = Found::of(&db, order, args.unlisted)?;
    if found.versions.entries() == 0 {
        let why = found.left_out.first().map_or("no entries", String::as_str);
        return Err(Failure::of(input, format!("nothing to salvage: {why}")));
    }
    let options = args.table.write(order)?;
    let written = write_table(&args.out, args.force, &options, |add| {
        drain(found.versions, order, add)
    })?;
    let (tables, logs) = (count(found.tables, "table"), count(found.logs, "log"));
    let (entries, out) = (
        count(written.properties.entries, "entry"),
        args.out.display(),
    );
    let mut lines = vec![format!("{entries} of {tables} and {logs} copied to {out}")];
    lines.extend({ found.left_out.iter() }.map(|part| format!("left out {part}")));
    print(lines_of(input, &lines))?;
    let is_complete = found.left_out.is_empty() && !db.recovery().without_manifest;
    Ok(Answer::yes_if(is_complete))
}

impl Found {
    /// Reads the files that are part of the database, and with `unlisted` also those that are not.
    fn of(db: &Database, order: KeyOrder, unlisted: bool) -> Result<Found, Failure> {
        let mut found = Found {
            order,
            // A table that was compacted may still exist, with the same entries.
            versions: sorter(order, true, MEMORY),
            tables: 0,
            logs: 0,
            left_out: Vec::new(),
        };
        let all = unlisted || db.recovery().without_manifest;
        for file in db.files()? {
            let path = db.path().join(&file.name);
            let is_taken = file.state == FileState::Live || all && file.bytes.is_some();
            match (file.kind, file.state) {
                (_, FileState::Missing) => found
                    .left_out
                    .push(format!("{}, which is missing", file.name)),
                (FileKind::Table, _) if is_taken => found.add_table(&path, &file)?,
                (FileKind::Log, _) if is_taken => found.add_log(&path, &file)?,
                (FileKind::Table, FileState::Orphan) => {
                    let what = "is not listed, and was not copied: --unlisted copies it";
                    note(&path, what);
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn add_table(&mut self, path: &Path, file: &DatabaseFile) -> Result<(), Failure> {
        let name = &file.name;
        match rescue(path, Keys::Database, Some(self.order)) {
            Ok(rescued) => {
                self.tables += 1;
                for entry in rescued.table.table.iter() {
                    let (key, value) = entry?;
                    self.versions.add(key, value).map_err(sort_failed)?;
                }
                let parts = rescued.left_out.iter();
                self.left_out
                    .extend(parts.map(|part| format!("{name}, {part}")));
            }
            Err(failure) => self.left_out.push(format!("{name}: {failure}")),
        }
        Ok(())
    }

    fn add_log(&mut self, path: &Path, file: &DatabaseFile) -> Result<(), Failure> {
        self.logs += 1;
        records::read(path, |_, record| {
            match record {
                Record::Change(row) => {
                    let added = self.versions.add(row.stored_key(), &row.value);
                    added.map_err(sort_failed)?;
                }
                Record::Edit(_) | Record::No(GapKind::Zeros, _) => {}
                Record::No(_, what) => self.left_out.push(format!("{}, {what}", file.name)),
            }
            Ok(true)
        })
    }
}
