"""Calls of a Thrift service as a server receives them, and what may become of the replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .faults import Rule
from .thrift_wire import Message, Struct

When = Literal["before", "after", "middle"]
"""Whether a fault strikes before the call is carried out, after it, or when half of the reply has been sent."""
Ending = Literal["keep", "close", "reset"]
"""What becomes of the connection after a fault."""
Rewrite = Callable[[Message], Message | bytes | None]
"""Gives what is sent in place of a reply: bytes as they are; None: nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it came over the wire."""

    method: str
    arguments: Struct
    """By their numbers."""
    sequence: int
    connection: int
    """Counts connections from 1, in the order they were opened."""

    def __str__(self) -> str:
        return f"{self.method} {dict(self.arguments)}"


class HangUp(Exception):
    """The server ends the connection without a reply, as servers do on errors that nobody foresaw."""


@dataclass(slots=True)
class WireFault(Rule):
    """Gives the client something other than the server's own reply."""

    when: When
    rewrite: Rewrite
    ending: Ending = "keep"
