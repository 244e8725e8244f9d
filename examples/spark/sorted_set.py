"""Writes a DataFrame as a set of sorted tables, and reads the set back in parallel.

    sorted_set.py MANIFEST [ENTRIES] [TABLES]

MANIFEST is a URL such as s3://bucket/words/manifest, or a path that all workers share. The tables lie beside it.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import leveltable.spark


def generate(spark: SparkSession, entries: int) -> DataFrame:
    """Returns entries in an order that has nothing to do with that of their keys."""
    numbers = spark.range(entries).selectExpr("lpad(id * 7919 % 1000003 * 10000 + id DIV 1000003, 16, '0') AS key")
    return numbers.selectExpr("encode(key, 'UTF-8') AS key", "unhex(md5(key)) AS value")


def checksum(entries: DataFrame) -> tuple:
    """Returns the number of entries and the sum of their hashes, which depends on each entry but not on their order."""
    row = entries.selectExpr("count(*)", "sum(CAST(xxhash64(key, value) AS DECIMAL(38)))").first()
    return tuple(row)


def main(manifest: str, entries: int = 5_000_000, tables: int = 16) -> None:
    spark = SparkSession.builder.appName("sorted set").getOrCreate()
    leveltable.spark.register(spark)
    generated = generate(spark, entries)

    leveltable.spark.write_set(generated, manifest, tables=tables, block_size=16 << 10)
    found = spark.read.format("leveltable").option("partitions", 2 * tables).load(manifest)

    count, total = checksum(found)
    assert (count, total) == checksum(generated), "the set is not what was generated"
    print(f"{manifest}: {count} entries, as generated")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
