"""The server's side of SASL's PLAIN mechanism, with the frames of Thrift's Java library."""

from __future__ import annotations

import struct
from asyncio import StreamReader, StreamWriter

START, OK, BAD, ERROR, COMPLETE = 1, 2, 3, 4, 5
"""The kinds of messages of the negotiation."""


def sasl_message(status: int, payload: bytes = b"") -> bytes:
    """Returns a message of the negotiation."""
    return struct.pack(">BI", status, len(payload)) + payload


async def log_in(reader: StreamReader, writer: StreamWriter, account: tuple[str, str]) -> None:
    """Accepts a client with the account's user and password; otherwise sends the reason and raises EOFError.

    All later messages are in frames.
    """
    refusal = await _refusal(reader, account)
    writer.write(sasl_message(BAD, refusal) if refusal else sasl_message(COMPLETE))
    await writer.drain()
    if refusal:
        writer.close()
        await writer.wait_closed()
        raise EOFError(refusal)


async def _refusal(reader: StreamReader, account: tuple[str, str]) -> bytes:
    status, mechanism = await _read(reader)
    if status != START:
        return b"Expecting START status, received %d" % status
    if mechanism != b"PLAIN":
        return b"Unsupported mechanism type " + mechanism
    _, response = await _read(reader)
    expected = "\0".join(("", *account)).encode()
    return b"" if response == expected else b"Error validating the login"


async def _read(reader: StreamReader) -> tuple[int, bytes]:
    status, size = struct.unpack(">BI", await reader.readexactly(5))
    if not START <= status <= COMPLETE or size > 1 << 20:
        raise EOFError("no message of a SASL negotiation")
    return status, await reader.readexactly(size)
