//! Two commits of leveltable take turns at the same files: see `README.md`.

pub mod build;
pub mod data;
pub mod prepare;
pub mod redb_peer;
pub mod report;
pub mod rounds;
pub mod rows;
pub mod side;
