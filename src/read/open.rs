//! Opening a table: footer, index, metaindex, filter.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::filter::{FilterEntry, FilterSkipReason, RibbonFilterPolicy};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::Footer;
use crate::format::frame;
use crate::format::internal_key::user_order;
use crate::format::pieces::{IndexPieces, Pieces};
use crate::format::pieces_filter::FilterPieces;
use crate::format::properties::{KeyKind, Properties, STORED_ORDER};
use crate::read::ahead::ReadAhead;
use crate::read::bounds::Way;
use crate::read::cache::TableId;
use crate::read::file::{Fetch, FromSource, TAIL_LEN, TableFile, saturating_len};
use crate::read::filter::{PrefixFilter, TableFilter};
use crate::read::index::{BlockRef, Index, IndexPlace};
use crate::read::metaindex::Metaindex;
use crate::read::options::{OpenOptions, ReadOptions};
use crate::read::parts::{Part, ready};
use crate::read::recognise::{Evidence, may_be_internal};
use crate::read::source::Source;
use crate::read::store::frame_range;
use crate::read::table::{Inner, Table};
use crate::trace;

/// Up to this size, all of a file is in its tail, and the order of all keys is checked when it is opened: in so few blocks an index
/// ascends by chance.
pub(super) const SMALL: u64 = TAIL_LEN;

