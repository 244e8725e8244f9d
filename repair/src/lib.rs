//! Repairs LevelDB's databases, checks their table files, lists the parts of these, and copies what can be read of damaged ones.
//!
//! | | |
//! |---|---|
//! | what is wrong with a table, even one that does not open | [`verify`] |
//! | a new database of what can be read of a damaged one | [`repair`] |
//! | a new table of what can be read of a damaged one | [`salvage`] |
//! | where the parts of a file lie | [`layout`] |
//! | statistics of each data block | [`blocks`] |
//!
//! [`guide::repair`] is for the owner of a broken database.
//!
//! `repair` takes a directory. All others take a [`Source`](leveltable::Source): a file, memory, or anything that implements
//! [`ReadAt`](leveltable::ReadAt). They build on [`leveltable::format`], which describes the bytes of a table.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod blocks;
mod file;
pub mod guide {
    //! The guide for the owner of a broken database, from `docs/` in the repository.

    #[doc = include_str!("../docs/repair.md")]
    pub mod repair {}
}
mod layout;
mod progress;
mod repair;
mod salvage;
mod verify;

pub use blocks::{BlockInfo, Blocks, blocks};
pub use layout::{Layout, NamedBlock, layout};
pub use progress::Progress;
pub use repair::{Grade, RepairFinding, RepairOptions, RepairReport, RepairedFile, repair};
pub use salvage::{IndexState, LostRange, SalvageOptions, SalvageReport, salvage};
pub use verify::{Finding, Severity, VerifyOptions, VerifyReport, verify};

#[doc(hidden)]
pub mod sister_crates {
    //! For the other crates of the workspace, which are released together with this one, and for tests: databases in directories of
    //! any kind. They may change at any time.

    use std::sync::Arc;

    use leveltable::Result;
    use leveltable_database::sister_crates::{Directory, NewDirectory};

    use crate::{RepairOptions, RepairReport};

    /// Repairs the database in a directory.
    pub fn repair_in(
        dir: Arc<dyn Directory>,
        new: Box<dyn NewDirectory>,
        options: RepairOptions<'_>,
    ) -> Result<RepairReport> {
        crate::repair::repair_in(dir, new, options)
    }
}

/// The code of the README is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Pages;
