"""Eight threads on one table and one database, beside a writer. LEVELTABLE_SECONDS=600 before a release."""

import os
import random
import threading
import time

import plyvel

import leveltable as lt

SECONDS = float(os.environ.get("LEVELTABLE_SECONDS", 10))


def test_threads(tmp_path):
    numbers = range(50_000)
    with lt.TableBuilder(tmp_path / "t") as builder:
        builder.update((f"{i:08}", str(i * i)) for i in numbers)
    writer = plyvel.DB(str(tmp_path / "db"), create_if_missing=True, write_buffer_size=1 << 16)
    writer.put(b"generation", b"0")
    # Small caches, so that blocks come and go.
    table, db = lt.open(tmp_path / "t", cache=1 << 16), lt.Database(tmp_path / "db", cache=1 << 16)
    end, failures, rounds = time.monotonic() + SECONDS, [], [0] * 8

    def read(thread: int) -> None:
        rng, newest = random.Random(thread), 0
        # One round, however busy the machine is.
        while (time.monotonic() < end or not rounds[thread]) and not failures:
            start = rng.choice(numbers)
            stop = min(start + rng.randrange(1_000), len(numbers))
            expected = [str(i * i).encode() for i in range(start, stop)]
            assert list(table.values(f"{start:08}", f"{stop:08}")) == expected
            keys = [f"{i:08}" for i in range(start, stop)]
            assert table.get_many(keys) == expected
            assert not expected or table[keys[-1]] == expected[-1]
            assert f"{start:08}x" not in table

            if rng.randrange(3) == 0:
                db.refresh()
            # Each batch sets all keys to one generation, which never goes back.
            values = {value for _, value in db.items(prefix=b"generation")}
            assert len(values) == 1, values
            generation = int(values.pop())
            assert generation >= newest
            newest = generation
            rounds[thread] += 1

    def run(thread: int) -> None:
        try:
            read(thread)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    generation = 0
    while time.monotonic() < end and not failures:
        generation += 1
        with writer.write_batch() as batch:
            for name in [b"generation", b"generation 2", b"generation 3"]:
                batch.put(name, str(generation).encode())
            batch.put(b"padding %d" % (generation % 50), os.urandom(5_000))
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    writer.close()
    assert not failures
    assert all(rounds)
