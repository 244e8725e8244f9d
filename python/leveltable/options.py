"""What can be passed in, for type checkers."""

from os import PathLike
from typing import Literal, TypedDict

#: ``str`` is taken as UTF-8.
Data = bytes | bytearray | memoryview | str
Key = Data | None
Path = str | PathLike[str]
#: The codecs that the engine lists, for ``compression``.
Codec = Literal["snappy", "zstd", "zlib", "deflate", "none"]


class WriteOptions(TypedDict, total=False):
    """Options of whatever writes a table; ``TableBuilder`` says what they do."""

    compression: Codec
    level: int
    block_size: int
    filter: Literal["ribbon", "bloom", "none"]
    bits_per_key: float
    prefix_delimiter: bytes
    prefix_length: int
    leveldb: bool
    replace: bool
