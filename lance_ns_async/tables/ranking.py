"""The best rows of the searches of many tables, and the fusion of two such rankings."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from threading import Lock
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

TABLE = "_table"
"""The column with the id of the table."""
ROW_ID = "_rowid"
RELEVANCE = "_relevance_score"
"""The column with the fused score of a hybrid search."""
_LAST = (ROW_ID, "_distance", "_score", RELEVANCE, TABLE)
"""The columns that a search adds, in the order of the result."""

_RRF = 60
"""The constant of reciprocal rank fusion, as in the paper by Cormack, Clarke and Buettcher (2009)."""
_SLACK = 8
"""Rows in memory for each row of the result, before those that are not among the best are forgotten."""


@dataclass(order=True, slots=True)
class _Entry:
    key: float
    table: TableId
    position: int
    """The position in the table's own result."""
    rows: pa.Table = field(compare=False)
    place: int = field(compare=False)
    """The position in `rows`."""


class Ranking:
    """The best `k` rows of many results, in memory for a few times `k` rows. Threads may add results concurrently.

    Rows with equal values are ordered by their table and by their position in its result, so the result does not
    depend on the order of `add`.
    """

    def __init__(self, by: str, k: int, *, descending: bool = False) -> None:
        """Creates an empty ranking.

        Args:
            by: The column with the value to rank by. Rows without a value, or with NaN, are left out.
            k: The number of rows.
            descending: Whether large values are the best.
        """
        self._by = by
        self._k = k
        self._sign = -1.0 if descending else 1.0
        self._entries: list[_Entry] = []
        self._held = 0
        """The number of rows in memory, those included that other rows have displaced."""
        self._lock = Lock()

    def add(self, id: TableId, rows: pa.Table) -> None:
        """Adds the result of one table.

        Raises:
            InvalidInputError: The table has a column with the name of that for the table's id.
        """
        if TABLE in rows.column_names:
            raise InvalidInputError(f"columns: the table has a column {TABLE!r} itself; pass the names of others")
        values = rows[self._by].to_pylist()
        with self._lock:
            for position, value in enumerate(values):
                if value is None or isnan(value):
                    continue
                entry = _Entry(self._sign * value, id, position, rows, position)
                if len(self._entries) == self._k:
                    if not entry < self._entries[-1]:
                        continue
                    self._entries.pop()
                insort(self._entries, entry)
            self._held += rows.num_rows
            if self._held > _SLACK * self._k:
                self._compact()

    def ids(self) -> Sequence[tuple[TableId, int]]:
        """Returns the table and the row id of each row; requires results with row ids."""
        return [(it.table, it.rows[ROW_ID][it.place].as_py()) for it in self._entries]

    def rows(self) -> pa.Table:
        """Returns the rows, the best first, with the table's id in the last column.

        Raises:
            InvalidInputError: The tables have columns of one name and of types without a common one.
        """
        self._compact()
        groups = self._groups()
        if not groups:
            return pa.table({self._by: pa.array([], pa.float32()), TABLE: pa.array([], pa.string())})
        pieces = [
            group[0].rows.append_column(TABLE, pa.array([str(group[0].table)] * len(group), pa.string()))
            for group in groups
        ]
        numbers = {id(entry): number for number, entry in enumerate(entry for group in groups for entry in group)}
        return _take(concatenated(pieces), [numbers[id(entry)] for entry in self._entries])

    def _groups(self) -> Sequence[Sequence[_Entry]]:
        """Returns the entries of each result that has any."""
        groups: dict[int, list[_Entry]] = defaultdict(list)
        for entry in self._entries:
            groups[id(entry.rows)].append(entry)
        return list(groups.values())

    def _compact(self) -> None:
        """Forgets the rows of results that are not among the best."""
        for group in self._groups():
            rows = _take(group[0].rows, [entry.place for entry in group])
            for place, entry in enumerate(group):
                entry.rows, entry.place = rows, place
        self._held = len(self._entries)


def _take(rows: pa.Table, places: Sequence[int]) -> pa.Table:
    # Without the type, an empty list would be of nulls, which are no places.
    return rows.take(pa.array(places, pa.int64()))


def concatenated(pieces: Sequence[pa.Table]) -> pa.Table:
    """Returns rows of different tables as one table: a column that a table lacks is null, and types are widened.

    Raises:
        InvalidInputError: Two tables have a column of one name and of types without a common one.
    """
    try:
        rows = pa.concat_tables(pieces, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
        raise InvalidInputError(
            f"columns: the rows of these tables have no common type ({e}); request other columns, or fewer tables"
        ) from e
    # The id of the table and the value of the search come after the columns of all tables.
    names = [name for name in rows.column_names if name not in _LAST]
    return rows.select([*names, *(name for name in _LAST if name in rows.column_names)])


def fuse(by_vector: Ranking, by_text: Ranking, k: int) -> pa.Table:
    """Returns the best rows of two rankings by reciprocal rank fusion, with the value of each ranking.

    Both need row ids. A row that only one of them has found has no value of the other.
    """
    rankings = (by_vector.ids(), by_text.ids())
    scores: dict[tuple[TableId, int], float] = defaultdict(float)
    for ids in rankings:
        for rank, key in enumerate(ids, 1):
            scores[key] += 1 / (_RRF + rank)
    found_by_vector, found_by_text = by_vector.rows(), by_text.rows()
    text_scores: Mapping[Any, float] = dict(zip(rankings[1], found_by_text["_score"].to_pylist(), strict=True))
    only_by_text = [place for place, key in enumerate(rankings[1]) if key not in set(rankings[0])]
    keys = [*rankings[0], *(rankings[1][place] for place in only_by_text)]
    rows = concatenated([found_by_vector, _take(found_by_text, only_by_text)])
    columns = {name: rows[name] for name in rows.column_names}
    columns["_score"] = pa.array([text_scores.get(key) for key in keys], pa.float32())
    columns[RELEVANCE] = pa.array([scores[key] for key in keys], pa.float32())
    best = sorted(range(len(keys)), key=lambda place: (-scores[keys[place]], keys[place]))[:k]
    return _take(concatenated([pa.table(columns)]), best)
