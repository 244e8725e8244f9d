"""Tables, sets and databases, and what writes a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge as merged
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from .errors import Error
from .options import Codec, Data, Key, Path, WriteOptions
from .reports import BuiltDatabase, Compacted, Summary

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
        return chain.from_iterable(self._walk(start, stop, prefix, reverse))

    def keys(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the keys, as ``items``. Values are read, too."""
        return map(itemgetter(0), self.items(start, stop, prefix=prefix, reverse=reverse))

    def values(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the values, as ``items``."""
        return map(itemgetter(1), self.items(start, stop, prefix=prefix, reverse=reverse))

    def prefix(self, prefix: Data, *, reverse: bool = False) -> Items:
        """Iterates over the items whose keys begin with ``prefix``."""
        return self.items(prefix=prefix, reverse=reverse)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._options), (self._source,)

    def _state(self) -> str:
        """What ``__repr__`` says of an open one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name = "in memory" if isinstance(self._source, bytes) else repr(self._source)
        try:
            state = self._state()
        except ValueError:
            state = "closed"
        return f"<leveltable.{type(self).__name__} {name}: {state}>"


class Table(_native.Table, Reader):
    """An open table, or a set of tables that reads like one; ``open`` says what the arguments are."""

    def __len__(self) -> int:
        entries = self._about()["entries"]
        if entries is None:
            raise TypeError("this table does not say how many entries it has: count them")
        return entries

    @property
    def set_id(self) -> str | None:
        """The publication of a set, which pickling keeps to. ``None`` for a table."""
        return self._about()["set_id"]

    def __reduce__(self) -> tuple[Any, ...]:
        # A set is read by all workers as it was published, or not at all.
        return partial(open, **self._options, set_id=self.set_id), (self._source,)

    def _state(self) -> str:
        about = self._about()
        filter, entries, tables = about["filter"], about["entries"], about["tables"]
        state = f"{about['bytes']} bytes" + ("" if entries is None else f", {entries} entries")
        if tables is not None:
            return f"a set of {tables} tables, {state}"
        return f"{state}, {f'filter {filter}' if filter else 'no filter'}"


class Database(_native.Database, Reader):
    """The live contents of a LevelDB database, read without its lock, beside a writer or without one. Writes nothing.

    Shows the contents as of opening until ``refresh`` is called. ``cache`` is the size in bytes of a block cache of its own.
    ``skip_damaged`` leaves out damaged records of logs, which ``recovery`` then lists. ``without_manifest`` reads all files that
    are there, for a directory whose MANIFEST is lost.
    """

    def _state(self) -> str:
        return f"order {self.comparator}, last sequence {self.last_sequence}"


def open(source: Path | bytes, *, cache: int | None = None, check_order: bool = False, set_id: str | None = None) -> Table:
    """Opens a table or a set: ``source`` is a path, the bytes of a table, or a URL, such as ``s3://bucket/table.ldb``.

    ``cache`` is the size in bytes of a block cache of its own; otherwise all share one of 32 MiB. ``check_order`` reads the whole
    table to see that its keys ascend, which is of use for large tables that other programs wrote. ``set_id`` is the publication
    that a set must be.

    Stores are reached as the environment says: ``AWS_REGION``, ``AWS_ENDPOINT``, ``AWS_ACCESS_KEY_ID`` and so on, ``AZURE_..``,
    ``GOOGLE_..``.
    """
    table = Table(source, cache=cache, check_order=check_order)
    if set_id is not None and table.set_id != set_id:
        found = f"publication {table.set_id}" if table.set_id else "no set"
        raise Error(
            f"{source!r}: expected publication {set_id}, found {found}: another set was published since; read it from the start"
        )
    return table


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


def write_arrow(path: Path, data: Any, *, key: str = "key", value: str = "value", **options: Unpack[WriteOptions]) -> Summary:
    """Writes a table of the rows of ``data``, which has ``__arrow_c_stream__``: a pyarrow or polars table, a reader, ..

    The column ``key`` ascends, and each key is there once. Columns are binary or text. ``options`` are those of ``TableBuilder``.
    """
    if not hasattr(data, "__arrow_c_stream__"):
        raise TypeError(f"data must be Arrow, with __arrow_c_stream__, not {type(data).__name__}")
    with TableBuilder(path, **options) as builder:
        builder._add_arrow(data, key, value)
        return builder.finish()


def merge(target: Path, sources: Sequence[Path | bytes | Reader], **options: Unpack[WriteOptions]) -> Summary:
    """Writes one table of the entries of several, which are paths, URLs, or open tables, sets and databases.

    Of equal keys, the first source's entry is kept: name the newest first.
    """
    readers = [source if isinstance(source, Reader) else Table(source, cache=0) for source in sources]
    with TableBuilder(target, **options) as builder:
        last = None
        for key, value in merged(*(reader.items() for reader in readers), key=itemgetter(0)):
            if key != last:
                builder.add(key, value)
            last = key
        return builder.finish()


def _sorted(pairs: Mapping[Data, Any]) -> list[tuple[bytes, Any]]:
    keys = ((key.encode() if isinstance(key, str) else bytes(key), value) for key, value in pairs.items())
    return sorted(keys, key=itemgetter(0))


def build_database(
    path: Path, entries: Mapping[Data, Data] | Iterable[tuple[Data, Data]], **options: Unpack[WriteOptions]
) -> BuiltDatabase:
    """Builds a LevelDB database: a directory, which appears at ``path`` complete and synced, or not at all.

    ``entries`` is a mapping, or pairs in ascending order of their keys. Nothing is replaced: what is at ``path`` is an error. By default
    tables are compressed and filtered as LevelDB does; ``TableBuilder`` says what the options do. The same entries make the same bytes.
    """
    if isinstance(entries, Mapping):
        entries = _sorted(entries)
    return _native._build_database(path, entries, {"leveldb": True, **options})


def compact_database(
    path: Path,
    new: Path,
    *,
    start: Key = None,
    stop: Key = None,
    prefix: Key = None,
    changes: Mapping[Data, Data | None] | None = None,
    compression: Codec | None = None,
    level: int | None = None,
    ignore_space: bool = False,
) -> Compacted:
    """Writes the live entries of a database to a new one, which appears at ``new`` complete and synced, or not at all.

    Only reads ``path``, without its lock. Keeps the keys from ``start`` on, before ``stop``, and with ``prefix``. ``changes`` maps keys to
    new values, or to ``None`` to delete them, and is made last. As much space as ``path`` takes must be free, unless ``ignore_space``.

    If the result's ``has_writer`` is set, a program has the database open: do not put the new one in its place.
    """
    pairs = _sorted(changes or {})
    return _native._compact_database(path, new, start, stop, prefix, pairs, compression, level, ignore_space)
