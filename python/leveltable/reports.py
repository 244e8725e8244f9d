"""What tables say of themselves, and what was done. Sizes are in bytes."""

from os import PathLike
from typing import NamedTuple


class Stats(NamedTuple):
    """What a table has done since it was opened, by all threads."""

    source_reads: int
    source_bytes: int
    cache_hits: int
    cache_misses: int
    filter_rejected: int
    filter_passed: int
    prefix_rejected: int
    prefix_passed: int


class Properties(NamedTuple):
    """What a table says of itself. ``first_key`` and ``last_key`` are ``None`` in an empty table and above 4,096 bytes."""

    comparator: str
    creator: str | None
    entries: int
    first_key: bytes | None
    last_key: bytes | None
    key_bytes: int
    value_bytes: int
    data_blocks: int
    data_bytes: int
    filter_policy: str | None
    filter_bytes: int | None
    user: dict[str, bytes]


class Summary(NamedTuple):
    """What was written."""

    entries: int
    key_bytes: int
    value_bytes: int
    data_blocks: int
    data_bytes: int
    file_bytes: int
    first_key: bytes | None
    last_key: bytes | None


class Finding(NamedTuple):
    """What ``verify`` found. ``severity`` is damage, unchecked, warning or note; ``offset`` is a place in the file."""

    severity: str
    section: str
    offset: int
    expected: str
    found: str


class VerifyReport(NamedTuple):
    """What ``verify`` checked. ``is_sound`` if that was everything, and nothing is damaged. Lists the first 1,000 findings."""

    is_sound: bool
    file_bytes: int
    checked_bytes: int
    data_blocks: int
    entries: int
    damage: int
    unchecked: int
    warnings: int
    findings: list[Finding]


class LostRange(NamedTuple):
    """Part of a file, from offset ``start`` up to ``stop``, whose entries are lost: those between the keys ``after`` and ``before``."""

    start: int
    stop: int
    reason: str
    entries: int | None
    after: bytes | None
    before: bytes | None


class SalvageReport(NamedTuple):
    """What ``salvage`` copied, and what is lost. ``is_complete`` if something says that no entry is."""

    is_complete: bool
    file_bytes: int
    entries: int
    data_blocks: int
    stated_entries: int | None
    lost: list[LostRange]


class BuiltDatabase(NamedTuple):
    """A new database: tables and entries, the bytes of all its files, the level of the tables.

    ``leftovers`` are temporary directories beside it, of builds that were killed, unless one is at work there.
    """

    tables: int
    entries: int
    bytes: int
    level: int
    last_sequence: int
    leftovers: list[PathLike[str]]


class Compacted(NamedTuple):
    """What ``compact_database`` did. With ``has_writer``, a program had the database open: what it writes is not in the new one."""

    bytes_before: int
    has_writer: bool
    built: BuiltDatabase


class RepairFinding(NamedTuple):
    """What ``repair_database`` has to say of a part of a database.

    ``grade`` is lost (data did not come back), unproven (keys may be missing, older than they were, or back although they were deleted),
    left-out (what counted no longer) or note. What is lost or unproven are keys from ``first_key`` to ``last_key``, both included; the
    range is open where one is ``None``. ``offset`` and ``length`` are bytes of ``file``; ``keys`` is the number of keys, if known.
    """

    grade: str
    file: str | None
    offset: int | None
    length: int | None
    reason: str
    first_key: bytes | None
    last_key: bytes | None
    keys: int | None


class RepairedFile(NamedTuple):
    """A file of a damaged database: how many versions were read from it (of a MANIFEST, records), and what became of it."""

    name: str
    kind: str
    file_bytes: int | None
    versions: int
    state: str


class RepairReport(NamedTuple):
    """What ``repair_database`` found and wrote. ``is_complete`` if nothing is lost or unproven."""

    is_complete: bool
    findings: list[RepairFinding]
    files: list[RepairedFile]
    built: BuiltDatabase
    comparator: str


class Version(NamedTuple):
    """A version of a key that a file of a database still holds; ``value`` is ``None`` for a deletion.

    ``state`` is live, overwritten, deleted (``by`` a later sequence number), or file not listed. ``offset`` is that of the
    log's record, or of the table's block.
    """

    sequence: int
    value: bytes | None
    state: str
    by: int | None
    file: str
    offset: int


class DatabaseFile(NamedTuple):
    """A file of a database's directory. Levels and keys are those of tables.

    ``kind`` is current, manifest, log, table or other; ``state`` is live, missing, obsolete, orphan or
    aside.
    """

    name: str
    kind: str
    file_bytes: int | None
    state: str
    level: int | None
    first_key: bytes | None
    last_key: bytes | None


class Gap(NamedTuple):
    """Bytes of a log or a MANIFEST that are no record, such as an end that its writer did not finish."""

    file: str
    offset: int
    length: int
    expected: str
    found: str


class Recovery(NamedTuple):
    """What opening a database read of its logs, and what it passed over. ``unreadable_tables`` are names with the reasons."""

    without_manifest: bool
    changes: int
    gaps: list[Gap]
    missing_log: int | None
    unreadable_tables: list[tuple[str, str]]
