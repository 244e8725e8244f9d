//! Opening a table: footer, index, metaindex, filter.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, may_be_internal};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::filter::{FilterPolicy, FoundFilter, PrefixExtractor, Unused};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::format::prefix_block::PrefixBlockReader;
use crate::format::properties::{KeyKind, Properties, STORED_ORDER};
use crate::read::cache::TableId;
use crate::read::fetch::Run;
use crate::read::file::TableFile;
use crate::read::hints::Hints;
use crate::read::index::{Index, IndexPlace};
use crate::read::metaindex::{Metaindex, NamedPrefixes};
use crate::read::options::OpenOptions;
use crate::read::order_check::SMALL;
use crate::read::prefixes::PrefixFilter;
use crate::read::source::Source;
use crate::read::table::{Inner, Table, TableFilter};
use crate::trace;

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file, which is all of a small table. Of a larger one, it then reads what is missing of index
    /// and filters, all at once. A large table without [properties](crate::WriteOptions::properties), such as LevelDB writes,
    /// takes another read in between: metaindex and index, then filters. Together with the filters, or in a step of its own if
    /// none are to be read, come data blocks whose order is checked: all of a file of up to 4 MiB, and of a larger one those in the
    /// last 64 KiB, and 64 KiB or a block at each of 16 places before, 4 MiB at most;
    /// [`check_order`](OpenOptions::check_order) changes that. If nothing says what the table is and its index could be a
    /// database's, opening also reads its first data block.
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
            let mut file = TableFile::new(source.into())?;
            file.read_tail();
            self.open_file(file)
        };
        report(open())
    }

    /// Opens the table in `file`, of which the end was read, or will be read part by part.
    pub(super) fn open_file(&self, file: TableFile) -> Result<Table> {
        let (mut inner, footer, metaindex) = self.read_parts(file)?;
        let is_guess = self.order.is_none() && !self.stored_order && inner.properties.is_none();
        let unclear = if is_guess {
            inner.refuse_internal_keys()?
        } else {
            None
        };
        let is_usable = self.filter_is_usable(&inner);
        let sample = if self.takes_sample(&inner) {
            inner.sample()
        } else {
            Vec::new()
        };
        // With the filters that are still missing, the sample takes no step of its own.
        let filters = match &metaindex {
            Some(metaindex) if is_usable => filters_to_read(&inner, metaindex, unclear.as_ref()),
            _ => Vec::new(),
        };
        inner
            .file
            .read_ahead(filters, sample.iter().map(Run::range));
        if let Some(metaindex) = metaindex {
            self.attach_filters(&mut inner, &footer, metaindex, unclear, is_usable)?;
        }
        // After the filters, which may say that the table is a database's: that explains more than two keys.
        inner.check_sample(&sample)?;
        let is_as_stored = inner
            .properties
            .as_ref()
            .is_some_and(Properties::is_as_stored);
        if self.checks_order() || is_as_stored && !self.stored_order {
            inner.check_order()?;
        }
        inner.file.forget_ahead();
        inner.file.expect_random_access();
        Ok(Table {
            inner: Arc::new(inner),
            read: self.read,
        })
    }

    /// Whether opening checks the order of all keys, and takes no block that it cannot check.
    pub(super) fn checks_order(&self) -> bool {
        self.check_order == Some(true) && !self.stored_order
    }

    /// Whether opening looks at the order of some keys, or, of a table that is not large, of all.
    fn takes_sample(&self, inner: &Inner) -> bool {
        match self.check_order {
            _ if self.stored_order => false,
            Some(true) => false,
            _ if inner.file.size <= SMALL => true,
            Some(false) => false,
            None => inner.properties.is_none(),
        }
    }

    /// Reads footer, metaindex, properties and index, and makes a table of them that has no filters yet.
    fn read_parts(&self, mut file: TableFile) -> Result<(Inner, Footer, Option<Metaindex>)> {
        let footer = file.footer()?;
        file.read_metadata_ahead(&footer);
        let metaindex = self.read_metaindex(&file, &footer);
        if let Ok(Some(metaindex)) = &metaindex {
            file.read_ahead(self.needed(&footer, metaindex), []);
        }
        let index = file.read_index(&footer)?;
        let metaindex = metaindex?;
        let properties = self.read_properties(&file, &footer, metaindex.as_ref())?;
        let order = self.choose_order(properties.as_ref());
        let order = order.map_err(|error| file.name_in(error))?;
        let index = self.decode_index(index, &file, &footer, order.as_ref());
        let index = index.map_err(|error| file.name_in(error))?;
        let inner = Inner {
            filter: None,
            prefixes: None,
            filters: Vec::new(),
            hints: Hints::new(index.len()),
            index,
            order,
            properties,
            data_end: footer.data_end(),
            cache: self.cache.clone(),
            id: TableId::next(),
            is_remote: false,
            file,
        };
        Ok((inner, footer, metaindex))
    }

    /// Reads the filters that can be used. One that cannot may still tell what an `unclear` table is.
    fn attach_filters(
        &self,
        inner: &mut Inner,
        footer: &Footer,
        mut metaindex: Metaindex,
        unclear: Option<Unclear>,
        is_usable: bool,
    ) -> Result<()> {
        let filters = std::mem::take(&mut metaindex.filters);
        let prefixes = std::mem::replace(&mut metaindex.prefixes, Ok(None));
        let Inner { file, index, .. } = &*inner;
        let mut witness = None;
        if is_usable {
            inner.filter = self.read_filter(file, footer, metaindex, index)?;
        } else if unclear.is_some() {
            let filter = self.read_filter(file, footer, metaindex, index);
            witness = filter.ok().flatten();
        }
        // Of a table that may be a database's for all that is known, the prefixes may be those of user keys.
        let is_clear = unclear.is_none() || inner.filter.is_some();
        if is_usable && is_clear && inner.is_bytewise() {
            inner.prefixes = read_prefixes(&inner.file, footer, prefixes)?;
        }
        inner.filters = self.explain(filters, inner, is_usable);
        match (unclear, inner.filter.as_ref().or(witness.as_ref())) {
            (Some(unclear), Some(filter)) => inner.refuse_filter_of_user_keys(unclear, filter),
            _ => Ok(()),
        }
    }

    /// The blocks that will be read after the metaindex. Whether the filters of a table without properties are of use, its
    /// index must say first.
    fn needed(&self, footer: &Footer, metaindex: &Metaindex) -> Vec<BlockHandle> {
        let mut needed = vec![footer.index];
        if let Some(properties) = metaindex.properties {
            needed.push(properties);
            if self.needs_metaindex() {
                let is_bytewise = self.order.as_ref().is_none_or(is_bytewise);
                needed.extend(metaindex.filters_for(is_bytewise));
            }
        }
        needed
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
        let is_database = || match &inner.properties {
            Some(properties) => properties.key_kind == KeyKind::Database,
            None => inner.index.evidence().kind() == KeyKind::Database,
        };
        self.needs_metaindex()
            && !(self.order.as_ref().is_some_and(takes_stored_keys) && is_database())
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

/// What may be a database's table or a plain one.
struct Unclear {
    evidence: Evidence,
    /// The first keys, as they are stored.
    keys: Vec<Vec<u8>>,
}

/// The filters that are still to be read, if they can be used: those of a table with properties were read with its index.
fn filters_to_read(
    inner: &Inner,
    metaindex: &Metaindex,
    unclear: Option<&Unclear>,
) -> Vec<BlockHandle> {
    if inner.properties.is_some() {
        return Vec::new();
    }
    let may_be_clear = unclear.is_none() || metaindex.has_filter();
    let with_prefixes = may_be_clear && inner.is_bytewise();
    metaindex.filters_for(with_prefixes).collect()
}

impl Inner {
    /// Whether keys, or user keys in a database's table, are in bytewise order.
    fn is_bytewise(&self) -> bool {
        self.order.as_ref().is_some_and(is_bytewise)
    }

    /// Refuses a database's table, whose keys are internal keys.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds user keys.
    /// Nearly always the index alone shows that a table is plain; if not, the first keys of a data block are read, too. Returns
    /// what was read if it fits both kinds.
    fn refuse_internal_keys(&self) -> Result<Option<Unclear>> {
        // Short for nearly every plain table: its first index key shows it.
        let mut index_keys = (0..self.index.len()).map(|i| self.index.key(i));
        if self.index.len() == 0 || !index_keys.all(may_be_internal) {
            return Ok(None);
        }
        let mut evidence = self.index.evidence();
        if !evidence.may_be_database() {
            return Ok(None);
        }
        let keys = self.read_first_entries(&mut evidence)?;
        match evidence.verdict() {
            Some(KeyKind::Database) => Err(self.file.name_in(database_table())),
            Some(KeyKind::Plain) => Ok(None),
            None => Ok(Some(Unclear { evidence, keys })),
        }
    }

    /// Refuses a database's table that nothing but its filter shows to be one: the filter holds user keys.
    fn refuse_filter_of_user_keys(&self, unclear: Unclear, filter: &TableFilter) -> Result<()> {
        let Unclear { mut evidence, keys } = unclear;
        let offset = self.index.handle(0).offset;
        for key in &keys {
            filter.testify(offset, key, &mut evidence);
        }
        match evidence.kind() {
            KeyKind::Database => Err(self.file.name_in(database_table())),
            KeyKind::Plain => Ok(()),
        }
    }

    /// Takes the first entries of the first data block as evidence. Returns their keys.
    fn read_first_entries(&self, evidence: &mut Evidence) -> Result<Vec<Vec<u8>>> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MOST_KEYS: usize = 64;
        const MOST_BYTES: usize = 64 << 10;
        let frame = self.file.read_frame(self.index.handle(0))?;
        let mut read = || {
            frame::verify(&frame)?;
            let mut cursor = BlockCursor::new(Block::parse(frame::open(&frame)?)?);
            let (mut keys, mut bytes) = (Vec::new(), 0);
            while keys.len() < MOST_KEYS && bytes < MOST_BYTES && cursor.next()? {
                evidence.add_entry(cursor.key(), cursor.value());
                bytes += cursor.key().len();
                keys.push(cursor.key().to_vec());
            }
            Ok(keys)
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
