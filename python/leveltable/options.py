"""Types of arguments, for type checkers."""

from os import PathLike
from typing import Literal, TypedDict

# : ``str`` is encoded as UTF-8.
Data = bytes | bytearray | memoryview | str
Key = Data | None
Path = str | PathLike[str]
# : The engine's codecs, for ``compression``.
Codec = Literal["snappy", "zstd", "zlib", "deflate", "none"]
# : The engine's filters.
Filter = Literal["ribbon", "bloom", "none"]


class WriteOptions(TypedDict, total=False):
    """Options for writing tables; ``TableBuilder`` describes them."""

    compression: Codec
    level: int
    block_size: int
    filter: Filter
    bits_per_key: float
    prefix_delimiter: bytes
    prefix_length: int
    leveldb: bool
    replace: bool
