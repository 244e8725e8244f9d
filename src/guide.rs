//! Guides, one per topic: the files of `docs/` in the repository.

#[doc = include_str!("../docs/compatibility.md")]
pub mod compatibility {}
#[doc = include_str!("../docs/filters.md")]
pub mod filters {}
#[doc = include_str!("../docs/format.md")]
pub mod format {}
// The first of two definitions of a link wins; the page's own ones point to files.
#[doc = "[compatibility]: crate::guide::compatibility\n[performance]: crate::guide::performance\n"]
#[doc = include_str!("../docs/from-leveldb.md")]
pub mod from_leveldb {}
#[doc = include_str!("../docs/performance.md")]
pub mod performance {}
#[doc = include_str!("../docs/reliability.md")]
pub mod reliability {}
#[doc = include_str!("../docs/serving.md")]
pub mod serving {}
