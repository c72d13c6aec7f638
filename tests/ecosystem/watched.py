"""A namespace that other processes can create, and that records its calls to the catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lance_ns_async import Call, Namespace
from tests.ecosystem.catalogs import Catalog

CLASS_PATH = f"{__name__}.Watched"


class Watched(Namespace):
    """Any of our namespaces; each process that creates it says so in a file, and adds a line for each remote call."""

    def __init__(self, *, impl: str, diary: str, **properties: str) -> None:
        super().__init__(impl, properties)
        self._diary = Path(diary)
        self._write("made", "")
        # Kept open, because the tools that create namespaces keep them until their process ends.
        self._watch = self.observe(self._told)
        self._watch.__enter__()

    def _told(self, call: Call) -> None:
        self._write(call.operation, call.outcome)

    def _write(self, *words: str) -> None:
        with self._diary.open("a") as diary:
            diary.write("\t".join([str(os.getpid()), *words]) + "\n")


@dataclass(frozen=True, slots=True)
class Diary:
    """The records of the namespaces of all processes."""

    path: Path

    def place(self, catalog: Catalog) -> dict[str, Any]:
        """Returns the arguments of lance-ray and daft-lance for the catalog, recorded in each process."""
        properties = {"impl": catalog.impl, "diary": str(self.path), **catalog.properties}
        return {"namespace_impl": CLASS_PATH, "namespace_properties": properties}

    def makers(self) -> Sequence[int]:
        """Returns the processes that created a namespace, in order."""
        return [pid for pid, operation, _ in self._lines() if operation == "made"]

    def calls(self, *, here: bool) -> Sequence[str]:
        """Returns the remote calls of this process or of the others, in order and without those for tokens."""
        ours = os.getpid()
        lines = [(pid == ours, operation) for pid, operation, _ in self._lines()]
        return [operation for mine, operation in lines if mine == here and operation not in ("made", "fetch_token")]

    def forget(self) -> None:
        """Clears the records."""
        self.path.write_text("")

    def _lines(self) -> Sequence[tuple[int, str, str]]:
        lines = [line.split("\t") for line in self.path.read_text().splitlines()] if self.path.exists() else []
        return [(int(pid), operation, outcome) for pid, operation, outcome in lines]


@dataclass(frozen=True, slots=True)
class Bill:
    """The calls of this process for each step; no other process makes calls."""

    diary: Diary
    calls: list[tuple[str, Sequence[str]]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Records the calls of a step; a repeated step must have the same cost."""
        self.diary.forget()
        yield
        assert self.diary.calls(here=False) == [], name
        self.calls.append((name, self.diary.calls(here=True)))

    def costs(self, *apart: str) -> dict[str, int]:
        """Returns the number of calls of each step, except for those that are listed separately."""
        costs: dict[str, int] = {}
        for name, calls in self.calls:
            count = sum(call not in apart for call in calls)
            assert costs.setdefault(name, count) == count, (name, calls)
        return costs
