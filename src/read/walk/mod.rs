//! Walks: cursors, ranges, merges and runs, and their read-ahead.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod ends;
mod foreign;
mod input;
pub(crate) mod inputs;
pub(crate) mod merge;
pub(crate) mod range;
pub(crate) mod run;
pub(crate) mod table_walk;
