"""The namespaces and the configuration of the Iceberg REST API, for the backends of servers that have this API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from lance_ns_async.backends.base import Backend
from lance_ns_async.backends.shared.iceberg_wire import Routes, namespace_names, namespace_properties, new_key, routes
from lance_ns_async.backends.shared.response_checks import check_empty, ignore
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.model import NamespaceId, Page
from lance_ns_async.transports.http.transport import HttpTransport


class IcebergNamespaces(Backend):
    """A backend whose namespaces are those of an Iceberg REST API."""

    iceberg_path: ClassVar[str] = ""
    """Path of the API below that of the transport."""

    recognizes_changes: ClassVar[bool] = False
    """Whether a server that supports keys honours them for each change; others ignore them for namespaces."""

    def __init__(self, http: HttpTransport, warehouse: str | None, caller: Caller) -> None:
        """Creates the backend.

        Args:
            warehouse: The warehouse in the request for the configuration; None for none.
            caller: Its policy limits the time in which a change is sent again.
        """
        self._http = http
        self._caller = caller
        self._warehouse = warehouse
        self._routes: Routes | None = None
        self._configuration = SingleFlight(self._configure)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        routes = self._routes or await self._config()
        query = routes.page(token, limit)
        if parent:
            query.append(f"parent={routes.namespace(parent)}")
        return await self._http.request(
            "GET",
            self._path(routes.namespaces()),
            query="&".join(query),
            subject=parent,
            operation="list_namespaces",
            decode=namespace_names,
        )

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET",
            self._path(routes.namespaces(id)),
            subject=id,
            operation="describe_namespace",
            decode=partial(namespace_properties, id),
        )

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        routes = self._routes or await self._config()
        if id.parent:
            # Some servers create a child namespace even if its parent does not exist.
            await self._must_exist(id.parent, "describe_namespace")
        routes.namespace(id)
        return await self._http.request(
            "POST",
            self._path(routes.namespaces()),
            body={"namespace": list(id), "properties": dict(properties)},
            subject=id,
            operation="create_namespace",
            key=self._key(routes) if self.recognizes_changes else None,
            decode=partial(namespace_properties, id),
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        routes = self._routes or await self._config()
        await self._http.request(
            "DELETE",
            self._path(routes.namespaces(id)),
            subject=id,
            operation="drop_namespace",
            key=self._key(routes) if self.recognizes_changes else None,
            decode=check_empty,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _config(self) -> Routes:
        return await self._configuration.outcome(lambda: self._routes)

    async def _configure(self) -> Routes:
        warehouse = self._warehouse
        self._routes = await self._http.request(
            "GET",
            self._path("/config"),
            query=f"warehouse={quote(warehouse, safe='')}" if warehouse else "",
            subject=NamespaceId(),
            operation="get_config",
            decode=self._decode_config,
        )
        return self._routes

    def _decode_config(self, body: Any) -> Routes:
        return routes(body)

    def _key(self, routes: Routes) -> str | None:
        """Returns the key of a change; None if the server would forget it before the last attempt."""
        lifetime = routes.key_lifetime
        return new_key() if lifetime is not None and lifetime >= self._caller.policy.operation_timeout else None

    async def _must_exist(self, id: NamespaceId, operation: str) -> None:
        routes = self._routes or await self._config()
        await self._http.request(
            "HEAD", self._path(routes.namespaces(id)), subject=id, operation=operation, decode=ignore
        )

    def _path(self, path: str) -> str:
        return f"{self.iceberg_path}{path}"
