"""Databases that are built and compacted here, opened by plyvel, which is C++ LevelDB."""

import os
import struct

import plyvel
import pytest

import leveltable as lt
from conftest import churn, entries


def contents(path):
    with plyvel.DB(str(path)) as db:
        found = dict(db)
        assert all(db.get(key) == value for key, value in found.items())
    return found


def test_a_mapping_or_pairs_become_a_database(tmp_path):
    model = dict(sorted(entries(5_000, 1).items()))
    built = lt.build_database(tmp_path / "mapping", dict(reversed(model.items())))
    assert (built.entries, built.tables, built.level, built.leftovers) == (len(model), 1, 1, [])
    lt.build_database(tmp_path / "pairs", iter(model.items()))
    sizes = {file.name: file.stat().st_size for file in os.scandir(tmp_path / "mapping")}
    assert sum(sizes.values()) == built.bytes
    for name in sizes:
        assert (tmp_path / "mapping" / name).read_bytes() == (tmp_path / "pairs" / name).read_bytes()
    assert contents(tmp_path / "mapping") == contents(tmp_path / "pairs") == model
    lt.build_database(tmp_path / "text", {"b": "2", b"a": b"1"}, compression="none", filter="none")
    assert contents(tmp_path / "text") == {b"a": b"1", b"b": b"2"}


def test_a_database_in_another_order(tmp_path):
    # Numbers of IndexedDB, whose bytes ascend otherwise.
    model = {b"\0\1\1\1\3" + struct.pack("<d", n): b"%d" % n for n in range(2_000)}
    lt.build_database(tmp_path / "pairs", model.items(), comparator="idb_cmp1")
    lt.build_database(tmp_path / "mapping", dict(sorted(model.items())), comparator="idb_cmp1")
    for name in ("pairs", "mapping"):
        ours = lt.Database(tmp_path / name)
        assert ours.comparator == "idb_cmp1" and list(ours.items()) == list(model.items())
        assert ours.get_many(list(model)) == list(model.values())

    def compare(a, b):
        number, other = (struct.unpack("<d", key[5:]) for key in (a, b))
        return (number > other) - (number < other)

    order = {"comparator": compare, "comparator_name": b"idb_cmp1"}
    with plyvel.DB(str(tmp_path / "pairs"), **order) as db:
        assert list(db) == list(model.items())
        assert all(db.get(key) == value for key, value in model.items())
    with pytest.raises(lt.OrderError):
        lt.build_database(tmp_path / "bytewise", model.items())


def test_what_cannot_be_built_leaves_nothing(tmp_path):
    lt.build_database(tmp_path / "there", {})
    with pytest.raises(FileExistsError):
        lt.build_database(tmp_path / "there", {"a": "1"})
    with pytest.raises(FileNotFoundError):
        lt.build_database(tmp_path / "nowhere" / "db", {})
    with pytest.raises(lt.OrderError):
        lt.build_database(tmp_path / "db", [("b", "1"), ("a", "2")])
    with pytest.raises(TypeError):
        lt.build_database(tmp_path / "db", [("a", 1)])
    with pytest.raises(ValueError, match="comparator"):
        lt.build_database(tmp_path / "db", {}, comparator="reverse")

    def failing():
        yield "a", "1"
        raise KeyError("source")

    with pytest.raises(KeyError):
        lt.build_database(tmp_path / "db", failing())
    assert os.listdir(tmp_path) == ["there"]


def test_compaction_keeps_what_is_live_and_makes_changes(tmp_path):
    with plyvel.DB(str(tmp_path / "old"), create_if_missing=True, write_buffer_size=1 << 16) as db:
        model = churn(db)
    compacted = lt.compact_database(tmp_path / "old", tmp_path / "new")
    assert compacted.built.entries == len(model) and not compacted.has_writer
    assert compacted.bytes_before > compacted.built.bytes
    assert contents(tmp_path / "new") == model
    keys = sorted(model)
    changes = {keys[5]: None, keys[7]: b"new", "zzz": "last", b"absent": None}
    lt.compact_database(tmp_path / "new", tmp_path / "changed", changes=changes, compression="none", ignore_space=True)
    expected = {**model, keys[7]: b"new", b"zzz": b"last"}
    del expected[keys[5]]
    assert contents(tmp_path / "changed") == expected
    lt.compact_database(tmp_path / "changed", tmp_path / "part", start=keys[3], stop=keys[100], prefix=keys[8][:1])
    part = {key: value for key, value in expected.items() if keys[3] <= key < keys[100] and key.startswith(keys[8][:1])}
    assert contents(tmp_path / "part") == part
    with pytest.raises(ValueError, match="levels"):
        lt.compact_database(tmp_path / "new", tmp_path / "bad", compression="snappy", level=3)


def test_a_writer_is_seen(tmp_path):
    with plyvel.DB(str(tmp_path / "old"), create_if_missing=True) as db:
        db.put(b"key", b"value")
        # The lock is this process's own, and looking at it must not drop it.
        assert lt.compact_database(tmp_path / "old", tmp_path / "new").has_writer
        with pytest.raises(plyvel.IOError):
            plyvel.DB(str(tmp_path / "old"))
    assert contents(tmp_path / "new") == {b"key": b"value"}
    assert not lt.compact_database(tmp_path / "old", tmp_path / "closed").has_writer
