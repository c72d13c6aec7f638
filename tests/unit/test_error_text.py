"""Texts of servers in exceptions, logs, observers and terminals: one line, without control characters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import DeclareTableRequest, DescribeTableRequest
from lance_namespace.errors import InternalError, LanceNamespaceError

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.observers import Call
from lance_ns_async.errors import Failure, not_lance, one_line, reduce_to_lines
from lance_ns_async.model import TableId
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity

EVIL = "gone\r\n2026-01-01 ERROR root: all is lost\x1b[2J\x1b]0;title\x07\x85\u2028\u202e\x00 end"
ESCAPED = r"gone 2026-01-01 ERROR root: all is lost\x1b[2J\x1b]0;title\x07 \u202e\x00 end"


def of_unity(text: str) -> Any:
    return {"error_code": text, "message": text}


def of_iceberg(text: str) -> Any:
    return {"error": {"type": text, "message": text, "code": 500}}


SERVERS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[str], Any], list[str]]] = {
    "unity": (FakeUnity, of_unity, ["main", "a", "t"]),
    "iceberg": (FakeIceberg, of_iceberg, ["a", "t"]),
    "lakekeeper": (FakeLakekeeper, of_iceberg, ["a", "t"]),
    "polaris": (FakePolaris, of_iceberg, ["cat", "a", "t"]),
}


@pytest.mark.parametrize("impl", SERVERS)
async def test_codes_and_messages_of_a_server_are_shown_on_one_line(
    impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lance_ns_async")
    start, body, id = SERVERS[impl]
    calls: list[Call] = []
    with start() as server:
        server.fail(500, body=body(EVIL), times=None, match="/t$|/main.a.t|/tables/t|snapshots")
        properties = getattr(server, "properties", {"endpoint": server.url})
        async with AsyncNamespace.connect(impl, properties) as ns:
            with ns.observe(calls.append), pytest.raises(LanceNamespaceError) as raised:
                await ns.describe_table(DescribeTableRequest(id=id))
    assert ESCAPED in str(raised.value)
    texts = [str(raised.value), *(call.outcome for call in calls), *(record.getMessage() for record in caplog.records)]
    assert any("all is lost" in outcome for outcome in [call.outcome for call in calls])
    assert [text for text in texts if not text.isprintable()] == []


async def test_names_with_control_characters_are_shown_escaped() -> None:
    with FakeUnity() as server:
        async with AsyncNamespace.connect("unity", server.properties) as ns:
            with pytest.raises(LanceNamespaceError, match="does not allow the name") as raised:
                await ns.declare_table(DeclareTableRequest(id=["main", "a", "t\x1b[2J\nx"], location="s3://b/t"))
    assert str(raised.value).isprintable() and r"t\x1b[2J x" in str(raised.value)


def test_a_failure_of_any_wire_holds_one_line() -> None:
    failure = Failure(EVIL, 500, message=EVIL)
    assert failure.codes == (f"{ESCAPED[:100]}...", 500) or failure.codes == (ESCAPED, 500)
    assert failure.message == str(failure) == ESCAPED
    assert ESCAPED in str(not_lance(TableId(["t"]), EVIL))


def test_an_error_says_all_that_it_says_on_one_line() -> None:
    error = InternalError(f"Internal error: {EVIL}")
    error.add_note(EVIL)
    reduce_to_lines(error)
    assert str(error) == f"Internal error: {ESCAPED}"
    assert error.__notes__ == [ESCAPED]


@given(st.text())
def test_one_line_is_printable_and_leaves_what_is(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert one_line(shown) == shown
