"""Log of requests: who has done what with which table, for people and as JSON lines."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import monotonic

import orjson

from lance_ns_async.errors import one_line, shortened

log: logging.Logger = logging.getLogger(__name__)
"""Gets a `RequestRecord` for each request, as the only argument of the message, at the level INFO."""

_LONGEST = 500
"""Maximum length of a value that the client chooses."""


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
    """What is known of a request in progress."""

    request_id: str
    client: str
    operation: str
    started: float
    principal: str | None = None
    id: str | None = None
    is_change: bool = False
    """Whether a change was started, which goes on, and is logged at its end, if the client leaves."""

    @classmethod
    def start(cls, request_id: str, client: str | None, operation: str) -> RequestLog:
        """Returns the log of a request that begins now."""
        return cls(request_id, client or "-", _clean(operation), monotonic())

    def name(self, operation: str, id: object) -> None:
        """Sets what the request is about; `id` is a list of names or None."""
        self.operation = operation
        self.id = _clean("$".join(map(str, id)) or "$") if isinstance(id, list) else None

    def write(self, status: str) -> None:
        """Writes the record; `status` is the HTTP status, or any other word if there was no response."""
        if log.isEnabledFor(logging.INFO):
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            ms = round((monotonic() - self.started) * 1000, 1)
            code = int(status) if status.isdigit() else None
            log.info(
                "%s",
                RequestRecord(now, self.request_id, self.client, self.principal, self.operation, self.id, code, ms),
            )


class JsonFormatter(logging.Formatter):
    """Formats a `RequestRecord` as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        (request,) = record.args or (None,)
        assert isinstance(request, RequestRecord)
        return orjson.dumps(asdict(request)).decode()


def _clean(text: str) -> str:
    """Returns text of a client on one line, in characters that every log can hold."""
    return shortened(one_line(text[: _LONGEST + 1]), _LONGEST)
