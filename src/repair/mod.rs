//! What to do with a damaged table: [`verify`] lists what is wrong, [`salvage`] copies what is left.
//!
//! Both take a source, options, among them a callback for progress that can end the run, and return a report.

pub(crate) mod progress;
pub(crate) mod salvage;
pub(crate) mod verify;

pub use progress::Progress;
pub use salvage::{IndexState, LostRange, SalvageOptions, SalvageReport, SalvageTarget, salvage};
pub use verify::{Finding, Severity, VerifyOptions, VerifyReport, verify};
