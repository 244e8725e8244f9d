"""Runs the job while a worker is killed and a result is lost, and checks that the published set is exact.

    check.py DIRECTORY [ENTRIES]

DIRECTORY is an empty local directory, or a URL. Each of 16 tables must get more than 1,000 entries.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from sorted_set import build, checksum, generate, publish, read_set, sorted_entries

SHARDS = 16

# The tasks that fail, once each.
KILLED, LOST = 2, 5


def fails_now(marks: str, partition: int) -> bool:
    """Returns whether this task is to fail: the first time that it is asked in this partition."""
    if TaskContext.get().partitionId() != partition:
        return False
    try:
        Path(marks, str(partition)).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False


def kill_a_worker(entries: DataFrame, marks: str) -> DataFrame:
    """Kills the Java process of a worker while one of its tasks passes entries to the tool."""

    def kill(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        count = 0
        for batch in batches:
            yield batch.slice(0, 1_000)
            count += batch.num_rows
            if count > 1_000 and fails_now(marks, KILLED):
                # The Java process starts a daemon, which starts this process.
                stat = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(60)
            yield batch.slice(1_000)

    return entries.mapInArrow(kill, "key STRING, value STRING")


def lose_a_result(shards: DataFrame, marks: str) -> DataFrame:
    """Fails a task after its table is complete."""

    def lose(shards: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        batches = list(shards)
        if fails_now(marks, LOST):
            raise RuntimeError(f"lost on purpose: {batches}")
        return iter(batches)

    return shards.mapInArrow(lose, "shard STRING")


def check_odd_frames(spark: SparkSession, directory: str) -> None:
    """An empty frame becomes an empty set, and NULL is an error that names the row."""
    columns = "key BINARY, value BINARY"
    empty = f"{directory}/empty-manifest"
    publish(empty, build(sorted_entries(spark.createDataFrame([], columns), 4), directory))
    assert read_set(spark, empty, parts=4).count() == 0
    for row, message in [((b"\x01", None), "key X'01' has the value NULL"), ((None, b"\x02"), "its value is X'02'")]:
        frame = spark.createDataFrame([row], columns)
        try:
            build(sorted_entries(frame, 1), directory).collect()
        except Exception as error:
            assert message in str(error), error
        else:
            raise AssertionError("NULL was built")
    try:
        build(sorted_entries(spark.createDataFrame([(b"a", b"b")], columns), 1), f"{directory}/not/there").collect()
    except Exception as error:
        assert "://" in directory or "No such file or directory" in str(error), error
    else:
        assert "://" in directory, "built where no directory is"


def names_in(directory: str) -> set[str]:
    """Returns the names in a local directory, or below s3://BUCKET/PREFIX at AWS_ENDPOINT: at most 1,000."""
    if "://" not in directory:
        return set(os.listdir(directory))
    bucket, _, prefix = directory.removeprefix("s3://").partition("/")
    url = f"{os.environ['AWS_ENDPOINT']}/{bucket}?list-type=2&prefix={prefix}/"
    with urllib.request.urlopen(url, timeout=30) as answer:
        keys = ElementTree.parse(answer).iterfind(".//{*}Key")
    return {os.path.basename(key.text) for key in keys}


def main(directory: str, entries: int = 5_000_000) -> None:
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {what}", flush=True)

    # Two workers, each a Java process of its own with one core.
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    generated = generate(spark, entries)
    expected = checksum(generated)
    assert expected[0] == entries
    say(f"{entries} entries to write")

    manifest = f"{directory}/manifest"
    with tempfile.TemporaryDirectory() as marks:
        killed = kill_a_worker(sorted_entries(generated, SHARDS), marks)
        shards = publish(manifest, lose_a_result(build(killed, directory), marks))
        assert set(os.listdir(marks)) == {str(KILLED), str(LOST)}, "a task did not fail as it should"
    say(f"{len(shards)} tables built and published; a worker was killed, and a result lost")

    info = subprocess.run(["leveltable", "info", "--json", manifest], stdout=subprocess.PIPE, check=True)
    info = json.loads(info.stdout)
    published = [os.path.basename(shard["path"]) for shard in info["shards"]]
    assert sorted(published) == sorted(map(os.path.basename, shards))
    assert info["entries"] == entries
    say(f"published: {info['file_bytes']} bytes")

    orphans = names_in(directory) - set(published) - {"manifest"}
    # That of the lost result at least. A worker that is killed takes the data of others with it, whose tasks then fail.
    assert orphans, "the lost table is not there"
    say(f"left behind by failed attempts: {len(orphans)}")

    found = checksum(read_set(spark, manifest, parts=2 * SHARDS))
    assert found == expected, f"expected {expected}, found {found}"
    say("read back: every key once, and every value right")

    pruned = subprocess.run(["leveltable", "prune", directory, "--older-than", "0s", "--delete"], stdout=subprocess.PIPE, check=True)
    assert set(map(os.path.basename, pruned.stdout.decode().split())) == orphans
    assert names_in(directory) == set(published) | {"manifest"}
    say("pruned: what failed attempts left, and nothing else")

    check_odd_frames(spark, directory)
    say("an empty frame is an empty set; NULL and a directory that is not there are errors that say so")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
