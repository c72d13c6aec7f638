"""The walk over a storage that finds Lance tables: which folders are tables, and which only resemble one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.tasks import each
from lance_ns_async.storage.dir_markers import DROPPED
from lance_ns_async.storage.folders import LISTINGS, Folders
from lance_ns_async.storage.lance_layout import FOLDERS, PARTS, VERSIONS

_MANIFEST = re.compile(r"\d+\.manifest")
"""Manifests of the old naming, which counts up, and of the new one, which counts down; not staged or detached ones."""
_CONTENTS = FOLDERS - PARTS  # Folders of a table with usual names.
_OF_CATALOGS = frozenset({"__manifest"})  # Tables in which directory catalogs keep their registrations.
_ROUND = 512  # Maximum number of folders per round; their children are examined in later rounds.
_SUFFIX = ".lance"
_DIGITS = re.compile(r"\d+")


class FolderKind(StrEnum):
    """What a folder is."""

    TABLE = "table"
    FOLDER = "folder"
    UNFINISHED = "unfinished"
    """It resembles a table, but has no version."""
    VANISHED = "vanished"
    """It was listed in its parent, but does not exist any more."""


@dataclass(frozen=True, slots=True)
class ExaminedFolder:
    """The result of the examination of one folder."""

    path: str
    """The path relative to the root; empty for the root."""
    kind: FolderKind
    children: Sequence[str] = ()
    """Paths of folders to examine."""
    reason: str = ""


@dataclass
class FolderWalker:
    """Examines folders; the first request to each of them depends on the results for similar folders.

    The first request lists either `_versions` in the folder, which suffices for a table, or the folder itself, which
    suffices for any other folder. After the wrong one, a second request is necessary. A folder with the suffix `.lance`
    is expected to be a table. For other folders, the most frequent kind decides: of the folders beside it with a
    similar name, else of all folders beside it, else of the folders with a similar name anywhere. Names are similar if
    they differ only in digits.
    """

    folders: Folders
    include: Sequence[str] = ()
    """Patterns of paths of tables; none for all."""
    exclude: Sequence[str] = ()
    """Patterns of paths of folders and tables that are skipped."""
    sees_dropped: bool = False
    """Whether folders are examined that a directory catalog has renamed to delete them."""
    _excess: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """How many more tables than others were examined, by parent and by name with all numbers replaced by 0; an empty
    text means any."""

    def selects(self, path: str) -> bool:
        """Returns whether a table with this path is included."""
        return not self.include or _matches(path, self.include)

    async def look(self, path: str) -> ExaminedFolder:
        """Returns what a folder is."""
        probes = bool(path) and self.expects_table(path) is True
        if probes and await self._has_manifest(path):
            self._count(path, is_table=True)
            return ExaminedFolder(path, FolderKind.TABLE)
        folder = await self.folders.list(path)
        if folder is None:
            return ExaminedFolder(path, FolderKind.VANISHED, reason="it was listed, and did not exist a moment later")
        names = set(folder.folders)
        if VERSIONS in names and not probes and await self._has_manifest(path):
            self._count(path, is_table=True)
            return ExaminedFolder(path, FolderKind.TABLE)
        self._count(path, is_table=False)
        is_part = bool(names & PARTS)
        excluded_names = PARTS | _CONTENTS if is_part else PARTS
        names_below = [name for name in folder.folders if self._descends(name, excluded_names)]
        children = [f"{path}/{name}" if path else name for name in names_below]
        children = [child for child in children if not _matches(child, self.exclude)]
        if is_part:
            reason = f"it has {', '.join(sorted(names & PARTS))}, but no manifest in {VERSIONS}"
            return ExaminedFolder(path, FolderKind.UNFINISHED, children, reason)
        if path.endswith(_SUFFIX):
            return ExaminedFolder(
                path, FolderKind.UNFINISHED, children, f"its name ends with {_SUFFIX}, but it has no {VERSIONS}"
            )
        return ExaminedFolder(path, FolderKind.FOLDER, children)

    async def _has_manifest(self, path: str) -> bool:
        versions = await self.folders.list(f"{path}/{VERSIONS}" if path else VERSIONS)
        return versions is not None and any(_MANIFEST.fullmatch(name) for name in versions.files)

    def expects_table(self, path: str) -> bool | None:
        """Returns whether a folder is probably a table; None if no similar folder was examined."""
        if path.endswith(_SUFFIX):
            return True
        for key in _classes(path):
            if key in self._excess:
                return self._excess[key] > 0
        return None

    def _count(self, path: str, *, is_table: bool) -> None:
        for key in _classes(path):
            self._excess[key] += 1 if is_table else -1

    def _descends(self, name: str, excluded_names: Iterable[str]) -> bool:
        """Returns whether a folder may contain tables; names with a dot or one underscore in front are hidden."""
        if name.startswith(DROPPED):
            return self.sees_dropped
        is_hidden = name.startswith(".") or (name.startswith("_") and not name.startswith("__"))
        return not (is_hidden or name in excluded_names or name in _OF_CATALOGS)


async def walk_folders(
    walker: FolderWalker,
    pending: Iterable[str],
    on_folder: Callable[[ExaminedFolder], None],
    on_error: Callable[[str, LanceNamespaceError], None],
    after_round: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Examines folders and everything below them, except in tables.

    `on_error` receives the location of a folder that could not be listed; an error of the root is raised, as is an
    InvalidInputError, which applies to all folders. `after_round` is awaited after each round of up to 512 folders.
    """
    stack = list(pending)

    async def look(path: str) -> None:
        try:
            folder = await walker.look(path)
        except LanceNamespaceError as e:
            if not path or isinstance(e, InvalidInputError):
                raise
            on_error(walker.folders.location(path), e)
            return
        stack.extend(folder.children)
        on_folder(folder)

    while stack:
        batch, stack[:] = _next_round(walker, stack)
        await each(look, batch, max_in_flight=LISTINGS)
        if after_round is not None:
            await after_round()


def _next_round(walker: FolderWalker, stack: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the folders of the next round, and the rest.

    If no folder similar to those in a parent was examined yet, the round contains only one of them: its result decides
    the first request to the others.
    """
    batch: list[str] = []
    rest: list[str] = []
    sampled_parents: set[str] = set()
    for index in range(len(stack) - 1, -1, -1):
        path = stack[index]
        if walker.expects_table(path) is None:
            parent = path.rpartition("/")[0]
            if parent in sampled_parents:
                rest.append(path)
                continue
            sampled_parents.add(parent)
        batch.append(path)
        if len(batch) == _ROUND:
            return batch, [*stack[:index], *reversed(rest)]
    return batch, rest[::-1]


def _classes(path: str) -> Sequence[tuple[str, str]]:
    """Returns the classes of similar folders that a folder belongs to, the most specific first."""
    parent, _, name = path.rpartition("/")
    shape = _DIGITS.sub("0", name)
    return (parent, shape), (parent, ""), ("", shape)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
