"""Comparison of a fake's response with that of the real server: a status, and an error's type or the JSON body."""

from __future__ import annotations

from typing import Any

from tests.fakes.raw import Reply


def content(reply: Reply) -> Any:
    """Returns the type or code of an error, other JSON as it is, other content as text; None for an empty body."""
    if not reply.body:
        return None
    if not reply.headers.get("Content-Type", "").startswith("application/json"):
        return reply.body.decode()
    match reply.json:
        case {"error": {"type": kind}} | {"error_code": kind} | {"error": _, "code": kind}:
            return kind
        case other:
            return other


def check(reply: Reply, status: int, expected: Any) -> None:
    """Checks a response: of an expected object, only the fields in it; `...` accepts any content."""
    actual = content(reply)
    if isinstance(expected, dict) and isinstance(actual, dict):
        actual = {key: actual.get(key, "missing") for key in expected}
    assert (reply.status, expected if expected is ... else actual) == (status, expected)
