//! The write path: `add -> flush_block -> frame::seal -> write_all`, then `finish`.

mod align;
pub(crate) mod builder;
mod finish;
pub(crate) mod new_file;
pub(crate) mod options;
mod output;
pub(crate) mod settings;
pub(crate) mod summary;
