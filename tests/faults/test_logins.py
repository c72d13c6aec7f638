"""SASL logins that a metastore does not understand or rejects."""

from __future__ import annotations

import struct

import pytest
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, UnauthenticatedError

from tests.fakes.thrift_sasl import BAD, COMPLETE, ERROR, OK, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, Message
from tests.faults.backends import SECRET
from tests.faults.hive import Hive
from tests.faults.operations import check_text, connect, declare, describe, in_doubt
from tests.faults.server import FixedResponseServer

_LOGIN = {"auth": "plain", "user": "us", "password": f"password-{SECRET}"}


@pytest.mark.parametrize(
    ("response", "error", "text"),
    [
        (b"", ServiceUnavailableError, "no connection within 0.1 s"),
        (sasl_message(COMPLETE)[:3], ServiceUnavailableError, "the connection was lost"),
        (Message(EXCEPTION, "x", 0).encoded(), ServiceUnavailableError, "not a SASL message"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ServiceUnavailableError, "not a SASL message"),
        (struct.pack(">BI", OK, 2**31 - 1), ServiceUnavailableError, "not a SASL message"),
        (sasl_message(COMPLETE) * 2, ServiceUnavailableError, "not a SASL message"),
        (sasl_message(BAD, b"who are you?"), UnauthenticatedError, "SASL PLAIN: who are you?"),
        (sasl_message(ERROR, b"\xff\xfe"), UnauthenticatedError, "SASL PLAIN: "),
        (sasl_message(BAD), UnauthenticatedError, "SASL PLAIN: the server ends the login, status 3"),
        (sasl_message(BAD, f"no password-{SECRET}".encode()), UnauthenticatedError, "SASL PLAIN: no ***"),
    ],
    ids=["silence", "half", "no SASL", "HTTP", "huge", "twice", "refused", "no text", "no reason", "secret"],
)
async def test_a_failed_login_has_no_effect(response: bytes, error: type[LanceNamespaceError], text: str) -> None:
    catalog = Hive()
    # Only the server that says nothing is not waited for.
    login = _LOGIN if response else {**_LOGIN, "connect_timeout": "100ms"}
    async with FixedResponseServer(response) as server, connect(catalog, server.url, more=login) as ns:
        for ask in (describe, declare):
            result = await ask(ns, catalog.id("new"))
            assert type(result) is error and text in str(result) and not in_doubt(result), repr(result)
            check_text(result)
