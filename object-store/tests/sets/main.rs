//! Sets of tables.

mod common;
mod read;
