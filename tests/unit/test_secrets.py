"""Local variables of failing connects, which error collectors record for each frame of a traceback."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, Namespace, registry
from lance_ns_async.registry import CLASS_PATHS
from lance_ns_async.spark import LocationResolver
from tests.fakes.sockets import Reply, Server, http
from tests.fakes.thrift import sasl_message

SECRET = "hush-hush-7"
SECRETS: Mapping[str, Mapping[str, str]] = {
    "dir": {},
    "glue": {"secret_access_key": SECRET},
    "hive2": {"sasl_password": SECRET},
    "hive3": {"sasl_password": SECRET},
    "iceberg": {"credential": f"id:{SECRET}"},
    "lakekeeper": {"auth_token": SECRET},
    "polaris": {"credential": f"id:{SECRET}"},
    "rest": {"header.x-api-key": SECRET},
    "unity": {"auth_token": SECRET},
}
WRONG: Mapping[str, Mapping[str, str]] = {
    "unknown": {"unknown": SECRET},
    "invalid": {"max_in_flight": SECRET},
    "proxy": {"proxy": f"ftp://user:{SECRET}@host"},
    "bundle": {"ca_bundle": "/no/such/file"},
}


def variables(error: BaseException) -> Iterator[tuple[str, str, object]]:
    """Yields function, name and value of the local variables of the package in all frames of an error."""
    chain: BaseException | None = error
    while chain is not None:
        frame = chain.__traceback__
        while frame is not None:
            if "/lance_ns_async/" in frame.tb_frame.f_code.co_filename:
                for name, value in frame.tb_frame.f_locals.items():
                    yield frame.tb_frame.f_code.co_qualname, name, value
            frame = frame.tb_next
        chain = chain.__cause__ or chain.__context__


def by_class(impl: str, properties: Mapping[str, str]) -> Any:
    module, _, name = CLASS_PATHS[impl].rpartition(".")
    return getattr(__import__(module), name)(**properties)


CONNECT: Mapping[str, Callable[[str, Mapping[str, str]], Any]] = {
    "async": AsyncNamespace.connect,
    "sync": Namespace.connect,
    "init": lambda impl, properties: Namespace(impl=impl, properties=properties),
    "positional": Namespace,
    "spark": LocationResolver.connect,
    "class": by_class,
}


@pytest.mark.parametrize("connect", CONNECT)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_no_variable_of_a_failing_connect_shows_a_secret(impl: str, wrong: str, connect: str) -> None:
    properties = {**registry.BACKENDS[impl].example, **SECRETS[impl], "storage.secret": SECRET, **WRONG[wrong]}
    with pytest.raises(InvalidInputError) as raised:
        CONNECT[connect](impl, properties)
    frame_variables = list(variables(raised.value))
    assert frame_variables and SECRET not in str(raised.value)
    assert [(function, name) for function, name, value in frame_variables if SECRET in repr(value)] == []


@pytest.mark.parametrize("connect", ["async", "sync", "spark"])
def test_a_text_in_place_of_properties_is_not_shown(connect: str) -> None:
    with pytest.raises(InvalidInputError, match="this is a str") as raised:
        CONNECT[connect]("dir", f"root={SECRET}")  # type: ignore[arg-type]
    assert [name for _, name, value in variables(raised.value) if SECRET in repr(value)] == []


VENDED = {"s3.secret-access-key": SECRET, "aws_secret_access_key": SECRET, "secret_access_key": SECRET}
PRINT = f"{sys.executable} -c \"print('{SECRET}')\""
QUOTE_ARGUMENTS = f"{sys.executable} -c \"import sys; sys.exit(' '.join(sys.argv))\" {SECRET}-of-a-command"
GLUE = {"region": "eu-central-1", "access_key_id": "k", "secret_access_key": SECRET}
ROLE = {"assume_role_arn": "arn:aws:iam::123456789012:role/r", "assume_role_external_id": SECRET}
SIGNED = {"sigv4-enabled": "true", "signing-region": "eu-central-1", "access-key-id": "k"}
SIGN_IN: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "glue": ("glue", {**GLUE, "session_token": SECRET}),
    "glue-role": ("glue", {**GLUE, **ROLE}),
    "hive3": ("hive3", {"auth": "plain", "user": "u", "password": SECRET}),
    "iceberg-token": ("iceberg", {"auth_token": SECRET}),
    "iceberg-client": ("iceberg", {"credential": f"id:{SECRET}"}),
    "iceberg-exchange": ("iceberg", {"subject_token": SECRET}),
    "iceberg-file": ("iceberg", {"auth_token_file": ""}),
    "iceberg-files": ("iceberg", {"client_secret_file": "", "subject_token_file": ""}),
    "iceberg-header": ("iceberg", {"header.x-api-key": SECRET}),
    "iceberg-command": ("iceberg", {"auth_command": PRINT}),
    "iceberg-command-fails": ("iceberg", {"auth_command": QUOTE_ARGUMENTS}),
    "iceberg-signed": (
        "iceberg",
        {f"rest.{key}": it for key, it in {**SIGNED, "secret-access-key": SECRET, "session-token": SECRET}.items()},
    ),
    "lakekeeper": ("lakekeeper", {"auth_token": SECRET, "warehouse": "w"}),
    "polaris": ("polaris", {"credential": f"id:{SECRET}"}),
    "rest": ("rest", {"header.x-api-key": SECRET}),
    "unity": ("unity", {"auth_token": SECRET, "catalog": "c"}),
}
JUNK = json.dumps({"access_token": SECRET, "config": VENDED, "storage_options": VENDED, "location": 7, "metadata": 7})
RESPONSES: Mapping[str, Reply] = {
    "401": http(401, json.dumps({"error": {"message": SECRET, "type": "x", "code": 401}})),
    "403": http(403, f"no {SECRET}"),
    "500": http(500, f"<html>{SECRET}</html>"),
    "noise": Reply(b"\x00\x01 noise\r\n\r\n", "close"),
    "no JSON": http(200, f'{{"access_token": "{SECRET}", '),
    "another form": http(200, JUNK),
    "a token, and then another form": http(200, json.dumps({**json.loads(JUNK), "access_token": f"{SECRET}-1"})),
    "a token, and then no JSON": Reply(),
}


class _Refusing(Server):
    """Sends the same response to each request, except to those for tokens and configurations if `login`."""

    def __init__(self, response: Reply, login: bool) -> None:
        super().__init__()
        self._response = response
        self._login = login

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(2**16):
            response = self._response
            if head.startswith(b"\x01"):
                response = Reply(sasl_message(3, SECRET.encode()), "close")
            elif self._login and (b"token" in head.split(b"\r\n")[0] or b"/config" in head.split(b"\r\n")[0]):
                response = http(200, json.dumps({"access_token": f"{SECRET}-1", "defaults": {}, "overrides": {}}))
            writer.write(response.data)
            await writer.drain()
            if response.then == "close":
                break
        writer.close()


def leaves(value: object) -> Iterator[str]:
    """Yields what a collector writes for a variable."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(key)
            yield from leaves(item)
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes | bytearray):
        for item in value:
            yield from leaves(item)
    else:
        yield repr(value)


