"""The exceptions of this package. Files that cannot be read or written raise ``OSError``, as
elsewhere in Python."""

import errno


class Error(Exception):
    """Any error of this package that is not an ``OSError``. Its message says what to do."""


class CorruptionError(Error):
    """A table is damaged.

    ``section`` is the part of the file, such as ``"data block"``, and ``offset`` the offset in
bytes from its start. Both are
    ``None`` if the damage has no single place.
    """

    def __init__(self, message: str, section: str | None = None, offset: int | None = None):
        super().__init__(message, section, offset)
        self.section = section
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


class NotATableError(Error):
    """The file is not a table, or not a complete one; or it is the table of a database, which ``Database`` reads."""


class OrderError(Error):
    """A key does not come after the previous one, or the keys of a table are in another order than
    the bytewise one."""


_CLASSES: dict[str, type[Error]] = {
    "Corruption": CorruptionError,
    "NotATable": NotATableError,
    "NotADatabase": NotATableError,
    "DatabaseTable": NotATableError,
    "OutOfOrder": OrderError,
    "Comparator": OrderError,
}
_NUMBERS = {
    "NotFound": errno.ENOENT,
    "PermissionDenied": errno.EACCES,
    "AlreadyExists": errno.EEXIST,
    "TimedOut": errno.ETIMEDOUT,
    "StaleNetworkFileHandle": errno.ESTALE,
}


def _make(
    kind: str, message: str, path: str | None, number: int | None, cause: str | None, place: tuple[str, int] | None
) -> Exception:
    """Returns the exception for an error of the engine: of this ``kind``, and with its cause if it
    is about a file."""
    if kind in ("Io", "Replaced"):
        number = number or (errno.ESTALE if kind == "Replaced" else _NUMBERS.get(cause or ""))
        # Python turns the number into FileNotFoundError and so on.
        return OSError(number, message.removeprefix(f"{path}: "), path) if number else OSError(message)
    if kind == "Corruption" and place is not None:
        return CorruptionError(message, *place)
    return _CLASSES.get(kind, Error)(message)
