"""Marks of drops under a table's location, and the files that they refer to. Functions that use the storage block."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from threading import Lock
from typing import Any
from uuid import uuid4

from lance_ns_async.calls.policy import remaining
from lance_ns_async.model import DELIMITER, Table, TableId
from lance_ns_async.storage.files import download, open_session
from lance_ns_async.storage.threads import PATIENCE

PREFIX = ".lance-dropping-"
"""Prefix of the names of marks, which are directly under a table's location."""

_GRACE_SECONDS = 30.0
"""Extra seconds before a mark of another machine counts as abandoned: for clock differences and pending requests."""

MANIFEST = ".manifest"

CATALOGS = "metadata/"
"""Folder of the catalog's own files; files written later may belong to the next table at the location."""

_GZIP_MAGIC = b"\x1f\x8b"

CATALOGS_MOST = 16
"""Maximum number of these files in a mark. If another process completes the drop, further ones stay."""

_running: Counter[str] = Counter()
"""Tokens of this process's drops in progress."""

_lock = Lock()


@dataclass(frozen=True, slots=True)
class Mark:
    """The record of a process that drops a table."""

    token: str
    subject: str
    """Digest of the table's id."""
    content: str
    """Digest of the names of the data files; any later write, also one by another table, changes it."""
    host: str
    process: int
    started: str
    """Start time of the process, to distinguish processes with the same number."""
    until: float
    """Time limit of the process, in seconds since the Unix epoch."""
    deregistered: bool = False
    catalogs: Sequence[str] = ()
    """Digests of the names of the catalog's own files that existed before the registration was removed."""

    @property
    def path(self) -> str:
        """The path of the mark, relative to the table's location."""
        return f"{PREFIX}{self.token}.json"

    def is_at_work(self) -> bool:
        """Returns whether the mark's process may still delete the marked data."""
        if self.host != _host():
            return time.time() < self.until + _GRACE_SECONDS
        if self.process == os.getpid():
            return self.started == _start_time(self.process) and _running[self.token] > 0
        return _start_time(self.process) == self.started != ""


@dataclass(frozen=True, slots=True)
class Files:
    """The files under a table's location."""

    paths: Sequence[str]

    @property
    def manifests(self) -> Sequence[str]:
        """The manifests of the main branch, oldest first."""
        manifests = [path for path in self.paths if path.startswith("_versions/") and path.endswith(MANIFEST)]
        return sorted(manifests, key=version_of)

    def manifests_after(self, latest: str) -> Sequence[str]:
        """Returns the manifests of versions after `latest`; none if `latest` or an earlier one still exists."""
        manifests = self.manifests
        return manifests if all(version_of(path) > version_of(latest) for path in manifests) else []

    @property
    def content(self) -> str:
        """Digest of the names that are unique for each write."""
        lines = sorted(path for path in self.paths if path.startswith(("data/", "_transactions/")))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def catalogs(self) -> Sequence[str]:
        """Digests of the names of the catalog's own files, latest first."""
        names = sorted((path for path in self.paths if path.startswith(CATALOGS)), reverse=True)
        return [digest(path) for path in names]

    @property
    def marks(self) -> Sequence[str]:
        """The paths of the marks of drops."""
        return [path for path in self.paths if path.startswith(PREFIX)]


def new_mark(id: TableId) -> Mark:
    """Returns the mark for a drop of a table by this process."""
    process = os.getpid()
    return Mark(
        token=uuid4().hex,
        subject=hashlib.sha256(DELIMITER.join(id).lower().encode()).hexdigest(),
        content="",
        host=_host(),
        process=process,
        started=_start_time(process),
        until=give_up_time(),
    )


def give_up_time() -> float:
    """Returns the time, in seconds since the epoch, at which the current operation ends at the latest."""
    left = remaining()
    return time.time() + (PATIENCE if left is None else left)


@contextmanager
def at_work(token: str) -> Iterator[None]:
    """Registers a drop of this process as in progress while the context is open."""
    with _lock:
        _running[token] += 1
    try:
        yield
    finally:
        with _lock:
            _running[token] -= 1
            if not _running[token]:
                del _running[token]


def digest(path: str) -> str:
    """Returns a short hash of a path."""
    return hashlib.sha256(path.encode()).hexdigest()[:8]


def write_mark(session: Any, mark: Mark) -> None:
    """Writes a mark below the location of the session."""
    with tempfile.NamedTemporaryFile("w", prefix="lance-dropping-") as file:
        json.dump(asdict(mark), file)
        file.flush()
        session.upload_file(file.name, mark.path)


def read_marks(session: Any, files: Files) -> Sequence[Mark]:
    """Returns the marks among the files; raises OSError if one cannot be read."""
    return [mark for mark in (_read(session, path) for path in files.marks) if mark is not None]


def _read(session: Any, path: str) -> Mark | None:
    """Returns the mark in a file; None if the file is gone or not a mark. Raises OSError if it cannot be read."""
    try:
        return Mark(**json.loads(content_of(session, path)))
    except (ValueError, TypeError):
        return None


def content_of(session: Any, path: str) -> bytes:
    """Returns the decompressed content of a file; empty if the file is gone."""
    with tempfile.TemporaryDirectory(prefix="lance-dropping-") as folder:
        local = os.path.join(folder, "file")
        if not download(session, path, local):
            return b""
        with open(local, "rb") as file:
            content = file.read()
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        # The file is damaged, and therefore belongs to no registration.
        return content


def version_of(path: str) -> int:
    """Returns the version of a manifest by its file name; -1 if the name has none."""
    name = path.rpartition("/")[2].removesuffix(MANIFEST)
    if not name.isdecimal():
        return -1
    # Newer tables count down in file names, so that the latest version is listed first.
    return 2**64 - 1 - int(name) if len(name) == 20 else int(name)


def session_of(table: Table) -> Any:
    """Returns the access to the files at the location of a table."""
    return open_session(table.location, table.storage_options)


@cache
def _host() -> str:
    """Returns an identifier of the machine, its boot and its namespace of process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _start_time(process: int) -> str:
    """Returns the start time of a process on this machine; an empty string if there is no such process."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except (FileNotFoundError, ProcessLookupError):
        return "" if os.path.exists("/proc/self/stat") else _probe(process)


def _probe(process: int) -> str:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"