/// Of a table that names no order, as many pieces of the index are checked when it is opened.
const CHECKED_PIECES: usize = 8;

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file. That is enough for a table of this crate, of any size but for long index keys, which take a
    /// second read; pieces of its index and filters are read when a lookup first needs them, unless
    /// [`preload`](OpenOptions::preload) is asked for. Of a large table of another writer, it then reads metaindex and index; the
    /// filter is read when it is first asked. If nothing says what the table is and its index could be a database's, opening also
    /// reads its first data block. The order of keys is checked in what is read of the index, and in a file of up to 64 KiB in all
    /// blocks; [`check_order`](OpenOptions::check_order) says what that means for a table that does not name its order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotATable`] for another kind of file, [`ErrorKind::Corruption`] for a damaged table (except for its data
    /// blocks, of which at most the first must be readable), [`ErrorKind::Comparator`], [`ErrorKind::DatabaseTable`],
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Table> {
        self.open_source(Source::open(path)?)
    }

    /// Opens a table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// As [`open`](OpenOptions::open).
    pub fn open_source(&self, source: impl Into<Source>) -> Result<Table> {
        let open = || {
            let file = TableFile::new(source.into())?;
            let inner = ready(self.open_file(file, &FromSource))?;
            if self.checks_order(&inner) && inner.file.size > SMALL {
                inner.check_order()?;
            }
            inner.file.expect_random_access();
            Ok(self.table(inner))
        };
        report(open())
    }

    pub(super) fn table(&self, mut inner: Inner) -> Table {
        inner.file.release();
        Table {
            inner: Arc::new(inner),
            read: self.read,
        }
    }

    /// Whether opening checks the order of all keys, and takes no block that it cannot check.
    /// A table that was copied in the order in which it was stored may be in any.
    pub(super) fn checks_order(&self, inner: &Inner) -> bool {
        let properties = inner.properties.as_ref();
        let is_as_stored = properties.is_some_and(Properties::is_as_stored);
        (self.check_order || is_as_stored) && !self.stored_order
    }

    /// Opens the table in `file`. All that is read comes by `fetch`, which may have to wait; what is made of it needs no I/O.
    pub(super) async fn open_file(&self, mut file: TableFile, fetch: &impl Fetch) -> Result<Inner> {
        // A remote file comes with its tail.
        if !file.holds(&file.footer_range()) {
            file.hold(fetch, [file.tail()]).await?;
        }
        if !file.has_magic() {
            // Its ends tell what the file is instead.
            file.hold(fetch, file.ends_to_identify()).await?;
        }
        let footer = file.footer()?;
        file.hold(fetch, file.metadata(&footer)).await?;
        let metaindex = self.read_metaindex(&file, &footer);
        if metaindex.as_ref().is_err_and(is_of_file) {
            // Without its index a table is lost: where both are damaged, that is the error.
            file.hold(fetch, file.range_of(footer.index)).await?;
            file.read_index(&footer)?;
        }
        let metaindex = metaindex?;
        file.hold(fetch, self.needed(&file, &footer, metaindex.as_ref()))
            .await?;
        let pieces = self.read_pieces(&file, &footer, metaindex.as_ref())?;
        if pieces.is_none() {
            file.hold(fetch, file.range_of(footer.index)).await?;
        }
        let (index, divided) = pieces.map_or((None, Vec::new()), |pieces| {
            (Some(pieces.index), pieces.filters)
        });
        let mut inner = self.decode(file, &footer, metaindex.as_ref(), index)?;
        self.check_first_pieces(&inner, fetch).await?;
        let is_unclear = self.may_be_database(&inner, metaindex.as_ref())?;
        let mut filters = Vec::new();
        if let Some(metaindex) = metaindex {
            filters = self.attach_filters(&mut inner, &footer, metaindex, divided)?;
        }
        let mut is_usable = self.filter_is_usable(&inner);
        if is_unclear {
            let first = frame_range(inner.block(0)?.handle);
            inner.file.hold(fetch, [first]).await?;
            let witnesses = self.read_witnesses(&inner)?;
            inner.bring_by(fetch, inner.filter_parts()).await?;
            if !inner.filter_knows(&witnesses) {
                (is_usable, inner.filter, inner.prefixes) = (false, None, None);
            }
        }
        inner.filters = self.explain(filters, &inner, is_usable);
        inner.admit_tail()?;
        if inner.file.size <= SMALL && !self.stored_order {
            self.check_small(&mut inner, fetch).await?;
        }
        if self.preload {
            inner.bring_by(fetch, inner.parts()).await?;
        }
        Ok(inner)
    }

    /// Checks the order of keys in all data blocks of a small file.
    async fn check_small(&self, inner: &mut Inner, fetch: &impl Fetch) -> Result<()> {
        let is_strict = self.checks_order(inner);
        let pieces = inner.index_parts(0..inner.index.len());
        inner.bring_by(fetch, pieces).await?;
        let blocks: Result<Vec<BlockRef>> =
            (0..inner.index.len()).map(|i| inner.block(i)).collect();
        let blocks = blocks?;
        let frames: Vec<Range<u64>> = blocks
            .iter()
            .map(|found| frame_range(found.handle))
            .collect();
        match inner.file.hold(fetch, frames).await {
            Err(error) if is_strict => Err(error),
            // A block that could not be read is left for lookups to find.
            Ok(()) | Err(_) => inner.check_held(&blocks, is_strict),
        }
    }

    /// Decodes properties and the form of the index, and makes a table of them that has no filters yet.
    fn decode(
        &self,
        file: TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
        pieces: Option<IndexPieces>,
    ) -> Result<Inner> {
        let properties = self.read_properties(&file, footer, metaindex)?;
        let order = self.choose_order(properties.as_ref());
        let order = order.map_err(|error| file.name_in(error))?;
        let place = IndexPlace {
            offset: footer.index.offset,
            data_end: footer.data_end(),
            file_size: file.size,
        };
        let index = match pieces {
            Some(pieces) => Index::in_file(pieces, place, order.as_ref())
                .map_err(|defect| file.locate(defect, Section::Index, place.offset))?,
            None => {
                let block = file.read_index(footer)?;
                let index = Index::of_block(block.clone(), place, order.as_ref());
                index.map_err(|defect| {
                    let error = file.locate(defect, Section::Index, place.offset);
                    self.unless_database(error, || Index::of_block(block, place, None).ok())
                })?
            }
        };
        Ok(Inner {
            filter: None,
            prefixes: None,
            filters: Vec::new(),
            weight: AtomicUsize::new(index.weight()),
            index,
            order,
            properties,
            cache: self.cache.clone(),
            caches_raw: self.chose_cache || !file.source.is_file(),
            id: TableId::next(),
            passed_last: AtomicBool::new(false),
            file,
        })
    }

    /// `error`, or what it means: an index that does not ascend bytewise is seldom a plain table's. `index` is the same index in no
    /// order.
    #[cold]
    fn unless_database(&self, error: Error, index: impl FnOnce() -> Option<Index>) -> Error {
        let may_be_database = error.kind() == ErrorKind::Comparator && self.order.is_none();
        let is_database = |index: Index| {
            let decoded = index.admit(0, &Bytes::new(), None);
            decoded.is_ok() && index.evidence().kind() == KeyKind::Database
        };
        if may_be_database && index().is_some_and(is_database) {
            database_table()
        } else {
            error
        }
    }

    /// Finds the filters that can be used, which are read when they are first asked. Returns all that the metaindex names.
    fn attach_filters(
        &self,
        inner: &mut Inner,
        footer: &Footer,
        mut metaindex: Metaindex,
        mut divided: Vec<FilterPieces>,
    ) -> Result<Vec<FilterEntry>> {
        if !self.filter_is_usable(inner) {
            return Ok(metaindex.filters);
        }
        let file = &inner.file;
        let damaged = |defect| file.locate(defect, Section::Metaindex, footer.metaindex.offset);
        let check = |handle| file.check_handle(handle, Section::Filter).map_err(damaged);
        let mut of = |handle| {
            let i = divided.iter().position(|pieces| pieces.handle == handle)?;
            Some(divided.swap_remove(i))
        };
        if let Some((i, handle)) = metaindex.filter.map_err(damaged)? {
            check(handle)?;
            let policy = metaindex.policies.swap_remove(i);
            // A caller's policy takes whole filters, whatever its name.
            let is_ours = i >= self.policies.len() && policy.name() == RibbonFilterPolicy::NAME;
            let pieces = of(handle).filter(|pieces| is_ours && pieces.covers(footer.data_end()));
            inner.filter = Some(TableFilter::new(policy, handle, pieces));
        }
        let is_bytewise = inner.order.as_ref().is_some_and(is_bytewise);
        if is_bytewise && let Some((extractor, handle)) = metaindex.prefixes.map_err(damaged)? {
            check(handle)?;
            inner.prefixes = Some(PrefixFilter::new(extractor, handle, of(handle)));
        }
        Ok(metaindex.filters)
    }

    /// How index and filters are divided, if the table says so in a version that is known.
    fn read_pieces(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
    ) -> Result<Option<Pieces>> {
        let Some((metaindex, handle)) = metaindex.and_then(|found| Some((found, found.pieces?)))
        else {
            return Ok(None);
        };
        self.if_readable(|| {
            let named_by = (Section::Metaindex, footer.metaindex.offset);
            let block = file.read_block(handle, Section::Pieces, named_by)?;
            let misplaced = |defect| file.locate(defect, Section::Footer, file.footer_offset());
            file.check_handle(footer.index, Section::Index)
                .map_err(misplaced)?;
            let damaged = |defect| file.locate(defect, Section::Pieces, handle.offset);
            let Some(pieces) = Pieces::decode(block).map_err(damaged)? else {
                return Ok(None);
            };
            // Both blocks have a right checksum; the footer has none.
            pieces.check_index(footer.index).map_err(misplaced)?;
            pieces.check_filters(&metaindex.handles).map_err(damaged)?;
            Ok(Some(pieces))
        })
    }

    /// Where the blocks lie that opening reads after the metaindex: properties, and what tells the pieces of index and filters; or
    /// the index, if nothing does.
    fn needed(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
    ) -> Vec<Range<u64>> {
        let properties = metaindex.and_then(|metaindex| metaindex.properties);
        let pieces = metaindex.and_then(|metaindex| metaindex.pieces);
        let needed = [pieces.or(Some(footer.index)), properties];
        needed
            .into_iter()
            .flatten()
            .filter_map(|handle| file.range_of(handle))
            .collect()
    }

    /// Checks the first pieces of the index of a table that does not name its order, since tops, where they are few, ascend by
    /// chance in another one.
    async fn check_first_pieces(&self, inner: &Inner, fetch: &impl Fetch) -> Result<()> {
        if self.stored_order || inner.properties.is_some() {
            return Ok(());
        }
        let pieces = 0..CHECKED_PIECES.min(inner.index.pieces());
        let pieces = pieces.map(Part::Index).collect();
        let checked = inner.bring_by(fetch, pieces).await;
        checked.map_err(|error| self.unless_database(error, || inner.index.in_no_order()))
    }

    /// Whether the table may be a database's for all that its index tells, while the caller takes it for a plain one: then the
    /// first keys of a data block must be read, too. Nearly always the index alone shows that a table is plain.
    fn may_be_database(&self, inner: &Inner, metaindex: Option<&Metaindex>) -> Result<bool> {
        if self.stored_order || inner.properties.is_some() || inner.index.len() == 0 {
            return Ok(false);
        }
        if self.order.as_ref().is_some_and(Order::shortens_filter_keys) {
            return Ok(false); // the caller knows of user keys
        }
        let first = inner.block(0)?;
        // Short for nearly every plain table: its first index key shows it.
        if !may_be_internal(inner.index.key(first)) {
            return Ok(false);
        }
        let evidence = inner.index.evidence();
        if !evidence.may_hold_internal_keys() {
            return Ok(false);
        }
        let has_filter = metaindex.is_some_and(|metaindex| metaindex.filters_for(true).count() > 0);
        Ok(has_filter && self.needs_metaindex()
            || self.order.is_none() && evidence.may_be_database())
    }

    /// The first keys of a table that may be a database's. Refuses one that is, unless the caller named its order.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds user keys.
    fn read_witnesses(&self, inner: &Inner) -> Result<Vec<Vec<u8>>> {
        let mut evidence = inner.index.evidence();
        let keys = inner.read_first_entries(&mut evidence);
        if self.order.is_some() {
            // A damaged block is for lookups to find. It tells nothing of the filter, which is not used then.
            return Ok(keys.unwrap_or_default());
        }
        let keys = keys?;
        match evidence.verdict() {
            Some(KeyKind::Database) => Err(inner.file.name_in(database_table())),
            Some(KeyKind::Plain) | None => Ok(keys),
        }
    }

    /// What the metaindex names. `None` if it is damaged, for a caller who does without filters.
    fn read_metaindex(&self, file: &TableFile, footer: &Footer) -> Result<Option<Metaindex>> {
        self.if_readable(|| {
            let block = file.read_metaindex(footer)?;
            let decoded = Metaindex::decode(&block, self).map(Some);
            let offset = footer.metaindex.offset;
            decoded.map_err(|defect| file.locate(defect, Section::Metaindex, offset))
        })
    }

    /// What `read` returns; `None` in place of damage, for a caller who does without filters.
    fn if_readable<T>(&self, read: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        match read() {
            Err(error) if !self.needs_metaindex() && is_of_file(&error) => Ok(None),
            read => read,
        }
    }

    fn needs_metaindex(&self) -> bool {
        self.filters && !self.stored_order
    }

    /// What the table says of itself.
    fn read_properties(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
    ) -> Result<Option<Properties>> {
        let Some(handle) = metaindex.and_then(|metaindex| metaindex.properties) else {
            return Ok(None);
        };
        let (section, named_by) = (
            Section::Properties,
            (Section::Metaindex, footer.metaindex.offset),
        );
        self.if_readable(|| {
            let block = file.read_block(handle, section, named_by)?;
            let decoded = Properties::decode(&block).map(Some);
            decoded.map_err(|defect| file.locate(defect, section, handle.offset))
        })
    }

    /// The order to read the table in, which is what the caller named, and what the table says of itself if it does; `None`
    /// for its stored order.
    fn choose_order(&self, properties: Option<&Properties>) -> Result<Option<Order>> {
        if self.stored_order {
            return Ok(None);
        }
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let Some(properties) = properties else {
            return Ok(Some(order));
        };
        let (kind, user) = match user_order(&order) {
            Some(user) => (KeyKind::Database, user),
            None => (KeyKind::Plain, &order),
        };
        // A copy of a table whose order nobody knew takes any comparator that the caller names, and is checked whole.
        let is_any = properties.comparator == STORED_ORDER && self.order.is_some();
        let is_named = user.comparator().name() == properties.comparator || is_any;
        if kind == properties.key_kind && is_named {
            return Ok(Some(order));
        }
        if properties.key_kind == KeyKind::Database && self.order.is_none() {
            return Err(database_table());
        }
        Err(ordered_by(properties))
    }

    /// Whether the caller wants the filter, and it knows the keys that will be looked up. That of a database's table holds
    /// user keys, which a caller who named an order that does not know of them will not ask for.
    fn filter_is_usable(&self, inner: &Inner) -> bool {
        let takes_stored_keys = |order: &Order| !order.shortens_filter_keys();
        let properties = inner.properties.as_ref();
        let is_database = properties.is_some_and(|stated| stated.key_kind == KeyKind::Database);
        self.needs_metaindex()
            && !(self.order.as_ref().is_some_and(takes_stored_keys) && is_database)
    }

    /// Says of `filters` which one is `used`, and why the others are not.
    fn explain(
        &self,
        mut filters: Vec<FilterEntry>,
        inner: &Inner,
        is_usable: bool,
    ) -> Vec<FilterEntry> {
        let is_bytewise = inner.order.as_ref().is_some_and(is_bytewise);
        let why = |filter: &FilterEntry| match (self.needs_metaindex(), is_usable) {
            (false, _) => FilterSkipReason::TurnedOff,
            (_, false) => FilterSkipReason::UserKeys,
            _ if filter.prefixes.is_some() && !is_bytewise => FilterSkipReason::NotBytewise,
            _ if filter.prefixes.is_some() && inner.prefixes.is_none() => {
                FilterSkipReason::UserKeys
            }
            _ => FilterSkipReason::AnotherIsUsed,
        };
        let mut used = inner.filter.as_ref().map(|used| used.policy.name());
        let mut used_prefixes = inner.prefixes.as_ref().map(|used| used.extractor.name());
        for filter in filters.iter_mut().filter(|filter| filter.skipped.is_none()) {
            let (used, name) = match &filter.prefixes {
                Some(extractor) => (&mut used_prefixes, extractor),
                None => (&mut used, &filter.policy),
            };
            if *used == Some(&**name) {
                *used = None;
            } else {
                filter.skipped = Some(why(filter));
            }
        }
        filters
    }
}

