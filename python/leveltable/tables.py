"""Tables, sets and databases, and functions that write them."""

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
    """The common methods of tables, sets and databases. Any number of threads may use one at
    once."""

    def __init__(self, source: Path | bytes, **options: Any):
        self._source, self._options = source, options

    def __bool__(self) -> Literal[True]:
        return True

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def items(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Items:
        """Iterates over keys and values at or after ``start``, before ``stop``, and with
        ``prefix``; with ``reverse`` from the last."""
        return chain.from_iterable(self._walk(start, stop, prefix, reverse))

    def keys(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the keys, like ``items``. Values are read as well."""
        return map(itemgetter(0), self.items(start, stop, prefix=prefix, reverse=reverse))

    def values(self, start: Key = None, stop: Key = None, *, prefix: Key = None, reverse: bool = False) -> Iterator[bytes]:
        """Iterates over the values, like ``items``."""
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
        """What ``__repr__`` shows of an open one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name = "in memory" if isinstance(self._source, bytes) else repr(self._source)
        try:
            state = self._state()
        except ValueError:
            state = "closed"
        return f"<leveltable.{type(self).__name__} {name}: {state}>"


class Table(_native.Table, Reader):
    """An open table, or a set of tables that reads like one; ``open`` describes the arguments."""

    def __len__(self) -> int:
        entries = self._about()["entries"]
        if entries is None:
            raise TypeError("this table does not say how many entries it has: count them")
        return entries

    @property
    def set_id(self) -> str | None:
        """The publication of a set, which pickling preserves. ``None`` for a table."""
        return self._about()["set_id"]

    def __reduce__(self) -> tuple[Any, ...]:
        # All workers read the same publication of a set, or fail.
        return partial(open, **self._options, set_id=self.set_id), (self._source,)

    def _state(self) -> str:
        about = self._about()
        filter, entries, tables = about["filter"], about["entries"], about["tables"]
        state = f"{about['bytes']} bytes" + ("" if entries is None else f", {entries} entries")
        if tables is not None:
            return f"a set of {tables} tables, {state}"
        return f"{state}, {f'filter {filter}' if filter else 'no filter'}"


class Database(_native.Database, Reader):
    """The live contents of a LevelDB database, read without its lock, whether or not a writer is at
    work. Writes nothing.

    Shows the contents as of opening until ``refresh`` is called. ``cache`` is the size in bytes of
its own block cache.
    ``skip_damaged`` leaves out damaged records of logs, which ``recovery`` then lists.
``without_manifest`` reads all existing files, for a directory whose MANIFEST is lost.
    """

    def _state(self) -> str:
        return f"order {self.comparator}, last sequence {self.last_sequence}"


def open(source: Path | bytes, *, cache: int | None = None, check_order: bool = False, set_id: str | None = None) -> Table:
    """Opens a table or a set: ``source`` is a path, the bytes of a table, or a URL, such as ``s3://bucket/table.ldb``.

    ``cache`` is the size in bytes of its own block cache; otherwise all share one of 32 MiB.
``check_order`` reads the whole table to check that its keys ascend, which is useful for large
tables of other programs. ``set_id`` is the publication that a set must have.

    Stores are configured by environment variables: ``AWS_REGION``, ``AWS_ENDPOINT``,
``AWS_ACCESS_KEY_ID`` and so on, ``AZURE_..``,
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

    It appears when it is finished, for example at the end of a ``with`` block, and not at all if
that ends with an exception.

    Options: ``compression`` (``"snappy"``), its ``level``, ``block_size`` in bytes (4096),
``filter`` (``"ribbon"``, which LevelDB ignores), ``bits_per_key`` (10); ``leveltable.options``
lists the codecs and filters; a filter of prefixes by ``prefix_delimiter`` (one byte) or
``prefix_length``, ``leveldb=True`` for LevelDB's own format, ``replace=False`` to keep an existing
file. ``properties`` are stored in the table.
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
    """Writes a table with the rows of ``data``, which has ``__arrow_c_stream__``: a pyarrow or
    polars table, a reader, ..

    The column ``key`` must ascend without duplicates. Columns are binary or text. ``options`` are
those of ``TableBuilder``.
    """
    if not hasattr(data, "__arrow_c_stream__"):
        raise TypeError(f"data must be Arrow, with __arrow_c_stream__, not {type(data).__name__}")
    with TableBuilder(path, **options) as builder:
        builder._add_arrow(data, key, value)
        return builder.finish()


def merge(target: Path, sources: Sequence[Path | bytes | Reader], **options: Unpack[WriteOptions]) -> Summary:
    """Writes one table with the entries of several sources: paths, URLs, or open tables, sets and
    databases.

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
    path: Path,
    entries: Mapping[Data, Data] | Iterable[tuple[Data, Data]],
    *,
    comparator: str = "leveldb.BytewiseComparator",
    **options: Unpack[WriteOptions],
) -> BuiltDatabase:
    """Builds a LevelDB database: a directory, which appears at ``path`` complete and synced, or not at all.

    ``entries`` is a mapping, or pairs in ascending order of their keys. Nothing is replaced: an
existing ``path`` is an error. ``comparator`` names the order of the keys: "idb_cmp1" for Chrome's
IndexedDB. By default tables are compressed and filtered as by LevelDB;
``TableBuilder`` describes the options. The same entries give the same bytes.
    """
    sort = isinstance(entries, Mapping)
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    return _native._build_database(path, pairs, sort, comparator, {"leveldb": True, **options})


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

    Only reads ``path``, without its lock. Keeps the keys at or after ``start``, before ``stop``,
and with ``prefix``. ``changes`` maps keys to new values, or to ``None`` to delete them, and is
applied last. As much space as ``path`` takes must be free, unless ``ignore_space`` is set.

    If the result's ``has_writer`` is set, a program has the database open: do not put the new one in its place.
    """
    pairs = _sorted(changes or {})
    return _native._compact_database(path, new, start, stop, prefix, pairs, compression, level, ignore_space)
