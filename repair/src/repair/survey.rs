//! Reads every table once, in the order that a MANIFEST names, or that the keys suggest.

use std::collections::BTreeMap;
use std::sync::Arc;

use leveltable::sister_crates::{Order, internal_order};
use leveltable::{Comparator, Error, ErrorKind, Result};
use leveltable_database::sister_crates::{Directory, built_in_comparator};
use leveltable_database::{FileKind, IndexedDbComparator};

use super::manifest::Manifests;
use super::table::Table;
use crate::file::File;
use crate::progress::Reporter;

/// Maximum size of a table in bytewise order that is sorted in memory.
const MAX_RESORTED: u64 = 64 << 20;

/// The tables of a directory, and the order of their user keys.
pub(super) struct Survey {
    pub(super) order: Order,
    pub(super) tables: Vec<Table>,
    /// Whether nothing named the order, and all keys in tables may be those of Chromium's IndexedDB.
    pub(super) is_guess: bool,
}

/// Reads all tables.
pub(super) fn survey(
    dir: &dyn Directory,
    files: &BTreeMap<String, u64>,
    manifests: &Manifests,
    comparator: Option<&Arc<dyn Comparator>>,
    progress: &mut Reporter<'_>,
) -> Result<Survey> {
    let names = table_names(dir, files)?;
    let mut is_guess = false;
    let order = match (comparator, manifests.comparator()) {
        (Some(given), Some(named)) if given.name() != named => {
            let given = given.name();
            let what =
                format!("the MANIFEST names the comparator {named:?}, and the options {given:?}");
            return Err(unknown_order(dir, &what));
        }
        (Some(given), _) => Order::of(given.clone()),
        (None, Some(named)) => {
            let built_in = built_in_comparator(named.as_bytes()).map(Order::of);
            let what = || format!("the MANIFEST names the comparator {named:?}");
            built_in.ok_or_else(|| unknown_order(dir, &what()))?
        }
        (None, None) => {
            is_guess = true;
            Order::Bytewise
        }
    };
    let mut tables = read(dir, &names, &order, progress)?;
    let mut order = order;
    let is_misordered = |tables: &[Table]| tables.iter().any(|table| table.misordered > 0);
    if is_guess && is_misordered(&tables) {
        order = Order::of(IndexedDbComparator);
        tables = read(dir, &names, &order, progress)?;
        if is_misordered(&tables) {
            return Err(unknown_order(
                dir,
                "no MANIFEST names the order of keys, which is not bytewise",
            ));
        }
        is_guess = false;
    }
    is_guess &= tables.iter().all(|table| table.is_indexed_db);
    Ok(Survey {
        order,
        tables,
        is_guess,
    })
}

pub(super) fn unknown_order(dir: &dyn Directory, what: &str) -> Error {
    let error = Error::new(ErrorKind::Comparator, what).at_path(dir.path());
    error.with_hint("name the comparator that this database was written with")
}

/// Numbers and names of the tables, in ascending order.
fn table_names(
    dir: &dyn Directory,
    files: &BTreeMap<String, u64>,
) -> Result<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    for name in files.keys() {
        if let (FileKind::Table, Some(number)) = FileKind::of(name)
            && let Some(other) = names.insert(number, name.clone())
        {
            let message = format!(
                "{name} and {other} have the same number: take away the one that does not belong here"
            );
            return Err(Error::new(ErrorKind::InvalidState, message).at_path(dir.path()));
        }
    }
    Ok(names)
}

fn read(
    dir: &dyn Directory,
    names: &BTreeMap<u64, String>,
    order: &Order,
    progress: &mut Reporter<'_>,
) -> Result<Vec<Table>> {
    let (mut tables, mut done) = (Vec::new(), 0);
    let internal = internal_order(order.clone());
    for (&number, name) in names {
        let file = File::new(dir.open_table(name)?)?;
        file.refuse_foreign().map_err(|error| file.at_path(error))?;
        let mut table = Table::survey(name, number, &file, &internal)?;
        if table.misordered > 0 && file.size <= MAX_RESORTED {
            let bytewise = internal_order(Order::Bytewise);
            let plain = Table::survey(name, number, &file, &bytewise)?;
            if plain.misordered == 0 {
                table = plain.resorted(dir, order)?;
            }
        }
        done += table.bytes;
        progress.proceed(done)?;
        tables.push(table);
    }
    Ok(tables)
}