/// Whether an error is due to what the file has, and not to a read that failed.
fn is_of_file(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Io | ErrorKind::Replaced)
}

/// Reports to those who trace whether a table was opened.
pub(super) fn report(opened: Result<Table>) -> Result<Table> {
    let table = opened.inspect_err(trace::not_opened)?;
    let Inner { file, index, .. } = &*table.inner;
    let filter = table.inner.filter.as_ref().map(|filter| &*filter.policy);
    trace::opened(
        file.path(),
        file.is_memory(),
        file.size,
        index.len(),
        filter,
    );
    Ok(table)
}

/// Whether keys, or user keys in a database's table, are in bytewise order.
fn is_bytewise(order: &Order) -> bool {
    matches!(user_order(order).unwrap_or(order), Order::Bytewise)
}

impl Table {
    /// Opens the table at `path` with [`OpenOptions::new`]; see [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Table> {
        OpenOptions::new().open(path)
    }
}

impl Inner {
    /// Keeps those parts that came with the end of the file. What is damaged there is an error now.
    fn admit_tail(&self) -> Result<()> {
        let tail = self.file.tail();
        let admit = |part| {
            let is_held = |range: &Range<u64>| {
                if self.file.is_memory() {
                    tail.start <= range.start
                } else {
                    self.file.holds(range)
                }
            };
            match self.part_range(part).filter(is_held) {
                Some(range) => {
                    let bytes = self.file.read(range.start, saturating_len(&range))?;
                    self.admit_part(part, &bytes)
                }
                None => Ok(()),
            }
        };
        self.parts().into_iter().try_for_each(admit)?;
        let pieces = (0..self.index.pieces()).filter(|&p| self.index.has(p));
        pieces.flat_map(|p| self.anchors(p)).try_for_each(admit)
    }

