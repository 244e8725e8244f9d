"""Writes a DataFrame as a set of sorted tables, and reads the set back in parallel.

    sorted_set.py DIRECTORY [ENTRIES] [SHARDS]

DIRECTORY is a URL such as s3://bucket/path, or a directory that all workers share. Each task builds one table with
`leveltable build` and returns its name to the driver, which publishes those of the attempts that Spark committed.
"""

import shlex
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator

import pyarrow
import pyarrow.compute
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession


def sorted_entries(entries: DataFrame, shards: int) -> DataFrame:
    """Returns what the tasks build: partitions of ascending ranges, sorted, in hexadecimal. The columns key and value are binary."""
    ranges = entries.repartitionByRange(shards, "key").sortWithinPartitions("key")
    return ranges.selectExpr("hex(key) AS key", "hex(value) AS value")


def lines_of(batch: pyarrow.RecordBatch) -> bytes:
    """Returns what the tool reads. NULL is an error: a table has no such key or value."""
    for row in batch.filter(pyarrow.compute.is_null(batch["key"])).to_pylist()[:1]:
        raise ValueError(f"a row has the key NULL: its value is X'{row['value']}'")
    for row in batch.filter(pyarrow.compute.is_null(batch["value"])).to_pylist()[:1]:
        raise ValueError(f"the row with the key X'{row['key']}' has the value NULL")
    lines = pyarrow.compute.binary_join_element_wise(batch["key"], batch["value"], "\t")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def build(entries: DataFrame, directory: str) -> DataFrame:
    """Builds a table of each partition, and returns the names in the column shard."""

    def build_shard(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        # Each attempt of a task writes to a name of its own, so that attempts that fail, or run twice, cannot harm each other.
        # Nobody publishes what they leave behind.
        shard = f"{directory}/{uuid.uuid4()}.ldb"
        command = ["leveltable", "build", shard, "--hex", "--allow-empty", "--block-size", "16K"]
        with tempfile.TemporaryFile() as messages:
            tool = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=messages)
            try:
                for batch in batches:
                    tool.stdin.write(lines_of(batch))
                tool.stdin.close()
            except BrokenPipeError:
                pass  # The tool says why.
            except BaseException:
                tool.kill()  # At the end of its input, it would take the table for complete.
                raise
            finally:
                status = tool.wait()
            if status != 0:
                messages.seek(0)
                raise RuntimeError(f"{shlex.join(command)}: exit status {status}: {messages.read().decode()}")
        yield pyarrow.RecordBatch.from_pydict({"shard": [shard]})

    return entries.mapInArrow(build_shard, "shard STRING")


def publish(manifest: str, shards: DataFrame) -> list[str]:
    """Makes the tables one set, by writing its manifest, and returns their names. Fails if the manifest exists."""
    names = [row.shard for row in shards.collect()]
    command = ["leveltable", "publish", manifest, "-"]
    subprocess.run(command, input="\n".join(names), text=True, check=True)
    return names


def read_set(spark: SparkSession, manifest: str, parts: int) -> DataFrame:
    """Returns the entries of the set. Each task reads one part of it, and fails if another set has replaced it since."""
    splits = subprocess.run(
        ["leveltable", "splits", manifest, str(parts), "--hex"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()

    def scan(bounds: str) -> Iterator[pyarrow.RecordBatch]:
        command = ["leveltable", "scan", manifest, "--hex", *shlex.split(bounds)]
        columns = {"key": pyarrow.string(), "value": pyarrow.string()}
        with tempfile.TemporaryFile() as messages:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages) as tool:
                if tool.stdout.peek(1):
                    yield from pyarrow.csv.open_csv(
                        tool.stdout,
                        pyarrow.csv.ReadOptions(column_names=list(columns)),
                        pyarrow.csv.ParseOptions(delimiter="\t"),
                        pyarrow.csv.ConvertOptions(column_types=columns, strings_can_be_null=False),
                    )
            if tool.returncode != 0:
                messages.seek(0)
                message = messages.read().decode()
                raise RuntimeError(f"{shlex.join(command)}: exit status {tool.returncode}: {message}")

    def scan_all(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from scan(splits[number])

    numbers = spark.range(0, len(splits), 1, len(splits))
    return numbers.mapInArrow(scan_all, "key STRING, value STRING").selectExpr("unhex(key) AS key", "unhex(value) AS value")


def generate(spark: SparkSession, entries: int) -> DataFrame:
    """Returns entries in an order that has nothing to do with that of their keys."""
    numbers = spark.range(entries).selectExpr("lpad(id * 7919 % 1000003 * 10000 + id DIV 1000003, 16, '0') AS key")
    return numbers.selectExpr("encode(key, 'UTF-8') AS key", "unhex(md5(key)) AS value")


def checksum(entries: DataFrame) -> tuple:
    """Returns the number of entries and the sum of their hashes, which depends on each entry but not on their order."""
    row = entries.selectExpr("count(*)", "sum(CAST(xxhash64(key, value) AS DECIMAL(38)))").first()
    return tuple(row)


def main(directory: str, entries: int = 5_000_000, shards: int = 16) -> None:
    spark = SparkSession.builder.appName("sorted set").getOrCreate()
    generated = generate(spark, entries)
    manifest = f"{directory}/manifest"
    publish(manifest, build(sorted_entries(generated, shards), directory))
    count, total = checksum(read_set(spark, manifest, parts=2 * shards))
    assert (count, total) == checksum(generated), "the set is not what was generated"
    print(f"{manifest}: {count} entries, as generated")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
