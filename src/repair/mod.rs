//! What to do with a damaged table: list what is wrong, copy what is left, tell what a file that is no table might be.

pub(crate) mod identify;
pub(crate) mod progress;
pub(crate) mod salvage;
pub(crate) mod verify;

pub use progress::Progress;
pub use salvage::{IndexState, LostRange, SalvageReport};
pub use verify::{Finding, Severity, VerifyReport};
