//! What `verify` checks of a database: MANIFEST, logs, and the tables that the MANIFEST lists.

use std::io::Write;
use std::path::Path;

use leveltable::db::KeyKind;
use leveltable::{ErrorKind, OpenOptions};
use leveltable_database::{Database, DatabaseFile, FileState, TableFile};
use serde_json::json;

use super::info::gap_name;
use super::{options, state_name};
use crate::Answer;
use crate::failure::Failure;
use crate::files::each_file;
use crate::output::{Rows, count, file_record};
use crate::place::source;
use crate::sort::KeyOrder;
use crate::verify::{Args, FIELDS, Verified, check_table, other_ends, verify_source};

/// Checks the database in the directory `path`.
pub(crate) fn check(path: &Path, args: &Args, rows: &mut Rows) -> Result<Answer, Failure> {
    // Opening reads the MANIFEST and the logs.
    let db = match options(false).open_read_only(path) {
        Ok(db) => db,
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotADatabase) => {
            let what = Failure::from(e).to_string();
            return conclude(path, Answer::No, &what, args, rows);
        }
        Err(e) => return Err(e.into()),
    };
    let (mut tables, mut notes) = (0, Vec::new());
    let worst = each_file(db.files()?, |file| match (file.state, &file.listed) {
        (FileState::Live, Some((_, listed))) => {
            tables += 1;
            check_listed(&db, &file, listed, args, rows, &mut notes)
        }
        (FileState::Missing, Some(_)) => {
            let what = "missing: the MANIFEST lists it";
            conclude(&path.join(&file.name), Answer::No, what, args, rows)
        }
        // LevelDB opens a database without its newest log.
        (FileState::Missing | FileState::Orphan, _) => {
            notes.push(format!("{} is {}", file.name, state_name(file.state)));
            Ok(Answer::Yes)
        }
        _ => Ok(Answer::Yes),
    })?;
    for left_out in &db.recovery().gaps {
        let (gap, what) = (&left_out.gap, gap_name(left_out.gap.kind));
        let place = format!("{} at offset {}", left_out.file, gap.offset);
        notes.push(format!("{place}: {} bytes: {what}", gap.bytes));
    }
    let logs = count(db.recovery().logs.len() as u64, "log");
    let tables = count(tables, "table");
    let what = format!("a database of {tables} and {logs}");
    let notes = notes.iter().map(|note| format!("; note: {note}"));
    let what = notes.fold(what, |what, note| what + &note);
    conclude(path, worst, &what, args, rows)
}

/// Prints what was found out about the database, or a file of it that is not there.
fn conclude(
    path: &Path,
    answer: Answer,
    what: &str,
    args: &Args,
    rows: &mut Rows,
) -> Result<Answer, Failure> {
    let is_sound = answer == Answer::Yes;
    if args.json {
        let error = (!is_sound).then_some(what);
        let record = json!({"sound": is_sound, "keys": "database", "error": error});
        rows.write(|out| writeln!(out, "{}", file_record(path, &FIELDS, record)))?;
    } else if !args.quiet {
        let sound = if is_sound { "sound" } else { "not sound" };
        rows.write(|out| writeln!(out, "{}: {sound}: {what}", path.display()))?;
    }
    Ok(answer)
}

/// Checks a table that the MANIFEST lists, in the order that the MANIFEST names, and that it is as listed.
fn check_listed(
    db: &Database,
    file: &DatabaseFile,
    listed: &TableFile,
    args: &Args,
    rows: &mut Rows,
    notes: &mut Vec<String>,
) -> Result<Answer, Failure> {
    let path = db.path().join(&file.name);
    let verify_in = |order: Option<KeyOrder>| {
        let options = OpenOptions::new();
        let options = match order {
            Some(order) => options.comparator(order.of_user_keys()),
            // The MANIFEST says that it is another one.
            None => options.stored_order(),
        };
        let known = (Some(KeyKind::Database), options.clone());
        let mut verified = verify_source(source(&path)?, Some(listed.size), known)?;
        if verified.report.is_sound() {
            verified.difference = difference(&path, listed, options)?;
        }
        Ok::<Verified, Failure>(verified)
    };
    let order = KeyOrder::of_database(&db.comparator());
    let verify = || {
        let verified = verify_in(order)?;
        // Programs that do not know Chrome's order have opened its databases, and written tables in byte order.
        if order == Some(KeyOrder::IndexedDb) && !verified.is_sound() {
            let bytewise = verify_in(Some(KeyOrder::Internal))?;
            if bytewise.report.is_sound() {
                notes.push(format!("{} is in byte order", file.name));
                return Ok(bytewise);
            }
        }
        Ok(verified)
    };
    check_table(&path, verify, args, rows)
}

/// Returns how a sound table differs from what the MANIFEST says of it.
fn difference(
    path: &Path,
    listed: &TableFile,
    options: OpenOptions,
) -> Result<Option<String>, Failure> {
    let table = options
        .no_filter()
        .no_cache()
        .open_db_source(source(path)?)?;
    let found = table.as_table().file_bytes();
    if found != listed.size {
        return Ok(Some(format!(
            "{found} bytes, and the MANIFEST says {}",
            listed.size
        )));
    }
    let (ends, show) = ([&listed.smallest, &listed.largest], |key: &[u8]| {
        KeyOrder::Internal.show(key)
    });
    other_ends(table.as_table(), ends, show, "the MANIFEST says")
}
