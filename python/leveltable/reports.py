"""Reports on tables, and results of functions. Sizes are in bytes."""

from os import PathLike
from typing import NamedTuple


class Stats(NamedTuple):
    """Counts of a table's work since it was opened, for all threads."""

    source_reads: int
    source_bytes: int
    cache_hits: int
    cache_misses: int
    filter_rejected: int
    filter_passed: int
    prefix_rejected: int
    prefix_passed: int


class Properties(NamedTuple):
    """A table's properties. ``first_key`` and ``last_key`` are ``None`` in an empty table and if
    longer than 4,096 bytes."""

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
    """A summary of a new table."""

    entries: int
    key_bytes: int
    value_bytes: int
    data_blocks: int
    data_bytes: int
    file_bytes: int
    first_key: bytes | None
    last_key: bytes | None


class Finding(NamedTuple):
    """A finding of ``verify``. ``severity`` is damage, unchecked, warning or note; ``offset`` is a
    place in the file."""

    severity: str
    section: str
    offset: int
    expected: str
    found: str


class VerifyReport(NamedTuple):
    """The result of ``verify``. ``is_sound`` if everything was checked, and nothing is damaged.
    Lists the first 1,000 findings."""

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
    """A part of a file, from offset ``start`` up to ``stop``, whose entries are lost: those between
    the keys ``after`` and ``before``."""

    start: int
    stop: int
    reason: str
    entries: int | None
    after: bytes | None
    before: bytes | None


class SalvageReport(NamedTuple):
    """The result of ``salvage``: what was copied, and what is lost. ``is_complete`` if something
    proves that no entry is lost."""

    is_complete: bool
    file_bytes: int
    entries: int
    data_blocks: int
    stated_entries: int | None
    lost: list[LostRange]


class BuiltDatabase(NamedTuple):
    """A new database: number of tables and entries, the size of all its files, the level of the
    tables.

    ``leftovers`` are temporary directories beside it, from killed builds, or from a build still at
work.
    """

    tables: int
    entries: int
    bytes: int
    level: int
    last_sequence: int
    leftovers: list[PathLike[str]]


class Compacted(NamedTuple):
    """The result of ``compact_database``. With ``has_writer``, a program had the database open: its
    later changes are not in the new one."""

    bytes_before: int
    has_writer: bool
    built: BuiltDatabase


class RepairFinding(NamedTuple):
    """A finding of ``repair_database`` about a part of a database.

    ``grade`` is lost (data that cannot be read any more), unproven (keys may be missing, older than
they were, or back although they were deleted), left-out (data that no longer counted) or note. For
lost and unproven keys, ``first_key`` and ``last_key`` are the ends of the range, both included; the
range is open where one is ``None``. ``offset`` and ``length`` refer to bytes of ``file``; ``keys``
is the number of keys, if known.
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
    """A file of a damaged database: the number of versions that were read from it (for a MANIFEST,
    of records), and its state."""

    name: str
    kind: str
    file_bytes: int | None
    versions: int
    state: str


class RepairReport(NamedTuple):
    """The result of ``repair_database``. ``is_complete`` if nothing is lost or unproven."""

    is_complete: bool
    findings: list[RepairFinding]
    files: list[RepairedFile]
    built: BuiltDatabase
    comparator: str


class Version(NamedTuple):
    """A version of a key that a file of a database still holds; ``value`` is ``None`` for a deletion.

    ``state`` is live, overwritten, deleted (``by`` a later sequence number), or file not listed.
``offset`` is that of the log's record, or of the table's block.
    """

    sequence: int
    value: bytes | None
    state: str
    by: int | None
    file: str
    offset: int


class DatabaseFile(NamedTuple):
    """A file of a database's directory. Only tables have levels and keys.

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
    """Bytes of a log or a MANIFEST that are not a record, such as an unfinished end."""

    file: str
    offset: int
    length: int
    expected: str
    found: str


class Recovery(NamedTuple):
    """What was read of a database's logs when it was opened, and what was skipped.
    ``unreadable_tables`` has names with the reasons."""

    without_manifest: bool
    changes: int
    gaps: list[Gap]
    missing_log: int | None
    unreadable_tables: list[tuple[str, str]]
