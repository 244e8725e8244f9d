//! Plans what the new table is made of: which of the blocks found are its data, and in which order.

use std::collections::HashMap;
use std::ops::Range;

use super::found::{Content, Digest, Found, inspect};
use super::recognise::{belongs, block_around};
use super::scan::SECTOR;
use super::survey::{Survey, gaps};
use super::{IndexState, Recoverable};
use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, KeyKind};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::format::block_check::KeyWork;
use crate::format::footer::BlockHandle;
use crate::format::page;
use crate::format::properties::Properties;
use crate::read::index::Index;

/// The table that entries are copied to, and what the caller says about the damaged one.
#[derive(Debug)]
pub(super) struct Target {
    /// Of the keys as they are stored.
    pub(super) order: Order,
    /// The kind of keys that the damaged table holds.
    pub(super) keys: Option<KeyKind>,
    /// Whether a table in another order is copied in the order in which it is stored.
    pub(super) stored_order: bool,
}

impl Target {
    /// Name of the comparator, of user keys for a database's table.
    fn comparator(&self) -> &str {
        let order = user_order(&self.order).unwrap_or(&self.order);
        order.comparator().name()
    }

    /// The kind of table that is built. `None` for an order that tells nothing about it.
    fn kind(&self) -> Option<KeyKind> {
        match &self.order {
            Order::Bytewise => Some(KeyKind::Plain),
            order => order.shortens_filter_keys().then_some(KeyKind::Database),
        }
    }
}

/// What the new table will be made of.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) pieces: Vec<Piece>,
    /// Entries of the blocks to copy that ascend.
    entries: u64,
    /// All entries that do not ascend.
    out_of_order: u64,
    /// Those of `out_of_order` whose block is left out.
    pub(super) left_out: u64,
    /// Whether entries are copied in the order in which they are stored.
    pub(super) stored_order: bool,
}

/// A part of the file, in the order of the new table.
#[derive(Debug)]
pub(super) enum Piece {
    /// The block whose frame lies here.
    Copy { range: Range<u64>, by_index: bool },
    Lost {
        range: Range<u64>,
        /// `None` if no block was found here.
        reason: Option<String>,
        entries: Option<u64>,
    },
}

impl Piece {
    /// Number of its bytes in the file.
    pub(super) fn len(&self) -> u64 {
        let (Piece::Copy { range, .. } | Piece::Lost { range, .. }) = self;
        range.end - range.start
    }
}

