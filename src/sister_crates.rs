//! Internals that the other crates of this workspace use. Not part of the public interface: they may change at any time, and their users
//! require exactly this version.

use std::sync::Arc;

use bytes::Bytes;

pub use crate::coding::{fixed32_at, get_varint64, put_varint};
pub use crate::comparator::Order;
pub use crate::db::builder::parse_version;
pub use crate::error::show_key;
use crate::error::{Result, Section};
pub use crate::filter::policies::{BuiltIn, POLICIES};
use crate::filter::{FilterPolicy, PrefixExtractor};
pub use crate::format::checksum::{crc32c, mask, unmask};
pub use crate::format::internal_key::{internal_order, user_key, user_order};
pub use crate::format::page;
use crate::format::properties::Properties;
pub use crate::held::{advice, is_about_held, is_held, rename_patiently};
use crate::read::open::options::OpenOptions;
pub use crate::read::open::recognise::Evidence;
pub use crate::read::parts::bounds::prefix_bounds_from;
pub use crate::read::source::identify::{PEEK_LEN, describe, foreign_table};
use crate::read::source::stats::Stats;
use crate::read::table::Table;
pub use crate::read::walk::range::no_prefixes;
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;
pub use crate::write::new_file::sync_directory;
use crate::write::options::WriteOptions;

/// Every counter, with the name of its field.
pub fn counts(stats: &Stats) -> impl Iterator<Item = (&'static str, u64)> {
    stats.counts().into_iter()
}

/// Sets a built-in filter policy, and whether one filter covers the whole table.
pub fn filter_with(options: WriteOptions, policy: &BuiltIn, bits_per_key: f64) -> WriteOptions {
    let mut options = options.whole_table_filter(policy.whole_table);
    options.0.filter = Some((policy.make)(bits_per_key));
    options
}

/// The order that a table is opened in, if the options name it.
pub fn named_order(options: &OpenOptions) -> Option<&Order> {
    options.settings.order.as_ref()
}

/// Whether a table is opened in its stored order.
pub fn is_in_stored_order(options: &OpenOptions) -> bool {
    options.settings.stored_order
}

/// The filter policy of this name, if it is known.
pub fn known_policy(options: &OpenOptions, name: &[u8]) -> Option<Arc<dyn FilterPolicy>> {
    let mut known = options.settings.known_policies().into_iter();
    known.find(|policy| policy.name().as_bytes() == name)
}

/// The prefix extractor of this name, if it is known.
pub fn known_extractor(options: &OpenOptions, name: &[u8]) -> Option<Arc<dyn PrefixExtractor>> {
    options.settings.known_extractor(name)
}

/// The frame of data block `i`, one of `0..data_blocks()`, as it is stored and unchecked.
///
/// # Errors
///
/// Errors of reading the index and the block.
pub fn data_frame(table: &Table, i: usize) -> Result<Bytes> {
    let block = table.opened.block(i)?;
    table
        .opened
        .store
        .file
        .read_frame(block.handle, Section::Data)
}

/// The order of the keys that the builder takes.
pub fn order_of<D: Destination>(builder: &TableBuilder<D>) -> &Order {
    &builder.settings.order
}

/// A table's codec, filter and properties, as far as they are known.
#[derive(Debug, Default)]
pub struct Style {
    /// The name of its codec.
    pub codec: Option<&'static str>,
    /// The name of its filter's policy, or that it has no filter.
    pub filter: Option<Option<String>>,
    /// Its properties.
    pub properties: Option<Properties>,
}

/// Gives the new table this style, except where its options say otherwise. Returns whether blocks end where
/// [`flush`](TableBuilder::flush) says, and only there: then no option said how large they are.
pub fn imitate<D: Destination>(builder: &mut TableBuilder<D>, style: &Style) -> bool {
    let options = &mut builder.settings;
    let keeps_blocks = !options.chose_blocks;
    if keeps_blocks {
        options.block_size = usize::MAX;
    }
    // What is not built in is not kept.
    let codec = style.codec.and_then(|name| name.parse().ok());
    options.compression = options.compression.or(codec);
    if let (Some(name), false) = (&style.filter, options.chose_filter) {
        let name = name.as_deref();
        let is_kept = |policy: &&BuiltIn| Some(policy.reader().name()) == name;
        if let Some(policy) = POLICIES.iter().find(is_kept) {
            *options = filter_with(WriteOptions(options.clone()), policy, 10.0).0;
        } else if name.is_none() {
            options.filter = None;
        }
    }
    builder.restyle();
    let properties = style.properties.iter();
    for (name, value) in properties.flat_map(Properties::user_properties) {
        if let Ok(name) = str::from_utf8(name)
            && builder.summary.properties.user(name).is_none()
        {
            // Left out without properties, or if it does not fit beside those that the caller set.
            let _ = builder.property(name, value);
        }
    }
    keeps_blocks
}
