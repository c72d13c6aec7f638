"""Search for tables by their content: facts about an open table, conditions on them, and the search itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import suggest
from lance_ns_async.fleet.reading import read_and_examine
from lance_ns_async.fleet.run import Report, failure_row, for_async, start
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.model import Table, TableId
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.tabular import Row

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_DURATION = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?i?)b?", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_COMMON_TYPES = (  # Types for suggestions, by the names that `str` gives them.
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"),
    *("string", "large_string", "binary", "large_binary", "date32", "date64"),
    *("timestamp[us]", "decimal128(12, 2)", "list<item: string>", "vector[768]"),
)

_VECTOR = re.compile(r"(?:fixed_size_list|vector)(?:<(?:item: )?(\w+)>)?\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table."""

    name: str
    columns: Sequence[str]
    kind: str
    """Lance's name of its type, such as "BTree"."""
    stale_rows: int
    """Number of rows that are not indexed yet."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about an open table, to which conditions apply."""

    id: TableId
    location: str
    schema: pa.Schema
    rows: int
    size: int
    """Bytes of the data files of the newest version."""
    version: int
    versions: int
    """Number of stored versions."""
    last_write: datetime
    """Time of the newest version, in UTC."""
    indexes: Sequence[Index]
    properties: Mapping[str, str]


def read_facts(id: TableId, location: str, properties: Mapping[str, str], dataset: LanceDataset) -> Facts:
    """Returns the facts about an open table. Blocks."""
    versions = dataset.versions()
    newest = versions[-1]
    rows = dataset.count_rows()
    indexes = [
        Index(index.name, tuple(index.field_names), index.index_type, max(0, rows - index.num_rows_indexed))
        for index in dataset.describe_indices()
    ]
    size = int(newest["metadata"].get("total_files_size", 0))
    # Lance returns the local time without a time zone.
    timestamp = newest["timestamp"]
    assert isinstance(timestamp, datetime)
    last_write = timestamp.astimezone(UTC)
    return Facts(
        id, location, dataset.schema, rows, size, dataset.version, len(versions), last_write, indexes, properties
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions on a table, all of which must hold.

    Raises:
        InvalidInputError: A duration, a size or a column is invalid.
    """

    columns: Sequence[str] = ()
    """Columns that exist: `name`, `name:type` or `:type`. A type is that of Arrow, such as `int64`, or a vector type
    such as `vector[768]`, `fixed_size_list[768]` or `vector<float>[768]`."""
    min_rows: int | None = None
    max_rows: int | None = None
    min_size: int | str | None = None
    """Minimum size in bytes, or a text such as `10GB` or `1GiB`."""
    max_size: int | str | None = None
    """Maximum size, as `min_size`."""
    min_versions: int | None = None
    older_than: timedelta | str | None = None
    """Minimum age of the last write, or a text such as `30d`, `12h` or `2w`."""
    newer_than: timedelta | str | None = None
    """Maximum age of the last write, as `older_than`."""
    index: Sequence[str] = ()
    """Columns that have an index."""
    no_index: Sequence[str] = ()
    """Columns that exist and have no index."""
    stale_index: Sequence[str] = ()
    """Columns with an index that lacks rows; `*` is any column."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties in the catalog, with these values."""

    def __post_init__(self) -> None:
        for name in ("columns", "index", "no_index", "stale_index"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, (value,))
        for name, parse in (
            ("older_than", parse_age),
            ("newer_than", parse_age),
            ("min_size", parse_size),
            ("max_size", parse_size),
        ):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, parse(name, value))
        for column in self.columns:
            if column in ("", ":"):
                raise InvalidInputError(f"columns {column!r}: use name, name:type or :type")
            _check_type(column)

    def match(self, facts: Facts, now: datetime) -> bool:
        """Returns whether the conditions hold for a table at a time.

        Args:
            facts: The facts about the table.
            now: The time from which its age is measured.
        """
        indexed_columns = {column for index in facts.indexes for column in index.columns}
        stale = {column for index in facts.indexes if index.stale_rows for column in index.columns}
        age = now - facts.last_write
        names = set(facts.schema.names)
        return (
            all(_has_column(facts.schema, column) for column in self.columns)
            and _within(facts.rows, self.min_rows, self.max_rows)
            and _within(facts.size, self.min_size, self.max_size)
            and _within(facts.versions, self.min_versions, None)
            and _within(age, self.older_than, self.newer_than)
            and indexed_columns.issuperset(self.index)
            and names.issuperset(self.no_index)
            and indexed_columns.isdisjoint(self.no_index)
            and all(bool(stale) if column == "*" else column in stale for column in self.stale_index)
            and all(facts.properties.get(key) == value for key, value in self.properties.items())
        )


_CONDITION_NAMES = tuple(it.name for it in fields(Conditions))


def _within(value: Any, minimum: Any, maximum: Any) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def _has_column(schema: pa.Schema, column: str) -> bool:
    # The name may contain a colon, but a type in it has one only in angle brackets.
    name, colon, type_ = column.partition(":")
    fields = [field for field in schema if not name or field.name == name]
    return any(not colon or _is_type(field.type, type_.strip()) for field in fields)


