import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from typing import get_args

import pytest

import leveltable as lt
from conftest import ranges
from leveltable.options import Codec, Filter


def test_a_table_is_a_mapping(path, model):
    with lt.open(path) as table:
        assert len(table) == len(model)
        assert list(table) == list(table.keys()) == list(model)
        assert list(table.items()) == list(model.items())
        assert list(table.values()) == list(model.values())
        assert dict(table) == model
        for key, value in list(model.items())[::50]:
            assert table[key] == table.get(key) == value
            assert key in table
            missing = key + b"\x01"
            assert table.get(missing) is None
            assert table.get(missing, 5) == 5
            assert missing not in table
            with pytest.raises(KeyError) as raised:
                table[missing]
            assert raised.value.args == (missing,)
    assert "closed" in repr(table)
    with pytest.raises(ValueError, match="closed"):
        table.get(b"a")


def test_many_keys_come_back_in_their_order(path, model):
    keys = [*list(model)[::-3], b"no such key", *list(model)[::7], b"no such key"]
    table = lt.open(path)
    assert table.get_many(keys) == [model.get(key) for key in keys]
    assert table.get_many(iter(keys)) == [model.get(key) for key in keys]
    assert table.get_many([]) == []


def test_ranges_are_those_of_a_sorted_dict(path, model):
    table = lt.open(path)
    for bounds, prefix, expected in ranges(model, 300):
        assert list(table.items(*bounds, **prefix)) == expected
        assert list(table.items(*bounds, **prefix, reverse=True)) == expected[::-1]
        assert list(table.keys(*bounds, **prefix)) == [key for key, _ in expected]
    assert list(table.prefix(b"ab")) == list(table.items(prefix=b"ab"))


def test_parts_have_every_key_once(path, model):
    table = lt.open(path)
    for parts in [1, 2, 7, 10_000]:
        splits = table.splits(parts)
        assert len(splits) <= parts
        assert [item for start, stop in splits for item in table.items(start, stop)] == list(model.items())


def test_what_keys_and_values_may_be(tmp_path):
    path = tmp_path / "t"
    with lt.TableBuilder(path, properties={"made by": "a test"}) as builder:
        builder["\u00e4"] = "text"
        builder[bytearray(b"\xd0")] = memoryview(b"view")
    table = lt.open(str(path))
    assert table["\u00e4"] == b"text"
    assert table[b"\xd0"] == b"view"
    assert table.properties.user == {"made by": b"a test"}
    for wrong in [1, None, ["a"]]:
        with pytest.raises(TypeError, match="bytes or str"):
            table.get(wrong)


def test_an_exception_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), lt.TableBuilder(tmp_path / "t") as builder:
        builder[b"a"] = b"1"
        1 / 0
    with pytest.raises(lt.OrderError, match='"a" comes before "b"'), lt.TableBuilder(tmp_path / "t") as builder:
        builder.update([(b"b", b"1"), (b"a", b"2")])
    builder = lt.TableBuilder(tmp_path / "t")
    builder.add(b"a", b"1")
    del builder
    assert os.listdir(tmp_path) == []


def test_a_builder_is_used_once(tmp_path):
    builder = lt.TableBuilder(tmp_path / "t")
    builder[b"a"] = b"1"
    assert builder.finish().entries == 1
    with pytest.raises(lt.Error, match="finished"):
        builder[b"b"] = b"2"
    with pytest.raises(FileExistsError):
        lt.TableBuilder(tmp_path / "t", replace=False)


@pytest.mark.parametrize("compression", get_args(Codec))
@pytest.mark.parametrize("filter", get_args(Filter))
def test_options(tmp_path, model, compression, filter):
    path = tmp_path / "t"
    with lt.TableBuilder(path, compression=compression, filter=filter, block_size=512, prefix_length=2) as builder:
        builder.update(model)
    table = lt.open(path)
    assert dict(table.items()) == model
    assert (table.properties.filter_policy is None) == (filter == "none")
    reads = table.stats.source_reads
    assert list(table.prefix(b"zz")) == []
    assert table.stats.prefix_rejected == 1
    assert table.stats.source_reads == reads


@pytest.mark.parametrize(("option", "names"), [("compression", Codec), ("filter", Filter)])
def test_types_list_what_the_engine_has(tmp_path, option, names):
    with pytest.raises(ValueError, match=" is none of ") as raised:
        lt.TableBuilder(tmp_path / "t", **{option: "?"})
    _, listed = str(raised.value).split(" is none of ")
    assert sorted(listed.split(", ")) == sorted(get_args(names))


