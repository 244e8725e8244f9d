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
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import leveltable as lt
from leveltable.spark import build_tables, register, write_set
from sorted_set import checksum, generate

TABLES = 16

# Its task loses its result, once.
LOST = 5


def workers_of(spark: SparkSession) -> list[int]:
    """Returns the Java processes of the workers, which the driver's Java process has started."""

    def parent(process: int) -> int:
        # The name of a process, in brackets, may hold anything.
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    driver = spark.sparkContext._gateway.proc.pid
    found = []
    for process in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and parent(process) == driver:
                found.append(process)
        except (FileNotFoundError, ProcessLookupError):
            pass  # It has ended.
    return found


class KilledWorker(threading.Thread):
    """Kills one worker's Java process as soon as one table is built and others are being built."""

    def __init__(self, spark: SparkSession):
        super().__init__(daemon=True)
        self.spark, self.killed = spark, False

    def run(self) -> None:
        status = self.spark.sparkContext.statusTracker()
        while not self.killed:
            time.sleep(0.01)
            for stage in map(status.getStageInfo, status.getActiveStageIds()):
                if stage and stage.numTasks == TABLES and stage.numCompletedTasks > 0 and stage.numActiveTasks > 0:
                    os.kill(workers_of(self.spark)[0], signal.SIGKILL)
                    self.killed = True
                    return


def lose_a_result(tables: DataFrame, mark: Path) -> DataFrame:
    """Fails one task, the first time, after its table is complete."""

    def lose(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        rows = list(batches)
        if TaskContext.get().partitionId() == LOST and not mark.exists():
            mark.touch()
            raise RuntimeError(f"lost on purpose: {rows}")
        return iter(rows)

    return tables.mapInArrow(lose, "path STRING, entries BIGINT")


def check_odd_frames(spark: SparkSession, directory: str) -> None:
    """An empty frame becomes an empty set, and NULL is an error that names the row."""
    columns = "key BINARY, value BINARY"
    empty = f"{directory}/empty-manifest"
    write_set(spark.createDataFrame([], columns), empty)
    assert spark.read.format("leveltable").load(empty).count() == 0
    for row, message in [((b"\x01", None), "the row with the key X'01' has the value NULL"), ((None, b"\x02"), "the row with the value X'02' has the key NULL")]:
        frame = spark.createDataFrame([row], columns)
        try:
            build_tables(frame, directory).collect()
        except Exception as error:
            assert message in str(error), error
        else:
            raise AssertionError("NULL was built")
    try:
        build_tables(spark.createDataFrame([(b"a", b"b")], columns), f"{directory}/not/there").collect()
    except Exception as error:
        assert "://" in directory or "FileNotFoundError" in str(error), error
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
    register(spark)
    generated = generate(spark, entries)
    expected = checksum(generated)
    assert expected[0] == entries
    say(f"{entries} entries to write")

    manifest = f"{directory}/manifest"
    killing = KilledWorker(spark)
    killing.start()
    with tempfile.TemporaryDirectory() as marks:
        mark = Path(marks, "lost")
        built = lose_a_result(build_tables(generated, directory, tables=TABLES), mark).collect()
        assert mark.exists(), "no result was lost"
    assert killing.killed, "no worker was killed"
    lt.publish(manifest, [row.path for row in built])
    say(f"{len(built)} tables built and published; a worker was killed, and a result lost")

    info = subprocess.run(["leveltable", "info", "--json", manifest], stdout=subprocess.PIPE, check=True)
    info = json.loads(info.stdout)
    published = [os.path.basename(shard["path"]) for shard in info["shards"]]
    assert sorted(published) == sorted(os.path.basename(row.path) for row in built)
    assert info["entries"] == entries
    say(f"published: {info['file_bytes']} bytes")

    orphans = names_in(directory) - set(published) - {"manifest"}
    # That of the lost result at least. A worker that is killed takes the data of others with it, whose tasks then fail.
    assert orphans, "the lost table is not there"
    say(f"left behind by failed attempts: {len(orphans)}")

    found = checksum(spark.read.format("leveltable").option("partitions", 2 * TABLES).load(manifest))
    assert found == expected, f"expected {expected}, found {found}"
    say("read back: every key once, and every value right")

    pruned = subprocess.run(["leveltable", "prune", directory, "--older-than", "0s", "--delete"], stdout=subprocess.PIPE, check=True)
    # A task that was killed leaves the beginning of a table, in a file that no table's name has.
    unfinished = {name for name in orphans if not name.endswith(".ldb")}
    assert set(map(os.path.basename, pruned.stdout.decode().split())) == orphans - unfinished
    assert names_in(directory) == set(published) | {"manifest"} | unfinished
    say("pruned: what failed attempts left, and nothing else")

    check_odd_frames(spark, directory)
    say("an empty frame is an empty set; NULL and a directory that is not there are errors that say so")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
