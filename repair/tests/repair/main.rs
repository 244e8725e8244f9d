//! Tests of `verify`, `layout` and `blocks`, and of what they and `salvage` know of the parts of a table, as one program.

mod align;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod layout;
mod prefix_filter;
mod properties;
mod verify;
