//! Opening a table: footer, index, metaindex, filter.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, may_be_internal};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::format::properties::{KeyKind, PROPERTIES_NAME, Properties};
use crate::read::cache::TableId;
use crate::read::file::{TAIL_LEN, TableFile};
use crate::read::hints::Hints;
use crate::read::index::{Index, IndexPlace};
use crate::read::options::OpenOptions;
use crate::read::source::Source;
use crate::read::table::{Inner, Table, TableFilter};

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file, which is all of a small table. Of a larger one, it then reads metaindex and index
    /// together, and the filter, unless they lie in the part that was read. If nothing says what the table is and its index
    /// could be a database's, it also reads one data block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotATable`] for another kind of file, [`ErrorKind::Corruption`] for a damaged table (except for its data
    /// blocks, of which at most the first is needed), [`ErrorKind::Comparator`], [`ErrorKind::DatabaseTable`],
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
        let mut file = TableFile::new(source.into())?;
        file.read_tail();
        let footer = file.footer()?;
        file.read_ahead(&footer);
        let index = file.read_index(&footer)?;
        let metaindex = self.read_metaindex(&file, &footer)?;
        let properties = self.read_properties(&file, &footer, metaindex.as_ref())?;
        let order = self.choose_order(properties.as_ref());
        let order = order.map_err(|error| file.name_in(error))?;
        let index = self.decode_index(index, &file, &footer, order.as_ref());
        let index = index.map_err(|error| file.name_in(error))?;
        let mut inner = Inner {
            filter: None,
            hints: Hints::new(index.len()),
            index,
            order,
            properties,
            data_end: footer.data_end(),
            cache: self.cache.clone(),
            id: TableId::next(),
            file,
        };
        let is_guess = self.order.is_none() && !self.stored_order && inner.properties.is_none();
        let unclear = if is_guess {
            inner.refuse_internal_keys()?
        } else {
            None
        };
        if inner.file.is_at_hand() && inner.file.size <= SMALL {
            inner.check_order()?;
        }
        if let Some(metaindex) = metaindex.filter(|_| self.filter_is_usable(&inner)) {
            inner.filter = self.read_filter(&inner.file, &footer, &metaindex, &inner.index)?;
        }
        if let (Some(evidence), Some(filter)) = (unclear, &inner.filter) {
            inner.refuse_filter_of_user_keys(evidence, filter)?;
        }
        inner.file.forget_tail();
        inner.file.expect_random_access();
        Ok(Table {
            inner: Arc::new(inner),
            read: self.read,
        })
    }

    /// The metaindex block. `None` if it is damaged, for a caller who does without filters.
    fn read_metaindex(&self, file: &TableFile, footer: &Footer) -> Result<Option<Bytes>> {
        let named_by = (Section::Footer, file.footer_offset());
        match file.read_block(footer.metaindex, Section::Metaindex, named_by) {
            Ok(metaindex) => Ok(Some(metaindex)),
            Err(_) if !self.needs_metaindex() => Ok(None),
            Err(error) => Err(error),
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
        metaindex: Option<&Bytes>,
    ) -> Result<Option<Properties>> {
        let Some(metaindex) = metaindex else {
            return Ok(None);
        };
        let named_by = (Section::Metaindex, footer.metaindex.offset);
        let read = || {
            let found = find_properties(metaindex);
            let Some(handle) =
                found.map_err(|defect| file.locate(defect, named_by.0, named_by.1))?
            else {
                return Ok(None);
            };
            let section = Section::Properties;
            let block = file.read_block(handle, section, named_by)?;
            let decoded = Properties::decode(&block).map(Some);
            decoded.map_err(|defect| file.locate(defect, section, handle.offset))
        };
        match read() {
            Err(_) if !self.needs_metaindex() => Ok(None),
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
        if kind == properties.key_kind && user.comparator().name() == properties.comparator {
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
        let is_database = || match &inner.properties {
            Some(properties) => properties.key_kind == KeyKind::Database,
            None => inner.index.evidence().kind() == KeyKind::Database,
        };
        self.needs_metaindex()
            && !(self.order.as_ref().is_some_and(takes_stored_keys) && is_database())
    }

    /// Finds, reads and checks the filter, if the metaindex names one of a policy that is known.
    pub(crate) fn read_filter(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: &Bytes,
        index: &Index,
    ) -> Result<Option<TableFilter>> {
        let metaindex_place = (Section::Metaindex, footer.metaindex.offset);
        let mut policies = self.known_policies();
        let found = find_filter(metaindex, &policies)
            .map_err(|defect| file.locate(defect, metaindex_place.0, metaindex_place.1))?;
        let Some((i, handle)) = found else {
            return Ok(None);
        };
        let policy = policies.swap_remove(i);
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

/// Up to this size, the order of all keys is checked when a table is opened: in so few blocks, keys of another order could
/// lie in blocks that no lookup of them reads, while the index ascends by chance.
const SMALL: u64 = TAIL_LEN;

impl Inner {
    /// Refuses a database's table, whose keys are internal keys.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds user keys.
    /// Nearly always the index alone shows that a table is plain; if not, the first keys of a data block are read, too. Returns
    /// the evidence if it fits both kinds.
    fn refuse_internal_keys(&self) -> Result<Option<Evidence>> {
        // Short for nearly every plain table: its first index key shows it.
        let mut index_keys = (0..self.index.len()).map(|i| self.index.key(i));
        if self.index.len() == 0 || !index_keys.all(may_be_internal) {
            return Ok(None);
        }
        let mut evidence = self.index.evidence();
        if !evidence.may_be_database() {
            return Ok(None);
        }
        self.read_first_entries(|key, value| evidence.add_entry(key, value))?;
        match evidence.verdict() {
            Some(KeyKind::Database) => Err(self.file.name_in(database_table())),
            Some(KeyKind::Plain) => Ok(None),
            None => Ok(Some(evidence)),
        }
    }

    /// Refuses a database's table that nothing but its filter shows to be one: the filter holds user keys.
    fn refuse_filter_of_user_keys(
        &self,
        mut evidence: Evidence,
        filter: &TableFilter,
    ) -> Result<()> {
        let offset = self.index.handle(0).offset;
        self.read_first_entries(|key, _| filter.testify(offset, key, &mut evidence))?;
        match evidence.kind() {
            KeyKind::Database => Err(self.file.name_in(database_table())),
            KeyKind::Plain => Ok(()),
        }
    }

    /// Calls `take` with the first entries of the first data block.
    fn read_first_entries(&self, mut take: impl FnMut(&[u8], &[u8])) -> Result<()> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MOST_KEYS: usize = 64;
        const MOST_BYTES: usize = 64 << 10;
        let frame = self.file.read_frame(self.index.handle(0))?;
        let mut read = || {
            frame::verify(&frame)?;
            let mut cursor = BlockCursor::new(Block::parse(frame::open(&frame)?)?);
            let (mut keys, mut bytes) = (0, 0);
            while keys < MOST_KEYS && bytes < MOST_BYTES && cursor.next()? {
                take(cursor.key(), cursor.value());
                keys += 1;
                bytes += cursor.key().len();
            }
            Ok(())
        };
        read().map_err(|defect| self.locate(0, defect))
    }
}

impl TableFilter {
    /// Adds what the filter replies about `key`, of the data block at `offset`, as it is stored and as a user key.
    pub(crate) fn testify(&self, offset: u64, key: &[u8], evidence: &mut Evidence) {
        evidence.add_filter_replies(key, |key| {
            self.block.key_may_match(&*self.policy, offset, key)
        });
    }
}

/// Which of `policies` to use: the place of the first that the metaindex has a filter of, and that
/// filter's handle.
fn find_filter(
    metaindex: &[u8],
    policies: &[Arc<dyn FilterPolicy>],
) -> Result<Option<(usize, BlockHandle)>, Defect> {
    let mut cursor = BlockCursor::new(Block::parse(metaindex)?);
    let mut best: Option<(usize, BlockHandle)> = None;
    while cursor.next()? {
        let name = cursor.key().strip_prefix(FILTER_PREFIX);
        let known = policies
            .iter()
            .position(|p| Some(p.name().as_bytes()) == name);
        if let Some(i) = known
            && best.is_none_or(|(best, _)| i < best)
        {
            let Some((handle, _)) = BlockHandle::decode(cursor.value()) else {
                return Err(bad_handle(&cursor));
            };
            best = Some((i, handle));
        }
    }
    Ok(best)
}

/// The handle of the properties block, if the metaindex has one.
pub(crate) fn find_properties(metaindex: &[u8]) -> Result<Option<BlockHandle>, Defect> {
    let mut cursor = BlockCursor::new(Block::parse(metaindex)?);
    while cursor.next()? {
        if cursor.key() == PROPERTIES_NAME {
            let handle = BlockHandle::decode(cursor.value()).map(|(handle, _)| handle);
            return handle.map(Some).ok_or_else(|| bad_handle(&cursor));
        }
    }
    Ok(None)
}

#[cold]
fn bad_handle(cursor: &BlockCursor<&[u8]>) -> Defect {
    let value = cursor.value().get(..20).unwrap_or(cursor.value());
    Defect::new(
        format!("the handle of {}", show_key(cursor.key())),
        format!("{value:02x?}"),
    )
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