def _check_type(column: str) -> None:
    """Raises InvalidInputError if the type of a column is one word that is no type of Arrow; others may be nested."""
    import pyarrow as pa

    type_ = column.partition(":")[2].strip()
    if not _WORD.fullmatch(type_):
        return
    try:
        pa.type_for_alias(type_)
    except ValueError as e:
        hint = suggest(type_, _COMMON_TYPES, likeness=0.55, quoted=True)
        raise InvalidInputError(f"columns {column!r}: Arrow has no type {type_!r}; {hint}") from e


def _is_type(actual: pa.DataType, text: str) -> bool:
    import pyarrow as pa

    if (vector := _VECTOR.fullmatch(text)) is not None:
        if not pa.types.is_fixed_size_list(actual) or actual.list_size != int(vector[2]):
            return False
        return vector[1] is None or _is_type(actual.value_type, vector[1])
    try:
        return bool(actual == pa.type_for_alias(text))
    except ValueError:
        return str(actual) == text


def parse_age(name: str, text: str) -> timedelta:
    """Returns a duration such as `30d`; `name` is the argument for the error. Raises InvalidInputError."""
    if (match := _DURATION.fullmatch(text.strip())) is None:
        raise InvalidInputError(f"{name} {text!r}: use a number and one of s, m, h, d, w, such as 30d")
    try:
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    except OverflowError as e:
        raise InvalidInputError(f"{name} {text!r}: too large") from e


def parse_size(name: str, text: str) -> int:
    """Returns the bytes of a size such as `10GB`; `name` is the argument for the error. Raises InvalidInputError."""
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise InvalidInputError(f"{name} {text!r}: use a number and a unit, such as 10GB or 1GiB")
    unit = match[2].lower()
    exponent = " kmgt".index(unit[0]) if unit and unit[0] != "i" else 0
    base: int = 1024 if unit.endswith("i") else 1000
    return int(match[1]) * int(base**exponent)


MATCH = "match"

SORT_KEYS = ("id", "rows", "size", "versions", "version", "last_write")


@for_async
async def find(
    namespace: AsyncNamespace,
    /,
    what: What,
    where: Conditions | Callable[[Facts], bool] | None = None,
    *,
    sort: str = "id",
    limit: int | None = None,
    progress: bool | ProgressCallback = False,
    **conditions: Any,
) -> Report:
    """Finds tables by their content, such as `find(ns, "prod.**", min_rows=1000, no_index="vec")`.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        where: Conditions, or a function that returns whether a table is included; it runs in the event loop.
        sort: One of `SORT_KEYS`, with `-` in front for the largest first.
        limit: Maximum number of tables, after sorting; None returns all.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed tables and the total.
        conditions: Fields of `Conditions`, as keywords; they must hold as well as `where`.

    Returns:
        A row "match" for each table, sorted, with its facts as fields; after these a row for each table that could not
            be opened. Tables to which nothing was written do not match.

    Raises:
        InvalidInputError: `sort`, `limit`, a condition or an id is invalid; nothing was called.

    Cost:
        The listings, a bulk describe, one call for each namespace, and one open for each table.
    """
    key = sort.removeprefix("-")
    if key not in SORT_KEYS:
        raise InvalidInputError(f"sort {sort!r}: use one of {', '.join(SORT_KEYS)}, with - in front for descending")
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit {limit}: must be at least 1, or None for all")
    for name in conditions.keys() - _CONDITION_NAMES:
        hint = suggest(name, (*_CONDITION_NAMES, "where", "sort", "limit", "progress"), most=len(_CONDITION_NAMES))
        raise InvalidInputError(f"find: there is no argument {name!r}; {hint}")
    by_keywords = Conditions(**conditions)
    session, selection = namespace.session, Selection.read(what)
    now = datetime.now(UTC)

    def is_match(facts: Facts) -> bool:
        if not by_keywords.match(facts, now):
            return False
        return where is None or (where.match(facts, now) if isinstance(where, Conditions) else where(facts))

    with start("find", namespace, progress=progress) as run:
        matches: list[Facts] = []
        failures: list[Row] = []

        async def examine(table: Table) -> None:
            try:
                facts = await _facts(session, table)
            except TableNotFoundError:
                # Nothing was written to the table, or it was dropped after the listing.
                run.counters["without data"] += 1
            except LanceNamespaceError as e:
                failures.append(failure_row(table.id, e, table.location))
            else:
                if is_match(facts):
                    matches.append(facts)

        reading = await read_and_examine(session, selection, examine, run)
        matches = sorted((facts for facts in matches if facts.id in reading.tables), key=lambda facts: facts.id)
        matches.sort(key=lambda facts: getattr(facts, key), reverse=sort.startswith("-"))
        for facts in matches[:limit]:
            run.add(Row(facts.id, MATCH, "", facts.location, fields=_fields(facts)))
        run.rows += (*failures, *reading.failure_rows())
        return run.report(shown_outcomes=frozenset({MATCH}))


async def _facts(session: Session, table: Table) -> Facts:
    table = await session.with_credentials(table)
    return await session.open_and_run(
        table, lambda dataset: read_facts(table.id, table.location, table.properties or {}, dataset)
    )


def _fields(facts: Facts) -> dict[str, Any]:
    return {
        "rows": facts.rows,
        "size": facts.size,
        "version": facts.version,
        "versions": facts.versions,
        "last_write": facts.last_write.isoformat(timespec="seconds"),
        "columns": [f"{field.name}:{field.type}" for field in facts.schema],
        "indexes": [f"{index.name}({','.join(index.columns)}):{index.stale_rows} stale" for index in facts.indexes],
    }