impl Survey<'_> {
    pub(super) fn plan(&self, target: &Target) -> Result<Plan> {
        self.check_kind(target)?;
        if self.map.frames.is_empty() && self.file.size > 0 {
            // Nothing at all. If nothing can be read, the source's error says why.
            self.file.read(0, self.file.size.min(SECTOR) as usize)?;
        }
        if self.has_another_order(target) {
            if let Some(properties) = &self.properties
                && !(target.stored_order && self.sound_index().is_some())
            {
                return Err(ordered_by(properties));
            }
            if !target.stored_order {
                return Err(self.another_order("the keys of a sound index and its blocks"));
            }
            return Ok(Plan {
                stored_order: true,
                ..self.plan_by_index_or_keys(true)
            });
        }
        let plan = self.plan_by_index_or_keys(false);
        // A few entries out of order are damage, or whole blocks of another table. If most are, the order is another.
        if plan.out_of_order > plan.entries && !self.most_blocks_ascend() {
            let entries = plan.out_of_order + plan.entries;
            return Err(self.another_order(&format!("{} of {entries} entries", plan.out_of_order)));
        }
        Ok(plan)
    }

    /// How much would be copied.
    pub(super) fn recoverable(&self) -> Recoverable {
        let plan = self.plan_by_index_or_keys(false);
        let is_copied = |piece: &&Piece| matches!(piece, Piece::Copy { .. });
        Recoverable {
            entries: plan.entries,
            blocks: plan.pieces.iter().filter(is_copied).count() as u64,
        }
    }

    /// `stored_order`: whether the keys are in another order than the builder's.
    fn plan_by_index_or_keys(&self, stored_order: bool) -> Plan {
        match &self.index {
            Some(index) => self.plan_by_index(index, stored_order),
            None => self.plan_by_keys(),
        }
    }

    /// The index that the footer leads to.
    fn sound_index(&self) -> Option<&Index> {
        let index = self.index.as_ref();
        index.filter(|_| self.index_state == IndexState::Sound)
    }

    /// Whether the table's order is not the builder's, by its properties, or as a sound index and its blocks show.
    ///
    /// Keys out of order are a fault of the writer if index keys show, by the way they were shortened, that the order is
    /// the builder's all the same.
    fn has_another_order(&self, target: &Target) -> bool {
        if let Some(properties) = &self.properties {
            return properties.comparator != target.comparator();
        }
        let Some(index) = self.sound_index() else {
            return false;
        };
        let ascend = |a: &[u8], b: &[u8]| self.order.compare(a, b).is_lt();
        let mut fits = true;
        for i in 0..index.len() {
            let before = i.checked_sub(1).map(|before| index.key(before));
            fits &= before.is_none_or(|before| ascend(before, index.key(i)));
            if let Some(digest) = self.map.at(index.handle(i)).and_then(Found::digest) {
                fits &= digest.out_of_order == 0
                    && before.is_none_or(|before| ascend(before, &digest.first))
                    && !ascend(index.key(i), &digest.last);
            }
        }
        let is_evident = |kind| self.evidence().order_is_evident(kind);
        !fits && !target.kind().is_some_and(is_evident)
    }

    fn another_order(&self, which: &str) -> Error {
        Error::new(
            ErrorKind::Comparator,
            format!(
                "{which} do not ascend under comparator {:?}: build the new table with the comparator that the old one \
                 was written with, or let salvage copy it in its stored order",
                self.order.comparator().name(),
            ),
        )
    }

    /// Whether most of the blocks that show an order are in the builder's: those of several entries, except what may be
    /// an index.
    fn most_blocks_ascend(&self) -> bool {
        let (mut ascending, mut others) = (0, 0);
        for (_, digest) in self.data() {
            match digest.out_of_order {
                _ if digest.all_handles => {}
                0 if digest.entries > 1 => ascending += 1,
                0 => {}
                _ => others += 1,
            }
        }
        ascending > others
    }

    /// What the table's keys say about its kind and its order.
    fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::default();
        if let Some(index) = &self.index {
            (0..index.len()).for_each(|i| evidence.add_index_key(index.key(i)));
        }
        let Some(index) = self.sound_index() else {
            self.data()
                .for_each(|(_, digest)| evidence.add(&digest.evidence));
            return evidence;
        };
        for i in 0..index.len() {
            if let Some(digest) = self.map.at(index.handle(i)).and_then(Found::digest) {
                evidence.add(&digest.evidence);
                if digest.out_of_order == 0 {
                    evidence.add_separator(&digest.last, index.key(i));
                }
            }
        }
        evidence
    }

    /// The kind of keys that the table seems to hold.
    pub(super) fn kind(&self) -> KeyKind {
        match &self.properties {
            Some(properties) => properties.key_kind,
            None => self.evidence().kind(),
        }
    }

    /// Refuses a builder for the other kind of table.
    fn check_kind(&self, target: &Target) -> Result<()> {
        let Some(built) = target.kind() else {
            return Ok(());
        };
        let evidence = self.evidence();
        let stated = self
            .properties
            .as_ref()
            .map(|properties| properties.key_kind);
        // With its index a database's table has lost what tells it from a plain one with the same keys.
        let is_unclear = || self.sound_index().is_none() && evidence.may_hold_internal_keys();
        match (built, target.keys.or(stated).or(evidence.verdict())) {
            (KeyKind::Plain, Some(KeyKind::Database)) => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database (its keys end in a sequence number and a type): salvage it \
                 with a DbTableBuilder",
            )),
            (KeyKind::Plain, None) if is_unclear() => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table may belong to a LevelDB database (each key ends in what may be a sequence number and a \
                 type): salvage it with a DbTableBuilder, or say that its keys are plain",
            )),
            (KeyKind::Database, Some(KeyKind::Plain)) => Err(Error::new(
                ErrorKind::Comparator,
                "the keys of this table are not a database's: salvage it with a TableBuilder",
            )),
            _ => Ok(()),
        }
    }

    /// The blocks that the index lists, each from its place there or from where the scan found it.
    fn plan_by_index(&self, index: &Index, stored_order: bool) -> Plan {
        let by_footer = self.index_state == IndexState::Sound;
        // Only in the right order do keys tell where a block belongs.
        let elsewhere = if stored_order {
            HashMap::new()
        } else {
            self.blocks_elsewhere(index)
        };
        let mut plan = Plan::default();
        for i in 0..index.len() {
            let handle = index.handle(i);
            let here = self.map.at(handle);
            // If the index was found by scanning, its offsets may be off by some bytes, or by a whole table. Its sizes
            // and keys are right.
            let found = match (here, elsewhere.get(&i)) {
                (Some(here), _) if by_footer => Some(here),
                (Some(here), None) if here.digest().is_none() => Some(here),
                (_, elsewhere) => elsewhere.copied(),
            };
            // A block that a sound index lists is data, whatever a metaindex says.
            let found = found.filter(|found| by_footer || !self.is_set_aside(found));
            match found {
                Some(found) => match &found.content {
                    Content::Entries(digest) => {
                        plan.copy(found, digest, by_footer && here.is_some())
                    }
                    Content::Unreadable(reason) => {
                        plan.lose(found.range.clone(), || Some(reason.clone()))
                    }
                    Content::Filter => {
                        plan.lose(found.range.clone(), || {
                            Some("no data block: a filter".into())
                        });
                    }
                },
                None => {
                    #[expect(
                        clippy::expect_used,
                        reason = "an index is refused if a block of it ends past 2^64"
                    )]
                    let end = handle.end().expect("a block of an index");
                    plan.lose(handle.offset..end, || Some(self.why_not(handle)));
                }
            }
        }
        plan
    }

    /// The blocks found that `index` lists, by their number in it, wherever they lie.
    fn blocks_elsewhere(&self, index: &Index) -> HashMap<usize, &Found> {
        let by_footer = self.index_state == IndexState::Sound;
        let is_in_a_value = |found: &Found| {
            let around = block_around(index, found.handle());
            around.is_some_and(|block| block.offset < found.range.start)
        };
        let mut elsewhere = HashMap::new();
        for (found, _) in self.data() {
            if let Some(i) = belongs(index, found, self.order)
                && !(by_footer && is_in_a_value(found))
            {
                // Of several, the last before the index: what an older table left lies before it.
                let best = elsewhere.entry(i).or_insert(found);
                if found.range.start < self.index_offset {
                    *best = found;
                }
            }
        }
        elsewhere
    }

    /// Why the block at `handle` is not among the sound ones.
    fn why_not(&self, handle: BlockHandle) -> String {
        if handle.end().is_none_or(|end| end > self.file.size) {
            return format!("the file ends before it, at {}", self.file.size);
        }
        let frame = match self.file.read_frame(handle) {
            Ok(frame) => frame,
            Err(error) => return error.to_string(),
        };
        match inspect(&frame, self.order, &mut KeyWork::of_block()) {
            Ok(_) => "its place is taken by another block".into(),
            Err(defect) => defect.locate(Section::Data, handle.offset).to_string(),
        }
    }

    /// Without an index: as many entries in order as the blocks hold, taken in the file's order.
    fn plan_by_keys(&self) -> Plan {
        let data: Vec<(&Found, &Digest)> = self.data().collect();
        let chosen = heaviest_chain(&data, self.order);
        let mut plan = Plan::default();
        let mut data = data.into_iter().zip(chosen).peekable();
        for region in self.regions() {
            match region {
                Region::Found(found) => {
                    let Some(((_, digest), chosen)) =
                        data.next_if(|((data, _), _)| data.range == found.range)
                    else {
                        if let Content::Unreadable(reason) = &found.content {
                            plan.lose(found.range.clone(), || Some(reason.clone()));
                        }
                        continue;
                    };
                    if chosen {
                        plan.copy(found, digest, false);
                        continue;
                    }
                    plan.leave_out(found);
                }
                Region::Gap(range) => plan.lose(range, || None),
            }
        }
        plan
    }

    /// The whole file in order: what was found, and the gaps that may hold data.
    fn regions(&self) -> Vec<Region<'_>> {
        let metaindex = self
            .set_aside
            .iter()
            .find(|(section, _)| *section == Section::Metaindex);
        // No data comes after a metaindex, nor between what it names and itself, where the index may have been.
        let data_end = metaindex.map_or(self.file.size, |(_, range)| range.start);
        let mut covered: Vec<Range<u64>> = self
            .map
            .frames
            .values()
            .map(|found| found.range.clone())
            .collect();
        covered.extend(self.set_aside.iter().map(|(_, range)| range.clone()));
        covered.sort_by_key(|range| range.start);
        let gaps = gaps(covered.into_iter(), self.file.size).into_iter();
        let mut regions: Vec<Region<'_>> = gaps
            .filter(|gap| {
                gap.start < data_end && !(gap.end == data_end && self.ends_no_data(gap.start))
            })
            .filter_map(|gap| self.after_padding(gap))
            .map(Region::Gap)
            .chain(self.map.frames.values().map(Region::Found))
            .collect();
        regions.sort_by_key(Region::start);
        regions
    }

    /// Whether properties, or another part that is known not to be data, end at `offset`.
    fn ends_no_data(&self, offset: u64) -> bool {
        let before = self.map.frames.range(..offset).next_back();
        let ends_properties = before.is_some_and(|(_, found)| {
            found.range.end == offset && found.no_data() == Some(Section::Properties)
        });
        let mut set_aside = self.set_aside.iter();
        ends_properties || set_aside.any(|(_, range)| range.end == offset)
    }

    /// `gap` without the padding at its front, which an aligned table has there. `None` if nothing is left.
    ///
    /// A lost block may be zeros up to a page, too. So a gap is all padding only if the data block after it needs that.
    fn after_padding(&self, gap: Range<u64>) -> Option<Range<u64>> {
        let padding = page::to_boundary(gap.start);
        let len = gap.end - gap.start;
        let may_be_padding = padding < len || padding == len && self.needs_padding(&gap);
        let is_padding = may_be_padding && {
            let bytes = self.file.read(gap.start, padding as usize);
            bytes.is_ok_and(|bytes| page::is_padding(gap.start, &bytes))
        };
        let start = gap.start + if is_padding { padding } else { 0 };
        (start < gap.end).then_some(start..gap.end)
    }

    /// Whether a data block comes after `gap`, and would touch a page more if it began where the gap does.
    fn needs_padding(&self, gap: &Range<u64>) -> bool {
        let next = self.map.frames.get(&gap.end).filter(|found| {
            let is_unreadable = matches!(found.content, Content::Unreadable(_));
            (is_unreadable || found.digest().is_some()) && !self.is_set_aside(found)
        });
        next.is_some_and(|next| page::padding(gap.start, next.range.end - next.range.start) > 0)
    }
}

