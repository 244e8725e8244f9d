//! Reads a table by salvage's rules: which of its blocks are read, and what is lost between them. Yields its versions
//! as a stream.

use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::InternalKey;
use leveltable::format::{BlockHandle, Entries, codec_name};
use leveltable::sister_crates::{Order, show_key, user_key};
use leveltable::{Error, ErrorKind, Result, Section};
use leveltable_database::TableMetadata;
use leveltable_database::sister_crates::{Directory, is_indexed_db_key};

use crate::file::{File, open_sound};
use crate::progress::Reporter;
use crate::salvage::checksums::TRAILER_LEN;
use crate::salvage::copy::{Reason, check_keys, open_block, plan};
use crate::salvage::find::Blocks;

/// Number of bytes of a table that are read at once.
const CHUNK: u64 = 64 << 10;

/// A lost part of a table.
#[derive(Debug)]
pub(super) struct Hole {
    pub(super) range: Range<u64>,
    pub(super) reason: Reason,
    /// The range of the lost user keys, both ends included; `None` if only a MANIFEST can tell.
    pub(super) from: Option<Vec<u8>>,
    pub(super) to: Option<Vec<u8>>,
}

/// The readable part of a table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) role: Role,
    /// Ranges of the frames that are read, in the order of their keys.
    blocks: Vec<Range<u64>>,
    /// Number of versions in them.
    pub(super) versions: u64,
    /// The first internal key, and the last.
    pub(super) ends: Option<(Vec<u8>, Vec<u8>)>,
    /// The lowest sequence number, and the highest.
    pub(super) sequences: Option<(u64, u64)>,
    pub(super) holes: Vec<Hole>,
    /// Whether a footer leads to a sound index: then the file has its full length.
    pub(super) has_index: bool,
    /// Whether the first block is lost, and whether the last one is.
    lacks_ends: (bool, bool),
    /// Whether it is stored in bytewise order, although the database has another order.
    pub(super) is_resorted: bool,
    /// The error of a sound block that this build cannot read.
    unsupported: Option<Error>,
    /// The codec of a compressed block.
    pub(super) codec: Option<&'static str>,
    /// Number of blocks with a correct checksum that break the order.
    pub(super) misordered: u64,
    /// Whether all keys may be those of Chromium's IndexedDB.
    pub(super) is_indexed_db: bool,
}

/// The role of a file's versions, in ascending precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Only used where something is lost that they may replace.
    #[default]
    Spare,
    /// Used although no MANIFEST lists the table.
    Unlisted,
    /// A MANIFEST lists the table.
    Listed,
    /// The versions are from a log.
    Log,
}

impl Table {
    /// Reads a whole table. The order is that of internal keys. Fails if this build lacks the codec of a sound block.
    pub(super) fn survey(name: &str, number: u64, file: &File, order: &Order) -> Result<Table> {
        let mut table = Table {
            name: name.to_owned(),
            number,
            bytes: file.size,
            is_indexed_db: true,
            ..Table::default()
        };
        if let Some(index) = index_in_place(file) {
            table.has_index = true;
            table.take_listed(file, order, index);
            return table.unsupported.take().map_or(Ok(table), Err);
        }
        let mut blocks = Blocks::find(file, order, &mut Reporter::default());
        match blocks.index.take().map(|index| Entries::new(index.block)) {
            Some(Ok(index)) => table.take_listed(file, order, index),
            _ => table.take_found(file, blocks),
        }
        table.unsupported.take().map_or(Ok(table), Err)
    }

    /// Sorts the versions of a table in memory that a program wrote in bytewise order because it did not know the database's
    /// order.
    pub(super) fn resorted(mut self, dir: &dyn Directory, user: &Order) -> Result<Table> {
        self.is_resorted = true;
        let rows = Rows::of(dir, 0, &self).collect::<Result<Vec<_>>>()?;
        let ends = rows.iter().minmax_by(|a, b| a.cmp(b, user)).into_option();
        self.ends = ends.map(|(first, last)| (first.key.clone(), last.key.clone()));
        let holes = self.holes.iter_mut();
        holes.for_each(|hole| (hole.from, hole.to) = (None, None));
        Ok(self)
    }

