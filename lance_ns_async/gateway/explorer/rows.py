"""The rows of a table that a page shows, the page of one row, and the page of a column's values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace import QueryTableRequest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from lance_namespace_urllib3_client.models.query_table_request_columns import QueryTableRequestColumns
from lance_namespace_urllib3_client.models.query_table_request_vector import QueryTableRequestVector
from markupsafe import Markup

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.explorer.cells import ON_ITS_PAGE, Cells, cell, cells, is_blob, media, size_of_blob
from lance_ns_async.gateway.explorer.layout import Page, link
from lance_ns_async.gateway.explorer.reading import CatalogReader
from lance_ns_async.gateway.responses import RequestError
from lance_ns_async.model import TableId
from lance_ns_async.operations import searching
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.scanning import BATCH_BYTES, BUFFER_BYTES

if TYPE_CHECKING:
    from lance import LanceDataset

PAGE_ROWS = 20
MAX_FIND = 50_000  # Maximum number of characters of the words or the vector to search by.
_FIRST_COLUMNS = 20  # Number of columns that are shown without a choice.
_COUNT_SECONDS = 3.0  # Maximum seconds of the count of the rows that a filter selects.
_MAX_SKIPPED = 1_000  # Maximum number of rows to skip in an order, which Lance keeps in memory.

_PROFILE_ROWS = 100_000
_PROFILE_BYTES = 64 << 20
_BINS = 20
_TOP = 10  # Number of frequent values.


def number(fields: Mapping[str, str], name: str) -> int | None:
    """Returns a field of an address that is a number; None if it is absent or empty."""
    text = fields.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise InvalidInputError(f"{name} {shortened(text, 80)}: must be a number of at least 0")
    return int(text) if text else None


@dataclass(frozen=True, slots=True)
class View:
    """Which rows of which state of a table a page shows."""

    id: TableId
    version: int | None = None
    branch: str | None = None
    find: str = ""  # Words, or a vector as a JSON list.
    like: int | None = None  # The id of a row whose vector to search by.
    vector: str = ""  # The column to search by the vector; empty for the only one.
    filter: str = ""
    sort: str = ""
    down: bool = False
    columns: tuple[str, ...] = ()  # Empty for the first ones.
    skip: int = 0

    @classmethod
    def parse(cls, id: TableId, pairs: Sequence[tuple[str, str]]) -> View:
        """Returns the view that the fields of an address describe."""
        fields = dict(pairs)
        find = fields.get("find", "").strip()
        return cls(
            id,
            version=number(fields, "version"),
            branch=fields.get("branch") or None,
            find=find,
            like=None if find else number(fields, "like"),
            vector=fields.get("vector", ""),
            filter=fields.get("filter", "").strip(),
            sort=fields.get("sort", ""),
            down="down" in fields,
            columns=tuple(value for key, value in pairs if key == "columns"),
            # People count from 1.
            skip=max(at - 1, 0) if (at := number(fields, "at")) is not None else number(fields, "skip") or 0,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The state of the dataset."""
        return Snapshot(self.version, branch=self.branch)

    @property
    def snapshot_of_branch(self) -> Snapshot:
        """The newest state of the branch."""
        return Snapshot(branch=self.branch)

    @property
    def state(self) -> Mapping[str, Any]:
        """The fields of an address that select the state of the table."""
        return {"version": self.version, "branch": self.branch}

    @property
    def is_search(self) -> bool:
        """Whether the rows are the nearest ones to words or a vector."""
        return bool(self.find) or self.like is not None

    @property
    def is_text_search(self) -> bool:
        """Whether the rows are the nearest ones to words."""
        return bool(self.find) and not self.find.startswith("[")

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of an address that describe the view, without the id."""
        fields = {**self.state, "find": self.find, "like": self.like, "vector": self.vector, "filter": self.filter}
        return {**fields, "sort": self.sort, "down": self.down, "columns": self.columns, "skip": self.skip or None}

    def link(self, **changes: Any) -> str:
        """Returns the address of the same view with other values."""
        return link("table", self.id, **replace(self, **changes).fields) + "#rows"


@dataclass(frozen=True, slots=True)
class Rows:
    """A page of rows."""

    cells: Cells
    ids: Sequence[int]  # The row ids of Lance.
    names: Sequence[str]  # The names of the shown columns.
    all_names: Sequence[str]
    sortable: frozenset[str]
    total: int  # Number of rows of the table in this state.
    version: int
    has_next: bool


async def read_rows(reader: CatalogReader, view: View) -> Rows:
    """Returns the rows of a view. Cost: one open, a scan."""
    if view.sort and view.skip > _MAX_SKIPPED:
        raise InvalidInputError(f"skip {view.skip}: sorted rows are shown up to {_MAX_SKIPPED:,}; use a filter or SQL")
    request = QueryTableRequest(
        k=PAGE_ROWS + 1,
        offset=view.skip or None,
        filter=view.filter or None,
        prefilter=True,
        with_row_id=True,
        **({"vector": {}} if view.like is not None else _query(view.find)),
        vector_column=(view.vector or None) if view.is_search and not view.is_text_search else None,
    )

    def read(dataset: LanceDataset) -> Rows:
        schema: pa.Schema = dataset.schema
        names = [it for it in view.columns if it in schema.names] or schema.names[:_FIRST_COLUMNS]
        if view.sort and view.sort not in names:
            names.append(view.sort)
        query = request.model_copy(update={"columns": QueryTableRequestColumns(column_names=names)})
        if view.like is not None:
            query.vector = _vector_of(dataset, view)
        searching.check(query)
        rows = searching.find_rows(dataset, query, None if view.is_search else _order(view))
        ids = rows["_rowid"].to_pylist()[:PAGE_ROWS]
        page = rows.drop_columns("_rowid").slice(0, PAGE_ROWS)
        return Rows(
            cells(page),
            ids,
            page.column_names,
            schema.names,
            frozenset() if view.is_search else frozenset(it.name for it in schema if _has_order(it.type)),
            dataset.count_rows(),
            dataset.version,
            rows.num_rows > PAGE_ROWS,
        )

    return await reader.read_dataset(view.id, read, view.snapshot, view.filter or None)


async def count_matches(reader: CatalogReader, view: View) -> int | None:
    """Returns the number of rows that the filter selects; None without one, or in a search. Cost: one open, a scan."""
    if not view.filter or view.is_search:
        return None
    async with asyncio.timeout(_COUNT_SECONDS):
        work = partial(searching.count, predicate=view.filter)
        return await reader.read_dataset(view.id, work, view.snapshot, view.filter)


def _query(find: str) -> Mapping[str, Any]:
    """Returns the fields of a search: by a vector if the text is a list of numbers, else by words."""
    if not find:
        return {"vector": {}}
    if not find.startswith("["):
        return {"vector": {}, "full_text_query": {"string_query": {"query": find}}}
    try:
        return {"vector": {"single_vector": [float(it) for it in json.loads(find)]}}
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(f"{shortened(find, 80)}: no list of numbers; an example is [0.5, 1.25]") from None


def _vector_of(dataset: LanceDataset, view: View) -> Any:
    """Returns the vector of a row, for a search for rows like it."""
    value = _take(dataset, view, view.like or 0, [view.vector])[view.vector][0].as_py()
    if not isinstance(value, list) or not all(isinstance(it, int | float) for it in value):
        raise InvalidInputError(f"row {view.like}: has no vector in column {view.vector!r}")
    return QueryTableRequestVector(single_vector=value)


def _take(dataset: LanceDataset, view: View, row: int, columns: Sequence[str] | None) -> pa.Table:
    known: list[str] = dataset.schema.names
    if unknown := [it for it in columns or () if it not in known]:
        raise _no_column(unknown[0], view)
    rows = dataset.scanner(
        columns=None if columns is None else [*columns], filter=f"_rowid = {row}", limit=1
    ).to_table()
    if not rows.num_rows:
        raise RequestError(404, f"row {row}: not in version {dataset.version} of table {view.id}")
    return rows


def _no_column(column: str, view: View) -> TableColumnNotFoundError:
    return TableColumnNotFoundError(f"Table column not found: {view.id} (there is no column {column!r})")


def _order(view: View) -> Any:
    from lance.dataset import ColumnOrdering

    return [ColumnOrdering(view.sort, ascending=not view.down)] if view.sort else None


def _has_order(type: pa.DataType) -> bool:
    return not (pa.types.is_nested(type) or isinstance(type, pa.BaseExtensionType) or pa.types.is_null(type))


async def row_page(reader: CatalogReader, view: View, row: int, at: int | None) -> Page:
    """Returns the page of one row, with its values in full up to a limit; `at` is its number on the page before."""

    def read(dataset: LanceDataset) -> Sequence[tuple[str, Markup, bool]]:
        rows = _take(dataset, view, row, None)
        return [
            (it.name, _value(dataset, rows[it.name][0], it.name, row), bool(searching.dimension(it.type)))
            for it in rows.schema
        ]

    values = {"view": view, "row": row, "values": await reader.read_dataset(view.id, read, view.snapshot)}
    values["title"] = f"Row with id {row}" if at is None else f"Row {at}"
    return Page(f"{values['title']} of {view.id.name}", "row.html", values, below=view.id.parent)


def _value(dataset: LanceDataset, value: pa.Scalar, column: str, row: int) -> Markup:
    if not is_blob(value):
        return cell(value, ON_ITS_PAGE)
    if (size := value["size"].as_py() or 0) > ON_ITS_PAGE.media:
        return size_of_blob(size)
    (file,) = dataset.take_blobs(column, ids=[row])
    if file is None:
        return size_of_blob(size)
    with file:
        return media(pa.py_buffer(file.readall()), ON_ITS_PAGE)


@dataclass(frozen=True, slots=True)
class Profile:
    """The values of a column."""

    type: str
    rows: int  # Number of rows that were read.
    is_whole: bool  # Whether these are all rows.
    nulls: int
    special: Sequence[tuple[str, int]] = ()  # Numbers of values that are NaN or infinite, if there are any.
    distinct: int | None = None
    least: Markup | None = None
    most: Markup | None = None
    mean: str | None = None
    parts: Sequence[tuple[str, int]] = ()  # The histogram, or the most frequent values.


async def column_page(reader: CatalogReader, view: View, column: str) -> Page:
    """Returns the page of a column's values. Cost: a scan of at most 100,000 rows and about 64 MiB."""

    def read(dataset: LanceDataset) -> Profile:
        if column not in dataset.schema.names:
            raise _no_column(column, view)
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        scanner = dataset.scanner(
            columns=[column],
            limit=_PROFILE_ROWS,
            # Independent of the width of the values.
            batch_size_bytes=BATCH_BYTES,
            io_buffer_size=BUFFER_BYTES,
            batch_readahead=2,
            fragment_readahead=2,
        )
        for batch in scanner.to_batches():
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if size > _PROFILE_BYTES:
                break
        schema = pa.schema([dataset.schema.field(column)]) if not batches else None
        values = pa.Table.from_batches(batches, schema)[column]
        return profile(values, is_whole=rows == dataset.count_rows())

    values = {"view": view, "column": column, "profile": await reader.read_dataset(view.id, read, view.snapshot)}
    return Page(f"{column} of {view.id.name}", "column.html", values, below=view.id.parent)


