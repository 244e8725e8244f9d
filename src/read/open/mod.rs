//! Opening a table: footer, metaindex, properties, index, filters.

pub(crate) mod metaindex;
pub(crate) mod options;
pub(crate) mod recognise;
pub(crate) mod settings;

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::format::internal_key::user_order;
use crate::format::pieces::{IndexPieces, Pieces};
use crate::format::pieces_filter::FilterPieces;
use crate::format::properties::{KeyKind, Properties};
use crate::read::open::metaindex::{Metaindex, NamedFilter};
use crate::read::open::recognise::{Evidence, may_be_internal};
use crate::read::open::settings::Settings;
use crate::read::parts::filter::{FilterContents, TableFilter};
use crate::read::parts::index::{BlockRef, Index};
use crate::read::parts::{Kind, Part, Parts};
use crate::read::source::file::{TAIL_LEN, TableFile};
use crate::read::store::{BlockStore, batch_len, check_frame};
use crate::read::table::Table;
use crate::read::table::opened::Opened;

/// Number of bytes before a metaindex that are read with it: an ordinary properties block takes some 300.
const PROPERTIES_ROOM: u64 = 4 << 10;

/// If the index does not distinguish a plain table from a database's, entries of the first data block are examined until their keys
/// take this many bytes, each counting at least a kilobyte: keys that share prefixes could take the square of the block's size.
const MAX_BYTES: usize = 64 << 10;

/// Opens the table in `file`. Each step names the parts of the file that it needs, and the missing ones are all read at
/// once.
pub(crate) async fn open_file(settings: &Settings, mut file: TableFile) -> Result<Table> {
    let footer = read_footer(&mut file).await?;
    let mut opening = Opening {
        settings,
        file,
        footer,
    };
    let metaindex = opening.read_metaindex().await;
    let whole_index = Some(footer.index);
    if metaindex.as_ref().is_err_and(is_of_file) {
        // Without its index a table is lost: if both are damaged, the error is about the index.
        opening.fetch(&[(Section::Index, whole_index)]).await?;
        opening.read_block(footer.index, Section::Index, |_| Ok(()))?;
    }
    let metaindex = metaindex?;
    let needed = [
        (Section::Properties, metaindex.properties),
        (Section::Pieces, metaindex.pieces),
        (
            Section::Index,
            whole_index.filter(|_| metaindex.pieces.is_none()),
        ),
    ];
    opening.fetch(&needed).await?;
    let properties = opening.read_if(metaindex.properties, Section::Properties, |block| {
        Properties::decode(&block).map(Some)
    })?;
    // A table without properties does not say how index and filters are divided.
    let pieces = opening.read_pieces(metaindex.pieces.filter(|_| properties.is_some()))?;
    if pieces.is_none() {
        opening.fetch(&[(Section::Index, whole_index)]).await?;
    }
    let (index, divided) = pieces.map_or((None, Vec::new()), |p| (Some(p.index), p.filters));
    let order = opening.choose_order(properties.as_ref())?;
    let index = opening.decode_index(index, order.as_ref())?;
    let [mut filter, mut prefixes] = [None, None];
    let is_plain = properties.is_some() || !opening.may_hold_user_keys(&index).await?;
    if is_plain && settings.needs_metaindex() {
        [filter, prefixes] = opening.filters(metaindex.filters, divided, order.as_ref())?;
    }
    let keeps_all = settings.chose_cache || !opening.file.source.is_near();
    let store = BlockStore::new(opening.file, settings.cache.clone(), keeps_all);
    let parts = Parts {
        order,
        index,
        filter,
        prefixes,
    };
    let mut opened = Opened::new(parts, store, properties);
    // Damage in the parts that came with the end of the file is an error now.
    let fetched = fetched_parts(&opened);
    load_parts(&mut opened, fetched).await?;
    // If the tail is the whole file, the index has so few blocks that it may ascend by chance.
    let is_small = opened.store.file.size <= TAIL_LEN;
    if !settings.stored_order && (settings.check_order || is_small) {
        check_order(&mut opened, settings.check_order).await?;
    }
    if settings.preload {
        let all = opened.parts.all();
        load_parts(&mut opened, all).await?;
    }
    opened.store.file.fetched = Vec::new();
    Ok(Table {
        opened: Arc::new(opened),
        read: settings.read,
    })
}

