"""Rights of a gateway's clients: which operations a principal may use, and on which tables."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import lance_namespace as spec
import lance_namespace.errors as err
from pydantic import BaseModel

from lance_ns_async.calls.paging import check_limit
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import shortened, spelled
from lance_ns_async.fleet import dropped_tables
from lance_ns_async.fleet.run import Report
from lance_ns_async.gateway.allowed_locations import is_below, named_places
from lance_ns_async.gateway.limits import bulk_request
from lance_ns_async.many import rows as many_rows
from lance_ns_async.many.patterns import Pattern, Selection
from lance_ns_async.many.row_results import encode
from lance_ns_async.many.similar_ids import similar_id
from lance_ns_async.masked import MaskedText
from lance_ns_async.model import DELIMITER, Id, NamespaceId, Table, TableId, local_path
from lance_ns_async.operations import searching
from lance_ns_async.session import Session
from lance_ns_async.spec.extensions import (
    UNAVAILABLE,
    DescribeTablesRequest,
    DescribeTablesResponse,
    SearchTablesRequest,
    WatchRequest,
)
from lance_ns_async.spec.responses import QueryTableResponse
from lance_ns_async.spec.routes import BY_OPERATION
from lance_ns_async.sql import run as run_sql
from lance_ns_async.sql.restrictions import Restrictions
from lance_ns_async.sql.run import SqlResult
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import aside

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")

Right = Literal["read", "write", "admin"]
"""What a principal may do: see rows and metadata; also add and change them; also remove and rename things."""

RIGHTS: Sequence[Right] = get_args(Right)  # Each includes those before it.

REMOVING = frozenset(
    {
        *("drop_namespace", "drop_table", "deregister_table", "rename_table", "alter_transaction"),
        *("batch_delete_table_versions", "delete_table_branch", "delete_table_tag", "drop_table_index"),
        *("alter_table_drop_columns", "restore_table"),
    }
)
"""The operations that require the right "admin"."""

_NAME = re.compile(r"[\w.+@-]{1,100}")

_OPERATION = {  # The operation for each part of a commit of several tables.
    "declare_table": "declare_table",
    "create_table_version": "create_table_version",
    "delete_table_versions": "batch_delete_table_versions",
    "deregister_table": "deregister_table",
}

_WITH_IDS = ("/v1/namespace", "/v1/table")
"""Beginnings of the paths of operations whose ids are those of tables and namespaces."""

_ARGUMENTS = SearchTablesRequest.model_fields.keys() | {"what", "include", "max_in_flight", "progress"}
"""Names that the further fields of a search may not have."""

_PAGE = 1000  # Minimum number of entries to list for a page of a listing from which entries are removed.

_LEAST_TIME = 0.001
"""Seconds for a search whose time has passed while it waited: it ends with no rows, like any that has too little."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A client of a gateway, and what it may do."""

    name: str
    right: Right = "admin"
    only: tuple[Pattern, ...] = ()  # The tables that the principal may use; empty for all.
    credentials: bool = True
    """Whether responses have storage options: the catalog's credentials, which may allow more than the rights."""
    token: MaskedText | None = field(default=None, compare=False, repr=False)
    """The verified token of the issuer; None for a token of the gateway itself."""

    @classmethod
    def parse(cls, name: str, right: object, only: Sequence[object] = (), *, credentials: object = False) -> Principal:
        """Returns a principal from the values of a file or a command line."""
        if not _NAME.fullmatch(name):
            raise err.InvalidInputError(f"name {name!r}: use letters, digits, '-', '_', '.', '+' and '@'")
        if right not in RIGHTS:
            value = "is missing" if right is None else repr(right)
            raise err.InvalidInputError(f"rights {value}: must be one of {', '.join(RIGHTS)}")
        if not isinstance(credentials, bool):
            raise err.InvalidInputError(f"credentials {credentials!r}: must be true or false")
        if not all(isinstance(text, str) for text in only):
            raise err.InvalidInputError("only: must be a list of patterns, such as 'sales.**'")
        return cls(name, cast("Right", right), tuple(Pattern.parse(str(text)) for text in only), credentials)

    def to_dict(self) -> dict[str, Any]:
        """Returns the arguments of `parse` after the name, as a file has them."""
        fields: dict[str, Any] = {"rights": self.right}
        if self.only:
            fields["only"] = [str(pattern.item) for pattern in self.only]
        return {**fields, "credentials": True} if self.credentials else fields

    def check(self, operation: str, request: BaseModel) -> None:
        """Checks that the principal may send a request; the answer does not depend on what exists."""
        needed = _needed(operation, request)
        if RIGHTS.index(needed) > RIGHTS.index(self.right):
            raise self._denied(operation, f"has the right {self.right!r}, and this requires {needed!r}")
        parts = [*_parts(request)]
        for inner, part in parts:
            self.check(inner, part)
        if not self.only or parts:
            return
        only = f"may use {', '.join(str(pattern.item) for pattern in self.only)} only"
        for what, _, _ in named_places(request):
            raise self._denied(what, f"{only}, and a location could be that of another table; omit it")
        for id in _ids(operation, request):
            if not self._may_use(operation, id):
                raise self._denied(f"{operation}: {spelled(id)}", only)

    def may_see(self, id: Id) -> bool:
        """Returns whether a listing shows a table, or a namespace, which leads to tables that the principal may use."""
        if not self.only:
            return True
        if isinstance(id, TableId):
            return any(pattern.matches(id) for pattern in self.only)
        namespace = NamespaceId(id)
        return any(pattern.holds(namespace) or pattern.leads(namespace) for pattern in self.only)

    def has_all(self, namespace: NamespaceId) -> bool:
        """Returns whether the principal may use every table in a namespace and below it."""
        return not self.only or any(pattern.covers(namespace) for pattern in self.only)

    def _may_use(self, operation: str, id: Id) -> bool:
        route = BY_OPERATION[operation]
        if isinstance(id, TableId) or (route.path.startswith(_WITH_IDS) and not route.changes):
            return self.may_see(id)
        return self.has_all(NamespaceId(id))

    def _denied(self, what: str, reason: str) -> err.PermissionDeniedError:
        return err.PermissionDeniedError(f"Permission denied: {what} ({self.name} {reason})")


