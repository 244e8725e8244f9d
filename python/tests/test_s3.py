"""Tables and sets in S3, as moto's server has it."""

import pickle
import urllib.request

import pyarrow as pa
import pytest

import leveltable as lt

moto = pytest.importorskip("moto.server")


@pytest.fixture
def bucket(monkeypatch):
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    for name, value in {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=30).close()
    yield "s3://bucket"
    server.stop()


def test_tables_and_sets(bucket):
    model = {f"{i:06}".encode(): str(i).encode() * 20 for i in range(30_000)}
    names = [f"{bucket}/set/{i}.ldb" for i in range(3)]
    for i, name in enumerate(names):
        with lt.TableBuilder(name) as builder:
            builder.update(list(model.items())[i * 10_000 : (i + 1) * 10_000])
    table = lt.open(names[1])
    assert len(table) == 10_000
    assert table["010000"] == model[b"010000"]
    reads = table.stats.source_reads
    assert table.get("no such key") is None
    assert table.stats.source_reads == reads
    assert list(table.items("012", "013")) == [item for item in model.items() if b"012" <= item[0] < b"013"]
    assert list(table.items("012", "013", reverse=True)) == list(table.items("012", "013"))[::-1]

    lt.publish(f"{bucket}/set/manifest", names)
    table = pickle.loads(pickle.dumps(lt.open(f"{bucket}/set/manifest")))
    assert dict(table.items()) == model
    assert table.get_many(["000001", "x", "029999"]) == [model[b"000001"], None, model[b"029999"]]
    assert pa.table(table.batches()).num_rows == len(model)
    with pytest.raises((lt.Error, OSError)):
        lt.publish(f"{bucket}/set/manifest", names)
    lt.publish(f"{bucket}/set/manifest", names[:1], replacing=table)
    assert len(lt.open(f"{bucket}/set/manifest")) == 10_000


def test_nothing_there(bucket):
    with pytest.raises(FileNotFoundError):
        lt.open(f"{bucket}/none")
    with pytest.raises(ZeroDivisionError), lt.TableBuilder(f"{bucket}/table") as builder:
        builder["a"] = "1"
        1 / 0
    with pytest.raises(FileNotFoundError):
        lt.open(f"{bucket}/table")
