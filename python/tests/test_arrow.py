import os

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import leveltable as lt
from conftest import ranges

# LEVELTABLE_ARROW_ENTRIES=5000000 before a release.
ENTRIES = int(os.environ.get("LEVELTABLE_ARROW_ENTRIES", 100_000))


def test_batches_are_the_items(path, model):
    table = lt.open(path)
    for bounds, prefix, expected in ranges(model, 100):
        found = pa.table(table.batches(*bounds, **prefix, rows=97))
        assert found.schema == pa.schema(
            [pa.field(name, pa.large_binary(), nullable=False) for name in ["key", "value"]]
        )
        assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
        assert all(0 < len(batch) <= 97 for batch in found.to_batches())
    assert pa.table(table.batches(rows=2**60)).num_rows == len(model)
    with pytest.raises(ValueError):
        table.batches(rows=0)


def test_a_stream_can_be_taken_again(path, model):
    batches = lt.open(path).batches()
    assert [pa.table(batches).num_rows for _ in range(3)] == 3 * [len(model)]


def test_duckdb(path, model):
    batches = lt.open(path).batches()  # noqa: F841
    half = lt.open(path).batches(b"b")  # noqa: F841
    assert duckdb.sql("SELECT count(*), sum(octet_length(value)) FROM batches").fetchall() == [(
        len(model),
        sum(map(len, model.values())),
    )]
    joined = duckdb.sql("SELECT count(*) FROM batches JOIN half USING (key) WHERE batches.value = half.value")
    assert joined.fetchall() == [(sum(key >= b"b" for key in model),)]


def test_count_range_and_join_of_many(tmp_path):
    with lt.TableBuilder(tmp_path / "t") as builder:
        builder.update((f"{i:012}", str(i % 1_000)) for i in range(ENTRIES))
    table = lt.open(tmp_path / "t")
    first, end = ENTRIES // 3, ENTRIES // 2
    bounds = [f"{i:012}".encode() for i in (first, end)]
    batches, part = table.batches(), table.batches(*bounds)
    total = sum(i % 1_000 for i in range(ENTRIES))
    found = duckdb.sql("SELECT count(*), sum(value::TEXT::INT) FROM batches").fetchall()
    assert found == [(ENTRIES, total)]
    found = duckdb.execute("SELECT count(*), min(key) FROM batches WHERE key >= ? AND key < ?", bounds).fetchall()
    assert found == [(end - first, bounds[0])]
    found = duckdb.sql("SELECT count(*) FROM batches JOIN part USING (key) WHERE batches.value = part.value").fetchall()
    assert found == [(end - first,)]

    frame = pl.DataFrame(batches)
    assert frame.height == ENTRIES
    assert frame["value"].cast(pl.String).cast(pl.Int64).sum() == total
    assert frame.filter((pl.col("key") >= bounds[0]) & (pl.col("key") < bounds[1])).height == end - first
    assert frame.join(pl.DataFrame(part), on=["key", "value"]).height == end - first


def test_polars_and_pandas(path, model):
    table = lt.open(path)
    frame = pl.DataFrame(table.batches(b"a"))
    assert frame["value"].to_list() == [value for key, value in model.items() if key >= b"a"]
    frame = pa.table(table.batches()).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["key"].tolist() == list(model)


def test_to_parquet_and_back(tmp_path, path, model):
    batches = pa.RecordBatchReader.from_stream(lt.open(path).batches())
    with pq.ParquetWriter(tmp_path / "t.parquet", batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    lt.write_arrow(tmp_path / "t.ldb", pq.read_table(tmp_path / "t.parquet"))
    assert dict(lt.open(tmp_path / "t.ldb").items()) == model


@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"])
def test_columns_of_each_type(tmp_path, kind):
    type = getattr(pa, kind)()
    data = pa.table({"a": pa.array(["x", "y", "z"], type), "b": pa.array(["1", "22", "3" * 40], type)}).slice(1)
    summary = lt.write_arrow(tmp_path / "t", data, key="a", value="b", compression="none")
    assert summary.entries == 2
    assert dict(lt.open(tmp_path / "t").items()) == {b"y": b"22", b"z": b"3" * 40}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (pa.table({"key": ["b", "a"], "value": ["", ""]}), lt.OrderError, "comes before"),
        (pa.table({"key": ["a", "a"], "value": ["", ""]}), lt.OrderError, "a"),
        (pa.table({"key": ["a", None], "value": ["", ""]}), ValueError, "nulls"),
        (pa.table({"key": [1], "value": [""]}), ValueError, "Int64"),
        (pa.table({"key": [b"a"]}), ValueError, "no column \"value\""),
        (5, TypeError, "__arrow_c_stream__"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path, data, error, words):
    with pytest.raises(error, match=words):
        lt.write_arrow(tmp_path / "t", data)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_a_stream_is_raised(path):
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    table = lt.open(bytes(data))
    with pytest.raises(Exception, match="corrupt data block"):
        pa.table(table.batches())
    with pytest.raises(lt.Error, match="corrupt data block"):
        lt.write_arrow(path.with_name("copy"), table.batches())
    assert not path.with_name("copy").exists()