def test_wrong_options_are_named(tmp_path):
    for options, words in [
        ({"compression": "bzip2"}, "bzip2"),
        ({"filter": "cuckoo"}, "cuckoo"),
        ({"level": 3}, "level"),
        ({"block_size": "x"}, "block_size"),
        ({"colour": 1}, "colour"),
        ({"prefix_delimiter": b"//"}, "prefix_delimiter"),
    ]:
        with pytest.raises((TypeError, ValueError), match=words):
            lt.TableBuilder(tmp_path / "t", **options)
    assert os.listdir(tmp_path) == []


def test_a_table_that_leveldb_would_write_does_not_say_its_length(tmp_path):
    with lt.TableBuilder(tmp_path / "t", leveldb=True) as builder:
        builder[b"a"] = b"1"
    table = lt.open(tmp_path / "t")
    assert table.properties is None
    with pytest.raises(TypeError, match="count them"):
        len(table)
    assert table
    assert list(table) == [b"a"]


def test_tables_in_memory(path, model):
    table = lt.open(path.read_bytes())
    assert dict(table.items()) == model
    assert dict(pickle.loads(pickle.dumps(table)).items()) == model


def test_a_replaced_file_is_noticed(path, model):
    with lt.open(path) as table:
        assert table.is_current()
        lt.merge(path, [table])
        assert not table.is_current()
        assert dict(table) == model
        assert lt.open(path).is_current()
        with pytest.raises(lt.Error):
            lt.open(path.read_bytes()).is_current()


def _get(table, keys):
    return table.get_many(keys)


@pytest.mark.parametrize("method", sorted({"spawn", "fork"} & set(multiprocessing.get_all_start_methods())))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads
def test_workers_get_tables_by_pickling(path, model, method):
    keys = list(model)
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.starmap(_get, [(lt.open(path, cache=1 << 20), keys[i::4]) for i in range(4)])
    assert results == [[model[key] for key in keys[i::4]] for i in range(4)]
    assert dict(copy.copy(lt.open(path)).items()) == model


def test_what_is_no_table(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        lt.open(tmp_path / "none")
    assert raised.value.filename == str(tmp_path / "none")
    text = tmp_path / "text"
    text.write_text("hello, this is no table\n" * 10)
    with pytest.raises(lt.NotATableError, match="plain text"):
        lt.open(text)
    with pytest.raises(lt.NotATableError, match="without the manifest"):
        lt.open(tmp_path)
    with pytest.raises(lt.Error):
        lt.open("gopher://example.org/table")


def test_damage_is_located(path, model):
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    table = lt.open(path)
    with pytest.raises(lt.CorruptionError) as raised:
        list(table.items())
    assert (raised.value.section, raised.value.offset) == ("data block", 0)
    assert str(path) in str(raised.value)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.section, again.offset, str(again)) == ("data block", 0, str(raised.value))
    # Walks end at the error.
    walk = table.items()
    with pytest.raises(lt.CorruptionError):
        next(walk)
    assert next(walk, None) is None

    report = lt.verify(path)
    assert not report.is_sound
    assert [(found.severity, found.section, found.offset) for found in report.findings if found.severity == "damage"] == [
        ("damage", "data block", 0)
    ]
    rescued = path.with_name("rescued.ldb")
    report = lt.salvage(path, rescued)
    assert not report.is_complete
    assert [lost.start for lost in report.lost] == [0]
    left = dict(lt.open(rescued).items())
    assert 0 < len(left) < len(model)
    assert left.items() <= model.items()
    assert lt.verify(rescued).is_sound


def test_merge_takes_the_first(tmp_path, path, model):
    new = tmp_path / "new"
    with lt.TableBuilder(new) as builder:
        for key in list(model)[::3]:
            builder[key] = b"new"
    summary = lt.merge(tmp_path / "out", [new, lt.open(path)])
    expected = {key: b"new" if i % 3 == 0 else value for i, (key, value) in enumerate(model.items())}
    assert summary.entries == len(expected)
    assert dict(lt.open(tmp_path / "out").items()) == expected
    with pytest.raises(FileNotFoundError):
        lt.merge(tmp_path / "no", [new, tmp_path / "none"])
    assert not (tmp_path / "no").exists()


def test_repr(path, model):
    table = lt.open(path)
    assert repr(table) == (
        f"<leveltable.Table {path!r}: {path.stat().st_size} bytes, {len(model)} entries, filter leveltable.Ribbon1>"
    )


def test_it_imports_fast_and_without_pyarrow():
    code = """
import sys, time
start = time.process_time()
import leveltable
took = time.process_time() - start
assert "pyarrow" not in sys.modules
print(took)
"""
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    assert min(times) < 0.05
