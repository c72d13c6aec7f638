"""Calls of a Thrift service as a server receives them, and faults of the replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .faults import Rule
from .thrift_wire import Message, Struct

When = Literal["before", "after", "middle"]
"""Whether a fault occurs before the call is performed, after it, or after half of the reply was sent."""
Ending = Literal["keep", "close", "reset"]
"""The end of the connection after a fault."""
Rewrite = Callable[[Message], Message | bytes | None]
"""Returns the bytes to send instead of a reply; None for nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was received."""

    method: str
    arguments: Struct
    """By number."""
    sequence: int
    connection: int
    """The number of the connection, from 1 in the order of opening."""

    def __str__(self) -> str:
        return f"{self.method} {dict(self.arguments)}"


class HangUp(Exception):
    """The server closes the connection without a reply, as servers do after unexpected errors."""


@dataclass(slots=True)
class WireFault(Rule):
    """Sends bytes other than the server's own reply."""

    when: When
    rewrite: Rewrite
    ending: Ending = "keep"
