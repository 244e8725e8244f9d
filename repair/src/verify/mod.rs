//! Checks a whole table and reports everything that is wrong with it: footer, index, metaindex, filters, data, and
//! whether these parts cover the file.
//!
//! ```text
//! options.rs      what a caller chooses
//! report.rs       findings and figures
//! filter.rs       a filter, and what it says of a key
//! run.rs          the state of a run; reads a block by its handle, checks frame and structure
//! blocks.rs       the footer, and what no handle leads to
//! metaindex.rs    the metaindex, and the filters, properties and pieces that it names
//! data.rs         index and data blocks: the order of the keys, and each key against the filters
//! ```

mod blocks;
mod data;
mod filter;
mod metaindex;
mod options;
mod report;
mod run;

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
use leveltable::db::KeyKind;
use leveltable::format::{Entries, Footer};
use leveltable::sister_crates::{
    Evidence, Order, internal_order, is_in_stored_order, named_order, user_order,
};
use leveltable::{Result, Section, Source};

use crate::file::{File, handles};
use blocks::{check_coverage, check_footer};
use data::{check_data, report_filters, walk};
use metaindex::{check_metaindex, compare_properties};
pub use options::VerifyOptions;
use report::Place;
pub use report::{Finding, Severity, VerifyReport};
use run::Run;

/// Checks the table in `source` and reports everything that is wrong with it, even if the table does not open.
///
/// Reads the whole file, and checks the footer, each block's checksum and structure, the order of keys in blocks and across
/// them, the index key of each data block against its neighbours, the first filter of each known policy against each key, the
/// properties against the counts, `about.pieces` against what it divides, and whether blocks overlap or leave gaps. If the
/// footer or the index is damaged, no data block is checked.
///
/// The kind and the order of the keys are taken from the options, or else from the properties. Without properties, index and first
/// block decide: if keys ascend neither bytewise nor as a database's do, the order is [unknown](VerifyReport::unknown_order); it is
/// also unknown if the properties name a comparator that the options do not. That is reported separately, since everything else is
/// checked. Keys that are out of order later are damage. If the keys fit both kinds and nothing says which it is, a filter must pass either the stored keys or their user keys.
///
/// Costs a read of the whole file, and of the first block again (no block is cached), and the memory of its largest block, of its index,
/// and of 24 bytes for each block. A file whose handles overlap is read at most twice.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the size of the source cannot be read. Everything else is in the report: a failed read is a
/// finding, and the rest is still checked.
///
/// ```
/// use leveltable::{Section, WriteOptions};
/// use leveltable_repair::{VerifyOptions, verify};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build(&mut file);
/// builder.add(b"apple", b"red")?;
/// builder.finish()?;
/// file[5] ^= 1; // in the first data block
///
/// let report = verify(file, VerifyOptions::new())?;
/// assert!(!report.is_sound());
/// assert_eq!(report.findings[0].section(), Section::Data);
/// println!("{report}");
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn verify(source: impl Into<Source>, options: VerifyOptions<'_>) -> Result<VerifyReport> {
    let file = File::new(source.into())?;
    let mut run = Run::new(&file, options);
    check(&mut run);
    Ok(run.report)
}

fn check(run: &mut Run<'_>) {
    let index = check_footer(run).and_then(|footer| check_metadata(run, footer));
    let block = index.as_ref().map(|(index, _)| index.block().clone());
    choose_order(run, block.as_ref());
    // Whether an index guarantees that there are no other data blocks.
    let is_complete = index.is_some();
    if let Some((index, place)) = index {
        check_data(run, index, place);
    }
    run.report.entries = run.counted.entries;
    run.report.data_blocks = run.counted.data_blocks;
    if !run.options.progress.is_cancelled {
        report_filters(run);
        compare_properties(run);
        check_coverage(run, is_complete);
    }
    run.report.file_bytes = run.file.size;
    run.report.cancelled = run.options.progress.is_cancelled;
    let findings = &mut run.report.findings;
    findings.sort_by_key(|finding| (finding.offset(), finding.section()));
    run.options.progress.complete();
}

