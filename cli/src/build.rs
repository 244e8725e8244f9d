//! `leveltable build`: builds a table, or a database, from lines of text, CSV or JSON lines.

use std::path::PathBuf;

use leveltable::db::InternalKey;
use leveltable::{ErrorKind, WriteOptions};
use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
use serde_json::json;

use crate::Answer;
use crate::failure::Failure;
use crate::input::{Entries, InputOptions, place};
use crate::interrupt;
use crate::output::{Progress, count, print, report};
use crate::path::is_url;
use crate::place::{check_no_secret, check_order_of_arguments};
use crate::remote;
use crate::set::Shard;
use crate::sort::{Add, KeyOrder, comparators, drain, sort_failed, sorter};
use crate::write::{TableOptions, check_out, is_stdout, parse_size, report_leftovers, write_table};

/// Build a table or a database from lines of text, CSV or JSON lines.
///
/// Without --format, a line is `key<TAB>value`, with escapes, whatever it looks like. OUT appears only when the table,
/// or with --database the directory, is complete and on disk.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/build.txt").trim_end())]
pub(crate) struct Args {
    /// The table's file or URL; - for standard output; with --database, the new directory
    out: PathBuf,
    /// The lines; - for standard input
    #[arg(value_name = "IN", default_value = "-")]
    input: PathBuf,
    /// Build a LevelDB database: a directory
    #[arg(long, conflicts_with_all = ["force", "json", "no_properties"])]
    database: bool,
    /// The order of the database's keys; Chrome's IndexedDB has idb_cmp1 [default: leveldb.BytewiseComparator]
    #[arg(long, requires = "database", value_name = "NAME", value_parser = comparators())]
    comparator: Option<KeyOrder>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Print the record of the table for `publish -`, which then need not open it; none for an empty table
    #[arg(long)]
    json: bool,
    /// Build an empty table if there are no entries
    #[arg(long, help_heading = "Input")]
    allow_empty: bool,
    #[command(flatten)]
    entries: InputOptions,
    /// Sort the entries first
    #[arg(long, help_heading = "Input")]
    sort: bool,
    /// Keep the last of several entries with the same key, instead of failing
    #[arg(long, requires = "sort", help_heading = "Input")]
    keep_last: bool,
    /// Memory for sorting; temporary files hold the rest
    #[arg(long, requires = "sort", value_parser = parse_size, default_value = "256M", value_name = "SIZE",
        help_heading = "Input")]
    sort_memory: usize,
    #[command(flatten)]
    table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let has_versions = args.entries.has_versions();
    let order = match args.comparator {
        Some(KeyOrder::IndexedDb) if has_versions => KeyOrder::IndexedDb,
        Some(KeyOrder::IndexedDb) => KeyOrder::IndexedDbUser,
        _ => KeyOrder::of(has_versions),
    };
    let options = args
        .table
        .write(KeyOrder::of(args.database || order.is_database()))?;
    if is_url(&args.input) {
        check_no_secret(&args.input)?;
        let what = "entries are read from a file or standard input: download them first";
        return Err(Failure::of(&args.input, what));
    }
    check_order_of_arguments(&args.out, &args.input)?;
    if args.database {
        return build_database(args, order, options.properties(false));
    }
    check_out(&args.out, args.force)?;
    if args.json {
        if args.out.as_os_str() == "-" {
            let what = "--json prints to standard output: name a file or a URL for the table";
            return Err(Failure::new(what));
        }
        remote::check(&args.out)?;
    }
    let entries = Entries::open(&args.input, &args.entries)?;
    write_table(&args.out, args.force, &options, |add| {
        fill(add, entries, order, args)
    })?;
    if args.json {
        let shard: Option<Shard> = remote::describe(&args.out)?;
        let record = shard.map(|shard| format!("{}\n", json!(shard)));
        print(record.unwrap_or_default())?;
    }
    Ok(Answer::Yes)
}

/// Builds a directory. LevelDB reads its tables, and does not need properties in them.
fn build_database(args: &Args, order: KeyOrder, tables: WriteOptions) -> Result<Answer, Failure> {
    if is_url(&args.out) || is_stdout(&args.out) {
        return Err(Failure::of(
            &args.out,
            "a database is a directory: name one that is not there yet",
        ));
    }
    let entries = Entries::open(&args.input, &args.entries)?;
    let mut failure = None;
    let built = interrupt::guard_directory(|guard| {
        let options = DatabaseBuildOptions::new().tables(tables);
        let options = options.comparator(order.of_user_keys());
        let mut builder = DatabaseBuilder::create(&args.out, options)?;
        if let Some(temporary) = builder.temporary_path() {
            guard(temporary);
        }
        let mut add = |key: &[u8], value: &[u8]| match InternalKey::parse(key) {
            Some(version) if order.is_database() => builder.add(version, value),
            _ => builder.put(key, value),
        };
        if let Err(failed) = fill(&mut add, entries, order, args) {
            interrupt::after_failure();
            failure = Some(failed);
            return Ok(None);
        }
        builder.finish().map(Some)
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let built = built.unwrap_or_default();
    let (entries, tables) = (count(built.entries, "entry"), count(built.tables, "table"));
    report(
        &args.out,
        format!("{entries} in {tables}, {} bytes", built.bytes),
    );
    report_leftovers(&built.leftovers);
    Ok(Answer::Yes)
}

/// Passes all entries to `add`, which adds one to the table.
fn fill(add: &mut Add<'_>, entries: Entries, order: KeyOrder, args: &Args) -> Result<(), Failure> {
    let (mut progress, name) = (Progress::bytes(entries.size), entries.name.clone());
    let sorter = || {
        let sorter = sorter(order, args.keep_last, args.sort_memory);
        sorter.progress(progress.of_sorting())
    };
    let mut sorter = args.sort.then(sorter);
    let (mut previous, mut count) = (Vec::new(), 0u64);
    entries.in_chunks(|chunk| {
        progress.set(chunk.position);
        for (key, value, line) in chunk.iter() {
            count += 1;
            if let Some(sorter) = &mut sorter {
                sorter.add(key, value).map_err(sort_failed)?;
                continue;
            }
            add(key, value).map_err(|e| match e.kind() {
                ErrorKind::OutOfOrder => {
                    Failure::new(out_of_order(order, &previous, key)).at(place(&name, line))
                }
                ErrorKind::TooLarge => Failure::from(e).at(place(&name, line)),
                _ => e.into(),
            })?;
            key.clone_into(&mut previous);
        }
        Ok(())
    })?;
    if count == 0 && !args.allow_empty {
        // Usually, the command that should have written them has failed.
        let what = "no entries: use --allow-empty to build an empty table";
        return Err(Failure::new(what).at(name));
    }
    drop(progress);
    match sorter {
        Some(sorter) => drain(sorter, order, add),
        None => Ok(()),
    }
}

#[cold]
fn out_of_order(order: KeyOrder, previous: &[u8], key: &[u8]) -> String {
    let shown = order.show(key);
    if key == previous {
        format!("duplicate key {shown}: remove one, or use --sort --keep-last")
    } else {
        format!(
            "key {shown} is out of order, it follows {}: sort the lines, or use --sort",
            order.show(previous)
        )
    }
}
