//! A builder's report on its table.

use crate::format::properties::Properties;

/// A finished table, returned by [`TableBuilder::finish`](crate::TableBuilder::finish).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Counts and sizes, as in the table's own description, even if it is written [without properties](crate::WriteOptions::properties).
    /// The first and the last key are included whatever their length.
    pub properties: Properties,
    /// Size of the whole file in bytes.
    pub file_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::InternalKeyComparator;
    use crate::format::block::Block;
    use crate::format::block_cursor::BlockCursor;
    use crate::format::footer::{BlockHandle, Footer};
    use crate::format::internal_key::{InternalKey, ValueType};
    use crate::format::pieces::PIECES_NAME;
    use crate::format::properties::{KeyKind, PROPERTIES_NAME};
    use crate::{
        BytewiseComparator, Comparator, Compression, ErrorKind, OpenOptions, WriteOptions,
    };
    use std::sync::Arc;

    #[derive(Debug)]
    struct Reverse;

    impl Comparator for Reverse {
        fn name(&self) -> &str {
            "test.Reverse"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            b.cmp(a)
        }
    }

    fn options() -> WriteOptions {
        WriteOptions::new()
            .properties(true)
            .compression(Compression::None)
    }

    /// The properties of an uncompressed table, found by the footer and the metaindex.
    fn properties(file: &[u8]) -> Option<Properties> {
        let footer = Footer::decode(&file[file.len() - Footer::LEN..]).unwrap();
        let block = |handle: BlockHandle| &file[handle.offset as usize..][..handle.size as usize];
        let mut cursor = BlockCursor::new(Block::parse(block(footer.metaindex)).unwrap());
        let (mut properties, mut end) = (None, None);
        while cursor.next().unwrap() {
            let (handle, _) = BlockHandle::decode(cursor.value()).unwrap();
            if cursor.key() == PROPERTIES_NAME {
                properties = Some(Properties::decode(block(handle)).unwrap());
                end = handle.end();
            } else if cursor.key() == PIECES_NAME {
                assert_eq!(end, Some(handle.offset), "next to the properties");
                end = handle.end();
            }
        }
        assert!(end.is_none_or(|end| end == footer.metaindex.offset));
        properties
    }

    #[test]
    fn a_plain_table_says_what_it_is() {
        let mut builder = options().build(Vec::new());
        for i in 0..1000u32 {
            builder.add(i.to_be_bytes(), vec![1; 20]).unwrap();
        }
        builder.property("schema", "v2").unwrap();
        builder.property("schema", "v3").unwrap();
        builder.property("", b"\xff").unwrap();
        let (file, summary) = builder.finish_into_writer().unwrap();
        let size = file.len();
        assert_eq!(summary.file_bytes, size as u64);
        let properties = properties(&file).unwrap();
        assert_eq!(properties.comparator, "leveldb.BytewiseComparator");
        assert_eq!(properties.key_kind, KeyKind::Plain);
        assert!(properties.creator.unwrap().starts_with("leveltable "));
        assert_eq!(
            (properties.entries, summary.properties.entries),
            (1000, 1000)
        );
        assert_eq!(
            (properties.key_bytes, properties.value_bytes),
            (4000, 20_000)
        );
        assert_eq!(properties.data_blocks, summary.properties.data_blocks);
        assert_eq!(properties.data_bytes, summary.properties.data_bytes);
        assert_eq!(properties.first_key.unwrap(), [0, 0, 0, 0]);
        assert_eq!(properties.last_key.unwrap(), [0, 0, 3, 231]);
        assert_eq!(summary.properties.first_key.unwrap(), [0, 0, 0, 0]);
        assert_eq!(summary.properties.last_key.unwrap(), [0, 0, 3, 231]);
        assert!(properties.filter_policy.is_some() && properties.filter_bytes.is_some());
        assert_eq!(properties.filter_policy, summary.properties.filter_policy);
        assert_eq!(properties.filter_bytes, summary.properties.filter_bytes);
        assert_eq!((properties.sequences, properties.deletions), (None, 0));
        let others: Vec<_> = properties.others.into_iter().collect();
        let expected = [(&b"user."[..], &b"\xff"[..]), (b"user.schema", b"v3")];
        assert_eq!(others, expected.map(|(k, v)| (k.to_vec(), v.to_vec())));
    }

    /// Also when it is written with a plain builder in the order of internal keys.
    #[test]
    fn a_databases_table_says_what_it_is() {
        let keys = [
            ("apple", 9, true),
            ("apple", 4, false),
            ("pear", 300, false),
        ];
        let keys = keys.map(|(user_key, sequence, is_deletion)| InternalKey {
            user_key: user_key.as_bytes(),
            sequence,
            value_type: if is_deletion {
                ValueType::Deletion
            } else {
                ValueType::Value
            },
        });
        let stored = keys.map(|key| {
            let mut stored = Vec::new();
            key.encode(&mut stored);
            stored
        });
        let mut db_builder = options().build_db(Vec::new());
        let order = InternalKeyComparator::new(BytewiseComparator);
        let mut plain = options().comparator(Arc::new(order)).build(Vec::new());
        for (key, stored) in keys.into_iter().zip(&stored) {
            db_builder.add(key, "value").unwrap();
            plain.add(stored, "value").unwrap();
        }
        db_builder.table_mut().property("level", [6]).unwrap();
        plain.property("level", [6]).unwrap();
        let (file, summary) = db_builder.finish_into_writer().unwrap();
        assert_eq!(
            plain.finish_into_writer().unwrap(),
            (file.clone(), summary.clone())
        );
        let properties = properties(&file).unwrap();
        assert_eq!(properties.comparator, "leveldb.BytewiseComparator");
        assert_eq!(properties.key_kind, KeyKind::Database);
        assert_eq!(properties.user("level"), Some(&[6][..]));
        for (sequences, deletions, first, last) in [
            (
                properties.sequences,
                properties.deletions,
                properties.first_key,
                properties.last_key,
            ),
            (
                summary.properties.sequences,
                summary.properties.deletions,
                summary.properties.first_key,
                summary.properties.last_key,
            ),
        ] {
            assert_eq!((sequences, deletions), (Some(4..=300), 1));
            assert_eq!(
                (first.as_ref(), last.as_ref()),
                (stored.first(), stored.last())
            );
        }
    }

    #[test]
    fn an_empty_table_and_other_orders_say_what_they_are() {
        let (file, summary) = options()
            .comparator(Reverse)
            .build(Vec::new())
            .finish_into_writer()
            .unwrap();
        let empty = properties(&file).unwrap();
        assert_eq!((&*empty.comparator, empty.entries), ("test.Reverse", 0));
        assert_eq!((empty.first_key, empty.last_key), (None, None));
        assert_eq!(
            (summary.properties.first_key, summary.properties.last_key),
            (None, None)
        );
        let database = options().comparator(Reverse).build_db(Vec::new());
        let (file, _) = database.finish_into_writer().unwrap();
        let database = properties(&file).unwrap();
        assert_eq!(database.comparator, "test.Reverse");
        assert_eq!(
            (database.key_kind, database.sequences),
            (KeyKind::Database, None)
        );
    }

    /// LevelDB's format has no place for them.
    #[test]
    fn without_a_properties_block_a_property_is_refused() {
        let mut builder = WriteOptions::leveldb()
            .compression(Compression::None)
            .build(Vec::new());
        builder.add("key", "value").unwrap();
        let error = builder.property("schema", "v3").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        let (file, summary) = builder.finish_into_writer().unwrap();
        assert_eq!(properties(&file), None);
        assert_eq!(summary.properties.last_key.unwrap(), b"key");
    }

    #[test]
    fn properties_are_bounded_when_they_are_set() {
        let mut builder = options().build(Vec::new());
        let half = vec![0; 8 << 20];
        builder.property("a", &half).unwrap();
        let error = builder.property("b", &half).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("\"b\""), "{error}");
        builder.property("a", &half).unwrap(); // replaces the first value
        let (file, _) = builder.finish_into_writer().unwrap();
        assert_eq!(properties(&file).unwrap().user("a"), Some(&half[..]));
    }

    /// No name of an order, key or property can make a table unreadable.
    #[test]
    fn tables_with_properties_are_read_as_others() {
        for options in [
            WriteOptions::new(),
            WriteOptions::leveldb(),
            WriteOptions::new().no_filter(),
        ] {
            let files = [false, true].map(|properties| {
                let mut builder = options.clone().properties(properties).build(Vec::new());
                for i in 0..500u32 {
                    builder.add(i.to_be_bytes(), i.to_le_bytes()).unwrap();
                }
                builder.finish_into_writer().unwrap()
            });
            let tables = files.map(|(file, summary)| {
                let table = OpenOptions::new().open_source(file).unwrap();
                (table, summary)
            });
            let entries = tables
                .clone()
                .map(|(table, _)| table.iter().collect::<Result<Vec<_>, _>>().unwrap());
            assert_eq!(entries[0], entries[1]);
            let [(bare, without), (table, with)] = tables;
            assert_eq!(bare.filter(), table.filter());
            assert_eq!(without.properties.data_bytes, with.properties.data_bytes);
            assert!((100..500).contains(&(with.file_bytes - without.file_bytes)));
            assert_eq!(
                table.get(7u32.to_be_bytes()).unwrap().unwrap(),
                7u32.to_le_bytes()[..]
            );
        }
    }
}
