import random

import pytest

import leveltable as lt


def entries(count: int, seed: int = 1) -> dict[bytes, bytes]:
    """Entries with keys of many lengths and prefixes, in ascending order."""
    rng = random.Random(seed)
    keys = {bytes(rng.choices(b"\x00ab\xfe\xff", k=rng.randrange(12))) for _ in range(count)}
    return {key: rng.randbytes(rng.randrange(60)) for key in sorted(keys)}


def churn(db) -> dict[bytes, bytes]:
    """Overwrites and deletes keys of a database of plyvel's. Returns what is live, in ascending order."""
    model = {}
    for seed in range(4):
        for key, value in entries(3_000, seed).items():
            db.put(key, value * 3)
            model[key] = value * 3
        for key in list(entries(300, seed + 10)):
            db.delete(key)
            model.pop(key, None)
    return dict(sorted(model.items()))


@pytest.fixture
def model() -> dict[bytes, bytes]:
    return entries(5_000)


@pytest.fixture
def path(tmp_path, model):
    """A table of the model's entries."""
    path = tmp_path / "table.ldb"
    with lt.TableBuilder(path) as builder:
        builder.update(model)
    return path


def ranges(model: dict[bytes, bytes], count: int, seed: int = 2):
    """Random bounds and prefixes, and the model's items within them."""
    rng = random.Random(seed)
    some = [None, b"", b"\xff", b"\xff\xff", *rng.sample(list(model), 30), *rng.sample([*entries(200, 3)], 30)]
    for _ in range(count):
        start, stop = rng.choice(some), rng.choice(some)
        prefix = rng.choice([None, None, b"", b"a", b"\xff", b"\xff\xff", b"ab", b"\xfe\xff"])
        expected = [
            (key, value)
            for key, value in model.items()
            if (start is None or key >= start) and (stop is None or key < stop) and key.startswith(prefix or b"")
        ]
        yield (start, stop), {"prefix": prefix}, expected
