//! Opening a table: footer, index, metaindex, filter.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::comparator::Order;
use crate::db::key::internal_order;
use crate::db::recognise::KeyKind;
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::block_search::SearchPart;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::read::cache::TableId;
use crate::read::file::TableFile;
use crate::read::index::{Index, IndexPlace};
use crate::read::options::OpenOptions;
use crate::read::source::Source;
use crate::read::table::{Inner, Table, TableFilter};

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the footer, the index, the metaindex and the filter: four reads at most, and one data
    /// block more where the index looks like a database's. None of it is read again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotATable`] for another kind of file, [`ErrorKind::Corruption`] for a damaged table
    /// (of the data blocks the first at most is looked at), [`ErrorKind::Comparator`], [`ErrorKind::DatabaseTable`],
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Table> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io("opening the table", e));
        file.and_then(|file| self.open_at(file.into(), Some(path)))
            .map_err(|e| e.at_path(path))
    }

    /// Opens a table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// As [`open`](OpenOptions::open).
    pub fn open_source(&self, source: impl Into<Source>) -> Result<Table> {
        self.open_at(source.into(), None)
    }

    fn open_at(&self, source: Source, path: Option<&Path>) -> Result<Table> {
        let file = TableFile::new(source, path)?;
        let footer = file.footer()?;
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let index = self.read_index(&file, &footer, &order)?;
        let filter = if self.filters && self.filter_knows_keys(|| index.evidence()) {
            self.read_filter(&file, &footer, &index)?
        } else {
            None
        };
        let table = Table {
            inner: Arc::new(Inner {
                file,
                order,
                index,
                filter,
                data_end: footer.data_end(),
                cache: self.cache.clone(),
                id: TableId::next(),
            }),
            read: self.read,
        };
        if self.order.is_none() {
            table.refuse_internal_keys()?;
        }
        Ok(table)
    }

    fn read_index(&self, file: &TableFile, footer: &Footer, order: &Order) -> Result<Index> {
        let block = file.read_index(footer)?;
        let place = IndexPlace {
            offset: footer.index.offset,
            data_end: footer.data_end(),
            file_size: file.size,
        };
        let decode = |order: &Order| Index::decode(block.clone(), place, order);
        decode(order).map_err(|error| {
            // The index of a database's table seldom ascends bytewise.
            let of_database = error.kind() == ErrorKind::Comparator
                && self.order.is_none()
                && decode(&internal_order(Order::Bytewise))
                    .is_ok_and(|index| index.evidence().kind() == KeyKind::Database);
            if of_database { database_table() } else { error }
        })
    }

    /// Finds, reads and checks the filter, if the metaindex names one whose policy is known.
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
        let last_block = index
            .len()
            .checked_sub(1)
            .map(|last| index.handle(last).offset);
        Ok(Some(TableFilter {
            policy,
            whole_table: last_block.is_some_and(|offset| block.covers_all(offset)),
            block,
            bytes,
        }))
    }
}

impl Table {
    /// Opens the table at `path` with [`OpenOptions::new`]; see [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Table> {
        OpenOptions::new().open(path)
    }

    /// Refuses a database's table, whose keys are internal keys.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds user keys.
    /// Nearly always the index alone shows that a table is plain; if not, the first keys of a data block are read, too.
    fn refuse_internal_keys(&self) -> Result<()> {
        /// Bounds the work, so that opening stays fast when the first block is large.
        const MOST_KEYS: usize = 64;
        const MOST_BYTES: usize = 64 << 10;
        let mut evidence = self.index().evidence();
        if self.data_blocks() == 0 || !evidence.may_be_database() {
            return Ok(());
        }
        let (mut keys, mut bytes) = (0, 0);
        let mut previous: Option<Vec<u8>> = None;
        let mut is_bytewise = true;
        let mut cursor = BlockCursor::new(self.block(0, SearchPart::WHOLE)?);
        while keys < MOST_KEYS
            && bytes < MOST_BYTES
            && cursor.next().map_err(|defect| self.locate(0, defect))?
        {
            let key = cursor.key();
            evidence.add_key(key);
            is_bytewise &= previous.is_none_or(|previous| *previous < *key);
            previous = Some(key.to_vec());
            keys += 1;
            bytes += key.len();
        }
        match evidence.kind() {
            KeyKind::Database => Err(database_table()),
            KeyKind::Plain if is_bytewise => Ok(()),
            KeyKind::Plain => Err(Error::new(
                ErrorKind::Comparator,
                "the keys of the first data block do not ascend bytewise; open the table with the comparator \
                 it was written with (and as a DbTable if it is a database's)",
            )),
        }
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
         open it with DbTable, or with the InternalKeyComparator to read its keys as they are stored",
    )
}
