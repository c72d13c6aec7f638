"""Several catalogs as one namespace: the first name of each id is that of a catalog."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import lance_namespace as spec
import lance_namespace.errors as err
from pydantic import BaseModel

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.paging import decode_token, encode_token
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import one_line, suggest
from lance_ns_async.model import DELIMITER, NamespaceId, Table, TableId
from lance_ns_async.spec.extensions import UNAVAILABLE
from lance_ns_async.spec.routes import BY_OPERATION

log: logging.Logger = logging.getLogger(__name__)

_OF_ONE_CATALOG = frozenset({"search_many", "watch"})  # Operations that only a gateway of one catalog has.


class MountedNamespace:
    """The operations of several namespaces, whose names are the first level; one that fails does not affect the others.

    Args:
        mounts: The namespaces by name. They stay open when this is no longer used.
    """

    def __init__(self, mounts: Mapping[str, AsyncNamespace]) -> None:
        if not mounts:
            raise err.InvalidInputError("mounts: must not be empty")
        for name in mounts:
            if not name or DELIMITER in name:
                raise err.InvalidInputError(f"mount {name!r}: must not be empty, and not contain {DELIMITER!r}")
        self._mounts = dict(mounts)

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        if operation not in BY_OPERATION or operation in _OF_ONE_CATALOG or not hasattr(AsyncNamespace, operation):
            raise AttributeError(f"{operation} is no operation of the spec")

        return partial(self._forward, operation)

    async def _forward(self, operation: str, request: BaseModel, *rows: object) -> Any:
        """Returns the response of the mount that the first name of the request's id means."""
        names: Sequence[str] = getattr(request, "id", None) or ()
        if (answer := self._answer_above(operation, names)) is not None:
            return answer
        mount = self._mount(operation, names)
        answer = await getattr(mount, operation)(request.model_copy(update={"id": list(names[1:])}), *rows)
        return _outside(names[0], answer)

    def _answer_above(self, operation: str, names: Sequence[str]) -> BaseModel | None:
        """Returns the response about the root or a mount itself, which takes no call; None if a mount has to answer."""
        is_mount = len(names) == 1 and names[0] in self._mounts
        match operation:
            case "list_namespaces" if not names:
                return spec.ListNamespacesResponse(namespaces=sorted(self._mounts))
            case "list_tables" if not names:
                return spec.ListTablesResponse(tables=[])
            case "describe_namespace" if not names or is_mount:
                return spec.DescribeNamespaceResponse(properties={})
            case "namespace_exists" if not names or is_mount:
                return spec.NamespaceExistsResponse()
        return None

    async def list_all_tables(self, request: spec.ListTablesRequest) -> spec.ListTablesResponse:
        """Lists the tables of one mount after the other; the context names mounts left out because of errors."""
        token = decode_token(request.page_token)
        if not (token is None or (isinstance(token, list) and len(token) == 2 and token[0] in self._mounts)):
            raise err.InvalidInputError(f"page_token {request.page_token!r}: not one of this listing")
        start, inner = token or (min(self._mounts), None)
        tables: list[str] = []
        unavailable: list[str] = []
        for name in (it for it in sorted(self._mounts) if it >= start):
            left = None if request.limit is None else request.limit - len(tables)
            if left == 0:
                return _page(tables, unavailable, [name, None])
            part = request.model_copy(update={"id": [], "limit": left, "page_token": inner})
            inner = None
            try:
                page = await self._mounts[name].list_all_tables(part)
            except err.LanceNamespaceError as e:
                if len(unavailable) + 1 == len(self._mounts):
                    raise
                # Its clients may not be allowed to know the address in the error.
                log.warning("gateway: mount %s is left out of a listing: %s", name, one_line(str(e)))
                unavailable.append(name)
                continue
            tables += (f"{name}{DELIMITER}{id}" for id in page.tables)
            if page.page_token:
                return _page(tables, unavailable, [name, page.page_token])
        return _page(tables, unavailable, None)

    async def rename_table(self, request: spec.RenameTableRequest) -> spec.RenameTableResponse:
        """Renames a table within a mount."""
        names, target = request.id or [], request.new_namespace_id
        mount = self._mount("rename_table", names)
        if target is not None and target[:1] != names[:1]:
            raise err.UnsupportedOperationError(
                f"Not supported: rename_table (from {names[0]!r} to another catalog; register the table there)"
            )
        update = {"id": names[1:], "new_namespace_id": None if target is None else target[1:]}
        return await mount.rename_table(request.model_copy(update=update))

    async def batch_create_table_versions(
        self, request: spec.BatchCreateTableVersionsRequest
    ) -> spec.BatchCreateTableVersionsResponse:
        """Creates versions of tables of one mount."""
        mount = self._common_mount("batch_create_table_versions", [entry.id for entry in request.entries])
        entries = [entry.model_copy(update={"id": entry.id[1:]}) for entry in request.entries]
        return await mount.batch_create_table_versions(request.model_copy(update={"entries": entries}))

    async def batch_commit_tables(self, request: spec.BatchCommitTablesRequest) -> spec.BatchCommitTablesResponse:
        """Commits changes of tables of one mount."""
        parts = [{name: part for name, part in operation if part is not None} for operation in request.operations]
        ids = [part.id or [] for operation in parts for part in operation.values()]
        mount = self._common_mount("batch_commit_tables", ids)
        operations = [
            original.model_copy(
                update={name: part.model_copy(update={"id": part.id[1:]}) for name, part in operation.items()}
            )
            for original, operation in zip(request.operations, parts, strict=True)
        ]
        return await mount.batch_commit_tables(request.model_copy(update={"operations": operations}))

    async def describe_tables(
        self, ids: Iterable[Iterable[str]], *, vend_credentials: bool = False, max_in_flight: int | None = None
    ) -> BulkResult[Table]:
        """Describes many tables, of all mounts concurrently; see `AsyncNamespace.describe_tables`."""
        by_mount: dict[str, list[TableId]] = {}
        errors: dict[TableId, err.LanceNamespaceError] = {}
        for id in map(TableId, ids):
            if len(id) > 1 and id[0] in self._mounts:
                by_mount.setdefault(id[0], []).append(TableId(id[1:]))
            else:
                errors[id] = err.TableNotFoundError(f"Table not found: {id}")

        tables: dict[TableId, Table] = {}

        async def describe(name: str, inner: Sequence[TableId]) -> None:
            result = await self._mounts[name].describe_tables(
                inner, vend_credentials=vend_credentials, max_in_flight=max_in_flight
            )
            for id, table in result.tables.items():
                tables[TableId((name, *id))] = replace(table, id=TableId((name, *id)))
            errors.update((TableId((name, *id)), error) for id, error in result.errors.items())

        async with anyio.create_task_group() as group:
            for name, inner in by_mount.items():
                group.start_soon(describe, name, inner)
        return BulkResult(tables, errors)

    async def own_folders(self, parent: Iterable[str]) -> Sequence[str]:
        """Returns the folders of a namespace; see `AsyncNamespace.own_folders`."""
        name, *inner = NamespaceId(parent) or [""]
        return await self._mounts[name].own_folders(inner) if name in self._mounts else ()

    @contextmanager
    def observe(self, observer: Observer) -> Iterator[None]:
        """Passes the remote calls of all mounts to `observer` while the context is open."""
        with ExitStack() as stack:
            for mount in self._mounts.values():
                stack.enter_context(mount.observe(observer))
            yield

    def _mount(self, operation: str, names: Sequence[str]) -> AsyncNamespace:
        """Returns the namespace that the first name means."""
        if not names:
            raise err.InvalidInputError(
                f"{operation}: the first name of the id is missing; {suggest('', self._mounts)}"
            )
        if names[0] not in self._mounts:
            hint = suggest(names[0], self._mounts)
            raise err.NamespaceNotFoundError(f"Namespace not found: {names[0]} ({operation}: {hint})")
        return self._mounts[names[0]]

    def _common_mount(self, operation: str, ids: Sequence[Sequence[str]]) -> AsyncNamespace:
        firsts = {tuple(id[:1]) for id in ids}
        if len(firsts) > 1:
            raise err.UnsupportedOperationError(f"Not supported: {operation} of tables of several catalogs")
        return self._mount(operation, next(iter(firsts), ()))


def _page(tables: list[str], unavailable: Sequence[str], token: Any) -> spec.ListTablesResponse:
    context = {UNAVAILABLE: ",".join(unavailable)} if unavailable else None
    page_token = None if token is None else encode_token(token)
    return spec.ListTablesResponse(tables=tables, context=context, page_token=page_token)


def _outside(mount: str, answer: Any) -> Any:
    """Returns a response with the ids that it has outside of its mount."""
    fields = {name: getattr(answer, name, None) for name in ("id", "namespace")}
    update = {name: [mount, *names] for name, names in fields.items() if isinstance(names, list)}
    return answer.model_copy(update=update) if update else answer
