"""Tables, sets and databases, and what writes a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from .options import Data, Key, Path, WriteOptions
from .reports import Summary

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Items = Iterator[tuple[bytes, bytes]]


class Reader(_native.Reader):
    """What tables, sets and databases have in common. Any number of threads may use one at once."""

    def __init__(self, source: Path | bytes, **options: Any):
        self._source, self._options = source, options

    def __bool__(self) -> Literal[True]:
        return True

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def items(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Items:
        """Iterates over keys and values from ``start`` on, before ``stop``, and with ``prefix``; with ``reverse`` from the last."""
        return self._walk(None, start, stop, prefix, reverse)

    def keys(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the keys, as ``items``. Values are read, too."""
        return self._walk(0, start, stop, prefix, reverse)

    def values(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the values, as ``items``."""
        return self._walk(1, start, stop, prefix, reverse)

    def prefix(self, prefix: Data, *, reverse: bool = False) -> Items:
        """Iterates over the items whose keys begin with ``prefix``."""
        return self.items(prefix=prefix, reverse=reverse)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._options), (self._source,)

    def __repr__(self) -> str:
        name = "in memory" if isinstance(self._source, bytes) else repr(self._source)
        try:
            state = self._describe()
        except ValueError:
            state = "closed"
        return f"<leveltable.{type(self).__name__} {name}: {state}>"


class Table(_native.Table, Reader):
    """An open table, or a set of tables that reads like one; ``open`` says what the arguments are."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A set is read by all workers as it was published, or not at all.
        return partial(Table, **{**self._options, "set_id": self.set_id}), (self._source,)


class Database(_native.Database, Reader):
    """The live contents of a LevelDB database, read without its lock, beside a writer or without one. Writes nothing.

    Shows the contents as of opening until ``refresh`` is called. ``cache`` is the size in bytes of a block cache of its own.
    ``skip_damaged`` leaves out damaged records of logs, which ``recovery`` then lists. ``without_manifest`` reads all files that
    are there, for a directory whose MANIFEST is lost.
    """


def open(source: Path | bytes, *, cache: int | None = None, check_order: bool = False, set_id: str | None = None) -> Table:
    """Opens a table or a set: ``source`` is a path, the bytes of a table, or a URL, such as ``s3://bucket/table.ldb``.

    ``cache`` is the size in bytes of a block cache of its own; otherwise all share one of 32 MiB. ``check_order`` reads the whole
    table to see that its keys ascend, which is of use for large tables that other programs wrote. ``set_id`` is the publication
    that a set must be.

    Stores are reached as the environment says: ``AWS_REGION``, ``AWS_ENDPOINT``, ``AWS_ACCESS_KEY_ID`` and so on, ``AZURE_..``,
    ``GOOGLE_..``.
    """
    return Table(source, cache=cache, check_order=check_order, set_id=set_id)


class TableBuilder(_native.TableBuilder):
    """Writes a table at ``path``, a file or a URL, from its first key to its last.

    It appears when it is finished, as by the end of a ``with`` block, and not at all if that ends by an exception.

    Options: ``compression`` (``"snappy"``, ``"zstd"``, ``"zlib"``, ``"none"``), its ``level``, ``block_size`` in bytes (4096),
    ``filter`` (``"ribbon"``, which LevelDB ignores, ``"bloom"``, ``"none"``), ``bits_per_key`` (10), a filter of prefixes by
    ``prefix_delimiter`` (one byte) or ``prefix_length``, ``leveldb=True`` for what LevelDB itself would write, ``replace=False``
    to keep a file that is there. ``properties`` are stored in the table.
    """

    def __init__(self, path: Path, **_: Any):
        self._path = path

    def update(self, entries: Mapping[Data, Data] | Iterable[tuple[Data, Data]]) -> None:
        """Adds the entries of a mapping, or of an iterable of pairs, in ascending order."""
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self.add(key, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.abort()
        elif self._entries() is not None:
            self.finish()

    def __repr__(self) -> str:
        entries = self._entries()
        state = "finished" if entries is None else f"{entries} entries so far"
        return f"<leveltable.TableBuilder {os.fspath(self._path)!r}: {state}>"


def merge(target: Path, sources: Sequence[Path | bytes | Table], **options: Unpack[WriteOptions]) -> Summary:
    """Writes one table of the entries of several, which are paths or open tables.

    Of equal keys, the first table's entry is kept: name the newest first.
    """
    tables = [source if isinstance(source, Table) else Table(source, cache=0) for source in sources]
    return _native.merge(target, tables, **options)
