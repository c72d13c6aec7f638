"""The tests of each room of the package, for `pytest --room` and `nox -s quick`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lance_ns_async"
PAGES = ROOT / "docs" / "pages"
UNIT = ROOT / "tests" / "unit"
_WITH_ROOMS = ("backends", "transports")  # The folders whose folders are rooms of their own; each serves other catalogs

_SITES = {
    "aws": ("glue",),
    "directory": ("dir",),
    "glue": ("glue", "glue-stock-moto"),
    "hive3": ("hive-fake-2.3.9", "hive-fake-3.1.3"),
    "http": ("iceberg-fake",),
    "iceberg": ("iceberg-fake", "nessie-fake"),
    "lakekeeper": ("lakekeeper-fake",),
    "polaris": ("polaris-fake",),
    "rest": ("rest-on-pylance", "rest-on-gravitino"),
    "shared": ("polaris-fake", "unity-fake"),
    "thrift": ("hive-fake-3.1.3",),
    "unity": ("unity-fake",),
    **dict.fromkeys(
        ("backends", "calls", "client", "engine", "lifecycle", "many", "model", "operations", "storage"),
        ("dir", "iceberg-fake", "hive-fake-3.1.3", "glue"),
    ),
}
"""The sites of the contract for each room that remote calls pass through: its catalogs, or one of each kind of wire."""

_FURTHER = {
    "conformance": ("tests/conformance",),
    "directory": ("tests/interleavings",),
    "fleet": ("tests/documentation/test_examples.py",),
    "spec": ("tests/unit/gateway/test_wire.py",),
}
"""Tests of a room outside of its folder of unit tests."""


def rooms() -> list[str]:
    """Returns the names of all rooms: folders of the package, and `client`, which is all modules at its top."""
    folders = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    inner = [path for folder in folders if folder.name in _WITH_ROOMS for path in folder.iterdir() if path.is_dir()]
    return sorted({"client", *(path.name for path in [*folders, *inner] if not path.name.startswith("_"))})


def changed_files(revision: str) -> list[str]:
    """Returns the paths of files that were changed or added since a revision, committed or not."""
    changes = ("git", "diff", "--name-only", "--diff-filter=d", revision)
    additions = ("git", "ls-files", "--others", "--exclude-standard")
    return sorted({line for command in (changes, additions) for line in _lines(*command)})


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def room_of(path: str) -> str | None:
    match Path(path).parts:
        case ("lance_ns_async", folder, inner, _, *_) | ("lance_ns_async", folder, inner) if folder in _WITH_ROOMS:
            return folder if inner.endswith(".py") else inner
        case ("lance_ns_async", folder, _, *_):
            return folder
        case ("lance_ns_async", _):
            return "client"
    return None


def _tests_of(room: str) -> Iterator[Path]:
    if room == "client":
        yield from UNIT.glob("test_*.py")
    elif room in _WITH_ROOMS:
        yield from (UNIT / room).glob("test_*.py")
    else:
        yield next(path for path in (UNIT / room, *(UNIT / it / room for it in _WITH_ROOMS)) if path.is_dir())
    yield from (ROOT / path for path in _FURTHER.get(room, ()))


def _tests_with(path: Path) -> Path:
    """Returns a file of tests itself, and for another file in a folder of tests, such as a fixture, the folder."""
    has_tests = any(path.parent.glob("test_*.py"))
    return path.parent if has_tests and not path.name.startswith("test_") else path


@dataclass(frozen=True)
class Selection:
    """The rooms whose tests a run has."""

    rooms: Set[str]
    changed: Sequence[str] = ()  # The changed files, whose own tests run, too

    @classmethod
    def since(cls, revision: str) -> Selection:
        """Returns the rooms in which a file was changed since a revision."""
        changed = changed_files(revision)
        return cls({room for path in changed if (room := room_of(path)) is not None}, changed)

    @cached_property
    def sites(self) -> Set[str]:
        return {site for room in self.rooms for site in _SITES.get(room, ())}

    @cached_property
    def paths(self) -> Set[Path]:
        own = {path for room in self.rooms for path in _tests_of(room)}
        contract = {ROOT / "tests" / "contract"} if self.sites else set()
        pages = {ROOT / "tests" / "documentation" / "test_docs.py"} if self.pages else set()
        return own | contract | pages | {_tests_with(ROOT / path) for path in self.changed if path.startswith("tests/")}

    @cached_property
    def pages(self) -> Set[str]:
        """The pages of the documentation that were changed, or that name one of the modules."""
        names = [f"lance_ns_async.{room}" for room in self.rooms]
        return {
            path.relative_to(PAGES).as_posix()
            for path in PAGES.rglob("*.md")
            if path.relative_to(ROOT).as_posix() in self.changed
            or path.stem in self.rooms
            or any(name in path.read_text(encoding="utf-8") for name in names)
        }

    def has(self, path: Path) -> bool:
        return any(path.is_relative_to(it) for it in self.paths)


SELECTION: pytest.StashKey[Selection] = pytest.StashKey()
"""The chosen rooms; missing if a run has the tests of all rooms."""
