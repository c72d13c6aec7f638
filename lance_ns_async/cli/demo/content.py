"""Content of the demo's tables: sentences, their vectors, scores and times; the same in every run."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import shake_128
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

DIMENSION = 32
_BEGIN = datetime(2025, 1, 1)
_EVERY = timedelta(minutes=7)

_WHO = ("The old harbour", "A quiet engineer", "Our northern office", "The night train", "A small orchestra")
_DOES = ("measures", "remembers", "repairs", "follows", "describes", "sells")
_WHAT = ("the coldest river", "nine paper maps", "a broken clock", "the morning papers", "every second letter")
_HOW = ("without hurry", "before breakfast", "for the third time", "in good company", "against all advice")


def sentences(seed: str, count: int) -> list[str]:
    """Returns `count` sentences; equal seeds return equal sentences."""
    random = Random(seed)
    kinds = (_WHO, _DOES, _WHAT, _HOW)
    return [f"{' '.join(map(random.choice, kinds))}, says note {number}." for number in range(count)]


def schema() -> pa.Schema:
    """Returns the columns of every table."""
    import pyarrow as pa

    return pa.schema(
        {
            "id": pa.int64(),
            "text": pa.string(),
            "vector": pa.list_(pa.float32(), DIMENSION),
            "score": pa.float64(),
            "created": pa.timestamp("us"),
        }
    )


def rows(seed: str, count: int) -> pa.Table:
    """Returns a table of `count` rows; equal seeds return equal rows."""
    import pyarrow as pa

    random = Random(f"{seed} scores")
    text = sentences(seed, count)
    return pa.table(
        {
            "id": range(count),
            "text": text,
            "vector": _vectors(text),
            "score": [random.random() for _ in text],
            "created": [_BEGIN + number * _EVERY for number in range(count)],
        },
        schema(),
    )


def _vectors(text: list[str]) -> pa.Array:
    """Returns a vector for each text, with values in [-1, 1]: a hash in place of a language model's embedding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    digests = b"".join(shake_128(sentence.encode()).digest(DIMENSION) for sentence in text)
    octets = pa.Array.from_buffers(pa.uint8(), len(digests), [None, pa.py_buffer(digests)])
    parts = pc.subtract(
        pc.divide(octets.cast(pa.float32()), pa.scalar(127.5, pa.float32())), pa.scalar(1, pa.float32())
    )
    return pa.FixedSizeListArray.from_arrays(parts, DIMENSION)
