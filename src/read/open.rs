//! Opening a table: footer, index, metaindex, filter.

use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, may_be_internal};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::filter::{FilterPolicy, FoundFilter, PrefixExtractor, Unused};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::Footer;
use crate::format::frame;
use crate::format::prefix_block::PrefixBlockReader;
use crate::format::properties::{KeyKind, Properties, STORED_ORDER};
use crate::read::ahead::ReadAhead;
use crate::read::cache::TableId;
use crate::read::file::{Fetch, FromSource, TAIL_LEN, TableFile};
use crate::read::index::{Index, IndexPlace};
use crate::read::metaindex::{Metaindex, NamedPrefixes};
use crate::read::options::{OpenOptions, ReadOptions};
use crate::read::prefixes::PrefixFilter;
use crate::read::source::Source;
use crate::read::states::States;
use crate::read::store::frame_range;
use crate::read::table::{Inner, Table, TableFilter};
use crate::trace;

/// Up to this size, all of a file is in its tail, and the order of all keys is checked when it is opened: in so few blocks an index
/// ascends by chance.
pub(super) const SMALL: u64 = TAIL_LEN;

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file, which is all of a small table. Of a larger one, it then reads what is missing of index
    /// and filters, all at once. A large table in LevelDB's order of blocks takes another read in between: metaindex and index,
    /// then filters. If nothing says what the table is and its index could be a database's, opening also reads its first data
    /// block. The order of keys is checked in the index, and in a file of up to 64 KiB in all blocks;
    /// [`check_order`](OpenOptions::check_order) says what that means for a table that does not name its order.
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
        let mut inner = self.decode(file, &footer, metaindex.as_ref())?;
        let mut witnesses = None;
        if self.may_be_database(&inner, metaindex.as_ref()) {
            let first = inner.file.range_of(inner.index.handle(0));
            inner.file.hold(fetch, first).await?;
            witnesses = Some(self.read_witnesses(&inner)?);
        }
        if let Some(metaindex) = metaindex {
            self.attach_filters(&mut inner, &footer, metaindex, witnesses)?;
        }
        if inner.file.size <= SMALL && !self.stored_order {
            let blocks = (0..inner.index.len()).map(|i| frame_range(inner.index.handle(i)));
            let blocks: Vec<Range<u64>> = blocks.collect();
            let held = inner.file.hold(fetch, blocks).await;
            if self.checks_order(&inner) {
                held?;
            } // else a block that could not be read is left for lookups to find
            inner.check_small(self.checks_order(&inner))?;
        }
        Ok(inner)
    }

    /// Decodes properties and index, and makes a table of them that has no filters yet.
    fn decode(
        &self,
        file: TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
    ) -> Result<Inner> {
        let index = file.read_index(footer)?;
        let properties = self.read_properties(&file, footer, metaindex)?;
        let order = self.choose_order(properties.as_ref());
        let order = order.map_err(|error| file.name_in(error))?;
        let index = self.decode_index(index, &file, footer, order.as_ref());
        let index = index.map_err(|error| file.name_in(error))?;
        Ok(Inner {
            filter: None,
            prefixes: None,
            filters: Vec::new(),
            states: States::new(index.len()),
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

    /// Reads the filters that can be used. Of a table that may be a database's, `witnesses` are stored keys.
    fn attach_filters(
        &self,
        inner: &mut Inner,
        footer: &Footer,
        mut metaindex: Metaindex,
        witnesses: Option<Vec<Vec<u8>>>,
    ) -> Result<()> {
        let mut is_usable = self.filter_is_usable(inner);
        let filters = std::mem::take(&mut metaindex.filters);
        let prefixes = std::mem::replace(&mut metaindex.prefixes, Ok(None));
        if is_usable {
            inner.filter = self.read_filter(&inner.file, footer, metaindex, &inner.index)?;
        }
        if let Some(witnesses) = witnesses
            && !inner.filter_knows(&witnesses)
        {
            is_usable = false;
            inner.filter = None;
        }
        if is_usable && inner.is_bytewise() {
            inner.prefixes = read_prefixes(&inner.file, footer, prefixes)?;
        }
        inner.filters = self.explain(filters, inner, is_usable);
        Ok(())
    }

    /// Where the blocks lie that opening reads after the metaindex: index, properties and filters.
    fn needed(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: Option<&Metaindex>,
    ) -> Vec<Range<u64>> {
        let mut needed = vec![footer.index];
        if let Some(metaindex) = metaindex {
            needed.extend(metaindex.properties);
            if self.needs_metaindex() {
                let is_bytewise = self.order.as_ref().is_none_or(is_bytewise);
                needed.extend(metaindex.filters_for(is_bytewise));
            }
        }
        let part = |handle| file.range_of(handle);
        needed.into_iter().filter_map(part).collect()
    }

    /// Whether the table may be a database's for all that its index tells, while the caller takes it for a plain one: then the
    /// first keys of a data block must be read, too. Nearly always the index alone shows that a table is plain.
    fn may_be_database(&self, inner: &Inner, metaindex: Option<&Metaindex>) -> bool {
        let knows_user_keys = self.order.as_ref().is_some_and(Order::shortens_filter_keys);
        if self.stored_order || knows_user_keys || inner.properties.is_some() {
            return false;
        }
        // Short for nearly every plain table: its first index key shows it.
        let mut index_keys = (0..inner.index.len()).map(|i| inner.index.key(i));
        if inner.index.len() == 0 || !index_keys.all(may_be_internal) {
            return false;
        }
        let has_filter = metaindex.is_some_and(|metaindex| metaindex.filters_for(true).count() > 0);
        has_filter && self.needs_metaindex()
            || self.order.is_none() && inner.index.evidence().may_be_database()
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
        let read = || {
            let block = file.read_metaindex(footer)?;
            let decoded = Metaindex::decode(&block, self);
            let offset = footer.metaindex.offset;
            decoded.map_err(|defect| file.locate(defect, Section::Metaindex, offset))
        };
        match read() {
            Err(error) if !self.needs_metaindex() && is_of_file(&error) => Ok(None),
            read => read.map(Some),
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
        let read = || {
            let block = file.read_block(handle, section, named_by)?;
            let decoded = Properties::decode(&block).map(Some);
            decoded.map_err(|defect| file.locate(defect, section, handle.offset))
        };
        match read() {
            Err(error) if !self.needs_metaindex() && is_of_file(&error) => Ok(None),
            read => read,
        }
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

    fn decode_index(
        &self,
        block: Bytes,
        file: &TableFile,
        footer: &Footer,
        order: Option<&Order>,
    ) -> Result<Index> {
        let place = IndexPlace {
            offset: footer.index.offset,
            data_end: footer.data_end(),
            file_size: file.size,
        };
        let decode = |order| Index::decode(block.clone(), place, order);
        decode(order).map_err(|error| {
            // The index of a database's table seldom ascends bytewise.
            let may_be_database = error.kind() == ErrorKind::Comparator && self.order.is_none();
            let is_database = || {
                let index = decode(None);
                index.is_ok_and(|index| index.evidence().kind() == KeyKind::Database)
            };
            if may_be_database && is_database() {
                database_table()
            } else {
                error
            }
        })
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

    /// Reads and checks the filter, if the metaindex names one of a policy that is known.
    fn read_filter(
        &self,
        file: &TableFile,
        footer: &Footer,
        mut metaindex: Metaindex,
        index: &Index,
    ) -> Result<Option<TableFilter>> {
        let metaindex_place = (Section::Metaindex, footer.metaindex.offset);
        let found = metaindex
            .filter
            .map_err(|defect| file.locate(defect, metaindex_place.0, metaindex_place.1))?;
        let Some((i, handle)) = found else {
            return Ok(None);
        };
        let policy = metaindex.policies.swap_remove(i);
        let contents = file.read_block(handle, Section::Filter, metaindex_place)?;
        let bytes = contents.len() as u64;
        let block = FilterBlockReader::new(contents)
            .map_err(|defect| file.locate(defect, Section::Filter, handle.offset))?;
        let last = index.len().checked_sub(1);
        let covers_all = |last| block.covers_all(index.handle(last).offset);
        Ok(Some(TableFilter {
            policy,
            whole_table: last.is_some_and(covers_all),
            block,
            bytes,
        }))
    }

    /// Says of `filters` which one is `used`, and why the others are not.
    fn explain(
        &self,
        mut filters: Vec<FoundFilter>,
        inner: &Inner,
        is_usable: bool,
    ) -> Vec<FoundFilter> {
        let why = |filter: &FoundFilter| match (self.needs_metaindex(), is_usable) {
            (false, _) => Unused::TurnedOff,
            (_, false) => Unused::UserKeys,
            _ if filter.prefixes.is_some() && !inner.is_bytewise() => Unused::NotBytewise,
            _ if filter.prefixes.is_some() && inner.prefixes.is_none() => Unused::UserKeys,
            _ => Unused::AnotherIsUsed,
        };
        let mut used = inner.filter.as_ref().map(|used| used.policy.name());
        let mut used_prefixes = inner.prefixes.as_ref().map(|used| used.extractor.name());
        for filter in filters.iter_mut().filter(|filter| filter.unused.is_none()) {
            let (used, name) = match &filter.prefixes {
                Some(extractor) => (&mut used_prefixes, extractor),
                None => (&mut used, &filter.policy),
            };
            if *used == Some(&**name) {
                *used = None;
            } else {
                filter.unused = Some(why(filter));
            }
        }
        filters
    }
}

/// Whether an error is due to what the file has, and not to a read that failed.
fn is_of_file(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Io | ErrorKind::Replaced)
}

/// What `future` returns, which never waits: opening a file reads from it directly.
fn ready<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Error::new(
            ErrorKind::InvalidState,
            "opening waits, although nothing that it awaits does",
        )),
    }
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

/// Reads and checks the prefix filter that the metaindex names.
fn read_prefixes(
    file: &TableFile,
    footer: &Footer,
    named: NamedPrefixes,
) -> Result<Option<PrefixFilter>> {
    let (section, offset) = (Section::Metaindex, footer.metaindex.offset);
    let named = named.map_err(|defect| file.locate(defect, section, offset))?;
    let Some((extractor, handle)) = named else {
        return Ok(None);
    };
    let contents = file.read_block(handle, Section::Filter, (section, offset))?;
    let bytes = contents.len() as u64;
    let block = PrefixBlockReader::new(contents)
        .map_err(|defect| file.locate(defect, Section::Filter, handle.offset))?;
    Ok(Some(PrefixFilter {
        extractor,
        block,
        bytes,
    }))
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
    /// Whether keys, or user keys in a database's table, are in bytewise order.
    fn is_bytewise(&self) -> bool {
        self.order.as_ref().is_some_and(is_bytewise)
    }

    /// Whether the filter holds stored keys, as it passes all of `witnesses`, which are keys of the first data block. One that
    /// holds user keys rejects nearly every stored key: of four, it passes all with a probability of 10⁻⁸. Fewer prove nothing.
    fn filter_knows(&self, witnesses: &[Vec<u8>]) -> bool {
        const MIN_WITNESSES: usize = 4;
        let (Some(filter), Some(order)) = (&self.filter, &self.order) else {
            return false;
        };
        let offset = self.index.handle(0).offset;
        let passes = |key: &Vec<u8>| {
            let key = order.filter_key(key);
            filter.block.key_may_match(&*filter.policy, offset, key)
        };
        witnesses.len() >= MIN_WITNESSES && witnesses.iter().all(passes)
    }

    /// Takes the first entries of the first data block as evidence. Returns their keys.
    fn read_first_entries(&self, evidence: &mut Evidence) -> Result<Vec<Vec<u8>>> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MAX_KEYS: usize = 64;
        const MAX_BYTES: usize = 64 << 10;
        let frame = self.file.read_frame(self.index.handle(0))?;
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
        read().map_err(|defect| self.locate(0, defect))
    }

    /// Checks the order of keys in all data blocks of a small file, of which all is held. A block that cannot be read, or is
    /// damaged, is an error if the check is `strict`, and else left for lookups to find.
    fn check_small(&self, strict: bool) -> Result<()> {
        for i in 0..self.index.len() {
            let frame = match self.file.read_frame(self.index.handle(i)) {
                Ok(frame) => frame,
                Err(error) if strict => return Err(error),
                Err(_) => continue,
            };
            match self.check_frame(i, &frame, true) {
                Err(defect) if strict || defect.is_misordered() => {
                    return Err(self.locate(i, defect));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Checks the order of keys in all data blocks. One that cannot be read, or is damaged, is an error.
    fn check_order(&self) -> Result<()> {
        let read = ReadOptions::new().fill_cache(false);
        let mut ahead = ReadAhead::over_all();
        for i in 0..self.index.len() {
            if self.file.is_memory() {
                if self.file.is_mapped() {
                    ahead.announce(self, i);
                }
                self.load_announced(self.index.block(i), read)?;
            } else {
                ahead.load(self, i, read)?;
            }
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
