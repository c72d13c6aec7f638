"""Tasks of maintenance in a Spark task: each is executed on its dataset, and its result or error is returned as text.

Spark's Python processes import this module, so this package must be installed there. It makes no catalog call.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from lance_ns_async.fleet.maintenance.engine import Job

COLUMN = "result"
"""The only column of the results with Spark Connect."""


def encode(jobs: Iterable[Job]) -> str:
    """Returns the jobs of one task as text, including the storage options."""
    # The driver renews credentials that expire; a task has only those that it starts with.
    from lance_ns_async.model import EXPIRY

    rows = [
        (
            str(job.table.id),
            job.table.location,
            {key: value for key, value in (job.table.storage_options or {}).items() if key != EXPIRY},
            job.version,
            job.number,
            job.kind,
            job.content,
        )
        for job in jobs
    ]
    return base64.b64encode(zlib.compress(json.dumps(rows).encode(), 3)).decode()


def execute(text: str) -> Iterator[str]:
    """Executes the encoded jobs one after the other, and yields a result for each; a failure does not end the task."""
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async.model import Table, TableId
    from lance_ns_async.operations import maintaining
    from lance_ns_async.storage.datasets import Snapshot, open_snapshot
    from lance_ns_async.storage.pylance_errors import translate_errors

    # Jobs of one table follow each other and share its dataset.
    key, dataset = None, None
    for id, location, options, version, number, kind, content in json.loads(zlib.decompress(base64.b64decode(text))):
        started = monotonic()
        result, error = "", None
        table = Table(TableId(id), location, storage_options=options or None)
        try:
            with translate_errors(table):
                if dataset is None or key != (id, version):
                    key, dataset = (id, version), open_snapshot(table, Snapshot(version))
                result = maintaining.execute(table, dataset, kind, content)
        except Exception as e:  # an error of one table must not end the Spark task, which has further ones
            is_ours = isinstance(e, LanceNamespaceError)
            dataset, error = None, (type(e).__name__ if is_ours else "InternalError", str(e))
        yield json.dumps((id, number, result, error, monotonic() - started))


def executor(results: Accumulator[list[str]]) -> Callable[[str], None]:
    """Returns a function for `RDD.foreach` that adds the results of encoded jobs to an accumulator."""

    def work(text: str) -> None:
        results.add(list(execute(text)))

    return work


def batch_executor() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that returns the results of the encoded jobs in the first column."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_arrays([pa.array(list(execute(text)), pa.string())], [COLUMN])

    return work


def decode(text: str) -> tuple[str, int, str, Sequence[Any] | None, float]:
    """Returns the table, the number, the content, the error's class and message, and the seconds of a result."""
    id, number, result, error, seconds = json.loads(text)
    return id, number, result, error, seconds
