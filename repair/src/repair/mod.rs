//! Writes what is left of a damaged database as a new one.

mod report;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use leveltable::{Comparator, Error, ErrorKind, Result};
use leveltable_database::sister_crates::{Directory, FileSystem, NewDirectory};

use crate::progress::{Progress, Reporter};
pub use report::{Grade, RepairFinding, RepairReport, RepairedFile};

/// How [`repair`] reads a database.
#[derive(Default)]
#[must_use]
pub struct RepairOptions<'a> {
    comparator: Option<Arc<dyn Comparator>>,
    progress: Reporter<'a>,
    ignores_space: bool,
    on_temporary: Option<Learn<'a>>,
}

/// Learns where the temporary directory is.
type Learn<'a> = Box<dyn FnOnce(&Path) + 'a>;

impl fmt::Debug for RepairOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepairOptions")
            .field("comparator", &self.comparator)
            .finish_non_exhaustive()
    }
}

impl<'a> RepairOptions<'a> {
    /// The order that the MANIFEST names, if it is a built-in one.
    pub fn new() -> RepairOptions<'a> {
        RepairOptions::default()
    }

    /// The order of the keys: another one than the built-in ones, or one that no MANIFEST is left to name.
    pub fn comparator(mut self, comparator: impl Comparator) -> RepairOptions<'a> {
        self.comparator = Some(Arc::new(comparator));
        self
    }

    /// Calls `callback` as files are read and written. On [`ControlFlow::Break`] the run ends with an error of
    /// [`std::io::ErrorKind::Interrupted`], and nothing is left.
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> RepairOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }

    /// With `true`, begins even if the disk has less room than the old database takes.
    pub fn ignore_space(mut self, yes: bool) -> RepairOptions<'a> {
        self.ignores_space = yes;
        self
    }

    /// Calls `learn` with the temporary directory, before the work begins: a program that a signal may end removes it itself.
    pub fn on_temporary(mut self, learn: impl FnOnce(&Path) + 'a) -> RepairOptions<'a> {
        self.on_temporary = Some(Box::new(learn));
        self
    }
}

/// Reads what is left of the LevelDB database in `directory`, and writes it as a new one at `new`.
pub fn repair(
    directory: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: RepairOptions<'_>,
) -> Result<RepairReport> {
    let _ = (FileSystem(directory.as_ref().into()), new.as_ref(), options);
    Err(Error::new(
        ErrorKind::Unsupported,
        "repair is not there yet",
    ))
}

/// Repairs the database in a directory of any kind.
pub(crate) fn repair_in(
    dir: Arc<dyn Directory>,
    new: Box<dyn NewDirectory>,
    options: RepairOptions<'_>,
) -> Result<RepairReport> {
    let _ = (dir, new, options);
    Err(Error::new(
        ErrorKind::Unsupported,
        "repair is not there yet",
    ))
}