/// The footer. If the file does not end as a table does, the error says what the file is.
async fn read_footer(file: &mut TableFile) -> Result<Footer> {
    let footer = file.footer_offset()..file.size;
    // A remote file comes with its tail.
    if !file.has_fetched(&footer) {
        let tail = file.size.saturating_sub(TAIL_LEN)..file.size;
        file.fetch([(Section::Footer, tail)]).await?;
    }
    let bytes = file.read_range(&footer);
    let bytes = bytes.map_err(|e| e.of_section(Section::Footer))?;
    if bytes.len() < Footer::LEN || !bytes.ends_with(&Footer::MAGIC.to_le_bytes()) {
        let ends = file.ends().map(|end| (Section::Footer, end));
        file.fetch(ends).await?;
        return Err(file.not_a_table());
    }
    Footer::decode(&bytes).map_err(|defect| file.locate(defect, Section::Footer, footer.start))
}

/// A table that is being opened, with the parts read so far.
struct Opening<'o> {
    settings: &'o Settings,
    file: TableFile,
    footer: Footer,
}

impl Opening<'_> {
    /// Reads the metaindex: empty if it is damaged and the caller wants no filters. If it was not fetched, what may be the properties
    /// before it is fetched with it, and the index, which is needed in any case.
    async fn read_metaindex(&mut self) -> Result<Metaindex> {
        let Footer { metaindex, index } = self.footer;
        let frame = metaindex.frame_before(self.file.footer_offset());
        if frame.is_some_and(|frame| !self.file.has_fetched(&frame)) {
            let room = PROPERTIES_ROOM.min(metaindex.offset);
            let with_room = BlockHandle {
                offset: metaindex.offset - room,
                size: metaindex.size + room,
            };
            let needed = [
                (Section::Metaindex, Some(with_room)),
                (Section::Index, Some(index)),
            ];
            self.fetch(&needed).await?;
        }
        let read = self.read_if(Some(metaindex), Section::Metaindex, |block| {
            Metaindex::decode(&block, self.settings).map(Some)
        });
        read.map(Option::unwrap_or_default)
    }

    /// Reads the blocks to which there are handles that lead into the file, all at once.
    async fn fetch(&mut self, blocks: &[(Section, Option<BlockHandle>)]) -> Result<()> {
        let footer = self.file.footer_offset();
        let range = |(section, handle): &(Section, Option<BlockHandle>)| {
            Some((*section, handle.as_ref()?.frame_before(footer)?))
        };
        self.file.fetch(blocks.iter().filter_map(range)).await
    }

    /// Reads how index and filters are divided, if the table says so in a known version.
    fn read_pieces(&self, handle: Option<BlockHandle>) -> Result<Option<Pieces>> {
        let pieces = self.read_if(handle, Section::Pieces, Pieces::decode)?;
        if let Some(pieces) = &pieces {
            // The checksums of both blocks are correct; the footer has none.
            let (index, place) = (self.footer.index, self.file.footer_offset());
            let checked = index.check(Section::Index, place);
            let checked = checked.and_then(|_| pieces.check_index(index));
            checked.map_err(|defect| self.file.locate(defect, Section::Footer, place))?;
        }
        Ok(pieces)
    }

    /// Reads a block, if there is a handle to it; `None` also if it is damaged and the caller wants no filters.
    fn read_if<T>(
        &self,
        handle: Option<BlockHandle>,
        section: Section,
        decode: impl FnOnce(Bytes) -> Result<Option<T>, Defect>,
    ) -> Result<Option<T>> {
        let read = handle.map(|handle| self.read_block(handle, section, decode));
        read.unwrap_or(Ok(None)).or_else(|error| {
            if !is_of_file(&error) || self.settings.needs_metaindex() {
                return Err(error);
            }
            Ok(None)
        })
    }

    /// Reads a block that footer or metaindex lists, and decodes it with `decode`.
    fn read_block<T>(
        &self,
        handle: BlockHandle,
        section: Section,
        decode: impl FnOnce(Bytes) -> Result<T, Defect>,
    ) -> Result<T> {
        let named_by = match section {
            Section::Metaindex | Section::Index => (Section::Footer, self.file.footer_offset()),
            _ => (Section::Metaindex, self.footer.metaindex.offset),
        };
        let checked = handle.check(section, self.file.footer_offset());
        checked.map_err(|defect| self.file.locate(defect, named_by.0, named_by.1))?;
        let frame = self.file.read_frame(handle, section)?;
        let opened = frame::verify(&frame).and_then(|()| frame::open(&frame));
        let decoded = opened.and_then(decode);
        decoded.map_err(|defect| self.file.locate(defect, section, handle.offset))
    }

    /// The order in which to read the table: the one that the caller named, which must agree with the table's properties;
    /// `None` for its stored order.
    fn choose_order(&self, properties: Option<&Properties>) -> Result<Option<Order>> {
        let settings = self.settings;
        if settings.stored_order {
            return Ok(None);
        }
        let order = settings.order.clone().unwrap_or(Order::Bytewise);
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
        Err(self.file.with_path(match properties.key_kind {
            KeyKind::Database if settings.order.is_none() => database_table(),
            _ => ordered_by(properties, kind, user.comparator().name()),
        }))
    }

    /// The index, in the pieces that `pieces` describes, or as a whole block.
    fn decode_index(&self, pieces: Option<IndexPieces>, order: Option<&Order>) -> Result<Index> {
        let (file, footer) = (&self.file, self.footer);
        let locate = |defect| file.locate(defect, Section::Index, footer.index.offset);
        if let Some(pieces) = pieces {
            return Index::in_file(pieces, footer, order).map_err(locate);
        }
        let block = self.read_block(footer.index, Section::Index, Ok)?;
        let decode = |order| Index::of_block(block.clone(), footer, file.size, order);
        decode(order).map_err(|defect| {
            // An index that does not ascend bytewise is rarely a plain table's.
            let is_database =
                |index: Index| evidence_of(&index).verdict() == Some(KeyKind::Database);
            let is_unnamed = defect.is_misordered() && self.settings.order.is_none();
            if is_unnamed && decode(None).is_ok_and(is_database) {
                self.file.with_path(database_table())
            } else {
                locate(defect)
            }
        })
    }

    /// Whether a filter may hold user keys, which lookups do not ask for: the table, which has no properties, is a database's, or may
    /// be, and is opened as a plain one. If it certainly is, that is an error, unless the caller named its order.
    ///
    /// Opened as a plain table, it would lose keys silently: they are in another order, and the filter holds user keys. Nearly
    /// always the first index key shows that a table is plain. If all keys of the index could be a database's, the first data
    /// block decides.
    async fn may_hold_user_keys(&mut self, index: &Index) -> Result<bool> {
        let settings = self.settings;
        // No filter is used, or the caller knows about user keys.
        let knows = |order: &Order| !settings.filters || order.shortens_filter_keys();
        let is_settled = settings.stored_order || settings.order.as_ref().is_some_and(knows);
        let Ok(first) = index.block(0) else {
            return Ok(false);
        };
        if is_settled || !index.first_keys().all(may_be_internal) {
            return Ok(false);
        }
        self.fetch(&[(Section::Data, Some(first.handle))]).await?;
        let mut evidence = evidence_of(index);
        let read = self.read_block(first.handle, Section::Data, |block| {
            let mut cursor = BlockCursor::new(Block::parse(block)?);
            let (mut previous, mut bytes) = (None, 0);
            while bytes < MAX_BYTES && cursor.next()? {
                evidence.add_entry(previous.as_deref(), cursor.key(), cursor.value());
                bytes += cursor.key().len().max(1 << 10);
                previous = Some(cursor.key().to_vec());
            }
            Ok(())
        });
        match read {
            // Lookups will find the damaged block. It says nothing about the filter.
            Err(_) if settings.order.is_some() => Ok(true),
            Ok(()) if settings.order.is_none() && evidence.verdict() == Some(KeyKind::Database) => {
                Err(self.file.with_path(database_table()))
            }
            read => read.map(|()| evidence.may_hold_internal_keys()),
        }
    }

    /// Chooses the filters for lookups, of keys and of prefixes. They are read when they are first needed.
    fn filters(
        &self,
        named: Vec<NamedFilter>,
        mut divided: Vec<FilterPieces>,
        order: Option<&Order>,
    ) -> Result<[Option<TableFilter>; 2]> {
        // The order of keys, or of user keys in a database's table.
        let order = order.map(|order| user_order(order).unwrap_or(order));
        let is_bytewise = matches!(order, Some(Order::Bytewise));
        let (mut of_keys, mut of_prefixes) = (None, None);
        for NamedFilter { of, handle, .. } in named {
            let mut pieces = divided.extract_if(.., |pieces| pieces.handle == handle);
            let (slot, pieces) = match &of {
                FilterContents::Keys(policy) => {
                    // Most policies need whole filters.
                    let is_divided = |pieces: &FilterPieces| {
                        policy.is_divided() && pieces.covers(self.footer.data_end())
                    };
                    (&mut of_keys, pieces.next().filter(is_divided))
                }
                FilterContents::Prefixes(_) if is_bytewise => (&mut of_prefixes, pieces.next()),
                FilterContents::Prefixes(_) => continue,
            };
            if slot.is_none() {
                let checked = handle.check(Section::Filter, self.file.footer_offset());
                let place = self.footer.metaindex.offset;
                checked.map_err(|defect| self.file.locate(defect, Section::Metaindex, place))?;
                *slot = Some(TableFilter::new(of, handle, pieces));
            }
        }
        Ok([of_keys, of_prefixes])
    }
}

