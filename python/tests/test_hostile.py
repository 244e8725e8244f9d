"""Files of any content: answers or exceptions, in bounded time. Files of LEVELTABLE_CORPUS are tried as well."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

import leveltable as lt

KEYS = [b"", b"a", b"\xff" * 9, b"no such key"]


def ask(table: lt.Table) -> None:
    """Whatever can be asked. Each question may end in an error by itself."""
    questions = [
        lambda: table.get(b"a"),
        lambda: table.get_many(KEYS),
        lambda: sum(1 for _ in table.items()),
        lambda: sum(1 for _ in table.items(b"a", b"b", reverse=True)),
        lambda: list(table.prefix(b"\xff")),
        lambda: table.splits(5),
        lambda: table.properties,
        lambda: repr(table),
        lambda: pa.table(table.batches(rows=100)),
    ]
    for question in questions:
        try:
            question()
        except (lt.Error, OSError, pa.ArrowException):
            pass


def attack(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    for source in [data, path]:
        try:
            ask(lt.open(source))
        except (lt.Error, OSError):
            pass
    try:
        lt.verify(path)
        lt.salvage(path, path.with_name("rescued"))
    except (lt.Error, OSError):
        pass


def mutated(data: bytes, rng: random.Random) -> bytes:
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\x80\x80\x80"])
            case 2:
                del data[at : at + rng.randrange(1, 50)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 50))
            case _:
                data[-rng.randrange(1, 49)] = rng.randrange(256)  # the footer
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_tables(tmp_path, seed, model):
    rng = random.Random(seed)
    path = tmp_path / "seed"
    options = [{}, {"compression": "none"}, {"leveldb": True}, {"compression": "zstd", "prefix_length": 1}][seed % 4]
    with lt.TableBuilder(path, **options) as builder:
        builder.update(dict(list(model.items())[:200]))
    data = path.read_bytes()
    for _ in range(150):
        attack(mutated(data, rng), tmp_path / "mutated")


def test_what_is_no_table_at_all(tmp_path):
    rng = random.Random(1)
    magic = bytes.fromhex("57fb808b247547db")
    for data in [b"", b"\0", magic, b"\0" * 40 + magic, b"\xff" * 40 + magic, rng.randbytes(4096) + magic]:
        attack(data, tmp_path / "file")


@pytest.mark.skipif("LEVELTABLE_CORPUS" not in os.environ, reason="LEVELTABLE_CORPUS names no folder of files")
def test_files_of_real_programs(tmp_path):
    files = [path for path in sorted(Path(os.environ["LEVELTABLE_CORPUS"]).rglob("*")) if path.is_file()]
    for path in files:
        if path.stat().st_size <= 1 << 20:
            attack(path.read_bytes(), tmp_path / "file")
    for current in Path(os.environ["LEVELTABLE_CORPUS"]).rglob("CURRENT"):
        try:
            database = lt.Database(current.parent)
            sum(1 for _ in database.items())
            _ = database.files, database.recovery, repr(database)
        except (lt.Error, OSError):
            pass
