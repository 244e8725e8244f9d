"""Databases that plyvel, which is C++ LevelDB, has written and holds open."""

import pickle
import shutil
import time

import plyvel
import pyarrow as pa
import pytest

import leveltable as lt
from conftest import churn, entries, ranges


@pytest.fixture
def written(tmp_path):
    """A database of several tables and a log, and its contents."""
    db = plyvel.DB(str(tmp_path / "db"), create_if_missing=True, write_buffer_size=1 << 16, bloom_filter_bits=10)
    model = churn(db)
    # Compactions go on in the background for a while: LevelDB begins one while level 0 has four tables, or two logs are live.
    ours = lt.Database(tmp_path / "db")
    while True:
        time.sleep(0.5)
        changed = ours.refresh()
        live = [file for file in ours.files if file.state == "live"]
        tables = [file for file in live if file.kind == "table" and file.level == 0]
        logs = [file for file in live if file.kind == "log"]
        if not changed and len(tables) < 4 and len(logs) == 1:
            break
    yield tmp_path / "db", db, model
    db.close()


def test_a_database_that_a_writer_holds_open(written):
    path, db, model = written
    with pytest.raises(plyvel.IOError):  # the lock
        plyvel.DB(str(path))
    with lt.Database(path) as ours:
        assert list(ours.items()) == list(db.iterator()) == list(model.items())
        assert len([file for file in ours.files if file.kind == "table" and file.state == "live"]) > 1
        for bounds, prefix, expected in ranges(model, 100):
            assert list(ours.items(*bounds, **prefix)) == expected
            assert list(ours.items(*bounds, **prefix, reverse=True)) == expected[::-1]
            # plyvel knows bounds or a prefix, not both.
            if prefix["prefix"] is None:
                start, stop = bounds
                assert list(db.iterator(start=start, stop=stop)) == expected
                assert list(db.iterator(start=start, stop=stop, reverse=True)) == expected[::-1]
        for prefix in [b"a", b"ab", b"\xff"]:
            assert list(ours.prefix(prefix)) == list(db.iterator(prefix=prefix))
        keys = [*model, *entries(500, 20)]
        assert ours.get_many(keys) == [ours.get(key) for key in keys] == [db.get(key) for key in keys]
        found = pa.table(ours.batches())
        assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == model
        with pytest.raises(TypeError):
            len(ours)
        assert lt.merge(path.parent / "copy.ldb", [ours]).entries == len(model)
        assert dict(lt.open(path.parent / "copy.ldb").items()) == model


def test_refresh_sees_what_was_written(written):
    path, db, _ = written
    ours = lt.Database(path)
    assert not ours.refresh()
    walk = ours.items()
    next(walk)
    db.put(b"\xff\xff\xff new", b"1")
    assert b"\xff\xff\xff new" not in ours
    assert ours.refresh()
    assert ours[b"\xff\xff\xff new"] == b"1"
    assert b"\xff\xff\xff new" not in dict(walk)
    db.compact_range()
    assert ours.refresh()
    assert dict(ours.items()) == dict(db.iterator())


def test_history(tmp_path):
    db = plyvel.DB(str(tmp_path), create_if_missing=True)
    db.put(b"key", b"old")
    db.delete(b"key")
    db.put(b"key", b"new")
    ours = lt.Database(tmp_path)
    assert [(version.sequence, version.value, version.state, version.by) for version in ours.history("key")] == [
        (3, b"new", "live", None),
        (2, None, "overwritten", 3),
        (1, b"old", "deleted", 2),
    ]
    assert ours.last_sequence == 3
    assert ours.comparator == "leveldb.BytewiseComparator"
    assert ours.recovery.changes == 3
    db.close()


def test_pickling_and_forms(written):
    path, db, model = written
    ours = lt.Database(str(path), cache=1 << 20)
    again = pickle.loads(pickle.dumps(ours))
    assert dict(again.items()) == model
    assert repr(ours).startswith(f"<leveltable.Database {str(path)!r}: order leveldb.BytewiseComparator")
    with pytest.raises(lt.NotATableError, match="Database"):
        lt.open(path)
    table = next(path.glob("*.ldb"))
    with pytest.raises(lt.NotATableError, match="database"):
        lt.open(table)
    assert lt.verify(table).is_sound
    report = lt.salvage(table, path.parent / "rescued.ldb")
    assert report.is_complete
    assert report.entries > 0


def test_no_database(tmp_path):
    with pytest.raises(lt.NotATableError):
        lt.Database(tmp_path)
    with pytest.raises((lt.NotATableError, FileNotFoundError)):
        lt.Database(tmp_path / "none")


def test_another_order(tmp_path):
    def backward(a, b):
        return (a < b) - (a > b)

    db = plyvel.DB(str(tmp_path), create_if_missing=True, comparator=backward, comparator_name=b"backward")
    for key in [b"a", b"b", b"c"]:
        db.put(key, key)
    ours = lt.Database(tmp_path)
    assert ours.comparator == "backward"
    with pytest.raises(lt.OrderError):
        ours.get(b"a")
    with pytest.raises(lt.OrderError):
        list(ours.prefix(b"a"))
    assert sorted(ours.items()) == sorted(db.iterator())
    db.close()


def test_damage_is_an_error_or_the_right_answer(written):
    path, db, model = written
    db.close()
    for name in [file.name for file in lt.Database(path).files if file.kind in ("table", "log", "manifest")]:
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        data = bytearray((copy / name).read_bytes())
        for i in range(50, len(data), len(data) // 7 + 1):
            data[i] ^= 0x10
        (copy / name).write_bytes(data)
        try:
            found = dict(lt.Database(copy).items())
        except lt.Error:
            pass
        else:
            assert found == model
        shutil.rmtree(copy)