/// Checks the metaindex and the blocks that it lists. Returns the index, if it is sound, and its place.
fn check_metadata(run: &mut Run<'_>, footer: Footer) -> Option<(Entries, Place)> {
    let named_by = (Section::Footer, run.file.footer_offset());
    let (index_at, at) = (footer.index, footer.metaindex);
    run.data_end = at.offset.min(index_at.offset);
    let index = run.load(index_at, Section::Index, named_by, Entries::new);
    if let Some(metaindex) = run.load(at, Section::Metaindex, named_by, Entries::new) {
        check_metaindex(run, metaindex, (Section::Metaindex, at.offset));
    }
    if let Some((pieces, place)) = &run.pieces {
        let check = |index: &Entries| pieces.check_block(index_at, index.block());
        let checked = pieces.check_index(index_at);
        let checked = checked.and_then(|()| index.as_ref().map_or(Ok(()), check));
        run.accept(*place, checked);
    }
    Some((index?, (Section::Index, index_at.offset)))
}

/// Chooses the kind of keys, and their order: from the options, or the properties, or else the keys of the index and of the
/// first block.
fn choose_order(run: &mut Run<'_>, index: Option<&Bytes>) {
    let named = named_order(&run.options.open).cloned();
    let is_internal = named.as_ref().is_some_and(Order::shortens_filter_keys);
    let of_order = named.as_ref().map(|_| match is_internal {
        true => KeyKind::Database,
        false => KeyKind::Plain,
    });
    let stated = run.stated().map(|stated| stated.key_kind);
    let kind = run.options.keys.or(of_order).or(stated);
    let first = index.map(|index| first_blocks(run.file, index));
    let first = first.unwrap_or_default();
    let evidence = evidence_of(&first);
    run.fits_both_kinds = evidence.may_hold_internal_keys();
    run.is_kind_guessed = kind.is_none() && run.fits_both_kinds;
    run.report.keys = kind.or(evidence.verdict()).unwrap_or_default();
    let order = named.clone().unwrap_or(Order::Bytewise);
    let is_wrapped = run.report.keys == KeyKind::Database && user_order(&order).is_none();
    let order = if is_wrapped {
        internal_order(order)
    } else {
        order
    };
    if is_in_stored_order(&run.options.open) {
        return;
    }
    let name = user_order(&order).unwrap_or(&order).comparator().name();
    let clue = match run.stated() {
        _ if named.is_some() => None,
        Some(stated) if stated.comparator == name => None,
        Some(stated) => Some(format!(
            "the table names the comparator {:?}",
            stated.comparator
        )),
        None => {
            let is_misordered =
                |block: &&(_, Bytes)| walk_block(&block.1, Some(&order), |_, _, _| ());
            first.iter().find(is_misordered).map(|(section, _)| {
                format!("keys ascend neither bytewise nor as a database's, first in the {section}")
            })
        }
    };
    run.report.unknown_order = clue.is_some();
    run.report.order_clue = clue;
    run.order = Some(order).filter(|_| !run.report.unknown_order);
}

/// The index and the first data block, whose keys are evidence of their kind.
fn first_blocks(file: &File, index: &Bytes) -> Vec<(Section, Bytes)> {
    let mut blocks = vec![(Section::Index, index.clone())];
    let first = handles(index).next();
    if let Some(range) = first.filter(|range| range.end <= file.footer_offset())
        && let Ok(block) = file.read_block(range, Section::Data)
    {
        blocks.push((Section::Data, block));
    }
    blocks
}

/// The evidence of the first blocks' keys about their kind.
fn evidence_of(blocks: &[(Section, Bytes)]) -> Evidence {
    let mut evidence = Evidence::default();
    for (section, block) in blocks {
        walk_block(block, None, |before, key, value| match section {
            Section::Index => evidence.add_index_key(before, key),
            _ => evidence.add_entry(before, key, value),
        });
    }
    evidence
}

/// Walks a block, if its structure is correct. Returns whether its keys are out of this order.
fn walk_block(
    block: &Bytes,
    order: Option<&Order>,
    each: impl FnMut(Option<&[u8]>, &[u8], &[u8]),
) -> bool {
    let entries = Entries::new(block.clone());
    entries.is_ok_and(|entries| walk(entries, order, each).disorder.is_some())
}
