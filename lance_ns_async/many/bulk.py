"""Operations on many tables at once, which the spec does not have: describes, listings, walks, registrations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

import lance_namespace as spec
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends import operations
from lance_ns_async.backends.base import Declaration
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine import declare, describe
from lance_ns_async.engine.declare import Outcome, Record
from lance_ns_async.engine.list import Listed, Lister, TableFilter
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import raise_first, without_inner_calls
from lance_ns_async.lifecycle.claims import Claims
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.operations import requests
from lance_ns_async.operations.requests import FieldsOrId
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session, traced

T = TypeVar("T")


async def stream_tables(
    session: Session, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
) -> AsyncGenerator[tuple[TableId, Table | LanceNamespaceError], None]:
    places: describe.ListingPositions = {}
    for group in id_groups(session, ids):
        result = await describe_group(session, group, places, max_in_flight=max_in_flight)
        for id in group:
            yield id, result.outcome(id)
        # Otherwise it would stay in memory while the next group is described.
        del result


def id_groups(session: Session, ids: Iterable[Iterable[str]]) -> Iterator[Sequence[TableId]]:
    """Yields the ids in the groups that `stream_tables` describes; costs no call."""
    return describe.groups(map(session.table, requests.several(ids)))


async def describe_group(
    session: Session, group: Sequence[TableId], places: describe.ListingPositions, *, max_in_flight: int | None = None
) -> BulkResult[Table]:
    """Describes one group of ids.

    Args:
        group: The ids.
        places: The positions in listings after the previous group; updated for the next group.
        max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

    Returns:
        The described tables, and an error for each other id.
    """
    with session.caller.observers.operation("stream_tables"), session.within(None):
        workers = session.workers(max_in_flight)
        return await describe.describe_tables(session.backend, group, max_in_flight=workers, places=places)


@traced
async def list_many(
    session: Session,
    namespaces: Iterable[Iterable[str]],
    *,
    include: TableFilter | None = None,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> Listed:
    namespace_ids = dict.fromkeys(map(session.namespace, requests.several(namespaces)))
    with session.within(timeout), show_progress(progress, "list namespaces") as show:
        lister = Lister(session.backend, max_in_flight=session.workers(max_in_flight), include=include, tolerant=True)
        return await lister.many(namespace_ids, Steps(len(namespace_ids), show).advance)


@traced
async def register_tables(
    session: Session,
    tables: Iterable[spec.RegisterTableRequest | FieldsOrId],
    *,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> BulkResult[Table]:
    declarations: dict[TableId, Declaration] = {}
    for fields in tables:
        request = requests.parse(spec.RegisterTableRequest, fields)
        id = session.table(request.id)
        if requests.word(request.mode, "mode", ("create", "overwrite")) != "create":
            raise InvalidInputError(f"table {id}: register_tables replaces nothing; use register_table")
        if id in declarations:
            raise InvalidInputError(f"table {id}: it occurs twice")
        declarations[id] = Declaration(id, request.location, request.properties or {})
    result: dict[TableId, Outcome] = {}

    with session.within(timeout), show_progress(progress, "register tables") as show:
        steps = Steps(len(declarations), show)

        async def record(declaration: Declaration, outcome: Outcome) -> None:
            result[declaration.id] = outcome
            steps.advance()

        await register_each(session, declarations.values(), record, max_in_flight=session.workers(max_in_flight))
    return BulkResult(
        {id: outcome for id in declarations if isinstance(outcome := result[id], Table)},
        {id: outcome for id in declarations if isinstance(outcome := result[id], LanceNamespaceError)},
    )


async def register_each(
    session: Session, declarations: Iterable[Declaration], record: Record, *, max_in_flight: int
) -> None:
    """Registers each table whose data is at its location, and passes each outcome to `record`."""

    async def finish(declaration: Declaration, outcome: Outcome) -> None:
        session.locator.forget(declaration.id)
        await record(declaration, outcome)

    valid_declarations: list[Declaration] = []
    claims = Claims(session.backend)

    async def check(it: Declaration) -> None:
        try:
            session.backend.check_location(it.id, it.location or "")
            session.backend.check_declaration(it.id, it.location, it.properties)
            await claims.check_unclaimed(it.id, it.location or "")
            valid_declarations.append(it)
        except LanceNamespaceError as e:
            await record(it, e)

    await each(check, declarations, max_in_flight=max_in_flight)
    await declare.declare_tables(session.backend, valid_declarations, finish, max_in_flight=max_in_flight)


@traced
async def protect_tables(
    session: Session, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
) -> Sequence[TableId]:
    workers = session.workers(max_in_flight)
    changed_ids: list[TableId] = []
    errors: list[LanceNamespaceError] = []
    count = 0

    async def protect(id: TableId) -> None:
        try:
            if await session.backend.protect_table(await session.backend.describe_table(id)):
                changed_ids.append(id)
        except TableNotFoundError:
            # The table was dropped after it was listed.
            return
        except LanceNamespaceError as e:
            errors.append(e)
        finally:
            session.locator.forget(id)

    async with aclosing(table_groups(session, namespace, recursive=recursive)) as groups:
        async for group in groups:
            count += len(group)
            await each(protect, group, max_in_flight=workers)
    raise_first(errors, count)
    return sorted(changed_ids)


def table_groups(
    session: Session, namespace: Iterable[str] = (), *, recursive: bool = False
) -> AsyncGenerator[Sequence[TableId], None]:
    """Yields the results of `iter_tables` in the groups in which they arrive."""
    return _in_loop(session, "iter_tables", lambda: session.tree(namespace).tables(recursive=recursive))


def namespace_groups(
    session: Session, namespace: Iterable[str] = (), *, recursive: bool = False
) -> AsyncGenerator[Sequence[NamespaceId], None]:
    """Yields the results of `iter_namespaces` in the groups in which they arrive."""
    return _in_loop(session, "iter_namespaces", lambda: session.tree(namespace).namespaces(recursive=recursive))


async def _in_loop(
    session: Session, operation: str, walk: Callable[[], AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    """Yields the groups of a walk after a check that the session belongs to the running event loop."""
    session.check_loop()
    async with aclosing(walk()) as groups, aclosing(session.caller.observers.walk(operation, groups)) as observed:
        async for group in observed:
            yield group


async def flatten(groups: AsyncGenerator[Sequence[T], None]) -> AsyncGenerator[T, None]:
    """Yields the items of the groups."""
    async with aclosing(groups):
        try:
            async for group in groups:
                for item in group:
                    yield item
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__


async def exists(session: Session, id: Iterable[str]) -> bool:
    with session.operation():
        try:
            if isinstance(id, NamespaceId):
                await operations.describe_namespace(session.backend, session.namespace(id))
            else:
                await session.backend.describe_table(session.table(id))
        except (NamespaceNotFoundError, TableNotFoundError):
            return False
    return True
