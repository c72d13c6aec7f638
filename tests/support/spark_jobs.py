"""A write from Spark whose tasks run in this process, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.fragment import FragmentMetadata
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.lifecycle.staging import StagedWrite
from lance_ns_async.spark.write.task_writer import fragments_writer
from lance_ns_async.spark.write.write import Writing
from tests.support.lake import ID

FRAME = StructType([StructField("id", LongType(), nullable=False), StructField("s", StringType())])

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])

ROWS = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=SCHEMA)

NONE = ROWS.slice(0, 0)


def writing(mode: str = "create", **options: Any) -> Writing:
    defaults: dict[str, Any] = {"schema": None, "data_storage_version": None, "limits": {}}
    return Writing(mode, **{**defaults, **options})


class Job:
    """A write whose tasks run in this process, one after the other."""

    def __init__(self, ns: AsyncNamespace, arguments: Writing, staged: StagedWrite) -> None:
        self.ns = ns
        self.staged = staged
        self._sink = arguments.sink(staged)

    @classmethod
    async def begin(cls, ns: AsyncNamespace, mode: str = "create", *, id: Sequence[str] = ID, **options: Any) -> Job:
        arguments = writing(mode, **options)
        fit = partial(arguments.fit, TableId(id), FRAME)
        return cls(ns, arguments, await ns.session.staging().begin(TableId(id), mode, fit))

    def task(self, *batches: pa.RecordBatch) -> list[FragmentMetadata]:
        results = fragments_writer(self._sink, None)(batches)
        return [FragmentMetadata.from_json(text) for batch in results for text in batch.column(0).to_pylist()]

    async def commit(self, *tasks: list[FragmentMetadata]) -> Any:
        return await self.ns.session.staging().commit(self.staged, [*chain(*tasks)])

    async def abandon(self, *tasks: list[FragmentMetadata]) -> BaseException:
        """Returns the error with its notes about remaining files."""
        error = KeyError("why")
        await self.ns.session.staging().abandon(self.staged, [*chain(*tasks)], error)
        return error


def files(root: Path) -> list[str]:
    """Returns all data files, except those of the catalog itself."""
    paths = (path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts)
    return sorted(path.name for path in paths)


def notes(error: BaseException) -> str:
    return "; ".join(getattr(error, "__notes__", ()))