OWNER = Principal("owner")  # The principal with the gateway's own token.


class GrantedNamespace:
    """A namespace as one principal may use it: its methods are the operations that the namespace has."""

    def __init__(self, namespace: object, principal: Principal) -> None:
        self._namespace = namespace
        self._principal = principal

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        if operation not in BY_OPERATION:
            raise AttributeError(f"{operation} is no operation of the spec")
        method: Callable[..., Awaitable[Any]] = getattr(self._namespace, operation)

        async def call(request: BaseModel, *rows: object) -> Any:
            self._principal.check(operation, request)
            if isinstance(request, spec.ListTablesRequest | spec.ListNamespacesRequest):
                return await self._list(operation, method, request)
            answer = await method(request, *rows)
            if not self._principal.credentials and getattr(answer, "storage_options", None):
                answer = answer.model_copy(update={"storage_options": None})
            return answer

        return call

    async def describe_tables(self, request: DescribeTablesRequest) -> DescribeTablesResponse:
        """Describes the tables that the principal may use; leaves out those with an error."""
        self._principal.check("describe_tables", request)
        describe: Any = getattr(self._namespace, "describe_tables")  # noqa: B009 - the type of the namespace is open
        parent = NamespaceId(request.id or ())
        ids = [id for id in map(parent.table, request.names) if self._principal.may_see(id)]
        async with self._bulk_request() as max_in_flight:
            result = await describe(ids, vend_credentials=bool(request.vend_credentials), max_in_flight=max_in_flight)
        for error in result.errors.values():
            # These concern all tables, and a client would ask for each of them again.
            if isinstance(error, err.NamespaceNotFoundError | err.ServiceUnavailableError | err.ThrottlingError):
                raise error
        return DescribeTablesResponse(tables={id.name: self._fields(it) for id, it in result.tables.items()})

    async def search_many(self, request: SearchTablesRequest) -> QueryTableResponse:
        """Searches the tables that the principal may use, as if there were no others."""
        self._principal.check("search_many", request)
        session = self._session("search_many")
        if wrong := request.query_fields.keys() & _ARGUMENTS:
            raise err.InvalidInputError(
                f"query_fields: {min(wrong)}: not a field of a query; pass it beside query_fields"
            )
        began = monotonic()
        async with self._bulk_request() as max_in_flight:
            waited = monotonic() - began
            ranked = await many_rows.search_many(
                session,
                request.tables,
                vector=request.vector,
                column=request.column,
                full_text=request.full_text,
                k=request.k,
                filter=request.filter,
                columns=request.columns,
                max_in_flight=max_in_flight,
                timeout=None if request.timeout is None else max(request.timeout - waited, _LEAST_TIME),
                include=self._principal.may_see if self._principal.only else None,
                **request.query_fields,
            )
        # Others do not exist for this principal.
        errors = {id: error for id, error in ranked.errors.items() if self._principal.may_see(id)}
        is_complete = request.timeout is None or monotonic() - began < request.timeout
        return QueryTableResponse(
            data=await aside(partial(encode, replace(ranked, errors=errors), is_complete=is_complete))
        )

    async def read_dataset(
        self, id: Sequence[str], work: Callable[[LanceDataset], T], snapshot: Snapshot, filter: str | None = None
    ) -> T:
        """Returns the result of `work` on the dataset of a table that the principal may query.

        Args:
            id: The table.
            work: The work, which runs in a thread.
            snapshot: The state of the dataset.
            filter: A condition that `work` uses; checked as in a query.
        """
        query = spec.QueryTableRequest(id=list(id), vector={}, k=1, filter=filter, branch=snapshot.branch)
        self._principal.check("query_table", query)
        session = self._session("query_table")
        await session.check_sql(searching.texts(query))
        return await session.read(id, lambda dataset, _: work(dataset), snapshot)

    async def dropped(self, most: int) -> tuple[Report, int]:
        """Returns the last dropped tables that the principal may use, below the root, and the number of all.

        The errors of folders are in the result if the principal may use all tables.

        Cost: see `fleet.dropped`.
        """
        session = self._session("dropped")
        if session.root is None:
            raise err.UnsupportedOperationError(
                "Not supported: dropped (the gateway has no root, or the catalog decides by the identity of callers)"
            )
        may_see = self._principal.may_see
        report, number = await dropped_tables.list_dropped(AsyncNamespace(session), include=may_see, most=most)
        if self._principal.only:
            report = replace(report, rows=[row for row in report.rows if isinstance(row.id, TableId)])
        return report, number

    async def undrop(self, location: str, id: TableId | None) -> Table:
        """Brings back a dropped table below the root, under its former id or another one, with the right to write.

        Raises:
            TableNotFoundError: There is none, or the principal may not use it.
            PermissionDeniedError: The principal may not declare a table with the id, or not create its namespace.

        Cost: see `fleet.undrop`.
        """
        session = self._session("undrop")
        options, record = session.backend.configured_options, None
        place, root = local_path(location) or location, session.root
        if root is not None and await asyncio.to_thread(is_below, place, local_path(root) or root):
            with suppress(err.TableNotFoundError):
                record = await dropped_tables.dropped_at(place, options)
        if record is None or not self._principal.may_see(record.id):
            raise err.TableNotFoundError(f"Table not found: undrop: no dropped table is at {shortened(location, 200)}")
        id = id or record.id
        self._principal.check("declare_table", spec.DeclareTableRequest(id=list(id)))
        if not self._principal.has_all(id.parent) and not await AsyncNamespace(session).exists(id.parent):
            self._principal.check("create_namespace", spec.CreateNamespaceRequest(id=list(id.parent)))
        return await dropped_tables.bring_back(session, record, id, options)

    async def similar_id(self, id: Id) -> Id | None:
        """Returns the id that the principal may use and an unknown one probably means; see `similar_ids.similar_id`."""
        session = getattr(self._namespace, "session", None)
        return await similar_id(session, id, self._principal.may_see) if isinstance(session, Session) else None

    async def sql(self, text: str, *, max_rows: int, memory_limit: int, timeout: float) -> SqlResult:
        """Runs a SELECT over the tables that the principal may use, as if there were no others.

        Long values are cut, and functions that build large values are refused: see `sql.restrictions`.
        """
        async with self._bulk_request() as max_in_flight:
            return await run_sql.sql(
                self._session("sql"),
                text,
                memory_limit=f"{memory_limit} B",
                threads=1,
                max_rows=max_rows,
                timeout=timeout,
                max_in_flight=max_in_flight,
                restrictions=Restrictions(self._principal.may_see),
            )

    def _session(self, operation: str) -> Session:
        session = getattr(self._namespace, "session", None)
        if not isinstance(session, Session):
            raise err.UnsupportedOperationError(
                f"Not supported: {operation} (the namespace of this gateway is no catalog)"
            )
        return session

    def _bulk_request(self) -> AbstractAsyncContextManager[int | None]:
        """Waits for the turn of a request for many tables; yields how many calls it may have in flight."""
        return nullcontext() if self._principal is OWNER else bulk_request(self._principal.name)

    def _fields(self, table: Table) -> dict[str, Any]:
        """Returns the fields of a description."""
        fields = {
            "location": table.location,
            "properties": None if table.properties is None else dict(table.properties),
            "storage_options": dict(table.storage_options or {}) if self._principal.credentials else None,
            "managed_versioning": table.managed_versioning or None,
            "version": table.version,
        }
        return {name: value for name, value in fields.items() if value is not None}

    async def _list(
        self,
        operation: str,
        method: Callable[..., Awaitable[Any]],
        request: spec.ListTablesRequest | spec.ListNamespacesRequest,
    ) -> Any:
        """Returns a page of a listing, filled with what the principal may see.

        Cost: for a page from which entries are removed, listings of at least 1,000 entries.
        """
        parent = NamespaceId(request.id or ())
        if self._principal.has_all(parent):
            return await method(request)
        check_limit(request.limit)
        field = "namespaces" if isinstance(request, spec.ListNamespacesRequest) else "tables"

        def is_visible(entry: str) -> bool:
            if operation == "list_all_tables":
                return self._principal.may_see(TableId(entry.split(DELIMITER)))
            return self._principal.may_see(parent.child(entry) if field == "namespaces" else parent.table(entry))

        limit, token, listed = request.limit, request.page_token, list[str]()
        left_out: dict[str, None] = {}
        while True:
            size = None if limit is None else max(limit - len(listed), _PAGE)
            page = await method(request.model_copy(update={"limit": size, "page_token": token}))
            entries = getattr(page, field)
            visible = [place for place, entry in enumerate(entries) if is_visible(entry)]
            if limit is not None and len(visible) > (left := limit - len(listed)):
                # The same page again, but shorter: its token continues behind the last entry that is shown.
                shorter = {"limit": visible[left - 1] + 1, "page_token": token}
                page = await method(request.model_copy(update=shorter))
                entries = getattr(page, field)
                visible = [place for place, entry in enumerate(entries) if is_visible(entry)]
            listed += (entries[place] for place in visible)
            names = (page.context or {}).get(UNAVAILABLE, "").split(",")
            left_out |= dict.fromkeys(name for name in names if name and self._principal.may_see(NamespaceId((name,))))
            token = page.page_token
            if not token or (limit is not None and len(listed) >= limit):
                context = {UNAVAILABLE: ",".join(left_out)} if left_out else None
                return page.model_copy(update={field: listed, "context": context})


