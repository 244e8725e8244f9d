//! Copies blocks into the new table, and reports what is lost.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use leveltable::format::{BlockHandle, Entries};
use leveltable::sister_crates::{Order, show_key};
use leveltable::{Destination, Error, ErrorKind, Result, Section, TableBuilder};

use super::find::{Blocks, Found};
use super::report::{LostRange, SalvageReport};
use crate::file::{File, handles, open_sound};
use crate::progress::Reporter;

/// Why a block is not copied.
pub(crate) type Reason = String;

/// Which blocks of a table without an index are copied, and why others are not, in the order of the file.
pub(crate) struct Plan {
    pub(crate) parts: Vec<(Range<u64>, Option<Reason>, Option<u64>)>,
    /// Whether most blocks show another order than the builder's.
    pub(super) is_misordered: bool,
}

/// Copies all data in the order of the file, as long as keys ascend from block to block. If two blocks do not ascend, the first is left out
/// if the second comes after the block before: a block that a disk wrote to the wrong place costs only itself, not all blocks after it.
pub(crate) fn plan(blocks: &Blocks<'_>) -> Plan {
    let mut parts = lost_parts(blocks);
    let (mut all, mut left_out, mut descents) = (0, 0, 0);
    let mut last: Option<Vec<u8>> = None;
    let mut data = blocks
        .data()
        .filter_map(|found| Some((found, ends(blocks.file, found)?)));
    let mut next = data.next();
    while let Some((found, (first, own_last))) = next {
        next = data.next();
        let is_before = |a: &[u8], b: &[u8]| blocks.order.compare(a, b).is_lt();
        let goes_on = |first: &[u8]| last.as_deref().is_none_or(|last| is_before(last, first));
        let shuts_out = next.as_ref().is_some_and(|(_, (next_first, _))| {
            let descends = !is_before(&own_last, next_first);
            descents += usize::from(descends);
            descends && goes_on(next_first)
        });
        let reason = if !found.ascends {
            Some("its keys do not ascend")
        } else if !goes_on(&first) || shuts_out {
            Some("its keys overlap those of other blocks")
        } else {
            None
        };
        all += 1;
        left_out += usize::from(reason.is_some());
        if reason.is_none() {
            last = Some(own_last);
        }
        let (reason, entries) = (reason.map(str::to_owned), Some(found.entries));
        parts.push((found.range.clone(), reason, entries));
    }
    parts.sort_by_key(|(range, ..)| range.start);
    // A misplaced block may exclude many others, but in such a file the keys within each block ascend.
    let has_misordered = blocks.data().any(|found| !found.ascends);
    let is_misordered = 2 * descents > all || has_misordered && 2 * left_out > all;
    Plan {
        parts,
        is_misordered,
    }
}

/// The parts of the file without readable data, as far as data may have been there.
fn lost_parts(blocks: &Blocks<'_>) -> Vec<(Range<u64>, Option<Reason>, Option<u64>)> {
    let data_end = blocks.data().last().map_or(0, |last| last.range.end);
    let mut after = blocks.found.range(data_end..);
    let metadata = after.find(|(_, found)| found.section != Section::Data);
    let mut end = metadata.map_or(blocks.file.size, |(start, _)| *start);
    if let Some(stated) = &blocks.style.properties {
        end = end.min(stated.data_bytes.max(data_end));
    }
    let unreadable = blocks.found.values();
    let unreadable = unreadable.filter(|own| own.section == Section::Data && own.entries == 0);
    let unreadable = unreadable.map(|own| {
        let opened = open_block(blocks.file, &own.range);
        let why = opened.err().unwrap_or_else(|| "it has no entries".into());
        (own.range.clone(), why)
    });
    let gaps = blocks.gaps().into_iter().filter(|gap| gap.start < end);
    let gaps = gaps.map(|gap| {
        let gap = gap.start..gap.end.min(end);
        let why = why_nothing(blocks.file, &gap);
        (gap, why)
    });
    gaps.chain(unreadable)
        .map(|(range, why)| (range, Some(why), None))
        .collect()
}

/// The first and the last key of a block.
fn ends(file: &File, found: &Found) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut entries = open_block(file, &found.range).ok()?;
    let (mut first, mut last) = (None, Vec::new());
    while let Ok(true) = entries.advance() {
        first.get_or_insert_with(|| entries.key().to_vec());
        entries.key().clone_into(&mut last);
    }
    Some((first?, last))
}

/// The entries of the block in the frame at `range`, if it is sound.
pub(crate) fn open_block(file: &File, range: &Range<u64>) -> Result<Entries, Reason> {
    if range.end > file.size {
        return Err(
            "what is left of the file does not hold it: these are the offsets of its handle".into(),
        );
    }
    let frame = file
        .read(range.clone())
        .map_err(|error| error.to_string())?;
    let entries = open_sound(&frame).and_then(Entries::new);
    entries.map_err(|defect| defect.locate(Section::Data, range.start).to_string())
}

/// Why no block was found in `range`.
fn why_nothing(file: &File, range: &Range<u64>) -> Reason {
    const STEP: u64 = 64 << 10;
    let mut parts = range.clone().step_by(STEP as usize);
    let error = parts.find_map(|at| file.read(at..range.end.min(at + STEP)).err());
    match error {
        Some(error) => format!("not all of it can be read: {error}"),
        None => "no sound block begins here: lost data, or a part that holds none (filter, metaindex, index, footer)".into(),
    }
}

