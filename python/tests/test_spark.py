"""A set is written and read in Spark while a worker is killed. LEVELTABLE_SPARK_ENTRIES=5000000 before a release."""

import os
import signal
import sys

import pytest

import leveltable as lt

ENTRIES = int(os.environ.get("LEVELTABLE_SPARK_ENTRIES", 50_000))

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    import leveltable.spark

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    leveltable.spark.register(spark)
    yield spark
    spark.stop()


def checksum(frame):
    return tuple(frame.selectExpr("count(*)", "sum(CAST(xxhash64(key, value) AS DECIMAL(38)))").first())


def test_written_and_read_while_a_worker_is_killed(spark, tmp_path):
    from leveltable.spark import write_set

    keys = spark.range(0, ENTRIES, 1, 4).selectExpr("lpad(id * 7919 % 1000003 * 10000 + id DIV 1000003, 16, '0') AS key")
    frame = keys.selectExpr("encode(key, 'UTF-8') AS key", "unhex(md5(key)) AS value")
    expected = checksum(frame)
    mark = str(tmp_path / "killed")

    def kill_once(batches):
        for batch in batches:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    killing = frame.mapInArrow(kill_once, frame.schema)
    manifest = f"{tmp_path}/manifest"
    set_id = write_set(killing, manifest, tables=4)
    assert os.path.exists(mark)
    found = lt.open(manifest)
    assert (found.set_id, len(found)) == (set_id, ENTRIES)

    read = spark.read.format("leveltable").option("partitions", 6).load(manifest)
    assert checksum(read) == expected

    # One key, and a range: the source is asked for no more than these.
    key, value = found.items(b"0000000010000000").__next__()
    assert read.where(read.key == bytearray(key)).collect() == [(key, value)]
    assert read.where(read.key == bytearray(b"no such key")).collect() == []
    bounds = b"0000000010000000", b"0000000100000000"
    part = read.where((read.key >= bytearray(bounds[0])) & (read.key < bytearray(bounds[1])))
    assert part.count() == sum(1 for _ in found.keys(*bounds)) > 0
    plan = part._jdf.queryExecution().executedPlan().toString()
    assert "key#" in plan and ">=" not in plan, plan


def test_one_key_reads_one_table_and_one_block(tmp_path):
    from pyspark.sql.datasource import EqualTo

    from leveltable.spark import TableReader

    for i in range(4):
        with lt.TableBuilder(tmp_path / f"{i}.ldb", compression="none") as builder:
            builder.update((f"{i}{j:06}", "v" * 100) for j in range(20_000))
    lt.publish(tmp_path / "manifest", [tmp_path / f"{i}.ldb" for i in range(4)])
    reader = TableReader(str(tmp_path / "manifest"), 16)
    assert list(reader.pushFilters([EqualTo(("key",), b"2004711")])) == []
    (part,) = reader.partitions()
    (batch,) = reader.read(part)
    assert batch.to_pylist() == [{"key": b"2004711", "value": b"v" * 100}]
    # What the reader does with it: the end of one table, and one block.
    table = lt.open(tmp_path / "manifest", set_id=part.set_id)
    assert table.get(part.start) == b"v" * 100
    assert table.stats.source_reads == 2


def test_filters_that_are_no_comparisons_are_left_to_spark():
    from pyspark.sql.datasource import EqualTo, GreaterThan, IsNotNull, LessThanOrEqual

    from leveltable.spark import TableReader

    reader = TableReader("", 1)
    others = [IsNotNull(("key",)), EqualTo(("value",), b"x"), GreaterThan(("key",), "text")]
    mine = [GreaterThan(("key",), b"b"), LessThanOrEqual(("key",), b"x"), LessThanOrEqual(("key",), b"z")]
    assert list(reader.pushFilters([*others, *mine])) == others
    assert (reader.start, reader.stop) == (b"b\0", b"x\0")
