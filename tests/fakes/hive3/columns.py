"""The columns that a metastore accepts: it only examines the first word of a type."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..thrift_wire import Struct
from .errors import META, Thrown

_TYPES = frozenset(
    "void boolean tinyint smallint int bigint float double string varchar char date datetime timestamp decimal "
    "binary interval_year_month interval_day_time array map struct uniontype".split()
)
_FIRST_WORD = re.compile(r"\w*", re.ASCII)


def bad_column(columns: Sequence[Struct]) -> str | None:
    """Returns the error for the first column with an invalid type; raises for two columns with one name."""
    for column in columns:
        type = column.get(2) or ""
        first = _FIRST_WORD.match(type)
        if first is None or first[0] not in _TYPES:
            return f"Invalid column type: {type}"
    names = [column[1].lower() for column in columns]
    if len(set(names)) < len(names):
        statement = 'INSERT INTO COLUMNS_V2 (CD_ID,COMMENT,"COLUMN_NAME",TYPE_NAME,INTEGER_IDX) VALUES (?,?,?,?,?) '
        raise Thrown(META, f"Add request failed : {statement}")
    return None
