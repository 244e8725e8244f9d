//! The tests of the engine that depend on its features: `.ci/run` repeats them with all of these. Those of `tests/engine` it runs with
//! the default ones.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "mmap")]
mod map;
mod model;
#[cfg(feature = "async")]
mod remote;
#[cfg(feature = "async")]
mod remote_errors;
mod version_1;
