//! Walking: cursors, ranges, merges, and what they read ahead.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod ends;
mod inputs;
pub(crate) mod merge;
pub(crate) mod range;
