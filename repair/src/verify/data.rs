//! Walks the index and the data blocks that it leads to: checks keys against each other, against the index, and against
//! the filters.

use leveltable::Section;
use leveltable::db::{InternalKey, KeyKind, ValueType};
use leveltable::format::{BlockHandle, Entries};
use leveltable::sister_crates::{Order, named_order, show_key, user_key};

use super::report::{Place, Severity};
use super::run::Run;

/// First and last key of a data block.
type KeySpan = (Vec<u8>, Vec<u8>);

/// Walks the index, which is at `place`, and all data blocks that it leads to, until the run is cancelled.
pub(super) fn check_data(run: &mut Run<'_>, index: Entries, place: Place) {
    let order = run.order.clone();
    let (mut blocks, mut end, mut trailing) = (0, 0, None);
    let walked = walk(index, order.as_ref(), |before, key, value| {
        if run.options.progress.is_cancelled {
            return;
        }
        let i = blocks;
        blocks += 1;
        let Some((handle, len)) = BlockHandle::decode(value) else {
            let expected = format!("a handle for data block {i}");
            return run
                .report
                .find(Severity::Damage, place, expected, show_key(value));
        };
        if len < value.len() {
            trailing.get_or_insert((i, value.len() - len));
        }
        let frame = handle.frame().unwrap_or(end..end);
        let is_inside = frame.end <= run.file.footer_offset();
        if is_inside && (frame.start < end || frame.end > run.data_end) {
            let expected = format!(
                "data block {i} between {end} and {}, in the order of the keys",
                run.data_end
            );
            let found = format!("a handle to {} bytes at {}", handle.size, handle.offset);
            run.report.find(Severity::Damage, place, expected, found);
        }
        end = frame.end;
        let last_before = run.counted.last_key.take();
        run.counted.last_key = match check_block(run, handle, place) {
            None => last_before,
            Some((first, last)) => {
                let before = [before, last_before.as_deref()];
                check_ends(run, (i, handle.offset), before, key, [&first, &last]);
                run.counted.first_key.get_or_insert(first);
                Some(last)
            }
        };
        let _ = run.options.progress.reach(end);
    });
    if let Some((i, len)) = trailing {
        let (expected, found) = (
            format!("nothing after the handle of data block {i}"),
            format!("{len} bytes more"),
        );
        run.report.find(Severity::Warning, place, expected, found);
    }
    report_disorder(run, walked, place);
}

/// Reports keys out of order, and returns the ends of the block.
pub(super) fn report_disorder(run: &mut Run<'_>, walked: Walked, place: Place) -> Option<KeySpan> {
    if let Some((expected, found)) = walked.disorder {
        run.report.find(Severity::Damage, place, expected, found);
    }
    walked.ends
}

/// Checks the ends of data block `i` at `offset` against its index key, the previous index key, and the last key of the previous
/// block.
fn check_ends(
    run: &mut Run<'_>,
    (i, offset): (u64, u64),
    before: [Option<&[u8]>; 2],
    key: &[u8],
    [first, last]: [&[u8]; 2],
) {
    let Some(order) = &run.order else {
        return;
    };
    let place = (Section::Data, offset);
    if order.compare(last, key).is_gt() {
        let key = show_key(key);
        let expected = format!("the last key of data block {i} at or before its index key {key}");
        run.report
            .find(Severity::Damage, place, expected, show_key(last));
    }
    let what = [
        "the previous index key",
        "the last key of the previous block",
    ];
    for (before, what) in before.into_iter().zip(what) {
        if let Some(before) = before.filter(|key| order.compare(key, first).is_ge()) {
            let before = show_key(before);
            let expected = format!("the first key of data block {i} after {what}, {before}");
            run.report
                .find(Severity::Damage, place, expected, show_key(first));
        }
    }
}

/// Walks a data block: checks structure, order, form of the keys, and each key against the filters. Returns its ends.
fn check_block(run: &mut Run<'_>, handle: BlockHandle, named_by: Place) -> Option<KeySpan> {
    let block = run.load(handle, Section::Data, named_by, Entries::new)?;
    let place = (Section::Data, handle.offset);
    run.counted.data_blocks += 1;
    run.counted.data_bytes += handle.frame().map_or(0, |frame| frame.end - frame.start);
    let stated = run.stated();
    let states_versions = stated.is_some_and(|stated| stated.key_kind == KeyKind::Database);
    let (order, mut malformed) = (run.order.clone(), None);
    let walked = walk(block, order.as_ref(), |_, key, value| {
        count_entry(run, key, value, states_versions);
        if run.report.keys == KeyKind::Database && InternalKey::parse(key).is_none() {
            malformed.get_or_insert_with(|| show_key(key));
        }
        ask_filters(run, handle.offset, key);
    });
    if let Some(found) = malformed {
        let expected = "internal keys: at least 8 bytes, of type 0 or 1";
        run.report.find(Severity::Damage, place, expected, found);
    }
    report_disorder(run, walked, place)
}

