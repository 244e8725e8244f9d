"""The code blocks of the documents run, as one program each, beside small databases in place of the reader's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import plyvel
import pytest

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
BY_EXAMPLE = HERE.parent.parent / "docs" / "python.md"
SCALING = HERE.parent.parent / "docs" / "scaling.md"


def blocks(path: Path, spark: bool) -> str:
    found = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.M | re.S)
    assert found
    return "\n".join(block for block in found if ("needs: spark" in block) == spark)


def run(code: str, directory: Path) -> str:
    (directory / "code.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "code.py"],
        cwd=directory,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def databases(tmp_path):
    """Databases that are open while the programs read them."""
    mask, block = bytes(range(1, 9)), bytes(range(32))
    contents = {
        "Local Storage/leveldb": {b"_https://example.org\0\x01key": b"\x01value"},
        "world/db": {b"player_server_1": b"nbt", b"~local_player": b"nbt", b"player_2": b"nbt"},
        "chainstate": {
            b"\x0e\x00obfuscate_key": b"\x08" + mask,
            b"B": bytes(a ^ b for a, b in zip(block, mask * 4, strict=True)),
            b"C" + bytes(33): b"coin",
        },
        "https_example.org_0.indexeddb.leveldb": {bytes(5): b"\x05", b"\0\0\0\0\x01": b"\x02"},
    }
    opened = []
    for name, entries in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        order = {}
        if "indexeddb" in name:
            order = {"comparator": lambda a, b: (a > b) - (a < b), "comparator_name": b"idb_cmp1"}
        opened.append(plyvel.DB(str(tmp_path / name), create_if_missing=True, **order))
        for key, value in entries.items():
            opened[-1].put(key, value)
    (tmp_path / "words").mkdir()
    (tmp_path / "numbers").mkdir()
    yield tmp_path
    for db in opened:
        db.close()


def test_the_readme(databases):
    assert "2" in run(blocks(README, spark=False), databases)


def test_the_examples(databases):
    printed = run(blocks(BY_EXAMPLE, spark=False), databases)
    assert "2 players, 9 bytes" in printed
    assert f"1 outputs up to block {bytes(range(32))[::-1].hex()}" in printed
    assert "idb_cmp1" in printed
    assert "1000" in printed
    assert "[b'1', b'2'] [b'99999', None]" in printed


@pytest.mark.spark
def test_the_examples_of_spark(databases):
    begin = 'from pyspark.sql import SparkSession\nspark = SparkSession.builder.master("local[2]").getOrCreate()\n'
    printed = run(begin + "".join(blocks(path, spark=True) for path in [BY_EXAMPLE, SCALING]), databases)
    printed = re.sub(r"bytearray\((b'\w*')\)", r"\1", printed).splitlines()
    assert printed[0] == "100000"
    assert "value=b'4711'" in printed[1]
    assert "value=b'red'" in printed[2]
