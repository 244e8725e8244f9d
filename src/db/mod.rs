//! Tables of a LevelDB database: internal keys over the plain tables of `read` and `write`.

pub(crate) mod builder;
pub(crate) mod key;
pub(crate) mod range;
pub(crate) mod table;
