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

from pyspark import RDD, TaskContext
from pyspark.sql import SparkSession

from sorted_set import build, checksum, generate, publish, read_set, sorted_lines

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


def kill_a_worker(lines: RDD, marks: str) -> RDD:
    """Kills the Java process of a worker while one of its tasks passes lines to the tool."""

    def kill(lines: Iterator[str]) -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == 1_000 and fails_now(marks, KILLED):
                # The Java process starts a daemon, which starts this process.
                stat = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(60)
            yield line

    return lines.mapPartitions(kill)


def lose_a_result(shards: RDD, marks: str) -> RDD:
    """Fails a task after its table is complete."""

    def lose(shards: Iterator[str]) -> Iterator[str]:
        names = list(shards)
        if fails_now(marks, LOST):
            raise RuntimeError(f"lost on purpose: {names}")
        return iter(names)

    return shards.mapPartitions(lose)


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

    with tempfile.TemporaryDirectory() as marks:
        lines = kill_a_worker(sorted_lines(generated, SHARDS), marks)
        shards = lose_a_result(build(lines, directory), marks).collect()
        assert set(os.listdir(marks)) == {str(KILLED), str(LOST)}, "a task did not fail as it should"
    say(f"{len(shards)} tables built; a worker was killed, and a result lost")

    manifest = f"{directory}/manifest"
    publish(manifest, shards)
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
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
