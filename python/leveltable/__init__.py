"""Reads and writes LevelDB's tables (``.ldb``, ``.sst``), and reads, builds, compacts and repairs its databases: without LevelDB, its lock, or a compiler.

>>> import leveltable as lt
>>> with lt.TableBuilder("fruit.ldb") as t:  # appears complete when the block ends
...     t["apple"] = b"red"  # keys in ascending order
...     t["banana"] = b"yellow"
>>> table = lt.open("fruit.ldb")
>>> table["apple"]
b'red'
>>> list(table.items("b"))
[(b'banana', b'yellow')]

Keys and values are ``bytes``. Arguments can also be ``str``, which is encoded as UTF-8. Lookups and
walks release the interpreter's lock, so that threads run in parallel.
"""

from ._native import Batches, publish, repair_database, salvage, verify
from .errors import CorruptionError, Error, NotATableError, OrderError
from .tables import Database, Reader, Table, TableBuilder, build_database, compact_database, merge, open, write_arrow

__all__ = [
    "Batches",
    "CorruptionError",
    "Database",
    "Error",
    "NotATableError",
    "OrderError",
    "Reader",
    "Table",
    "TableBuilder",
    "build_database",
    "compact_database",
    "merge",
    "open",
    "publish",
    "repair_database",
    "salvage",
    "verify",
    "write_arrow",
]
