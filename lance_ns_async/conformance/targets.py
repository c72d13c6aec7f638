"""What is tested: a class, or a server of the REST protocol by the spec's own client."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
from lance_namespace import LanceNamespace
from lance_namespace_urllib3_client import api
from lance_namespace_urllib3_client.api_client import ApiClient
from lance_namespace_urllib3_client.configuration import Configuration
from lance_namespace_urllib3_client.exceptions import ApiException
from urllib3.exceptions import HTTPError

_APIS = [it for name, it in vars(api).items() if name.endswith("Api")]
_NOT_SERVED = (404, 405, 501)
"""Statuses of a server without the route of an operation, unless the body is an error of the spec."""


@dataclass(frozen=True)
class Target:
    """An implementation of the spec."""

    name: str
    """What the report calls it."""
    connect: Callable[[], LanceNamespace] = field(repr=False)
    """Opens a client; some checks use two."""
    parent: Sequence[str] = ()
    """The namespace in which the checks create their namespaces; empty for the root."""
    takes_mappings: bool = False
    """Whether requests may be passed as mappings, as Lance's Rust side does; for classes alone."""


def class_target(
    path: str, properties: Mapping[str, str], *, parent: Sequence[str] = (), name: str | None = None
) -> Target:
    """Returns a class as a target.

    Args:
        path: The class, e.g. `lance.namespace.DirectoryNamespace`; it is a `LanceNamespace`.
        properties: The arguments of the class.
        parent: The namespace for the namespaces of the checks; empty for the root.
        name: What the report calls it; None for the path.

    Raises:
        InvalidInputError: There is no such class, or it is no `LanceNamespace`.
    """
    module, _, attribute = path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise err.InvalidInputError(f"class {path!r}: {e}; pass it as package.module.Class") from e
    if not (inspect.isclass(cls) and issubclass(cls, LanceNamespace)):
        raise err.InvalidInputError(f"class {path!r}: it is no subclass of lance_namespace.LanceNamespace")
    return Target(name or path, lambda: cls(**properties), tuple(parent), takes_mappings=True)


def server_target(
    url: str, headers: Mapping[str, str] | None = None, *, parent: Sequence[str] = (), name: str | None = None
) -> Target:
    """Returns a server of the Lance REST Namespace protocol as a target; it is called by the spec's own client.

    Args:
        url: The base of its routes, e.g. `http://localhost:2333`.
        headers: Headers of each request, e.g. `Authorization`; None for none.
        parent: The namespace for the namespaces of the checks; empty for the root.
        name: What the report calls it; None for the address.

    Raises:
        InvalidInputError: The address is no HTTP address.
    """
    if not url.startswith(("http://", "https://")):
        raise err.InvalidInputError(f"server {url!r}: pass the address as http://HOST:PORT or https://HOST")
    return Target(name or url, lambda: _Remote(url.rstrip("/"), headers or {}), tuple(parent))


def close(client: LanceNamespace) -> None:
    """Closes the connections of a client, if it can be closed."""
    if hasattr(client, "close"):
        client.close()


class _Remote(LanceNamespace):
    """A server, with the interface of a class."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._client = open_client(url, headers)

    def namespace_id(self) -> str:
        return self._url

    def call(self, operation: str, request: Any, data: bytes | None = None) -> Any:
        """Calls an operation of the spec; unsupported if the server has no route for it."""
        try:
            return send(self._client, operation, request, data)
        except ApiException as e:
            raise _error(operation, e) from e
        except HTTPError as e:
            raise err.ServiceUnavailableError(f"{self._url} did not respond to {operation}: {e}") from e

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()


def open_client(url: str, headers: Mapping[str, str]) -> ApiClient:
    """Returns the spec's own client of a server, which repeats no call."""
    client = ApiClient(Configuration(host=url, retries=False))
    client.default_headers.update(headers)
    return client


def send(client: ApiClient, operation: str, request: Any, data: bytes | None) -> Any:
    """Returns the response to an operation, by the spec's own client, in the form that a class returns."""
    method = next((getattr(it(client), operation) for it in _APIS if hasattr(it, operation)), None)
    if method is None:
        raise err.UnsupportedOperationError(f"the spec has no route for {operation}")
    names = [name for name in inspect.signature(method).parameters if name[0] != "_"]
    arguments = {name: _argument(name, request, data) for name in names}
    return _response(operation, method(**{name: value for name, value in arguments.items() if value is not None}))


for _name, _method in vars(LanceNamespace).items():
    if inspect.isfunction(_method) and not _name.startswith("_") and _name != "namespace_id":
        setattr(_Remote, _name, partialmethod(_Remote.call, _name))


def _argument(name: str, request: Any, data: bytes | None) -> Any:
    match name:
        case "id":
            # A path cannot have an empty part, so the root is the delimiter alone.
            return "$".join(request.id) if request.id else "$"
        case "delimiter":
            return None
        case "body":
            return data
        case "request_body":
            return request.metadata
        case "properties" | "storage_options":
            value = getattr(request, name)
            return None if value is None else json.dumps(value)
    return request if name.endswith("_request") else getattr(request, name)


def _response(operation: str, result: Any) -> Any:
    match operation:
        case "count_table_rows":
            return spec.CountTableRowsResponse(count=result)
        case "query_table":
            return spec.QueryTableResponse(data=bytes(result))
        case "table_exists":
            return spec.TableExistsResponse()
        case "namespace_exists":
            return spec.NamespaceExistsResponse()
        case "update_table_schema_metadata":
            return spec.UpdateTableSchemaMetadataResponse(metadata=result)
    return result


def _error(operation: str, error: ApiException) -> Exception:
    """Returns the error of the spec in a response; a response without one is a fault of the server, unless unrouted."""
    text = error.body if isinstance(error.body, str) else ""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("code"), int):
        return err.from_error_code(body["code"], str(body.get("error") or body.get("detail") or ""))
    if error.status in _NOT_SERVED and not isinstance(body, dict):
        return err.UnsupportedOperationError(f"HTTP {error.status} for {operation}")
    return err.InternalError(f"HTTP {error.status} without an error of the spec for {operation}: {text[:200]}")