    /// Takes the blocks that a sound index lists.
    fn take_listed(&mut self, file: &File, order: &Order, mut index: Entries) {
        let (mut before, mut is_lost) = (None::<Vec<u8>>, false);
        while let Ok(true) = index.advance() {
            let own = index.key().to_vec();
            let handle = BlockHandle::decode(index.value()).map(|(handle, _)| handle);
            let range = handle.and_then(|handle| handle.frame()).unwrap_or(0..0);
            let opened = open_block(file, &range).and_then(|entries| {
                let checked = check_keys(entries.block(), order, before.as_deref(), &own);
                self.misordered += u64::from(checked.is_err());
                checked.map(|()| entries)
            });
            let was_lost = is_lost;
            is_lost = match opened.and_then(|entries| self.take(file, range.clone(), entries)) {
                Ok(()) => false,
                Err(reason) => {
                    let to = Some(user_key(&own).to_vec());
                    match self.holes.last_mut().filter(|_| was_lost) {
                        Some(hole) => (hole.range.end, hole.to) = (range.end, to),
                        None => {
                            let from = before.as_deref().map(|key| user_key(key).to_vec());
                            self.add_hole(file, range, &reason, (from, to));
                        }
                    }
                    true
                }
            };
            self.lacks_ends.0 |= before.is_none() && is_lost;
            before = Some(own);
        }
        self.lacks_ends.1 = is_lost;
    }

    /// Takes the blocks that were found without an index.
    fn take_found(&mut self, file: &File, mut blocks: Blocks<'_>) {
        blocks.take_internal_keys_for_data();
        let last = blocks.found.values().next_back();
        let is_closed = last.is_some_and(|last| last.section != Section::Data);
        let mut parts = plan(&blocks).parts;
        if !is_closed {
            let reason = "the file ends, and nothing says that these were all blocks";
            parts.push((file.size..file.size, Some(reason.to_owned()), None));
        }
        let mut is_lost = false;
        for (range, reason, entries) in parts {
            self.misordered += u64::from(reason.is_some() && entries.is_some());
            let before = self.last_user_key();
            let opened = match reason {
                Some(reason) => Err(reason),
                None => open_block(file, &range),
            };
            match opened.and_then(|entries| self.take(file, range.clone(), entries)) {
                Ok(()) => is_lost = false,
                Err(_) if is_lost => {
                    let hole = self.holes.last_mut();
                    hole.into_iter().for_each(|hole| hole.range.end = range.end);
                }
                Err(reason) => {
                    is_lost = true;
                    self.lacks_ends.0 |= before.is_none();
                    self.add_hole(file, range, &reason, (before, None));
                }
            }
        }
        self.lacks_ends.1 = is_lost;
    }

    /// Takes a block, unless it has keys that are not internal keys.
    fn take(&mut self, file: &File, range: Range<u64>, mut entries: Entries) -> Result<(), Reason> {
        let (mut first, mut last, mut versions) = (None, Vec::new(), 0);
        let (mut sequences, mut is_indexed_db) = (self.sequences, self.is_indexed_db);
        while let Ok(true) = entries.advance() {
            let Some(key) = InternalKey::parse(entries.key()) else {
                let key = show_key(entries.key());
                return Err(format!("{key} is not an internal key"));
            };
            versions += 1;
            is_indexed_db = is_indexed_db && is_indexed_db_key(key.user_key);
            let (low, high) = sequences.unwrap_or((key.sequence, key.sequence));
            sequences = Some((low.min(key.sequence), high.max(key.sequence)));
            entries.key().clone_into(&mut last);
            first.get_or_insert_with(|| last.clone());
        }
        self.versions += versions;
        (self.sequences, self.is_indexed_db) = (sequences, is_indexed_db);
        if let Some(first) = first {
            // An open gap before the block ends here.
            if let Some(hole) = self.holes.last_mut().filter(|hole| hole.to.is_none()) {
                hole.to = Some(user_key(&first).to_vec());
            }
            self.ends.get_or_insert((first, Vec::new())).1 = last;
        }
        // An uncompressed block fills its frame, so the codec is only looked up otherwise.
        let is_raw = (entries.block().len() + TRAILER_LEN) as u64 == range.end - range.start;
        if is_raw {
            self.codec = self.codec.or(Some("none"));
        } else if self.codec.is_none_or(|codec| codec == "none") {
            let frame = file.read(range.clone());
            self.codec = frame.ok().and_then(|frame| codec_name(&frame).ok());
        }
        self.blocks.push(range);
        Ok(())
    }

    fn add_hole(
        &mut self,
        file: &File,
        range: Range<u64>,
        reason: &str,
        (from, to): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) {
        let block = file.read_block(range.clone(), Section::Data);
        let unsupported = block.err().filter(|e| e.kind() == ErrorKind::Unsupported);
        self.unsupported = self
            .unsupported
            .take()
            .or(unsupported.map(|e| file.at_path(e)));
        // The finding already says where.
        let rest = reason.strip_prefix("corrupt data block at offset ");
        let rest = rest.and_then(|rest| Some(rest.split_once(": ")?.1));
        let reason = rest.unwrap_or(reason).to_owned();
        self.holes.push(Hole {
            range,
            reason,
            from,
            to,
        });
    }

