//! One error type for the whole crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shorthand for a result with this crate's [`Error`], unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: its class, a message that says what to do, and the place of any damage.
///
/// Programs decide by its [`kind`](Error::kind), and people read its message. [`corruption`](Error::corruption) has the
/// section and the offset of damage. An error is one word wide, which keeps results small where nothing fails.
///
/// A clone shares the system's error, so that all who wait for one operation can have it.
///
/// ```
/// use leveltable::{ErrorKind, Table};
///
/// let error = Table::open("no/such/table.ldb").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Io);
/// assert_eq!(error.path(), Some("no/such/table.ldb".as_ref()));
/// assert_eq!(error.io_error().unwrap().kind(), std::io::ErrorKind::NotFound);
/// assert!(error.corruption().is_none());
/// ```
#[derive(Clone)]
pub struct Error(Box<Repr>);

#[derive(Clone)]
struct Repr {
    kind: ErrorKind,
    /// The file, if it is known. The message begins with it.
    path: Option<PathBuf>,
    message: String,
    corruption: Option<Corruption>,
    source: Option<Arc<io::Error>>,
    /// What to do, if that is known. The message ends with it.
    hint: Option<String>,
}

/// The classes of [`Error`] that a program may treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing failed; [`Error::io_error`] is the system's error.
    Io,
    /// The table's source was replaced or removed since the table was opened: what was read before came from the old one.
    /// Reopen the table. A source says so with [`io::ErrorKind::StaleNetworkFileHandle`].
    Replaced,
    /// The file is a table, and damaged: [`Error::corruption`] says where, if the damage has a place in the file.
    Corruption,
    /// The file is not a LevelDB table, or not a complete one; the message says what it looks like.
    NotATable,
    /// The directory is not a LevelDB database; the message says what it looks like.
    NotADatabase,
    /// The file is sound but needs something that this build cannot do, such as a codec.
    Unsupported,
    /// The table holds the internal keys of a LevelDB database: open it with
    /// [`DbTable`](crate::DbTable).
    DatabaseTable,
    /// The comparator is wrong: the table's keys do not ascend in its order, or it returned a separator that does not
    /// separate. Also returned by a lookup in a table that was opened in its [stored
    /// order](crate::OpenOptions::stored_order).
    Comparator,
    /// A key was added that does not come after the previous one. Nothing was changed.
    OutOfOrder,
    /// A key, value, block or filter is larger than the format allows.
    TooLarge,
    /// The call is not possible in the object's state: a builder with an option out of range or after a failed write,
    /// a cursor that is moved on after a failed move.
    InvalidState,
}

/// Where a table is damaged, what was expected there, and what was found; see [`Error::corruption`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The part of the file that is damaged.
    pub section: Section,
    /// Offset in bytes from the start of the file: of the damage itself if that is known, otherwise of its block. In a
    /// compressed block, always that of the block.
    pub offset: u64,
    /// Describes what a sound table has there.
    pub expected: String,
    /// Describes what is there instead.
    pub found: String,
}

impl Corruption {
    /// Damage in `section` at `offset` of the file; see [`Error::corrupt`].
    pub fn new(
        section: Section,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Corruption {
        Corruption {
            section,
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// Where the damage is, what was expected there and what was found.
impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: ", self.section, self.offset)?;
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// The parts of a table file, in the file's order; see [`Corruption::section`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Section {
    /// A data block: sorted entries.
    Data,
    /// The filter block.
    Filter,
    /// The properties block, in which a table says what it is.
    Properties,
    /// The block `about.pieces`, which divides the index and the filters into pieces.
    Pieces,
    /// The metaindex block, which names the filter block, the properties block and others.
    Metaindex,
    /// The index block, which finds the data blocks.
    Index,
    /// The last 48 bytes.
    Footer,
    /// A database's log, outside of any table.
    Log,
    /// A database's MANIFEST, outside of any table.
    Manifest,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Section::Data => "data block",
            Section::Filter => "filter block",
            Section::Properties => "properties block",
            Section::Pieces => "pieces block",
            Section::Metaindex => "metaindex block",
            Section::Index => "index block",
            Section::Footer => "footer",
            Section::Log => "log",
            Section::Manifest => "MANIFEST",
        })
    }
}

/// For `?` in functions that also read and write by themselves. [`Error::io`] says what was tried.
impl From<io::Error> for Error {
    #[cold]
    fn from(source: io::Error) -> Error {
        Error::reading("reading or writing", source)
    }
}