/// The error of a table that says that it is of another order than the builder's.
#[cold]
fn ordered_by(properties: &Properties) -> Error {
    let name = show_key(properties.comparator.as_bytes());
    Error::new(
        ErrorKind::Comparator,
        format!(
            "this table is ordered by {name}: build the new table with that comparator, or let salvage copy it in its \
             stored order"
        ),
    )
}

enum Region<'a> {
    Found(&'a Found),
    Gap(Range<u64>),
}

impl Region<'_> {
    fn start(&self) -> u64 {
        match self {
            Region::Found(found) => found.range.start,
            Region::Gap(range) => range.start,
        }
    }
}

impl Plan {
    fn copy(&mut self, found: &Found, digest: &Digest, by_index: bool) {
        self.entries += digest.entries;
        self.out_of_order += digest.out_of_order;
        self.pieces.push(Piece::Copy {
            range: found.range.clone(),
            by_index,
        });
    }

    /// Leaves out a block whose keys do not fit between those of the others.
    fn leave_out(&mut self, found: &Found) {
        self.out_of_order += found.entries();
        self.left_out += found.entries();
        self.pieces.push(Piece::Lost {
            range: found.range.clone(),
            reason: Some("its keys are out of order here: a block of another table?".into()),
            entries: Some(found.entries()),
        });
    }