    fn last_user_key(&self) -> Option<Vec<u8>> {
        let (_, last) = self.ends.as_ref()?;
        Some(user_key(last).to_vec())
    }

    /// The first and the last user key.
    pub(super) fn span(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = self.ends.as_ref()?;
        Some((user_key(first), user_key(last)))
    }

    /// Whether this is the table that a MANIFEST lists: its ends agree as far as they are readable, and so does its size, unless the
    /// file has lost its end.
    pub(super) fn is(&self, listed: &TableMetadata, order: &Order) -> bool {
        if self.has_index && self.bytes != listed.size {
            return false;
        }
        let Some((first, last)) = self.ends.as_ref().filter(|_| !self.is_resorted) else {
            return self.bytes == listed.size || !self.has_index;
        };
        let is_after = |a: &[u8], b: &[u8]| order.compare(a, b).is_ge();
        let (lacks_first, lacks_last) = self.lacks_ends;
        (first == &listed.smallest || lacks_first && is_after(first, &listed.smallest))
            && (last == &listed.largest || lacks_last && is_after(&listed.largest, last))
    }

    /// Its state in the report.
    pub(super) fn state(&self) -> &'static str {
        match (self.role, self.is_damaged()) {
            (Role::Spare, _) => "no longer part of the database",
            (Role::Listed, true) => "part of the database, damaged",
            (Role::Listed, false) => "part of the database",
            (_, true) => "included, although nothing lists it; damaged",
            (_, false) => "included, although nothing lists it",
        }
    }

    /// Whether a user key lies within this table, in no lost part.
    pub(super) fn covers(&self, key: &[u8], order: &Order) -> bool {
        let lacks = |hole: &Hole| is_within(key, hole.from.as_deref(), hole.to.as_deref(), order);
        let span = self.span();
        let spans = span.is_some_and(|(from, to)| is_within(key, Some(from), Some(to), order));
        spans && !self.holes.iter().any(lacks)
    }

    pub(super) fn is_damaged(&self) -> bool {
        !self.holes.is_empty()
    }
}

/// Whether a key lies between two others, both inclusive; open where `None`.
pub(super) fn is_within(key: &[u8], from: Option<&[u8]>, to: Option<&[u8]>, order: &Order) -> bool {
    from.is_none_or(|from| order.compare(from, key).is_le())
        && to.is_none_or(|to| order.compare(key, to).is_le())
}

/// The index that the footer leads to, if it is sound.
fn index_in_place(file: &File) -> Option<Entries> {
    let named_by = (Section::Footer, file.footer_offset());
    let index = file.footer().ok()?.index;
    let range = file.range_of(index, Section::Index, named_by).ok()?;
    let block = file.read_block(range, Section::Index).ok()?;
    let mut entries = Entries::new(block.clone()).ok()?;
    while entries.advance().ok()? {
        let (_, len) = BlockHandle::decode(entries.value())?;
        (len == entries.value().len()).then_some(())?;
    }
    Entries::new(block).ok()
}

/// A version of a key.
#[derive(Debug)]
pub(super) struct Row {
    /// An internal key.
    pub(super) key: Vec<u8>,
    pub(super) value: Bytes,
    /// Its role, and the number of its file: of two versions with the same key and sequence number, the higher one counts.
    pub(super) rank: (Role, u64),
    /// The index of its table.
    pub(super) table: Option<usize>,
}

impl Row {
    pub(super) fn user_key(&self) -> &[u8] {
        user_key(&self.key)
    }

    /// `sequence << 8 | type`.
    pub(super) fn tag(&self) -> u64 {
        let tag = self.key.last_chunk();
        tag.map_or(0, |tag| u64::from_le_bytes(*tag))
    }

    pub(super) fn sequence(&self) -> u64 {
        self.tag() >> 8
    }

    /// Compares by user key, from the newest to the oldest version; of equals, the higher rank comes first.
    pub(super) fn cmp(&self, other: &Row, user: &Order) -> Ordering {
        let by_key = user.compare(self.user_key(), other.user_key());
        let of = |row: &Row| (row.sequence(), row.rank, row.tag());
        by_key.then_with(|| of(other).cmp(&of(self)))
    }
}

