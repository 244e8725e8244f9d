"""Writes a DataFrame as a set of sorted tables, and reads the set back in parallel.

    sorted_set.py DIRECTORY [ENTRIES] [SHARDS]

DIRECTORY is a URL such as s3://bucket/path, or a directory that all workers share. Each task builds one table with
`leveltable build` and returns its name to the driver, which publishes those of the attempts that Spark committed.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

# Builds one shard from standard input and prints its name. Each attempt of a task writes to a name of its own, so that
# attempts that fail, or run twice, cannot harm each other. Nobody publishes what they leave behind.
BUILD = """sh -c 'shard="$0/$(cat /proc/sys/kernel/random/uuid).ldb"
leveltable build "$shard" --hex --allow-empty --block-size 16K && echo "$shard"' """

# `pipe` starts the tool with this environment only: where it is, how it reaches the store, and what may write to the bucket.
NAMES = ("PATH", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE")
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name.upper() in NAMES or name.startswith(("AWS_", "AZURE_", "GOOGLE_"))
}


def sorted_lines(entries: DataFrame, shards: int) -> RDD:
    """Returns what the tool reads: partitions of ascending ranges, sorted. The columns key and value are binary."""
    ranges = entries.repartitionByRange(shards, "key").sortWithinPartitions("key")
    lines = ranges.selectExpr("concat(hex(key), '\\t', hex(value)) AS line")
    return lines.rdd.map(lambda row: row.line)


def build(lines: RDD, directory: str) -> RDD:
    """Writes a table for each partition, and returns the names."""
    return lines.pipe(BUILD + shlex.quote(directory), env=ENVIRONMENT, checkCode=True)


def publish(manifest: str, shards: list[str]) -> None:
    """Makes the shards one set, by writing its manifest. Fails if the manifest exists."""
    subprocess.run(["leveltable", "publish", manifest, "-"], input="\n".join(shards), text=True, check=True)


def read_set(spark: SparkSession, manifest: str, parts: int) -> DataFrame:
    """Returns the entries of the set. Each task reads one part of it, and fails if another set has replaced it since."""
    splits = subprocess.run(
        ["leveltable", "splits", manifest, str(parts), "--hex"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()

    def scan(bounds: str) -> Iterator[list[str]]:
        command = ["leveltable", "scan", manifest, "--hex", *shlex.split(bounds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
            for line in tool.stdout:
                yield line.rstrip("\n").split("\t")
        if tool.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)}: exit status {tool.returncode}")

    lines = spark.sparkContext.parallelize(splits, len(splits)).flatMap(scan)
    rows = spark.createDataFrame(lines, "key STRING, value STRING", verifySchema=False)
    return rows.selectExpr("unhex(key) AS key", "unhex(value) AS value")


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
    publish(manifest, build(sorted_lines(generated, shards), directory).collect())
    count, total = checksum(read_set(spark, manifest, parts=2 * shards))
    assert (count, total) == checksum(generated), "the set is not what was generated"
    print(f"{manifest}: {count} entries, as generated")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
