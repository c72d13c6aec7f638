"""Memory that SQL texts need for the values that they build, measured on the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.gateway.sql_functions import BUILDING, MULTIPLYING
from lance_ns_async.storage import fields
from lance_ns_async.storage.sql_bounds import Texts, tokens

if TYPE_CHECKING:
    from lance import LanceDataset

_BATCH = 8192
"""Number of rows for which Lance builds values at a time."""


def largest_batch(dataset: LanceDataset, texts: Texts, where: str | None, first: int | None, limit: int) -> int | None:
    """Returns the bytes of the values that a request builds at most for one batch of rows; None if it builds none.

    `concat(s, s, ...)` makes a value many times as long, and an update stores it for the next request. Only the columns
    in such texts are read, in this thread; columns of fixed width do not matter.

    Args:
        dataset: The rows.
        texts: The SQL texts of the request.
        where: The filter of the rows; None for all rows. It is not used if it builds values itself.
        first: The number of rows after the filter for which values are built; None for all.
        limit: Maximum number of bytes.

    Raises:
        InvalidInputError: The values for one batch could have more than `limit` bytes.
    """
    columns = {field.name.lower(): field for field in dataset.schema if not pa.types.is_primitive(field.type)}
    counts: dict[str, int] = {}
    """How often the texts may contain a value of each column."""
    for _, sql in texts:
        if factor := _factor(sql):
            for kind, text in tokens(sql):
                if kind in ("word", "quoted") and (field := columns.get(text.lower())) is not None:
                    counts[field.name] = counts.get(field.name, 0) + factor
    if not counts:
        return None
    if where is not None and _factor(where):
        where = first = None
    largest = 0
    for size in _sizes(dataset, counts, where, first):
        if size > limit:
            raise InvalidInputError(
                f"{', '.join(counts)}: the values that the request builds for {_BATCH} rows could have more than "
                f"{limit} bytes; use fewer columns in concat and similar functions, or select fewer rows"
            )
        largest = max(largest, size)
    return largest


def _sizes(dataset: LanceDataset, counts: dict[str, int], where: str | None, first: int | None) -> Iterator[int]:
    """Yields upper bounds of the bytes built for each batch of rows."""
    scanner = dataset.scanner(
        columns=[fields.join_path([name]) for name in counts],
        filter=where,
        limit=first,
        batch_size=_BATCH,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in scanner.to_batches():
        yield sum(_nbytes(column) * count for column, count in zip(batch.columns, counts.values(), strict=True))


def _nbytes(column: pa.Array) -> int:
    """Returns the bytes of a column whose dictionary, if it has one, is repeated for each row."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    longest = max(
        (value.nbytes for value in (column.dictionary.slice(i, 1) for i in range(len(column.dictionary)))), default=0
    )
    return int(longest * len(column))


def _factor(sql: str) -> int:
    """Returns how many times as long a value of a column may become for each time that a text contains it.

    It is 0 for a text whose values are not longer than those of its columns.
    """
    literals, factor = 0, 0
    multiplies = False
    for kind, text in tokens(sql):
        match kind:
            case "word" | "quoted" if text.lower() in BUILDING | MULTIPLYING:
                factor = 1
                multiplies |= text.lower() in MULTIPLYING
            case "operator" if text == "||":
                factor = 1
            case "open" if text == "[":
                factor = 1
            case "string" | "number":
                literals += len(text.encode("utf-8", "surrogatepass"))
    # A function such as replace may insert its literals for each character.
    return factor * (literals + 1) if multiplies else factor
