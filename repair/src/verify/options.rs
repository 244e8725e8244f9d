//! Options for a verification.

use std::ops::ControlFlow;

use leveltable::OpenOptions;
use leveltable::db::KeyKind;

#[cfg(doc)]
use super::{VerifyReport, verify};
use crate::progress::{Progress, Reporter};
#[cfg(doc)]
use leveltable::db::InternalKeyComparator;

/// Options of [`verify`].
///
/// ```
/// use std::ops::ControlFlow;
/// use leveltable::WriteOptions;
/// use leveltable_repair::{VerifyOptions, verify};
///
/// # let mut file = Vec::new();
/// # WriteOptions::new().build(&mut file).finish()?;
/// let options = VerifyOptions::new().progress(|progress| {
///     eprint!("\r{} of {} bytes", progress.done, progress.total);
///     ControlFlow::Continue(())
/// });
/// assert!(verify(file, options)?.is_sound());
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct VerifyOptions<'a> {
    pub(super) open: OpenOptions,
    pub(super) keys: Option<KeyKind>,
    pub(super) progress: Reporter<'a>,
}

impl<'a> VerifyOptions<'a> {
    /// Bytewise order, or that of a database if the table looks like one's; the built-in filter policies.
    pub fn new() -> VerifyOptions<'a> {
        VerifyOptions::default()
    }

    /// Options for opening the table: its [comparator](OpenOptions::comparator), filter policies and prefix extractors. The default is
    /// [`OpenOptions::new`].
    ///
    /// Keys that do not ascend in the order of the comparator are damage. For a database's table, this is the order of user
    /// keys if [`keys`](VerifyOptions::keys) says that it is one. Otherwise it is the order of the stored keys, such as an
    /// [`InternalKeyComparator`]. With [`stored_order`](OpenOptions::stored_order), the order of the keys is not checked.
    pub fn open_options(mut self, options: OpenOptions) -> VerifyOptions<'a> {
        self.open = options;
        self
    }

    /// Sets the [kind](KeyKind) of the table's keys. By default, it is taken from the table's properties, or else from its index and first
    /// block.
    pub fn keys(mut self, kind: KeyKind) -> VerifyOptions<'a> {
        self.keys = Some(kind);
        self
    }

    /// Calls `callback` after each data block. On [`ControlFlow::Break`] the run ends, and the report says that it was
    /// [cancelled](VerifyReport::cancelled).
    pub fn progress(
        mut self,
        callback: impl FnMut(Progress) -> ControlFlow<()> + 'a,
    ) -> VerifyOptions<'a> {
        self.progress.callback = Some(Box::new(callback));
        self
    }
}
