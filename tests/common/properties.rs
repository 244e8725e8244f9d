//! Tables that say what they are, and forged properties.

use std::collections::BTreeMap;

use bytes::Bytes;
use leveltable::WriteOptions;

use super::{Entry, Layout, block, handle_of};

pub(crate) fn plain(options: &WriteOptions, keys: &[&str]) -> Bytes {
    let mut builder = options.build(Vec::new());
    for key in keys {
        builder.add(key, format!("value of {key}")).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

pub(crate) fn database(options: &WriteOptions, keys: &[&str]) -> Bytes {
    let mut builder = options.build_db(Vec::new());
    for key in keys {
        builder.put(key, 7, format!("value of {key}")).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

/// `file` with the properties block that `change` makes of its own, and every checksum right.
pub(crate) fn with_properties(
    file: &[u8],
    change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>),
) -> Vec<u8> {
    let layout = Layout::of(file);
    let old = layout.properties.unwrap();
    let mut properties = super::entries(&super::payload(file, &old))
        .into_iter()
        .collect();
    change(&mut properties);
    let mut named = super::entries(&super::payload(file, &layout.metaindex));
    let mut changed = file[..old.start].to_vec();
    let properties: Vec<Entry> = properties.into_iter().collect();
    let properties = handle_of(&super::append(&mut changed, &block(&properties)));
    let pieces = layout.pieces.map(|pieces| super::payload(file, &pieces));
    let pieces = pieces.map(|pieces| handle_of(&super::append(&mut changed, &pieces)));
    for (name, value) in &mut named {
        match &name[..] {
            b"about.leveltable" => value.clone_from(&properties),
            b"about.pieces" => value.clone_from(pieces.as_ref().unwrap()),
            _ => {}
        }
    }
    let metaindex = super::append(&mut changed, &block(&named));
    changed.extend(super::footer(&metaindex, &layout.index));
    changed
}
