"""A small file that another program changes while this one runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.masked import MaskedBytes

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

_FRESH = 1.0  # Seconds after which the file is looked at again.
_MAX_BYTES = 4 * 2**20  # A file of this size is read in milliseconds, which may block the event loop.


class WatchedFile(Generic[T]):
    """The parsed content of a file, read once for each change. The path may be a symbolic link that changes."""

    def __init__(self, label: str, path: str, parse: Callable[[bytes], T]) -> None:
        """Opens nothing yet.

        Args:
            label: The property or option that names the file, for messages.
            path: The file.
            parse: Returns the value of a content; its `ValueError` describes the content without quoting it, and an
                `InvalidInputError` also names the file.
        """
        self._label = f"{label} {path!r}"
        self._path = path
        self._parse = parse
        self._values: list[T] = []  # The last value, if there is one.
        self._state: object = None
        self._looked = 0.0

    def value(self, *, now: bool = False) -> T:
        """Returns the value; the last one while the file is missing or invalid, as during its replacement.

        Args:
            now: Whether to look at the file also if this was done within the last second.

        Raises:
            InvalidInputError: The file is missing or invalid, and has been so since the start.
        """
        if now or not self._values or monotonic() - self._looked >= _FRESH:
            try:
                self._look()
            except (OSError, ValueError, InvalidInputError) as e:
                error = e if isinstance(e, InvalidInputError) else self._error(e)
                if not self._values:
                    raise error from None
                log.warning("%s; the last content stays in use", error)
            self._looked = monotonic()
        return self._values[0]

    def _look(self) -> None:
        if _state(os.stat(self._path)) == self._state:
            return
        with open(self._path, "rb") as file:
            # The state before the content, so that a later change is noticed.
            state = _state(os.fstat(file.fileno()))
            content = MaskedBytes(file.read(_MAX_BYTES + 1))
        if len(content) > _MAX_BYTES:
            raise ValueError(f"larger than {_MAX_BYTES} bytes")
        self._values = [self._parse(content)]
        self._state = state

    def _error(self, e: OSError | ValueError) -> InvalidInputError:
        message = str(e)
        if isinstance(e, OSError):
            full = os.path.expanduser(self._path)
            advice = "a file that this process can read" if full == self._path else f"the full path, {full!r}"
            message = f"{e.strerror}; give {advice}"
        return InvalidInputError(f"{self._label}: {message}")


def _state(status: os.stat_result) -> object:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino
