"""A namespace that other processes can be told to make, and that writes down what it asks of its catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lance_ns_async import Call, Namespace
from tests.ecosystem.catalogs import Catalog

CLASS_PATH = f"{__name__}.Watched"


class Watched(Namespace):
    """Any of our namespaces; each process that makes it says so in a file, and adds a line for every remote call."""

    def __init__(self, *, impl: str, diary: str, **properties: str) -> None:
        super().__init__(impl, properties)
        self._diary = Path(diary)
        self._write("made", "")
        # Kept open: the tools that make namespaces keep them until their process ends.
        self._watch = self.observe(self._told)
        self._watch.__enter__()

    def _told(self, call: Call) -> None:
        self._write(call.operation, call.outcome)

    def _write(self, *words: str) -> None:
        with self._diary.open("a") as diary:
            diary.write("\t".join([str(os.getpid()), *words]) + "\n")


@dataclass(frozen=True, slots=True)
class Diary:
    """What the namespaces of all processes wrote down."""

    path: Path

    def properties(self, catalog: Catalog) -> dict[str, str]:
        """What makes a `Watched` namespace of the catalog, in any process."""
        return {"impl": catalog.impl, "diary": str(self.path), **catalog.properties}

    def makers(self) -> Sequence[int]:
        """The processes that made a namespace, in order."""
        return [pid for pid, operation, _ in self._lines() if operation == "made"]

    def calls(self, *, here: bool) -> Sequence[str]:
        """The remote calls that this process made, or that others did, in order and without those for tokens."""
        ours = os.getpid()
        lines = [(pid == ours, operation) for pid, operation, _ in self._lines()]
        return [operation for mine, operation in lines if mine == here and operation not in ("made", "fetch_token")]

    def forget(self) -> None:
        """Begins anew."""
        self.path.write_text("")

    def _lines(self) -> Sequence[tuple[int, str, str]]:
        lines = [line.split("\t") for line in self.path.read_text().splitlines()] if self.path.exists() else []
        return [(int(pid), operation, outcome) for pid, operation, outcome in lines]
