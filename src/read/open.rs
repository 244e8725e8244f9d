//! Opening a table: footer, index, metaindex, filter.

use std::path::Path;
use std::sync::Arc;

use crate::comparator::Order;
use crate::db::key::user_key;
use crate::db::recognise::{KeyKind, may_be_internal};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::read::cache::TableId;
use crate::read::file::TableFile;
use crate::read::hints::Hints;
use crate::read::index::{Index, IndexPlace};
use crate::read::options::OpenOptions;
use crate::read::source::Source;
use crate::read::table::{Inner, Table, TableFilter};

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file, which is all of a small table; of a larger one then metaindex and index, and the
    /// filter; and one data block more where the index looks like a database's. None of it is read again.
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
        file.read_tail()?;
        let footer = file.footer()?;
        file.read_ahead(&footer)?;
        let order = match &self.order {
            Some(order) => Some(order.clone()),
            None => (!self.stored_order).then_some(Order::Bytewise),
        };
        let index = self.read_index(&file, &footer, order.as_ref());
        let index = index.map_err(|error| file.name_in(error))?;
        let mut inner = Inner {
            filter: None,
            hints: Hints::new(index.len()),
            index,
            order,
            states_order: false,
            data_end: footer.data_end(),
            cache: self.cache.clone(),
            id: TableId::next(),
            file,
        };
        if self.order.is_none() && !self.stored_order {
            inner.refuse_internal_keys()?;
        }
        if inner.file.is_at_hand() && inner.file.size <= SMALL {
            inner.check_order()?;
        }
        if self.filters && !self.stored_order && self.filter_knows_keys(|| inner.index.evidence()) {
            let filter = self.read_filter(&inner.file, &footer, &inner.index);
            inner.filter = filter.map_err(|error| inner.file.name_in(error))?;
            if self.order.is_none() {
                inner.refuse_user_keys_filter()?;
            }
        }
        inner.file.forget_tail();
        Ok(Table {
            inner: Arc::new(inner),
            read: self.read,
        })
    }

    fn read_index(
        &self,
        file: &TableFile,
        footer: &Footer,
        order: Option<&Order>,
    ) -> Result<Index> {
        let block = file.read_index(footer)?;
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

    /// Finds, reads and checks the filter, if the metaindex names one of a policy that is known.
    fn read_filter(
        &self,
        file: &TableFile,
        footer: &Footer,
        index: &Index,
    ) -> Result<Option<TableFilter>> {
        let footer_place = (Section::Footer, file.footer_offset());
        let metaindex = file.read_block(footer.metaindex, Section::Metaindex, footer_place)?;
        let mut policies = self.known_policies();
        let found = find_filter(&metaindex, &policies)
            .map_err(|defect| defect.locate(Section::Metaindex, footer.metaindex.offset))?;
        let Some((i, handle)) = found else {
            return Ok(None);
        };
        let policy = policies.swap_remove(i);
        let metaindex_place = (Section::Metaindex, footer.metaindex.offset);
        let contents = file.read_block(handle, Section::Filter, metaindex_place)?;
        let bytes = contents.len() as u64;
        let block = FilterBlockReader::new(contents)
            .map_err(|defect| defect.locate(Section::Filter, handle.offset))?;
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
const SMALL: u64 = 64 << 10;

impl Inner {
    /// Refuses a database's table, whose keys are internal keys.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds user keys.
    /// Nearly always the index alone shows that a table is plain; if not, the first keys of a data block are read, too.
    fn refuse_internal_keys(&self) -> Result<()> {
        let mut evidence = self.index.evidence();
        if self.index.len() == 0 || !evidence.may_be_database() {
            return Ok(());
        }
        self.for_first_entries(|key, value| evidence.add_entry(key, value))?;
        match evidence.kind() {
            KeyKind::Database => Err(self.file.name_in(database_table())),
            KeyKind::Plain => Ok(()),
        }
    }

    /// Refuses a database's table whose keys fit both kinds, by its filter: it rejects keys that are in the table, since it
    /// holds user keys. Read as a plain one it would lose those keys in silence.
    fn refuse_user_keys_filter(&self) -> Result<()> {
        let Some(filter) = self.filter.as_ref().filter(|_| self.index.len() > 0) else {
            return Ok(());
        };
        if !self.index.evidence().may_be_database() {
            return Ok(());
        }
        let offset = self.index.handle(0).offset;
        let passes = |key: &[u8]| filter.block.key_may_match(&*filter.policy, offset, key);
        let (mut stored, mut user_keys) = (true, true);
        self.for_first_entries(|key, _| {
            stored &= passes(key);
            user_keys &= may_be_internal(key) && passes(user_key(key));
        })?;
        if user_keys && !stored {
            return Err(self.file.name_in(database_table()));
        }
        Ok(())
    }

    /// Calls `see` with the first entries of the first data block.
    fn for_first_entries(&self, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MOST_KEYS: usize = 64;
        const MOST_BYTES: usize = 64 << 10;
        let frame = self.file.read_frame(self.index.handle(0))?;
        let mut read_keys = || {
            frame::verify(&frame)?;
            let mut cursor = BlockCursor::new(Block::parse(frame::open(&frame)?)?);
            let (mut keys, mut bytes) = (0, 0);
            while keys < MOST_KEYS && bytes < MOST_BYTES && cursor.next()? {
                see(cursor.key(), cursor.value());
                keys += 1;
                bytes += cursor.key().len();
            }
            Ok(())
        };
        read_keys().map_err(|defect| self.locate(0, defect))
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
                return Err(Defect::new(
                    format!("the handle of {}", show_key(cursor.key())),
                    format!(
                        "{:02x?}",
                        cursor.value().get(..20).unwrap_or(cursor.value())
                    ),
                ));
            };
            best = Some((i, handle));
        }
    }
    Ok(best)
}

#[cold]
fn database_table() -> Error {
    Error::new(
        ErrorKind::DatabaseTable,
        "this table belongs to a LevelDB database (each key ends in a sequence number and a type): \
         open it with DbTable, or, to read its keys as they are stored, with the comparator named",
    )
}
