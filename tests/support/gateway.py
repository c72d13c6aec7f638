"""A gateway as a process, and clients of it: one that follows the spec, and one that sends raw bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import lance_namespace as spec
from anyio.from_thread import start_blocking_portal
from lance_namespace.errors import LanceNamespaceError, from_error_code
from lance_namespace_urllib3_client.exceptions import ApiException
from lance_namespace_urllib3_client.models.error_response import ErrorResponse

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.conformance.targets import open_client, send
from lance_ns_async.gateway import Gateway, serving
from tests.support.operations import OPERATIONS
from tests.support.processes import CommandProcess, command

# By name and not by our own table of routes, because that is tested.
MODELS: dict[str, Any] = {
    operation: getattr(spec, f"{''.join(part.title() for part in operation.split('_'))}Request", None)
    for operation in OPERATIONS
} | {"list_all_tables": spec.ListTablesRequest, "create_table_scalar_index": spec.CreateTableIndexRequest}
"""The request model of each operation of the spec."""


@contextmanager
def serve(*options: str, environment: Mapping[str, str] | None = None) -> Iterator[tuple[CommandProcess, str]]:
    """Runs `lance-ns serve` in a separate process; provides its address, which is empty if it does not start."""
    with command("serve", "--port", "0", *options, environment=environment) as server:
        yield server, server.stdout.readline().strip()


@contextmanager
def served(impl: str, properties: Mapping[str, str]) -> Iterator[Gateway]:
    """Runs a gateway to a catalog in a separate thread while the context is open; it allows any location."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Gateway]:
        async with (
            AsyncNamespace.connect(impl, properties) as namespace,
            serving(namespace, allow_locations=None) as gateway,
        ):
            yield gateway

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(run()) as gateway:
        yield gateway


class Remote:
    """A namespace behind a gateway, by the spec's own client, with the interface of `AsyncNamespace`."""

    def __init__(self, gateway: Gateway) -> None:
        self._client = open_client(gateway.url, gateway.headers)

    async def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(name)

        async def call(request: Any, request_data: bytes | None = None) -> Any:
            model = MODELS[name].from_dict(request)
            return await anyio.to_thread.run_sync(self._call, name, model, request_data)

        return call

    def _call(self, operation: str, request: Any, data: bytes | None) -> Any:
        if id := getattr(request, "id", None):
            # This client refuses ids that cannot be written into a path.
            TableId(id)
        try:
            return send(self._client, operation, request, data)
        except ApiException as e:
            assert isinstance(e.body, str) and e.status >= 400
            raise error(e.body) from e


def error(body: str) -> LanceNamespaceError:
    """Returns the error in a response body, which must conform to the spec."""
    response = ErrorResponse.from_json(body)
    assert response is not None and response.error is not None
    return from_error_code(response.code, response.error)


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a server to one request."""

    status: int
    headers: Mapping[str, str]  # By name in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        return int(self.json["code"])


async def send_request(
    gateway: Gateway,
    method: str,
    target: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    token: bool = True,
) -> Response:
    """Returns a gateway's response to a request with this raw target; a body that is not bytes is sent as JSON."""
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {
        "Host": urlsplit(gateway.url).netloc,
        "Content-Length": str(len(raw)),
        "Connection": "close",
        **(gateway.headers if token else {}),
        **(headers or {}),
    }
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return await send_bytes(gateway, "\r\n".join(head).encode() + raw)


async def send_bytes(gateway: Gateway, data: bytes, *, tls: ssl.SSLContext | None = None) -> Response:
    """Returns a gateway's response to these bytes, until it closes the connection."""
    place = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=tls)
    try:
        # A server may respond and close the connection before it has received everything.
        with suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        return parse_response(await reader.read())
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def parse_response(data: bytes) -> Response:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    return Response(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)