/// Counts an entry, and its version if the properties count versions.
fn count_entry(run: &mut Run<'_>, key: &[u8], value: &[u8], states_versions: bool) {
    let counted = &mut run.counted;
    counted.entries += 1;
    counted.key_bytes += key.len() as u64;
    counted.value_bytes += value.len() as u64;
    if let Some(key) = InternalKey::parse(key).filter(|_| states_versions) {
        let sequence = key.sequence;
        let seen = counted.sequences.clone().unwrap_or(sequence..=sequence);
        counted.sequences = Some(sequence.min(*seen.start())..=sequence.max(*seen.end()));
        counted.deletions += u64::from(key.value_type == ValueType::Deletion);
    }
}

/// Looks up `key`, of the data block at `offset`, in the filters, and notes which of them reject it.
fn ask_filters(run: &mut Run<'_>, offset: u64, key: &[u8]) {
    let order = run.order.as_ref();
    let asked = order.map_or(key, |order| order.filter_key(key));
    let is_database = run.report.keys == KeyKind::Database;
    // The filter of a database's table holds user keys, even if the order is not known.
    let asked = if order.is_none() && is_database {
        user_key(key)
    } else {
        asked
    };
    let other = if is_database { key } else { user_key(key) };
    for filter in &mut run.filters {
        run.report.filter_checks += 1;
        let rejects = |key| filter.ask(offset, key) == Some(false);
        if rejects(asked) && (!run.is_kind_guessed || rejects(other)) {
            filter.hidden.note(|| {
                let expected = format!("that {} passes each key of the table", filter.of.name());
                let key = show_key(key);
                let found = format!("{key} rejected, which is in the data block at {offset}");
                (expected, found)
            });
        }
    }
}

/// Reports keys that filters reject, and filters that do not cover the last data block.
pub(super) fn report_filters(run: &mut Run<'_>) {
    let data = run
        .extents
        .iter()
        .filter(|extent| extent.2 == Section::Data);
    let last = data.map(|(offset, ..)| *offset).max();
    // If the caller named the order of stored keys, readers do not use a filter that may hold user keys.
    let stated = run.stated();
    let is_asked = run.options.keys.is_some()
        || named_order(&run.options.open).is_none()
        || run.report.keys == KeyKind::Database
        || stated.is_some_and(|stated| stated.key_kind == KeyKind::Plain)
        || !run.fits_both_kinds;
    // In an unknown order, the keys may be a database's, whose filter holds user keys.
    let severity = if run.report.unknown_order {
        Severity::Unchecked
    } else {
        Severity::Damage
    };
    for filter in std::mem::take(&mut run.filters) {
        let place = (Section::Filter, filter.offset);
        if let Some(last) = last.filter(|&last| filter.ask(last, b"").is_none()) {
            let found = format!("none for that at {last}: lookups in it read the block");
            let expected = "a filter for each data block";
            run.report.find(Severity::Warning, place, expected, found);
        }
        if let Some((expected, found)) = filter.hidden.words().filter(|_| is_asked) {
            run.report.find(severity, place, expected, found);
        }
    }
}

/// The result of a walk through a block.
pub(super) struct Walked {
    ends: Option<KeySpan>,
    /// The first key that does not come after the previous one: what was expected and what was found.
    pub(super) disorder: Option<(String, String)>,
}

/// Calls `each` with each entry of a block: the previous key, key and value. In no order does a key come after itself.
pub(super) fn walk(
    mut entries: Entries,
    order: Option<&Order>,
    mut each: impl FnMut(Option<&[u8]>, &[u8], &[u8]),
) -> Walked {
    let mut walked = Walked {
        ends: None,
        disorder: None,
    };
    while let Ok(true) = entries.advance() {
        let key = entries.key();
        let previous = walked.ends.as_ref().map(|(_, last)| &last[..]);
        each(previous, key, entries.value());
        let is_before = |previous: &[u8]| match order {
            Some(order) => order.compare(previous, key).is_lt(),
            None => previous != key,
        };
        if let Some(previous) = previous.filter(|previous| !is_before(previous)) {
            let expected = || format!("keys that ascend, one after {}", show_key(previous));
            walked
                .disorder
                .get_or_insert_with(|| (expected(), show_key(key)));
        }
        let (_, last) = walked
            .ends
            .get_or_insert_with(|| (key.to_vec(), Vec::new()));
        key.clone_into(last);
    }
    walked
}