@pytest.mark.parametrize("failure", [*RESPONSES, "refused"])
@pytest.mark.parametrize("sign_in", SIGN_IN)
async def test_no_variable_of_a_failing_call_shows_a_secret(sign_in: str, failure: str, tmp_path: Path) -> None:
    impl, properties = SIGN_IN[sign_in]
    (file := tmp_path / "file").write_text(SECRET)
    properties = {key: str(file) if key.endswith("_file") else value for key, value in properties.items()}
    login = failure.startswith("a token")
    response = RESPONSES["no JSON" if failure.endswith("no JSON") else failure] if failure in RESPONSES else Reply()
    async with _Refusing(response, login) as server:
        port = 1 if failure == "refused" else server.port
        address = {"hive3": {"uri": f"thrift://127.0.0.1:{port}"}, "rest": {"uri": f"http://127.0.0.1:{port}"}}.get(
            impl, {"endpoint": f"http://127.0.0.1:{port}"}
        )
        if "assume_role_arn" in properties:
            address["sts_endpoint"] = address["endpoint"]
        limits = {"max_retries": "0", "storage.secret": SECRET}
        async with AsyncNamespace.connect(impl, {**properties, **address, **limits}) as namespace:
            with pytest.raises(LanceNamespaceError) as raised:
                await namespace.describe_table({"id": ["c", "n", "t"][-3 if impl in ("unity", "polaris") else -2 :]})
    frame_variables = list(variables(raised.value))
    assert frame_variables
    shown = {
        (function, name) for function, name, value in frame_variables if any(SECRET in text for text in leaves(value))
    }
    assert shown == set()