    /// Whether the filter holds stored keys, as it passes all of `witnesses`, which are keys of the first data block. One that
    /// holds user keys rejects nearly every stored key: of four, it passes all with a probability of 10⁻⁸. Fewer prove nothing.
    fn filter_knows(&self, witnesses: &[Vec<u8>]) -> bool {
        const MIN_WITNESSES: usize = 4;
        let (Some(filter), Some(order), Ok(first)) =
            (&self.filter, &self.order, self.index.block(0))
        else {
            return false;
        };
        let passes = |key: &Vec<u8>| {
            let passes = filter.passes(first.handle.offset, order.filter_key(key));
            passes.is_ok_and(|passes| passes)
        };
        witnesses.len() >= MIN_WITNESSES && witnesses.iter().all(passes)
    }

    /// Takes the first entries of the first data block as evidence. Returns their keys.
    fn read_first_entries(&self, evidence: &mut Evidence) -> Result<Vec<Vec<u8>>> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MAX_KEYS: usize = 64;
        const MAX_BYTES: usize = 64 << 10;
        let first = self.block(0)?;
        let frame = self.file.read_frame(first.handle)?;
        let mut read = || {
            frame::verify(&frame)?;
            let mut cursor = BlockCursor::new(Block::parse(frame::open(&frame)?)?);
            let (mut keys, mut bytes) = (Vec::new(), 0);
            while keys.len() < MAX_KEYS && bytes < MAX_BYTES && cursor.next()? {
                evidence.add_entry(cursor.key(), cursor.value());
                bytes += cursor.key().len();
                keys.push(cursor.key().to_vec());
            }
            Ok(keys)
        };
        read().map_err(|defect| self.locate(first, defect))
    }

    /// Checks the order of keys in data blocks that are held. A block that cannot be read, or is damaged, is an error if the check
    /// `is_strict`, and else left for lookups to find.
    fn check_held(&self, blocks: &[BlockRef], is_strict: bool) -> Result<()> {
        for &found in blocks {
            let frame = match self.file.read_frame(found.handle) {
                Ok(frame) => frame,
                Err(error) if is_strict => return Err(error),
                Err(_) => continue,
            };
            match self.check_frame(found, &frame, true) {
                Err(defect) if is_strict || defect.is_misordered() => {
                    return Err(self.locate(found, defect));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Checks the order of keys in all data blocks. One that cannot be read, or is damaged, is an error.
    fn check_order(&self) -> Result<()> {
        let read = ReadOptions::new().fill_cache(false);
        let blocks = 0..self.index.len();
        let mut ahead = ReadAhead::over_all(blocks.clone());
        for i in blocks {
            let way = (i > 0).then_some(Way::Forward);
            let found = ahead.find(self, i, way)?;
            ahead.load(self, found, way, read)?;
        }
        Ok(())
    }
}

/// The error of a table that says that it is of another order or kind than the caller named.
#[cold]
fn ordered_by(properties: &Properties) -> Error {
    let name = &properties.comparator;
    let (kind, how) = match properties.key_kind {
        KeyKind::Plain => ("plain table", "Table"),
        KeyKind::Database => ("table of a LevelDB database", "DbTable"),
    };
    let message = format!(
        "this is a {kind}, ordered by {name:?}: open it as a {how} with that comparator, or in its stored order"
    );
    Error::new(ErrorKind::Comparator, message)
}

#[cold]
fn database_table() -> Error {
    Error::new(
        ErrorKind::DatabaseTable,
        "this table belongs to a LevelDB database (each key ends in a sequence number and a type): \
         open it with DbTable, or, to read its keys as they are stored, with the comparator named",
    )
}
