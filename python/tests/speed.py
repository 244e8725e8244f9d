"""Lookups and walks next to plyvel's, in processor time: `python tests/speed.py [ENTRIES]`. Both have the same cache, and are warm."""

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
        db = plyvel.DB(f"{directory}/db", create_if_missing=True, bloom_filter_bits=10, lru_cache_size=CACHE)
        with db.write_batch() as batch:
            for key, value in entries:
                batch.put(key, value)
        db.compact_range()
        with lt.TableBuilder(f"{directory}/table") as builder:
            builder.update(entries)
        table = lt.open(f"{directory}/table", cache=CACHE)
        probes = random.Random(1).choices([key for key, _ in entries], k=100_000)
        groups = [probes[i : i + 10_000] for i in range(0, len(probes), 10_000)]

        def walk(items) -> None:
            for _, _ in items:
                pass

        for name, number, ours, theirs in [
            ("get", len(probes), lambda: [table.get(key) for key in probes], lambda: [db.get(key) for key in probes]),
            (
                "get_many of 10,000",
                len(probes),
                lambda: [table.get_many(keys) for keys in groups],
                lambda: [[db.get(key) for key in keys] for keys in groups],
            ),
            ("items", count, lambda: walk(table.items()), lambda: walk(db.iterator())),
            (
                "batches",
                count,
                lambda: [None for _ in pa.RecordBatchReader.from_stream(table.batches())],
                lambda: plyvel_batches(db),
            ),
        ]:
            ours, theirs = best(ours) / number * 1e9, best(theirs) / number * 1e9
            print(f"{name:20} {ours:7.0f} ns  plyvel {theirs:7.0f} ns  {theirs / ours:5.1f} times as fast")


main(*map(int, sys.argv[1:]))
