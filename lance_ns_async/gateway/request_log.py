"""Log of requests: who has done what with which table, for people and as JSON lines."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import orjson

from lance_ns_async.errors import one_line, shortened

log: logging.Logger = logging.getLogger(__name__)
"""Gets a `RequestRecord` for each request, as the only argument of the message, at the level INFO."""

_problems = logging.getLogger(f"{__package__}.audit_log")
"""Log of problems of the audit log; the log of requests has nothing but requests."""

_MOST_WAITING = 10_000  # Maximum lines that wait until the audit log can be written; later ones replace the first.
_LONGEST = 500  # Maximum length of a value that the client chooses.


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. It contains no token, no value of a query and no row."""

    time: str
    request_id: str
    client: str
    """The address of the connection."""
    principal: str | None
    """None if the token was missing or wrong, or not required."""
    operation: str
    """The operation of the spec, or else the method and the path."""
    id: str | None
    """The table or the namespace, with its names joined by `$`; None if the request was not understood."""
    status: int | None
    """The HTTP status; None if the client left before the response."""
    ms: float

    def __str__(self) -> str:
        subject = "" if self.id is None else f" {self.id}"
        return (
            f"{self.time} {self.client} {self.principal or '-'} {self.operation}{subject} {self.status or 'cancelled'} "
            f"{self.ms:.0f} ms {self.request_id}"
        )


@dataclass(slots=True)
class RequestLog:
    """What is known of a request in progress, for its record and its metrics."""

    request_id: str
    client: str
    line: str  # The method and the path.
    started: float
    operation: str = "other"  # The operation's name in the spec; `other` for any other request.
    code: str = "cancelled"  # The HTTP status of the response; `cancelled` if the client left before the response.
    is_cut_off: bool = False  # Whether the server stopped before the request was completed.
    principal: str | None = None
    id: str | None = None
    is_change: bool = False
    """Whether a change was started, which goes on, and is logged at its end, if the client leaves."""

    @classmethod
    def start(cls, request_id: str, client: str | None, line: str) -> RequestLog:
        """Returns the log of a request that begins now."""
        return cls(request_id, client or "-", _clean(line), monotonic())

    def name(self, id: object) -> None:
        """Sets what the request is about; `id` is a list of names or None."""
        self.id = _clean("$".join(map(str, id)) or "$") if isinstance(id, list) else None

    def write(self, status: str) -> None:
        """Writes the record; `status` is the HTTP status, or any other word if there was no response."""
        if log.isEnabledFor(logging.INFO):
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            ms = round((monotonic() - self.started) * 1000, 1)
            code = int(status) if status.isdigit() else None
            operation = self.line if self.operation == "other" else self.operation
            log.info(
                "%s", RequestRecord(now, self.request_id, self.client, self.principal, operation, self.id, code, ms)
            )


class JsonFormatter(logging.Formatter):
    """Formats a `RequestRecord` as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        (request,) = record.args or (None,)
        assert isinstance(request, RequestRecord)
        return orjson.dumps(asdict(request)).decode()


class AuditLog(logging.Handler):
    """Appends a line of JSON for each request to a file, which may be rotated or removed.

    Lines that cannot be written wait in memory, and are written with the next one that can be.

    Args:
        path: The file.
        is_required: Whether the gateway refuses changes while lines wait.
    """

    def __init__(self, path: Path, *, is_required: bool = True) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lost: int = 0
        """The number of lines that are not in the file: those that wait, and those that were too many to wait."""
        self._fails = False
        self._path = path
        self._is_required = is_required
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._file = self._open()

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(f"{self.format(record)}\n".encode())
        self.lost += 1
        self._write()

    def allows_changes(self) -> bool:
        """Returns whether a change would be logged, or need not be."""
        with self.lock or nullcontext():
            if self._waiting:
                self._write()
            return not (self._waiting and self._is_required)

    def close(self) -> None:
        os.close(self._file)
        super().close()

    def _write(self) -> None:
        """Writes the lines that wait; reports the first failure and the end of all."""
        try:
            self._reopen()
            while self._waiting:
                line = self._waiting[0]
                if (written := os.write(self._file, line)) < len(line):
                    # The whole line is written later.
                    os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._waiting.popleft()
                self.lost -= 1
        except OSError as e:
            if not self._fails:
                refused = "changes are refused" if self._is_required else "requests go on"
                _problems.error("gateway: the audit log %s cannot be written: %s; %s", self._path, e.strerror, refused)
            self._fails = True
            return
        if self._fails:
            _problems.warning("gateway: the audit log %s is written again; %d lines are lost", self._path, self.lost)
            self._fails = False

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def _reopen(self) -> None:
        """Opens the file anew if it was renamed or removed."""
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                return
        except FileNotFoundError:
            pass
        new = self._open()
        os.close(self._file)
        self._file = new


def _clean(text: str) -> str:
    """Returns text of a client on one line, in characters that every log can hold."""
    return shortened(one_line(text[: _LONGEST + 1]), _LONGEST)
