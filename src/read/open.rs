//! Opening a table: footer, index, metaindex, filter.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, may_be_internal};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::filter::{FilterPolicy, FoundFilter, PrefixExtractor, RibbonFilterPolicy, Unused};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::format::prefix_block::{PREFIXES_NAME, PrefixBlockReader};
use crate::format::properties::{KeyKind, PROPERTIES_NAME, Properties};
use crate::read::cache::TableId;
use crate::read::file::{TAIL_LEN, TableFile};
use crate::read::hints::Hints;
use crate::read::index::{Index, IndexPlace};
use crate::read::options::OpenOptions;
use crate::read::prefixes::PrefixFilter;
use crate::read::source::Source;
use crate::read::table::{Inner, Table, TableFilter};
use crate::trace;

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file, which is all of a small table. Of a larger one, it then reads metaindex and index
    /// together, and the filters, unless they lie in the part that was read. If nothing says what the table is and its index
    /// could be a database's, it also reads one data block. With [`check_order`](OpenOptions::check_order), it reads all of the
    /// file.
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
        let open = || {
            let mut file = TableFile::new(source.into())?;
            file.read_tail();
            self.open_file(file)
        };
        report(open())
    }

    /// Opens the table in `file`, of which the end was read, or will be read part by part.
    pub(super) fn open_file(&self, mut file: TableFile) -> Result<Table> {
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
        let is_guess = self.order.is_none() && !self.stored_order && inner.properties.is_none();
        let unclear = if is_guess {
            inner.refuse_internal_keys()?
        } else {
            None
        };
        if (self.check_order || inner.file.size <= SMALL) && !self.stored_order {
            inner.check_order(self.check_order)?;
        }
        // A filter that nobody wants to use may still tell what the table is.
        let mut witness = None;
        if let Some(mut metaindex) = metaindex {
            let filters = std::mem::take(&mut metaindex.filters);
            let prefixes = std::mem::replace(&mut metaindex.prefixes, Ok(None));
            let is_usable = self.filter_is_usable(&inner);
            let Inner { file, index, .. } = &inner;
            if is_usable {
                inner.filter = self.read_filter(file, &footer, metaindex, index)?;
            } else if unclear.is_some() {
                let filter = self.read_filter(file, &footer, metaindex, index);
                witness = filter.ok().flatten();
            }
            // Of a table that may be a database's for all that is known, the prefixes may be those of user keys.
            let is_clear = unclear.is_none() || inner.filter.is_some();
            if is_usable && is_clear && inner.is_bytewise() {
                inner.prefixes = read_prefixes(&inner.file, &footer, prefixes)?;
            }
            inner.filters = self.explain(filters, &inner, is_usable);
        }
        if let (Some(unclear), Some(filter)) = (unclear, inner.filter.as_ref().or(witness.as_ref()))
        {
            inner.refuse_filter_of_user_keys(unclear, filter)?;
        }
        inner.file.forget_tail();
        inner.file.expect_random_access();
        Ok(Table {
            inner: Arc::new(inner),
            read: self.read,
        })
    }

    /// What the metaindex names. `None` if it is damaged, for a caller who does without filters.
    fn read_metaindex(&self, file: &TableFile, footer: &Footer) -> Result<Option<Metaindex>> {
        let named_by = (Section::Footer, file.footer_offset());
        let (section, handle) = (Section::Metaindex, footer.metaindex);
        let read = || {
            let block = file.read_block(handle, section, named_by)?;
            let decoded = Metaindex::decode(&block, self);
            decoded.map_err(|defect| file.locate(defect, section, handle.offset))
        };
        match read() {
            Err(_) if !self.needs_metaindex() => Ok(None),
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

    /// The filter of a table that is not open, of which there are these parts.
    pub(crate) fn find_filter(
        &self,
        file: &TableFile,
        footer: &Footer,
        metaindex: &[u8],
        index: &Index,
    ) -> Option<TableFilter> {
        let metaindex = Metaindex::decode(metaindex, self).ok()?;
        self.read_filter(file, footer, metaindex, index).ok()?
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

/// The extractor and the handle of the first prefix filter of which the extractor is known.
type NamedPrefixes = Result<Option<(Arc<dyn PrefixExtractor>, BlockHandle)>, Defect>;

/// What the metaindex names.
struct Metaindex {
    /// Those that are known, the best first.
    policies: Vec<Arc<dyn FilterPolicy>>,
    properties: Option<BlockHandle>,
    /// Which of `policies` to use, and its filter's handle: the first that there is a filter of.
    filter: Result<Option<(usize, BlockHandle)>, Defect>,
    prefixes: NamedPrefixes,
    /// All filters. Those that could be used are not yet said to be unused.
    filters: Vec<FoundFilter>,
}

impl Metaindex {
    /// An error if it cannot be told whether there are properties. One that concerns the filter alone is left to those who want
    /// it.
    fn decode(block: &[u8], options: &OpenOptions) -> Result<Metaindex, Defect> {
        let mut found = Metaindex {
            policies: options.known_policies(),
            properties: None,
            filter: Ok(None),
            prefixes: Ok(None),
            filters: Vec::new(),
        };
        let mut room = NameRoom::new(block);
        let mut cursor = BlockCursor::new(Block::parse(block)?);
        loop {
            match cursor.next() {
                Ok(true) => {}
                Ok(false) => return Ok(found),
                Err(defect) if found.properties.is_some() => {
                    found.filter = found.filter.and(Err(defect));
                    return Ok(found);
                }
                Err(defect) => return Err(defect),
            }
            let (name, value) = (cursor.key(), cursor.value());
            let handle = BlockHandle::decode(value).map(|(handle, _)| handle);
            let usable = || handle.ok_or_else(|| bad_handle(&cursor));
            if name == PROPERTIES_NAME && found.properties.is_none() {
                found.properties = Some(usable()?);
            } else if let Some(name) = name.strip_prefix(PREFIXES_NAME) {
                let known = options.known_extractor(name);
                let is_first = matches!(found.prefixes, Ok(None));
                if room.takes(name) || (is_first && known.is_some()) {
                    found.filters.push(FoundFilter {
                        policy: RibbonFilterPolicy::NAME.to_owned(),
                        prefixes: Some(String::from_utf8_lossy(name).into_owned()),
                        bytes: handle.map_or(0, |handle| handle.size),
                        unused: unused(handle, known.is_some(), Unused::UnknownExtractor),
                    });
                }
                if let Some(extractor) = known.filter(|_| is_first) {
                    found.prefixes = usable().map(|handle| Some((extractor, handle)));
                }
            } else if let Some(name) = name.strip_prefix(FILTER_PREFIX) {
                let known = found
                    .policies
                    .iter()
                    .position(|p| p.name().as_bytes() == name);
                let best = match (known, &found.filter) {
                    (Some(i), Ok(best)) => best.is_none_or(|(best, _)| i < best).then_some(i),
                    _ => None,
                };
                if room.takes(name) || best.is_some() {
                    found.filters.push(FoundFilter {
                        policy: String::from_utf8_lossy(name).into_owned(),
                        prefixes: None,
                        bytes: handle.map_or(0, |handle| handle.size),
                        unused: unused(handle, known.is_some(), Unused::UnknownPolicy),
                    });
                }
                if let Some(i) = best {
                    found.filter = usable().map(|handle| Some((i, handle)));
                }
            }
        }
    }
}

/// Why the filter of this handle is not used, if that is certain already. `unknown` is what it is called if it is not known.
fn unused(handle: Option<BlockHandle>, is_known: bool, unknown: Unused) -> Option<Unused> {
    match (handle, is_known) {
        (None, _) => Some(Unused::Damaged),
        (_, false) => Some(unknown),
        _ => None,
    }
}

/// Bounds the filters that are listed. A table has one, seldom two or three.
struct NameRoom {
    filters: usize,
    bytes: usize,
}

impl NameRoom {
    fn new(block: &[u8]) -> NameRoom {
        NameRoom {
            filters: 64,
            bytes: block.len(),
        }
    }

    /// Whether there is room for one of this name. Sharing prefixes, names could take the square of the block.
    fn takes(&mut self, name: &[u8]) -> bool {
        let bytes = self.bytes.checked_sub(name.len());
        let filters = self.filters.checked_sub(1);
        self.bytes = bytes.unwrap_or(0);
        self.filters = filters.unwrap_or(0);
        bytes.is_some() && filters.is_some()
    }
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

/// Up to this size, the order of all keys is checked when a table is opened: in so few blocks, keys of another order could
/// lie in blocks that no lookup of them reads, while the index ascends by chance.
pub(super) const SMALL: u64 = TAIL_LEN;

impl Inner {
    /// Whether keys, or user keys in a database's table, are in bytewise order.
    fn is_bytewise(&self) -> bool {
        let order = self.order.as_ref();
        let order = order.map(|order| user_order(order).unwrap_or(order));
        matches!(order, Some(Order::Bytewise))
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
