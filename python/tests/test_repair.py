"""Damaged databases of plyvel, which is C++ LevelDB, repaired here and opened by plyvel again."""

import os
import threading

import plyvel
import pytest

import leveltable as lt
from conftest import churn


@pytest.fixture
def old(tmp_path):
    """A database that was closed, and its contents."""
    with plyvel.DB(str(tmp_path / "old"), create_if_missing=True, write_buffer_size=1 << 16) as db:
        model = churn(db)
    return tmp_path / "old", model


def contents(path):
    with plyvel.DB(str(path)) as db:
        found = dict(db)
        assert all(db.get(key) == value for key, value in found.items())
        assert "ompact" not in (path / "LOG").read_text()
        db.put(b"written", b"afterwards")
        db.compact_range()
        assert dict(db) == found | {b"written": b"afterwards"}
    return found


def files(path):
    return {file.name: ((path / file.name).read_bytes(), os.stat(file).st_mtime_ns) for file in os.scandir(path)}


def test_a_damaged_table_of_a_database_names_its_repair(old, tmp_path):
    path, _ = old
    for table in path.glob("*.ldb"):
        with open(table, "r+b") as file:
            file.seek(30)
            file.write(b"damage")
    with pytest.raises(lt.CorruptionError, match="`repair_database` makes a new database"):
        dict(lt.Database(path).items())
    assert not lt.repair_database(path, tmp_path / "new").is_complete


def test_nothing_is_lost_with_current(old, tmp_path):
    path, model = old
    os.remove(path / "CURRENT")
    before = files(path)
    with pytest.raises(lt.NotATableError, match="lost CURRENT; `repair_database` makes a new database"):
        lt.Database(path)
    report = lt.repair_database(path, tmp_path / "new")
    assert report.is_complete and report.comparator == "leveldb.BytewiseComparator"
    assert not [found for found in report.findings if found.grade in ("lost", "unproven")]
    assert report.built.entries == len(model)
    assert {file.name for file in report.files} >= {name for name in before if name.endswith((".ldb", ".log"))}
    assert contents(tmp_path / "new") == model
    assert files(path) == before


def test_what_differs_is_in_the_report(old, tmp_path):
    path, model = old
    # A compaction that closing cut short leaves tables that belong to nothing. With these, nothing might be lost.
    tables = [file for file in lt.Database(path).files if file.kind == "table" and file.state != "missing"]
    live = [file for file in tables if file.state == "live"]
    for file in [*(file for file in tables if file.state != "live"), max(live, key=lambda file: file.file_bytes)]:
        os.remove(path / file.name)
    with pytest.raises(FileNotFoundError, match="no such file; `repair_database` makes a new database"):
        dict(lt.Database(path).items())
    report = lt.repair_database(path, tmp_path / "new")
    assert not report.is_complete
    found = contents(tmp_path / "new")
    named = [finding for finding in report.findings if finding.grade in ("lost", "unproven")]
    differ = [key for key in model | found if model.get(key) != found.get(key)]
    assert differ
    for key in differ:
        assert any(
            (f.first_key is None or f.first_key <= key) and (f.last_key is None or key <= f.last_key) for f in named
        ), key


def test_a_writer_at_work_and_bad_arguments_are_errors(old, tmp_path):
    path, _ = old
    with plyvel.DB(str(path)) as db:
        with pytest.raises(lt.Error):
            lt.repair_database(path, tmp_path / "new")
        # The lock is the database's as before.
        with pytest.raises(plyvel.Error):
            plyvel.DB(str(path))
        db.put(b"still", b"open")
    with pytest.raises(ValueError, match="comparator"):
        lt.repair_database(path, tmp_path / "new", comparator="reverse")
    with pytest.raises(FileNotFoundError):
        lt.repair_database(tmp_path / "nowhere", tmp_path / "new")
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError):
        lt.repair_database(path, tmp_path / "there")
    assert sorted(os.listdir(tmp_path)) == ["old", "there"]


def test_other_threads_run_meanwhile(old, tmp_path):
    path, model = old
    new = [tmp_path / str(n) for n in range(4)]
    threads = [threading.Thread(target=lt.repair_database, args=(path, at)) for at in new]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(dict(lt.Database(at).items()) == model for at in new)
