"""The operations on namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress

import lance_namespace as spec
from lance_namespace.errors import InvalidInputError, NamespaceNotEmptyError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends import operations
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import spelled
from lance_ns_async.lifecycle import replacing
from lance_ns_async.model import NamespaceId, Page, TableId
from lance_ns_async.operations import requests
from lance_ns_async.operations.requests import operation
from lance_ns_async.operations.tables import Keep, drop_table, retention_of
from lance_ns_async.session import Session
from lance_ns_async.spec.responses import ListNamespacesResponse
from lance_ns_async.storage.locations import check_location, root_uri


@operation
async def list_namespaces(session: Session, request: spec.ListNamespacesRequest) -> spec.ListNamespacesResponse:
    parent = session.namespace(request.id)

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return session.lister().sort(await session.backend.list_namespaces(parent, token, size))

    with session.operation():
        if _is_deepest(session, parent):
            await operations.describe_namespace(session.backend, parent)
            return ListNamespacesResponse(namespaces=[])
        page = await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
    names = [session.backend.listed_name(parent.child(name)) for name in page.items]
    return ListNamespacesResponse(namespaces=names, page_token=page.token)


@operation
async def describe_namespace(
    session: Session, request: spec.DescribeNamespaceRequest
) -> spec.DescribeNamespaceResponse:
    with session.operation():
        properties = await operations.describe_namespace(session.backend, session.namespace(request.id))
    return spec.DescribeNamespaceResponse(properties=dict(properties))


@operation
async def create_namespace(session: Session, request: spec.CreateNamespaceRequest) -> spec.CreateNamespaceResponse:
    id = session.namespace(request.id)
    mode = requests.word(request.mode, "mode", ("create", "exist_ok", "overwrite"))
    properties = request.properties or {}
    if "drop_retention" in properties:
        raise InvalidInputError(
            f"namespace {spelled(id)}: drop_retention: a property of the connection, which has no effect here; pass it "
            "to connect, or keep to drop_table"
        )
    for key in session.backend.capabilities.location_properties:
        if key in properties:
            check_location(f"namespace {spelled(id)}", properties[key], folder=True)
    with session.changing() if mode == "overwrite" else session.operation():
        if mode == "overwrite":
            result = await replacing.namespace(session.backend, id, properties)
        elif mode == "exist_ok":
            result = await operations.keep_or_create_namespace(session.backend, id, properties)
        else:
            result = await operations.create_namespace(session.backend, id, properties)
    return spec.CreateNamespaceResponse(properties=dict(result))


@operation
async def drop_namespace(
    session: Session, request: spec.DropNamespaceRequest, *, keep: Keep | None = None
) -> spec.DropNamespaceResponse:
    id = session.namespace(request.id)
    mode = requests.word(request.mode, "mode", ("fail", "skip"))
    behavior = requests.word(request.behavior, "behavior", ("restrict", "cascade"))
    if not id:
        raise InvalidInputError("namespace id []: the root cannot be dropped")
    can_cascade = session.backend.capabilities.cascades
    if behavior == "cascade" and can_cascade and (seconds := retention_of(session, keep)):
        await _drop_tables(session, id, seconds)
    with session.changing():
        try:
            await session.backend.drop_namespace(id, cascade=behavior == "cascade" and can_cascade)
        except NamespaceNotFoundError:
            if mode != "skip":
                raise
        except NamespaceNotEmptyError as e:
            if behavior == "restrict" or can_cascade:
                raise
            raise InvalidInputError(
                f"behavior {request.behavior!r}: this catalog drops empty namespaces only; drop what is in {id} "
                f"first ({e})"
            ) from e
    return spec.DropNamespaceResponse()


async def _drop_tables(session: Session, namespace: NamespaceId, seconds: float) -> None:
    """Drops the tables of a subtree, which can be brought back."""

    async def drop(id: TableId) -> None:
        with suppress(TableNotFoundError):  # Another client has dropped it.
            await drop_table(session, {"id": list(id)}, keep=seconds)

    with suppress(NamespaceNotFoundError):
        async with aclosing(session.tree(namespace).tables(recursive=True)) as groups:
            async for group in groups:
                await each(drop, group, max_in_flight=session.workers())


@operation
async def namespace_exists(session: Session, request: spec.NamespaceExistsRequest) -> spec.NamespaceExistsResponse:
    with session.operation():
        await operations.describe_namespace(session.backend, session.namespace(request.id))
    return spec.NamespaceExistsResponse()


async def own_folders(session: Session, parent: Iterable[str]) -> Sequence[str]:
    folders: list[str] = []
    if session.root is not None:
        folders.append(root_uri(session.root))
        if session.backend.capabilities.relative_locations:
            folders.append(session.root)
    above = session.namespace(parent)
    can = session.backend.capabilities
    if above and len(above) >= can.min_depth:
        with session.operation(), suppress(InvalidInputError):
            # A catalog without any default location refuses to return one.
            place = await session.backend.layout_location(above.table("table"))
            if place is not None:
                folders.append(place.rpartition("/")[0])
            elif can.location_properties:
                properties = await session.backend.describe_namespace(above)
                folders.extend(properties[key] for key in can.location_properties if key in properties)
    return folders


def _is_deepest(session: Session, id: NamespaceId) -> bool:
    deepest = session.backend.capabilities.max_depth
    return deepest is not None and len(id) >= deepest