/// The versions of a table, in its order.
struct Rows<'a> {
    dir: &'a dyn Directory,
    table: &'a Table,
    at: usize,
    /// Number of the next block.
    next: usize,
    /// The bytes that were read, and where they begin.
    chunk: (u64, Bytes),
    entries: Option<Entries>,
}

impl<'a> Rows<'a> {
    fn of(dir: &'a dyn Directory, at: usize, table: &'a Table) -> Rows<'a> {
        Rows {
            dir,
            table,
            at,
            next: 0,
            chunk: (0, Bytes::new()),
            entries: None,
        }
    }

    fn read_row(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(entries) = &mut self.entries
                && entries
                    .advance()
                    .map_err(|defect| defect.locate(Section::Data, 0))?
            {
                return Ok(Some(Row {
                    key: entries.key().to_vec(),
                    value: entries.block().slice_ref(entries.value()),
                    rank: (self.table.role, self.table.number),
                    table: Some(self.at),
                }));
            }
            let Some(range) = self.table.blocks.get(self.next).cloned() else {
                return Ok(None);
            };
            self.next += 1;
            let locate =
                |defect: leveltable::format::Defect| defect.locate(Section::Data, range.start);
            let block = open_sound(&self.frame(&range)?).map_err(locate)?;
            self.entries = Some(Entries::new(block).map_err(locate)?);
        }
    }

    /// The frame at `range`. The file is opened for each chunk, since there may be more tables than a process may hold
    /// open.
    fn frame(&mut self, range: &Range<u64>) -> Result<Bytes> {
        let (start, chunk) = &self.chunk;
        if range.start < *start || range.end > start + chunk.len() as u64 {
            let following = self.table.blocks.iter().skip(self.next);
            let ends = following
                .map(|next| next.end)
                .take_while(|&end| end > range.end);
            let end = ends.take_while(|end| end - range.start <= CHUNK).last();
            let file = File::new(self.dir.open_table(&self.table.name)?)?;
            let bytes = file.read(range.start..end.unwrap_or(range.end))?;
            self.chunk = (range.start, bytes);
        }
        let from = (range.start - self.chunk.0) as usize;
        let len = (range.end - range.start) as usize;
        Ok(self.chunk.1.slice(from..from + len))
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let row = self.read_row();
        let path = || self.dir.path().join(&self.table.name);
        row.map_err(|error: Error| error.at_path(&path()))
            .transpose()
    }
}

/// Merges the versions of tables with other versions. Tables that do not overlap are read one after another.
pub(super) fn merged<'a>(
    dir: &'a dyn Directory,
    tables: &'a [Table],
    is_wanted: impl Fn(&Table) -> bool,
    others: Vec<Vec<Row>>,
    order: &'a Order,
) -> impl Iterator<Item = Result<Row>> + 'a {
    let wanted = tables
        .iter()
        .enumerate()
        .filter(|(_, table)| is_wanted(table));
    let wanted = wanted.filter_map(|(at, table)| Some((table.span()?, at, table)));
    let sorted = wanted.sorted_by(|(a, ..), (b, ..)| order.compare(a.0, b.0));
    type Run<'a> = Vec<(usize, &'a Table)>;
    let mut runs: Vec<(&[u8], Run<'a>)> = Vec::new();
    for (span, at, table) in sorted {
        let mut fitting = runs.iter_mut();
        match fitting.find(|(last, _)| order.compare(last, span.0).is_lt()) {
            Some((last, run)) => {
                *last = span.1;
                run.push((at, table));
            }
            None => runs.push((span.1, vec![(at, table)])),
        }
    }
    type Input<'a> = Box<dyn Iterator<Item = Result<Row>> + 'a>;
    let rows = move |(at, table): (usize, &'a Table)| -> Input<'a> {
        let rows = Rows::of(dir, at, table);
        if !table.is_resorted {
            return Box::new(rows);
        }
        match rows.collect::<Result<Vec<Row>>>() {
            Ok(rows) => Box::new(rows.into_iter().sorted_by(|a, b| a.cmp(b, order)).map(Ok)),
            Err(error) => Box::new(iter::once(Err(error))),
        }
    };
    let runs = runs
        .into_iter()
        .map(|(_, run)| Box::new(run.into_iter().flat_map(rows)) as Input<'a>);
    let others = others
        .into_iter()
        .map(|rows| Box::new(rows.into_iter().map(Ok)) as Input<'a>);
    runs.chain(others).kmerge_by(move |a, b| match (a, b) {
        (Ok(a), Ok(b)) => a.cmp(b, order).is_lt(),
        // Errors come first.
        (a, _) => a.is_err(),
    })
}
