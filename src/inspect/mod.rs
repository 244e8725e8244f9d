//! What a table's file is made of, for tools that show a file rather than use it.

pub(crate) mod layout;
pub(crate) mod sample;

pub use crate::format::properties::Properties;
pub use layout::{BlockInfo, Blocks, Layout, NamedBlock};
pub use sample::FilterRate;