    /// Adds a range that is lost, as a part of the previous one if it begins where that ends.
    fn lose(&mut self, range: Range<u64>, reason: impl FnOnce() -> Option<String>) {
        match self.pieces.last_mut() {
            Some(Piece::Lost {
                range: before,
                entries: None,
                ..
            }) if before.end == range.start => before.end = range.end,
            _ => self.pieces.push(Piece::Lost {
                range,
                reason: reason(),
                entries: None,
            }),
        }
    }
}

/// Which of `blocks` to copy, so that keys ascend and as many entries as possible are copied.
///
/// The best chain of blocks that ends in a given block is that block after the best chain of those that end before its
/// first key. With the blocks ranked by last key, that is a maximum over the lowest ranks, which a Fenwick tree finds:
/// O(n log n) in all.
fn heaviest_chain(blocks: &[(&Found, &Digest)], order: &Order) -> Vec<bool> {
    let mut lasts: Vec<&[u8]> = blocks.iter().map(|(_, digest)| &*digest.last).collect();
    lasts.sort_unstable_by(|a, b| order.compare(a, b));
    let below = |key: &[u8]| lasts.partition_point(|last| order.compare(last, key).is_lt());
    let mut chains = Chains::new(blocks.len());
    let mut before: Vec<Option<usize>> = Vec::with_capacity(blocks.len());
    for (block, (_, digest)) in blocks.iter().enumerate() {
        let longest = chains.best(below(&digest.first));
        let entries = digest.entries + longest.map_or(0, |chain| chain.entries);
        before.push(longest.map(|chain| chain.block));
        chains.add(below(&digest.last), Chain { entries, block });
    }
    let mut chosen = vec![false; blocks.len()];
    let mut next = chains.best(blocks.len()).map(|chain| chain.block);
    #[expect(
        clippy::indexing_slicing,
        reason = "chains hold numbers of blocks, of which both vectors have an element each"
    )]
    while let Some(block) = next {
        chosen[block] = true;
        next = before[block];
    }
    chosen
}

