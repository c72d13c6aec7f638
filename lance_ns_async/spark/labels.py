"""Names of scans and jobs for Spark's user interface."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import TYPE_CHECKING

from lance_ns_async.model import TableId
from lance_ns_async.spark.session import local_properties

if TYPE_CHECKING:
    from pyspark import SparkContext

_LONGEST = 100
DESCRIPTION = "spark.job.description"
GROUP = "spark.jobGroup.id"


def label(verb: str, tables: Collection[TableId]) -> str:
    """Returns a name such as "lance-ns: read 1,000 tables of sales.*".

    It contains no character that has a meaning in class names or paths, because Spark looks up data sources by such
    names, too. There must be at least one table.
    """
    subject = ".".join(next(iter(tables))) if len(tables) == 1 else f"{len(tables):,} tables of {_pattern(tables)}"
    text = re.sub(r"[^\w .,*$-]", "_", subject)
    return f"lance-ns: {verb} {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"


def _pattern(tables: Collection[TableId]) -> str:
    """Returns the pattern of the smallest namespace that contains all tables."""
    parents = {tuple(id)[:-1] for id in tables}
    levels = takewhile(lambda names: len(set(names)) == 1, zip(*parents, strict=False))
    common = tuple(names[0] for names in levels)
    return ".".join((*common, "*" if parents == {common} else "**"))


def describe_jobs(context: SparkContext | None, text: str) -> AbstractContextManager[None]:
    """Describes the jobs of the block, unless the user has described them or set a group; then restores both.

    Args:
        context: The context of the jobs; None with Spark Connect.
        text: The description, which is also the name of the group.
    """
    names = [] if context is None else [name for name in (DESCRIPTION, GROUP) if not context.getLocalProperty(name)]
    return local_properties(context, dict.fromkeys(names, text))
