"""The catalogs of these tests: real servers if possible, otherwise fakes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from lance_ns_async import Call, Namespace
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from tests.servers.catalogs import CATALOGS
from tests.support.budget import with_usual
from tests.support.gateway import serve, served

TRIED = tuple(impl for impl in BACKENDS if impl in {"dir", "rest", *CATALOGS})
"""The catalogs of these tests, which `tests.servers` can start; `rest` is our gateway to a directory."""

USUAL = ("dir", "iceberg")  # The catalogs of the usual run: one without a server, and one with a server
on_each_kind = pytest.mark.parametrize("catalog", with_usual(TRIED, *USUAL, "unity"), indirect=True)
"""For tests whose results depend on the catalog: the usual run also has one with credentials."""

on_one_catalog = pytest.mark.parametrize("catalog", with_usual(TRIED, "iceberg"), indirect=True)
"""For slow tests whose results do not depend on the catalog: the usual run has one."""

ABOVE = {"hive3": ("lake",), "polaris": ("lake",), "unity": ("lake",)}
"""The namespaces that contain namespaces for tables; the root for catalogs that are not in it."""


@dataclass(frozen=True)
class Catalog:
    """A running catalog, with its settings for other packages."""

    impl: str
    properties: Mapping[str, str]
    above: tuple[str, ...] = ()  # The names above a namespace for tables

    @property
    def class_path(self) -> str:
        """Returns the class path for `lance_namespace.connect`, which works in each process without a registration."""
        return CLASS_PATHS[self.impl]

    def connect(self) -> Namespace:
        return Namespace.connect(self.impl, self.properties)


Start: TypeAlias = Callable[[str], Mapping[str, str]]
"""Starts the server of a catalog, unless it has done so before, and returns its properties."""


@contextmanager
def running(impl: str, directory: Path, start: Start | None = None) -> Iterator[Catalog]:
    """Provides the catalog, with the namespaces above those for tables; without `start`, on a server of its own."""
    if impl == "dir":
        yield Catalog("dir", {"root": str(directory / "catalog")})
        return
    if impl == "rest":
        with served("dir", {"root": str(directory / "catalog")}) as gateway:
            headers = {f"header.{name}": value for name, value in gateway.headers.items()}
            yield Catalog("rest", {"uri": gateway.url, **headers})
        return
    with nullcontext(start(impl)) if start else CATALOGS[impl](directory) as properties:
        # Databases of Glue have no location for tables by default.
        catalog = Catalog(impl, {"root": (directory / "tables").as_uri(), **properties}, ABOVE.get(impl, ()))
        if impl == "hive3":
            with catalog.connect() as namespace:
                namespace.create_namespace({"id": list(catalog.above), "mode": "exist_ok"})
        yield catalog


TOKEN = "0penlake"
on_served = pytest.mark.parametrize("catalog", with_usual(["dir", "hive3", "glue"], "dir"), indirect=True)
"""For tests of catalogs behind the gateway, which is the same for all."""


@contextmanager
def serve_rest(catalog: Catalog) -> Iterator[Mapping[str, str]]:
    variables = {f"LANCE_NS_PROPERTY_{name.replace('.', '__')}": value for name, value in catalog.properties.items()}
    environment = {**os.environ, **variables, "LANCE_NS_IMPL": catalog.impl, "LANCE_NS_TOKEN": TOKEN}
    with serve(environment=environment) as (server, url):
        assert url
        yield {"uri": url, "header.x-lance-token": TOKEN}
        server.terminate()
        assert server.communicate() == ("", "")
        assert server.returncode == 0


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
        return [pid for pid, operation, _ in self._lines() if operation == "made"]

    def calls(self, *, here: bool) -> Sequence[str]:
        """Returns the remote calls of this process or of the others, in order and without those for tokens."""
        ours = os.getpid()
        lines = [(pid == ours, operation) for pid, operation, _ in self._lines()]
        return [operation for mine, operation in lines if mine == here and operation not in ("made", "fetch_token")]

    def forget(self) -> None:
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