/// A chain of blocks whose keys ascend, by its last block.
#[derive(Debug, Clone, Copy)]
struct Chain {
    entries: u64,
    block: usize,
}

/// The best chain among those of the first so many ranks: a Fenwick tree of maxima.
struct Chains(Vec<Option<Chain>>);

impl Chains {
    fn new(ranks: usize) -> Chains {
        Chains(vec![None; ranks + 1])
    }

    /// The best of those below `rank`. Of several, the one that was added first.
    fn best(&self, rank: usize) -> Option<Chain> {
        let node = |at: usize| Some(at).filter(|&at| at > 0);
        let nodes = std::iter::successors(node(rank), |&at| node(at & (at - 1)));
        let chains = nodes.filter_map(|at| *self.0.get(at)?);
        chains.reduce(|a, b| if b.entries > a.entries { b } else { a })
    }

    /// Adds a chain of rank `rank`.
    fn add(&mut self, rank: usize, chain: Chain) {
        let mut at = rank + 1;
        while let Some(best) = self.0.get_mut(at) {
            if best.is_none_or(|best| chain.entries > best.entries) {
                *best = Some(chain);
            }
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::recognise::Counts;
    use proptest::prelude::*;

    fn digest(first: &str, last: &str, entries: u64) -> (Found, Digest) {
        let of = |entries| Digest {
            entries,
            out_of_order: 0,
            first: first.as_bytes().into(),
            last: last.as_bytes().into(),
            all_handles: false,
            is_properties: false,
            evidence: Counts::default(),
        };
        let content = Content::Entries(of(entries));
        (
            Found {
                range: 0..1,
                content,
            },
            of(entries),
        )
    }

    /// The best subset by trying all of them.
    fn heaviest_by_trying(blocks: &[(Found, Digest)]) -> u64 {
        let subsets = 0..1u32 << blocks.len();
        let weights = subsets.filter_map(|subset| {
            let chosen = blocks
                .iter()
                .enumerate()
                .filter(|(i, _)| subset >> i & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, (_, digest))| digest).collect();
            let ascends = chosen.windows(2).all(|pair| pair[0].last < pair[1].first);
            ascends.then(|| chosen.iter().map(|digest| digest.entries).sum())
        });
        weights.max().unwrap_or_default()
    }

    proptest! {
        #[test]
        fn the_most_entries_in_order_are_chosen(
            blocks in prop::collection::vec((0u8..20, 0u8..6, 1u64..9), 0..10),
        ) {
            let key = |n: u8| format!("{n:02}");
            let blocks: Vec<_> = blocks
                .into_iter()
                .map(|(first, len, entries)| digest(&key(first), &key(first + len), entries))
                .collect();
            let pairs: Vec<_> = blocks.iter().map(|(found, digest)| (found, digest)).collect();
            let chosen = heaviest_chain(&pairs, &Order::Bytewise);
            let chosen: Vec<_> =
                blocks.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|((_, s), _)| s).collect();
            prop_assert!(chosen.windows(2).all(|pair| pair[0].last < pair[1].first));
            let entries: u64 = chosen.iter().map(|digest| digest.entries).sum();
            prop_assert_eq!(entries, heaviest_by_trying(&blocks));
        }
    }
}