def _needed(operation: str, request: BaseModel) -> Right:
    """Returns the right that a request requires."""
    if not BY_OPERATION[operation].changes:
        return "read"
    # A namespace that is overwritten is dropped first.
    overwrites = operation == "create_namespace" and str(getattr(request, "mode", "")).lower() == "overwrite"
    return "admin" if operation in REMOVING or overwrites else "write"


def _parts(request: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    """Yields the operations, with their requests, of a commit of several tables."""
    if isinstance(request, spec.BatchCommitTablesRequest):
        for part in request.operations:
            for name, operation in _OPERATION.items():
                if (inner := getattr(part, name)) is not None:
                    yield operation, inner
    elif isinstance(request, spec.BatchCreateTableVersionsRequest):
        yield from (("create_table_version", entry) for entry in request.entries)


def _ids(operation: str, request: BaseModel) -> Iterator[Id]:
    """Yields the tables and namespaces that a request uses."""
    names = tuple(getattr(request, "id", None) or ())
    path = BY_OPERATION[operation].path
    if path.startswith("/v1/table/{id}") and names:
        yield TableId(names)
    else:
        # Views and transactions are not named by patterns, so all tables are required for them.
        yield NamespaceId(names if path.startswith(_WITH_IDS) else ())
    if isinstance(request, WatchRequest | SearchTablesRequest):
        # Patterns select among the tables that the principal may use.
        yield from Selection.read(request.tables).ids
    if isinstance(request, spec.RenameTableRequest):
        yield TableId((*(request.new_namespace_id or names[:-1]), request.new_table_name))