/// Whether an error is about what the file holds, not about reading it.
fn is_of_file(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Io | ErrorKind::Replaced)
}

/// The parts that came with the end of the file: the last pieces of index and filters.
fn fetched_parts(opened: &Opened) -> Vec<Part> {
    let file = &opened.store.file;
    let is_fetched = |part: &Part| file.has_fetched(&opened.parts.range(*part));
    let of_kind = |(part, len): Kind| (0..len).rev().map(part).take_while(is_fetched);
    opened.parts.kinds().into_iter().flat_map(of_kind).collect()
}

/// Checks and keeps `parts`, after reading those that were not fetched.
async fn load_parts(opened: &mut Opened, parts: Vec<Part>) -> Result<()> {
    let (parts, file) = (opened.parts.unread(parts), &mut opened.store.file);
    let ranges = parts
        .iter()
        .map(|(range, part)| (Parts::section(*part), range.clone()));
    file.fetch(ranges).await?;
    for (range, part) in parts {
        let read = opened.store.file.read_range(&range);
        let read = read.map_err(|e| e.of_section(Parts::section(part)));
        opened.admit_part(part, &read?)?;
    }
    Ok(())
}

/// Checks the order of keys in all data blocks. A block that is damaged or cannot be read is an error if `is_strict`; otherwise
/// lookups will find it.
async fn check_order(opened: &mut Opened, is_strict: bool) -> Result<()> {
    let all = opened.parts.index.len();
    load_parts(opened, opened.parts.index_parts(0..all)).await?;
    let blocks: Vec<BlockRef> = (0..all).map(|i| opened.block(i)).collect::<Result<_>>()?;
    let is_fatal = |error: &Error| is_strict || error.kind() == ErrorKind::Comparator;
    let (fetched, mut rest) = (opened.store.file.fetched.len(), &*blocks);
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(batch_len(rest));
        rest = after;
        let ranges = batch
            .iter()
            .map(|found| (Section::Data, found.handle.frame_in_file()));
        let read = opened.store.file.fetch(ranges).await;
        let check = |&found: &BlockRef| {
            let frame = opened.store.file.read_frame(found.handle, Section::Data)?;
            let checked = check_frame(&opened.parts, found, &frame).map(drop);
            checked.map_err(|defect| opened.store.locate(found, defect))
        };
        let checked = batch.iter().map(check);
        let mut failed = [read].into_iter().chain(checked).filter_map(Result::err);
        if let Some(error) = failed.find(is_fatal) {
            return Err(error);
        }
        opened.store.file.fetched.truncate(fetched);
    }
    Ok(())
}

/// The evidence of the [first keys](Index::first_keys) of an index about the table's kind.
fn evidence_of(index: &Index) -> Evidence {
    let (mut evidence, mut previous) = (Evidence::default(), None);
    let keys = index.first_keys();
    keys.for_each(|key| evidence.add_index_key(previous.replace(key), key));
    evidence
}

/// The error of a table whose properties name another order or kind than the caller, who named `given`.
#[cold]
fn ordered_by(properties: &Properties, given_kind: KeyKind, given: &str) -> Error {
    let describe = |kind| match kind {
        KeyKind::Plain => ("plain table", "Table"),
        KeyKind::Database => ("table of a LevelDB database", "DbTable"),
    };
    let (name, (kind, how)) = (&properties.comparator, describe(properties.key_kind));
    let (given_kind, _) = describe(given_kind);
    let message = format!(
        "this is a {kind} in the order {name:?}, opened as a {given_kind} in the order {given:?}: open it with {how} and its comparator, or in its stored order"
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
