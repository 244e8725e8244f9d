import os
import pickle

import pyarrow as pa
import pytest

import leveltable as lt
from conftest import ranges


def build(directory, model, tables):
    """Writes the model as tables of consecutive keys, and returns their names."""
    keys, names = list(model), []
    for i in range(tables):
        names.append(directory / f"{i}-{os.urandom(4).hex()}.ldb")
        with lt.TableBuilder(names[-1]) as builder:
            builder.update((key, model[key]) for key in keys[len(keys) * i // tables : len(keys) * (i + 1) // tables])
    return names


@pytest.fixture
def manifest(tmp_path, model):
    lt.publish(tmp_path / "manifest", build(tmp_path, model, 5))
    return tmp_path / "manifest"


@pytest.mark.parametrize("form", [lambda path: path, str, lambda path: path.as_uri()])
def test_a_set_reads_like_a_table(manifest, model, form):
    table = lt.open(form(manifest))
    assert len(table) == len(model)
    assert dict(table.items()) == model
    for bounds, prefix, expected in ranges(model, 50):
        assert list(table.items(*bounds, **prefix)) == expected
        assert list(table.items(*bounds, **prefix, reverse=True)) == expected[::-1]
    keys = [*list(model)[::9], b"no such key"]
    assert table.get_many(keys) == [table.get(key) for key in keys] == [model.get(key) for key in keys]
    assert pa.table(table.batches()).num_rows == len(model)
    for parts in [1, 3, 5, 20]:
        splits = table.splits(parts)
        assert [item for bounds in splits for item in table.items(*bounds)] == list(model.items())
    assert repr(table) == f"<leveltable.Table {form(manifest)!r}: a set of 5 tables, " + repr(table).partition("tables, ")[2]


def test_publications_replace_each_other(manifest, model, tmp_path):
    old = lt.open(manifest)
    pickled = pickle.dumps(old)
    assert pickle.loads(pickled).set_id == old.set_id
    new = dict.fromkeys(model, b"new")
    tables = build(tmp_path, new, 2)
    with pytest.raises((lt.Error, OSError)):
        lt.publish(manifest, tables)  # there is one already
    set_id = lt.publish(manifest, tables, replacing=old)
    assert dict(lt.open(manifest).items()) == new
    assert lt.open(manifest).set_id == set_id != old.set_id
    assert dict(old.items()) == model
    # A worker does not read another set than the one that was pickled.
    with pytest.raises(lt.Error, match=old.set_id):
        pickle.loads(pickled)
    with pytest.raises((lt.Error, OSError)):
        lt.publish(manifest, tables, replacing=old)  # another one was faster


def test_tables_that_are_no_set(tmp_path, model):
    one, two = build(tmp_path, model, 1), build(tmp_path, model, 2)
    with pytest.raises(lt.Error, match="overlap"):
        lt.publish(tmp_path / "manifest", one + two)
    with pytest.raises((lt.Error, OSError)):
        lt.publish(tmp_path / "manifest", [tmp_path / "none.ldb"])
    with pytest.raises(lt.Error):
        lt.publish(tmp_path / "manifest", one, replacing=lt.open(one[0]))
    assert not (tmp_path / "manifest").exists()


def test_a_set_in_a_process_that_was_forked(manifest, model):
    table = lt.open(manifest)
    key, value = next(iter(model.items()))
    assert table[key] == value
    child = os.fork()
    if child == 0:
        try:
            # The parent's threads are not here: an error, no hang. Opened again, it works.
            with pytest.raises(lt.Error, match="fork"):
                table.get(b"\xff")
            os._exit(0 if lt.open(manifest)[key] == value else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