impl Error {
    /// An error of another crate's sources, destinations or collections of tables. Give `kind` the class that callers treat alike;
    /// for failed reads and writes, use [`Error::io`], and for damage that has a place in a file [`Error::corrupt`].
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Repr {
            kind,
            path: None,
            message: message.into(),
            corruption: None,
            source: None,
            hint: None,
        }))
    }

    /// An error of reading or writing: `doing` says what was tried. Its kind is [`ErrorKind::Io`].
    #[cold]
    pub fn io(doing: impl Into<String>, source: io::Error) -> Error {
        let mut error = Error::new(ErrorKind::Io, doing);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// The error of reading a table, whose source may say that it was replaced.
    #[cold]
    pub(crate) fn reading(doing: impl Into<String>, source: io::Error) -> Error {
        let is_stale = source.kind() == io::ErrorKind::StaleNetworkFileHandle;
        let mut error = Error::io(doing, source);
        if is_stale {
            error.0.kind = ErrorKind::Replaced;
        }
        error
    }

    /// The error of a failed read, with the section of the table that it was for. The offset is in its message.
    #[cold]
    pub(crate) fn of_section(mut self, section: Section) -> Error {
        if matches!(self.0.kind, ErrorKind::Io | ErrorKind::Replaced) {
            self.0.message.push_str(&format!(" in the {section}"));
        }
        self
    }

    /// An error of damage, also for crates that read the files around tables.
    ///
    /// ```
    /// use leveltable::{Corruption, Error, Section};
    ///
    /// let damage = Corruption::new(Section::Log, 7, "a record", "zeros");
    /// let error = Error::corrupt(damage).with_hint("restore it").at_path("000003.log".as_ref());
    /// let message = "000003.log: corrupt log at offset 7: expected a record, found zeros; restore it";
    /// assert_eq!(error.to_string(), message);
    /// ```
    #[cold]
    pub fn corrupt(corruption: Corruption) -> Error {
        let mut error = Error::new(ErrorKind::Corruption, format!("corrupt {corruption}"));
        error.0.corruption = Some(corruption);
        error
    }

    /// Returns the error with `hint`, what to do, at the end of its message; see [`corrupt`](Error::corrupt). It takes the place of
    /// another [hint](Error::hint), as in programs that name their own commands.
    #[cold]
    #[must_use]
    pub fn with_hint(mut self, hint: &str) -> Error {
        self.0.hint = Some(hint.to_owned());
        self
    }

    /// Returns the error with `note` after its message, before any [hint](Error::with_hint).
    #[cold]
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Error {
        self.0.message.push_str(&format!("; {note}"));
        self
    }

    /// Returns the error with the path of its file at the front of its message; see [`corrupt`](Error::corrupt).
    #[cold]
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_owned());
        self
    }

    /// The error with the path of its file, if that is known.
    #[cold]
    pub(crate) fn in_file(self, path: Option<&Path>) -> Error {
        match path {
            Some(path) => self.at_path(path),
            None => self,
        }
    }

    /// The class of the error, for programs to decide on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The path of the file, as it was given, if the file was opened or created by its path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// What to do, as the end of the message says it. An error of kind [`Io`](ErrorKind::Io) or
    /// [`NotADatabase`](ErrorKind::NotADatabase) only has a hint if a database has lost a file.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error of the system, or of a source or a writer, if one caused this error.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_deref()
    }

    /// Where the table is damaged. `None` if the error is not about damage, or is about damage that has no place in a
    /// file, such as records of a set's manifest that contradict each other.
    pub fn corruption(&self) -> Option<&Corruption> {
        self.0.corruption.as_ref()
    }
}

/// The error of a process that has as many files open as it may, on every Unix.
const EMFILE: i32 = 24;

/// The whole message: the path, what was tried or found, the system's error, and the hint.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = &*self.0;
        match &repr.path {
            Some(path) if path.as_os_str().is_empty() => f.write_str("\"\": ")?,
            Some(path) => write!(f, "{}: ", path.display())?,
            None => {}
        }
        f.write_str(&repr.message)?;
        if let Some(source) = &repr.source {
            write!(f, ": {source}")?;
            if cfg!(unix) && source.raw_os_error() == Some(EMFILE) {
                f.write_str("; raise `ulimit -n`, or keep fewer tables open: by TableCache, of a database by max_open_tables")?;
            }
        }
        match &repr.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {
    /// The cause of the [system's error](Error::io_error), whose own message [`Display`](fmt::Display) shows: reports that print an
    /// error and its sources say nothing twice.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io_error()?.source()
    }
}

/// Lets functions that return `io::Result` use `?`. An error that is not the system's becomes `InvalidData`.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let source = error.io_error();
        let kind = source.map_or(io::ErrorKind::InvalidData, io::Error::kind);
        io::Error::new(kind, error)
    }
}

/// Returns a key as messages show it: escaped, in quotes, and cut if it is long.
pub fn show_key(key: &[u8]) -> String {
    const MOST: usize = 100;
    match key.get(..MOST) {
        Some(head) if key.len() > MOST => {
            format!("\"{}\".. ({} bytes)", head.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_and_travels_between_threads() {
        fn assert_send_sync<T: Send + Sync + 'static>() {}
        assert_send_sync::<Error>();
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn a_hint_comes_last_and_is_replaced() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = Error::io("opening a table", missing).with_hint("restore it");
        let error = error.with_note("nothing was read");
        assert_eq!(error.hint(), Some("restore it"));
        let error = error.with_hint("run `restore`");
        assert_eq!(
            error.to_string(),
            "opening a table; nothing was read: no such file; run `restore`"
        );
    }

    #[test]
    fn messages_say_where_and_what() {
        let corruption = Corruption {
            section: Section::Index,
            offset: 17,
            expected: "a checksum of 1".into(),
            found: "2".into(),
        };
        let error = Error::corrupt(corruption).with_hint("restore it from a copy");
        assert_eq!(
            error.to_string(),
            "corrupt index block at offset 17: expected a checksum of 1, found 2; restore it from a copy"
        );
        assert_eq!(error.corruption().unwrap().offset, 17);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);

        let disk = io::Error::other("disk on fire");
        let error = Error::io("reading 8 bytes at offset 3", disk);
        assert_eq!(
            error.to_string(),
            "reading 8 bytes at offset 3: disk on fire"
        );
        assert!(error.io_error().is_some());
    }
}
