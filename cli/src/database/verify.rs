//! What `verify` checks of a database: MANIFEST, logs, and the tables that the MANIFEST lists.

use std::path::Path;

use leveltable::ErrorKind;
use leveltable_database::{Database, DatabaseFile, FileState, TableFile};
use serde_json::json;

use super::info::gap_name;
use super::{options, state_name};
use crate::Answer;
use crate::failure::Failure;
use crate::files::each_file;
use crate::output::count;
use crate::place::source;
use crate::sort::KeyOrder;
use crate::verify::{Listed, Report, Verified, known_order, verify_listed};

/// Checks the database in the directory `path`.
pub(crate) fn check(path: &Path, report: &mut Report<'_>) -> Result<Answer, Failure> {
    // Opening reads the MANIFEST and the logs.
    let db = match options(false).open_read_only(path) {
        Ok(db) => db,
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotADatabase) => {
            let what = Failure::from(e).to_string();
            return conclude(path, Answer::No, &what, report);
        }
        Err(e) => return Err(e.into()),
    };
    let (mut tables, mut notes) = (0, String::new());
    let worst = each_file(db.files()?, |file| match (file.state, &file.listed) {
        (FileState::Live, Some((_, listed))) => {
            tables += 1;
            let verified = check_listed(&db, &file, listed, &mut notes);
            report.table(&path.join(&file.name), verified)
        }
        (FileState::Missing, Some(_)) => {
            let what = "missing: the MANIFEST lists it";
            conclude(&path.join(&file.name), Answer::No, what, report)
        }
        // LevelDB opens a database without its newest log.
        (FileState::Missing | FileState::Orphan, _) => {
            notes += &format!("; note: {} is {}", file.name, state_name(file.state));
            Ok(Answer::Yes)
        }
        _ => Ok(Answer::Yes),
    })?;
    for left_out in &db.recovery().gaps {
        let (file, gap, what) = (&left_out.file, &left_out.gap, gap_name(left_out.gap.kind));
        let place = format!("{file} at offset {}", gap.offset);
        notes += &format!("; note: {place}: {} bytes: {what}", gap.bytes);
    }
    let logs = count(db.recovery().logs.len() as u64, "log");
    let tables = count(tables, "table");
    let what = format!("a database of {tables} and {logs}{notes}");
    conclude(path, worst, &what, report)
}

/// Prints what was found out about the database, or a file of it that is not there.
fn conclude(
    path: &Path,
    answer: Answer,
    what: &str,
    report: &mut Report<'_>,
) -> Result<Answer, Failure> {
    let fields = json!({"keys": "database", "error": what});
    report.whole(path, answer, what, fields)
}

/// Checks a table that the MANIFEST lists, in the order that the MANIFEST names, and that it is as listed.
fn check_listed(
    db: &Database,
    file: &DatabaseFile,
    listed: &TableFile,
    notes: &mut String,
) -> Result<Verified, Failure> {
    let path = db.path().join(&file.name);
    let listed = Listed {
        by: "the MANIFEST says",
        bytes: listed.size,
        entries: None,
        ends: [&listed.smallest, &listed.largest],
        order: KeyOrder::Internal,
    };
    let verify_in = |order| verify_listed(source(&path)?, known_order(order), &listed);
    let order = KeyOrder::of_database(&db.comparator());
    let verified = verify_in(order)?;
    // Programs that do not know Chrome's order have opened its databases, and written tables in byte order.
    if order == Some(KeyOrder::IndexedDb) && !verified.is_sound() {
        let bytewise = verify_in(Some(KeyOrder::Internal))?;
        if bytewise.report.is_sound() {
            *notes += &format!("; note: {} is in byte order", file.name);
            return Ok(bytewise);
        }
    }
    Ok(verified)
}
