"""Tables and sets in Spark 4.1 or later: a data source that reads them, and ``write_set``.

>>> spark.dataSource.register(leveltable.spark.LeveltableSource)
>>> df = spark.read.format("leveltable").load("s3://bucket/words/manifest")  # columns key and value, binary
>>> df.where(df.key == b"apple").show()  # reads one block of one table

With ``spark.sql.python.filterPushdown.enabled`` set to ``true``, comparisons of ``key`` limit what
is read. The option
``partitions`` is the number of tasks, 16 by default.
"""

import os
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

import leveltable as lt

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def register(spark: SparkSession) -> None:
    """Registers ``spark.read.format("leveltable")``, and enables filters for it."""
    spark.dataSource.register(LeveltableSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class LeveltableSource(DataSource):
    """``spark.read.format("leveltable")``."""

    @classmethod
    def name(cls) -> str:
        return "leveltable"

    def schema(self) -> str:
        return "key BINARY, value BINARY"

    def reader(self, schema) -> "TableReader":
        return TableReader(self.options["path"], int(self.options.get("partitions", 16)))


@dataclass
class Part(InputPartition):
    """Keys at or after ``start`` and before ``stop``, of the publication ``set_id`` if it is a
    set."""

    start: bytes | None
    stop: bytes | None
    set_id: str | None


class TableReader(DataSourceReader):
    """Reads one table or set. Tasks read the publication that the driver has seen, or fail."""

    def __init__(self, path: str, partitions: int):
        self.path, self.parts = path, partitions
        self.start: bytes | None = None
        self.stop: bytes | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes comparisons of the key; yields the other filters, which Spark evaluates."""
        for filter in filters:
            bounds = _bounds(filter)
            if bounds is None:
                yield filter
                continue
            start, stop = bounds
            if start is not None:
                self.start = max(start, self.start or b"")
            if stop is not None:
                self.stop = stop if self.stop is None else min(stop, self.stop)

    def partitions(self) -> list[Part]:
        with lt.open(self.path) as table:
            found = []
            is_key = self.start is not None and self.stop == self.start + b"\0"
            # For a single key, the table need not be opened here.
            for start, stop in [(None, None)] if is_key else table.splits(self.parts):
                if self.start is not None:
                    start = self.start if start is None else max(start, self.start)
                if self.stop is not None:
                    stop = self.stop if stop is None else min(stop, self.stop)
                if start is None or stop is None or start < stop:
                    found.append(Part(start, stop, table.set_id))
            return found

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        with lt.open(self.path, set_id=partition.set_id) as table:
            start, stop = partition.start, partition.stop
            if start is not None and stop == start + b"\0":
                value = table.get(start)
                if value is not None:
                    yield pa.record_batch([pa.array([start]), pa.array([value])], schema=SCHEMA)
                return
            for batch in pa.RecordBatchReader.from_stream(table.batches(start, stop)):
                yield batch.cast(SCHEMA)


def _bounds(filter: Filter) -> tuple[bytes | None, bytes | None] | None:
    """The keys that pass: at or after the first bound, before the second. ``None`` if it is not a
    comparison of the key."""
    value = getattr(filter, "value", None)
    if getattr(filter, "attribute", None) != ("key",) or not isinstance(value, bytes | bytearray):
        return None
    key = bytes(value)
    match filter:
        case EqualTo():
            return key, key + b"\0"
        case GreaterThan():
            return key + b"\0", None
        case GreaterThanOrEqual():
            return key, None
        case LessThan():
            return None, key
        case LessThanOrEqual():
            return None, key + b"\0"
    return None


def _without_null(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` in the schema of tables, which allows no NULL: an error names its row."""
    for name, other in [("key", "value"), ("value", "key")]:
        for row in batch.filter(batch[name].is_null()).slice(0, 1).to_pylist():
            of = "NULL" if row[other] is None else f"X'{row[other].hex().upper()}'"
            raise ValueError(f"the row with the {other} {of} has the {name} NULL")
    return batch.cast(SCHEMA)


def build_tables(
    df: DataFrame, directory: str, *, key: str = "key", value: str = "value", tables: int = 16, **options
) -> DataFrame:
    """Returns a frame with a row (``path``, ``entries``) for each of up to ``tables`` tables, which
    its tasks write.

    The tables hold the rows of ``df``, sorted by ``key``, in ranges that do not overlap. Each
attempt of a task writes to its own name in ``directory``, a path or URL: publish those that the
frame's ``collect()`` returns, and no others. Keys must be distinct. A NULL key or value is an
error. ``options`` are those of ``TableBuilder``.
    """

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = f"{directory}/{uuid.uuid4().hex}.ldb"
        reader = pa.RecordBatchReader.from_batches(SCHEMA, (_without_null(batch) for batch in batches))
        written = lt.write_arrow(path, reader, **options)
        yield pa.record_batch({"path": [path], "entries": [written.entries]})

    rows = df.selectExpr(f"CAST(`{key}` AS BINARY) AS key", f"CAST(`{value}` AS BINARY) AS value")
    ranges = rows.repartitionByRange(tables, "key").sortWithinPartitions("key")
    return ranges.mapInArrow(build, "path STRING, entries BIGINT")


def write_set(df: DataFrame, manifest: str, *, replacing: lt.Table | None = None, **options) -> str:
    """Writes the rows of ``df`` as a set of tables, sorted by key. Returns the publication's id.

    ``manifest`` is a path or URL; the tables are written beside it. Tables of failed attempts are
not published. ``replacing`` is the set to replace, as ``open`` returned it; without it, no set may
exist. ``options`` are those of ``build_tables``.
    """
    directory = posixpath.dirname(manifest) if "://" in manifest else os.path.dirname(os.path.abspath(manifest))
    written = build_tables(df, directory, **options).collect()
    return lt.publish(manifest, [row.path for row in written], replacing=replacing)
