"""Lookups and walks next to plyvel's, in processor time: `python tests/speed.py [ENTRIES]`. Both are reopened for each row, and are warm:
the best of five rounds. It measures twice: with the default caches, 32 and 8 MiB, and with the same cache."""

import random
import sys
import tempfile
import time

import plyvel
import pyarrow as pa

import leveltable as lt

CACHE = 256 << 20
SCHEMA = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])


def best(work, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def walk(items) -> None:
    for _, _ in items:
        pass


def plyvel_batches(db) -> None:
    keys, values = [], []
    for key, value in db.iterator():
        keys.append(key)
        values.append(value)
        if len(keys) == 65_536:
            pa.record_batch([pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())], schema=SCHEMA)
            keys, values = [], []


def main(count: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory() as directory:
        entries = [(b"key%012d" % (7 * i), b"%032d" % (i * 2654435761 % 10**9)) for i in range(count)]
        db = plyvel.DB(f"{directory}/db", create_if_missing=True, bloom_filter_bits=10)
        with db.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)
        db.compact_range()
        db.close()
        with lt.TableBuilder(f"{directory}/table") as builder:
            builder.update(entries)
        probes = random.Random(1).choices([key for key, _ in entries], k=100_000)
        groups = [probes[i : i + 10_000] for i in range(0, len(probes), 10_000)]
        rows = [
            ("get", len(probes), lambda table: [table.get(key) for key in probes], lambda db: [db.get(key) for key in probes]),
            (
                "get_many of 10,000",
                len(probes),
                lambda table: [table.get_many(keys) for keys in groups],
                lambda db: [[db.get(key) for key in keys] for keys in groups],
            ),
            ("items", count, lambda table: walk(table.items()), lambda db: walk(db.iterator())),
            (
                "batches",
                count,
                lambda table: [None for _ in pa.RecordBatchReader.from_stream(table.batches())],
                plyvel_batches,
            ),
        ]
        for title, ours, theirs in [
            ("default caches", {}, {}),
            ("the same cache", {"cache": CACHE}, {"lru_cache_size": CACHE}),
        ]:
            print(title)
            for name, number, of_table, of_db in rows:
                with lt.open(f"{directory}/table", **ours) as table:
                    here = best(lambda: of_table(table)) / number * 1e9
                db = plyvel.DB(f"{directory}/db", bloom_filter_bits=10, **theirs)
                there = best(lambda: of_db(db)) / number * 1e9
                db.close()
                print(f"  {name:20} {here:7.0f} ns  plyvel {there:7.0f} ns  {there / here:5.1f} times as fast")


main(*map(int, sys.argv[1:]))
