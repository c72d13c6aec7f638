"""The best rows of the searches of many tables, and the fusion of two such rankings."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isnan
from operator import itemgetter
from threading import Lock
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

TABLE = "_table"
"""The column with the id of the table."""
ROW_ID = "_rowid"
RELEVANCE = "_relevance_score"
"""The column with the fused score of a hybrid search."""
_LAST = (ROW_ID, "_distance", "_score", RELEVANCE, TABLE)  # The columns that a search adds, in the order of the result.

_RRF = 60  # The constant of reciprocal rank fusion, as in the paper by Cormack, Clarke and Buettcher (2009).
_SLACK = 8  # Rows in memory for each row of the result, before those that are not among the best are forgotten.


@dataclass(order=True, slots=True)
class _Entry:
    key: float
    table: str
    """The id of the table as text."""
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
        self._schemas: dict[pa.Schema, str] = {}
        """While there are no rows: the schemas of the results, and the first table that has each."""
        self._lock = Lock()

    def add(self, table: str, rows: pa.Table) -> None:
        """Adds the result of one table, in its order.

        Args:
            table: The id of the table as text.
            rows: The rows.
        """
        if TABLE in rows.column_names:
            raise InvalidInputError(f"columns: the table has a column {TABLE!r} itself; pass the names of others")
        values = rows[self._by].to_pylist()
        is_held = False
        with self._lock:
            for position, value in enumerate(values):
                if value is None or isnan(value):
                    continue
                entry = _Entry(self._sign * value, table, position, rows, position)
                if len(self._entries) == self._k:
                    if not entry < self._entries[-1]:
                        continue
                    self._entries.pop()
                insort(self._entries, entry)
                is_held = True
            if self._entries:
                self._schemas.clear()
            else:
                self._schemas[rows.schema] = min(table, self._schemas.get(rows.schema, table))
            self._held += rows.num_rows if is_held else 0
            if self._held > _SLACK * self._k:
                self._compact()

    def parts(self) -> Iterator[tuple[str, pa.Table]]:
        """Yields the rows of each table that has any; added to another ranking, they have the same places there.

        Without rows, it yields an empty result for each of their schemas.
        """
        self._compact()
        for group in self._groups():
            yield group[0].table, group[0].rows
        for schema, table in sorted(self._schemas.items(), key=itemgetter(1)):
            yield table, schema.empty_table()

    def rows(self) -> pa.Table:
        """Returns the rows, the best first, with the table's id in the last column.

        Without rows, it has the columns of all results, or those of the first table if they have no common type.
        """
        if not self._entries:
            return self._no_rows()
        pieces = [
            rows.append_column(TABLE, pa.array([table] * rows.num_rows, pa.string())) for table, rows in self.parts()
        ]
        places = {id(entry): place for place, entry in enumerate(chain.from_iterable(self._groups()))}
        return _take(concatenated(pieces), [places[id(entry)] for entry in self._entries])

    def _no_rows(self) -> pa.Table:
        names = pa.schema([pa.field(self._by, pa.float32()), pa.field(TABLE, pa.string())]).empty_table()
        results = [rows for _, rows in self.parts()]
        try:
            return concatenated([names, *results])
        except InvalidInputError:
            return concatenated([names, results[0]])

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
    """Returns rows of different tables as one table: a column that a table lacks is null, and types are widened."""
    try:
        rows = pa.concat_tables(pieces, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
        raise InvalidInputError(
            f"columns: the rows of these tables have no common type ({e}); request other columns, or fewer tables"
        ) from e
    # The id of the table and the value of the search come after the columns of all tables.
    names = [name for name in rows.column_names if name not in _LAST]
    return rows.select([*names, *(name for name in _LAST if name in rows.column_names)])


def fuse(by_vector: pa.Table, by_text: pa.Table, k: int) -> pa.Table:
    """Returns the best rows of two rankings by reciprocal rank fusion, with the value of each ranking.

    Both need row ids. A row that only one of them has found has no value of the other.
    """
    keys, text_keys = _keys(by_vector), _keys(by_text)
    scores: dict[tuple[str, int], float] = defaultdict(float)
    for ids in (keys, text_keys):
        for rank, key in enumerate(ids, 1):
            scores[key] += 1 / (_RRF + rank)
    text_scores: Mapping[Any, float] = dict(zip(text_keys, by_text["_score"].to_pylist(), strict=True))
    found_by_vector = set(keys)
    only_by_text = [place for place, key in enumerate(text_keys) if key not in found_by_vector]
    keys += (text_keys[place] for place in only_by_text)
    rows = concatenated([by_vector, _take(by_text, only_by_text)])
    columns = {name: rows[name] for name in rows.column_names}
    columns["_score"] = pa.array([text_scores.get(key) for key in keys], pa.float32())
    columns[RELEVANCE] = pa.array([scores[key] for key in keys], pa.float32())
    best = sorted(range(len(keys)), key=lambda place: (-scores[keys[place]], keys[place]))[:k]
    return _take(concatenated([pa.table(columns)]), best)


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    """Returns the table and the row id of each row."""
    if not rows.num_rows:
        return []
    return list(zip(rows[TABLE].to_pylist(), rows[ROW_ID].to_pylist(), strict=True))
