//! Tables with a filter of prefixes, and extractors that are not built in.

use leveltable::WriteOptions;
use leveltable::filter::{DelimitedPrefix, FixedPrefix, PrefixExtractor};

pub(crate) fn write<K: AsRef<[u8]>>(
    options: &WriteOptions,
    keys: impl IntoIterator<Item = K>,
) -> Vec<u8> {
    let mut builder = options.build(Vec::new());
    for key in keys {
        builder.add(key, "value").unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

pub(crate) fn by_slash() -> WriteOptions {
    WriteOptions::new().prefix_filter(DelimitedPrefix::new(b'/'))
}

pub(crate) fn fixed(len: usize) -> WriteOptions {
    WriteOptions::new().prefix_filter(FixedPrefix::new(len))
}

pub(crate) fn tenants(each: u32) -> Vec<String> {
    let tenants = (0..1000).step_by(2);
    tenants
        .flat_map(|tenant| (0..each).map(move |i| format!("{tenant:04}/{i:06}")))
        .collect()
}

/// One byte of keys that begin with a slash, three of those that begin with a dot, none of others.
#[derive(Debug)]
pub(crate) struct Mixed;

impl PrefixExtractor for Mixed {
    fn name(&self) -> &str {
        "test.Mixed(/,1,.,3)"
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        match key.first()? {
            b'/' => Some(1),
            b'.' => Some(3),
            _ => None,
        }
    }
}

/// Takes the first three bytes, whatever its name says.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) &'static str);

impl PrefixExtractor for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn prefix_len(&self, _: &[u8]) -> Option<usize> {
        Some(3)
    }
}