/// Adds entries to a builder, and the outcome to a report.
pub(super) struct Copier<'a, 'p, D: Destination> {
    pub(super) blocks: Blocks<'a>,
    pub(super) builder: &'a mut TableBuilder<D>,
    /// Whether blocks end in the new table where they do in the old one.
    pub(super) keeps_blocks: bool,
    pub(super) report: SalvageReport,
    pub(super) progress: Reporter<'p>,
    /// The last key that was copied.
    pub(super) last_key: Vec<u8>,
    /// Number of bytes of the file that are done, the search for blocks included.
    pub(super) done: u64,
    /// Number of bytes that the keys in the new table's index may still take.
    pub(super) room: u64,
}

impl<D: Destination> Copier<'_, '_, D> {
    /// Copies the blocks that the index lists, if they are sound and hold keys between those of the index.
    pub(super) fn copy_listed(mut self, index: &Bytes) -> Result<SalvageReport> {
        let Ok(mut listed) = Entries::new(index.clone()) else {
            return Ok(self.report);
        };
        let mut before: Option<Vec<u8>> = None;
        while let Ok(true) = listed.advance() {
            let Some((handle, _)) = BlockHandle::decode(listed.value()) else {
                continue;
            };
            let range = handle.offset..handle.frame().map_or(u64::MAX, |frame| frame.end);
            let (order, before_key) = (self.blocks.order, before.as_deref());
            let opened = open_block(self.blocks.file, &range).and_then(|entries| {
                check_keys(entries.block(), order, before_key, listed.key())?;
                Ok(entries)
            });
            if self.take(range, opened)?.is_break() {
                return Ok(self.report);
            }
            before = Some(listed.key().to_vec());
        }
        let listed: HashSet<u64> = handles(index).map(|range| range.start).collect();
        let is_listed = |found: &&Found| listed.contains(&found.range.start);
        for found in self.blocks.data().filter(|found| !is_listed(found)) {
            self.report.lost.push(LostRange {
                range: found.range.clone(),
                reason: "a sound block that the index does not list".into(),
                entries: Some(found.entries),
                after: None,
                before: None,
            });
        }
        self.progress.complete();
        Ok(self.report)
    }

    /// Copies the planned blocks.
    pub(super) fn copy_planned(mut self, plan: Plan) -> Result<SalvageReport> {
        for (range, reason, entries) in plan.parts {
            let opened = match reason {
                None => open_block(self.blocks.file, &range),
                Some(reason) => {
                    self.lose(&range, reason, entries);
                    continue;
                }
            };
            if self.take(range, opened)?.is_break() {
                return Ok(self.report);
            }
        }
        self.progress.complete();
        Ok(self.report)
    }

    /// Copies the block at `range`, or reports why it cannot be copied.
    fn take(
        &mut self,
        range: Range<u64>,
        opened: Result<Entries, Reason>,
    ) -> Result<ControlFlow<()>> {
        // The handle of a lost block may be arbitrary.
        self.done = self.done.saturating_add(range.end - range.start);
        match opened {
            Ok(entries) => self.copy(entries)?,
            Err(reason) => self.lose(&range, reason, None),
        }
        let reached = self.progress.reach(self.done);
        self.report.cancelled = reached.is_break();
        Ok(reached)
    }

    fn copy(&mut self, mut entries: Entries) -> Result<()> {
        while let Ok(true) = entries.advance() {
            self.builder.add(entries.key(), entries.value())?;
            if self
                .report
                .lost
                .last()
                .is_some_and(|lost| lost.before.is_none())
            {
                let key = Bytes::copy_from_slice(entries.key());
                let lost = self.report.lost.iter_mut().rev();
                let open = lost.take_while(|lost| lost.before.is_none());
                open.for_each(|lost| lost.before = Some(key.clone()));
            }
            self.report.entries += 1;
            entries.key().clone_into(&mut self.last_key);
        }
        self.report.data_blocks += 1;
        if self.keeps_blocks {
            self.builder.flush()?;
        }
        let key = self.last_key.len() as u64;
        self.room = self.room.checked_sub(key).ok_or_else(|| {
            let message = "the index of the new table would hold more than 64 times the file";
            Error::new(ErrorKind::TooLarge, message)
        })?;
        Ok(())
    }

    fn lose(&mut self, range: &Range<u64>, reason: Reason, entries: Option<u64>) {
        let last = self.report.lost.last_mut();
        if let Some(last) = last.filter(|last| {
            let is_next = last.range.end == range.start && last.before.is_none();
            is_next && last.entries.is_none() && entries.is_none()
        }) {
            last.range.end = range.end;
            return;
        }
        let after = (self.report.entries > 0).then(|| Bytes::copy_from_slice(&self.last_key));
        self.report.lost.push(LostRange {
            range: range.clone(),
            reason,
            entries,
            after,
            before: None,
        });
    }
}

/// Checks that the keys of a block ascend, come after the previous index key `before`, and not after the block's own.
pub(crate) fn check_keys(
    block: &Bytes,
    order: &Order,
    before: Option<&[u8]>,
    own: &[u8],
) -> Result<(), Reason> {
    let mut entries = Entries::of_damaged(block.clone()).map_err(|_| Reason::new())?;
    let mut last = before.map(<[u8]>::to_vec);
    while let Ok(true) = entries.advance() {
        let key = entries.key();
        if let Some(last) = last
            .as_deref()
            .filter(|last| !order.compare(last, key).is_lt())
        {
            return Err(format!(
                "{} does not come after {}",
                show_key(key),
                show_key(last)
            ));
        }
        key.clone_into(last.get_or_insert_default());
    }
    match last.filter(|last| order.compare(last, own).is_gt()) {
        Some(last) => {
            let (last, own) = (show_key(&last), show_key(own));
            Err(format!(
                "its last key {last} comes after its index key {own}: another block lies in its place"
            ))
        }
        None => Ok(()),
    }
}
