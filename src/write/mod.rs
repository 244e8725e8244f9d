//! The write path: `add -> flush_block -> frame::seal -> write_all`, then `finish`.

mod align;
pub(crate) mod builder;
pub(crate) mod new_file;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod summary;
