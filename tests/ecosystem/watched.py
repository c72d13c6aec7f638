"""A namespace that other processes can be told to make, and that writes down what it asks of its catalog."""

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

    def place(self, catalog: Catalog) -> dict[str, Any]:
        """How lance-ray and daft-lance are told of the catalog, to have it watched in every process."""
        properties = {"impl": catalog.impl, "diary": str(self.path), **catalog.properties}
        return {"namespace_impl": CLASS_PATH, "namespace_properties": properties}

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


@dataclass(frozen=True, slots=True)
class Bill:
    """The calls that this process makes for each step; no other makes any."""

    diary: Diary
    calls: list[tuple[str, Sequence[str]]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step, taken in the context; one that is taken again costs the same."""
        self.diary.forget()
        yield
        assert self.diary.calls(here=False) == [], name
        self.calls.append((name, self.diary.calls(here=True)))

    def costs(self, *apart: str) -> dict[str, int]:
        """How many calls each step took, but for those that are told apart."""
        costs: dict[str, int] = {}
        for name, calls in self.calls:
            count = sum(call not in apart for call in calls)
            assert costs.setdefault(name, count) == count, (name, calls)
        return costs