def profile(values: pa.ChunkedArray, *, is_whole: bool = True) -> Profile:
    """Returns the number of nulls, and for plain types the least and greatest values and their frequencies."""
    type = values.type
    base = Profile(str(type), len(values), is_whole, values.null_count)
    if not _has_order(type) or pa.types.is_dictionary(type) or pa.types.is_duration(type):
        return base
    present = values.drop_null()
    is_number = pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    if pa.types.is_floating(type):
        # Arrow has no functions for half floats.
        present = present.cast(pa.float32()) if pa.types.is_float16(type) else present
        checks = (("NaN", pc.is_nan), ("Infinite", pc.is_inf))
        special = [(title, count) for title, check in checks if (count := pc.sum(check(present)).as_py())]
        base = replace(base, special=special)
        present = present.filter(pc.is_finite(present))
    if not len(present):
        return base
    distinct = None if pa.types.is_decimal(type) else pc.count_distinct(present).as_py()
    low, high = (cell(it) for it in pc.min_max(present).values())
    mean = f"{pc.mean(present.cast(pa.float64(), safe=False)).as_py():,.6g}" if is_number else None
    parts = (
        _histogram(present)
        if (is_number or pa.types.is_temporal(type)) and (distinct or _BINS) > _TOP
        else _top(present)
    )
    return replace(base, distinct=distinct, least=low, most=high, mean=mean, parts=parts)


def _top(values: pa.ChunkedArray) -> Sequence[tuple[str, int]]:
    counts = pc.value_counts(values)
    order = pc.sort_indices(counts.field(1), sort_keys=[("", "descending")])[:_TOP]
    return [(cell(it["values"]), it["counts"].as_py()) for it in counts.take(order)]


def _histogram(values: pa.ChunkedArray) -> Sequence[tuple[str, int]]:
    """Returns the number of values in ranges of the same width, or the most frequent ones of close, large values."""
    import numpy as np

    type = values.type
    is_time = pa.types.is_temporal(type)
    width = pa.int32() if is_time and type.bit_width == 32 else pa.int64()
    plain = (values.cast(width) if is_time else values).cast(pa.float64(), safe=False).to_numpy()
    try:
        counts, edges = np.histogram(plain, _BINS)
    except ValueError:  # Large values that differ by less than float64 can tell.
        return _top(values)

    def text(edge: float) -> str:
        return str(cell(pa.scalar(int(edge), width).cast(type)).striptags()) if is_time else f"{edge:,.6g}"

    return [(f"{text(edges[i])} to {text(edges[i + 1])}", int(count)) for i, count in enumerate(counts)]
