"""Audits: what the catalog and the storage disagree about, and repairs by name of the kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError

from lance_ns_async.calls.tasks import each
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import suggest
from lance_ns_async.fleet import audit_checks
from lance_ns_async.fleet.audit_checks import KINDS, Finding, StorageState
from lance_ns_async.fleet.reading import describe, list_names, read_and_examine
from lance_ns_async.fleet.run import Report, Run, failure_row, for_async, start
from lance_ns_async.fleet.unclaimed import find_unclaimed
from lance_ns_async.lifecycle import replacing
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import tables as table_operations
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.storage.threads import THREADS, in_thread
from lance_ns_async.tabular import Row

FIXED = "fixed"


@for_async
async def audit(
    namespace: AsyncNamespace,
    what: What,
    *,
    fix: Iterable[str] = (),
    data_under: str | None = None,
    deep: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Compares the registrations of a catalog with the storage.

    A table with a finding is described and looked at again, so that a table which is changed or dropped meanwhile is
    not reported. Nothing is changed without `fix`, and no fix deletes data.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        fix: The kinds of findings to repair; see `audit_checks.KINDS`.
        data_under: A folder or bucket in which tables are searched that no table of the whole catalog claims; None for
            no search.
        deep: Whether the files of each newest version are looked for, and the ends of some of its data files are read.
        storage_options: Options for this search; None uses those of the catalog's properties, and the environment.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed tables and the total.

    Returns:
        A row for each finding: its outcome is the kind, or "fixed". One of data that no table claims has the fields
            `bytes` and `modified`: the size of its files and the time of their last change in a local folder, else of
            the newest version; None if there is no version. An item that could not be examined because of the
            catalog is "missing", "denied" or "failed".

    Raises:
        InvalidInputError: `fix` contains a kind that does not exist or has no fix, or an id is invalid; nothing was
            called. Or there is no folder `data_under`.
        LanceNamespaceError: With `data_under`, the folder could not be listed, or the catalog not be read completely.

    Cost:
        The listings, a bulk describe, one call for each namespace, and one open for each table. One more describe and
        open for each table with a finding. With `deep`, two listings of the storage and at most 100 small reads for
        each table. With `data_under` the calls of `find_unclaimed`.
    """
    kinds = _fixable(fix)
    selection = Selection.read(what)
    session = namespace.session
    with start("audit", namespace, progress=progress) as run:
        capabilities = session.backend.capabilities
        suspects: list[Finding] = []

        async def examine(table: Table) -> None:
            suspects.extend(await _examine(session, table, deep))

        reading = await read_and_examine(session, selection, examine, run, with_columns=capabilities.stores_columns)
        run.rows += reading.failure_rows()
        for subject, error in reading.unread_properties.items():
            run.add(failure_row(subject, error))
        tables = reading.tables
        suspect_ids = {finding.id for finding in [*suspects, *audit_checks.check_places(tables)]}
        confirmed = await _describe_again(session, [id for id in tables if id in suspect_ids], run)
        run.expect(len(confirmed))
        first = {(finding.kind, finding.id) for finding in suspects}
        findings: list[Finding] = []

        async def examine_again(table: Table) -> None:
            findings.extend(it for it in await _examine(session, table, deep) if (it.kind, it.id) in first)
            run.advance()

        with session.within(None):
            await each(examine_again, confirmed.values(), max_in_flight=THREADS)
        # Both tables of a pair have to be there still; only tables with findings can be in one.
        now = {**{id: table for id, table in tables.items() if id not in suspect_ids}, **confirmed}
        findings += [it for it in audit_checks.check_places(now) if it.id in suspect_ids]
        findings += audit_checks.check_namespaces(reading.namespaces, capabilities.location_properties)
        findings += await _find_lost(session, reading.vanished)
        if data_under is not None:
            findings += await find_unclaimed(session, data_under, storage_options, run)
        await _report(session, findings, kinds, run)
        return run.report(frozenset(KINDS))


def _fixable(fix: Iterable[str]) -> frozenset[str]:
    kinds = frozenset([fix] if isinstance(fix, str) else fix)
    names = [name for name, kind in KINDS.items() if kind.fix is not None]
    for name in sorted(kinds):
        if name in KINDS and name not in names:
            raise InvalidInputError(f"fix {name!r}: it has no fix, because only you can decide; use {', '.join(names)}")
        if name not in names:
            raise InvalidInputError(f"fix {name!r}: unknown, {suggest(name, names, quoted=True)}")
    return kinds


async def _describe_again(session: Session, ids: list[TableId], run: Run) -> Mapping[TableId, Table]:
    """Returns the current registrations; a table that was dropped meanwhile has none."""
    described = await describe(session, ids, with_columns=session.backend.capabilities.stores_columns)
    for id, error in described.errors.items():
        if not isinstance(error, TableNotFoundError):
            run.add(failure_row(id, error))
    return described.tables


async def _find_lost(session: Session, ids: Collection[TableId]) -> Sequence[Finding]:
    """Returns findings for the listed tables that the catalog still does not find. Cost: a listing a namespace."""
    names = await list_names(session, {id.parent for id in ids})
    listed = [id for id in ids if id.name in names[id.parent]]
    described = await describe(session, listed)
    lost = [(id, error) for id, error in described.errors.items() if isinstance(error, TableNotFoundError)]
    return [Finding(audit_checks.METADATA_MISSING, id, f"the catalog lists it, but: {error}") for id, error in lost]


async def _examine(session: Session, table: Table, deep: bool = False) -> Iterable[Finding]:
    """Returns the findings about one table. Cost: that of `audit_checks.look`."""
    try:
        table = await session.with_credentials(table)
        state = await in_thread(table, lambda: audit_checks.look(table, session.opener, deep=deep))
    except LanceNamespaceError as e:
        state = StorageState(error=e)
    return audit_checks.check_table(
        table,
        state,
        needs_protection=session.backend.needs_protection(table),
        uses_markers=session.backend.capabilities.leaves_markers,
    )


async def _report(session: Session, findings: list[Finding], kinds: frozenset[str], run: Run) -> None:
    """Repairs the findings of these kinds, and adds a row for each finding."""

    async def repair(finding: Finding) -> None:
        kind = KINDS[finding.kind]
        fields = {"finding": finding.kind, "severity": kind.severity, "fix": kind.fix, **finding.fields}
        if finding.kind not in kinds or not isinstance(finding.id, TableId):
            run.add(Row(finding.id, finding.kind, finding.seen, finding.location, fields=fields))
            return
        try:
            if await _still_there(session, finding.id, finding):
                await _FIXES[finding.kind](session, finding.id)
                run.add(Row(finding.id, FIXED, f"{kind.fix}: {finding.seen}", finding.location, fields=fields))
        except LanceNamespaceError as e:
            run.add(failure_row(finding.id, e, finding.location, **fields))
        finally:
            session.locator.forget(finding.id)

    in_order = sorted(findings, key=lambda finding: (finding.kind, str(finding.id)))
    await each(repair, in_order, max_in_flight=session.workers() if kinds else 1)


async def _still_there(session: Session, id: TableId, finding: Finding) -> bool:
    """Returns whether a finding is still true, right before its repair."""
    try:
        with session.operation():
            findings = await _examine(session, await session.backend.describe_table(id))
    except TableNotFoundError:
        return False
    return any(it.kind == finding.kind and it.location == finding.location for it in findings)


async def _deregister(session: Session, id: TableId) -> None:
    await table_operations.deregister_table(session, {"id": list(id)})


async def _protect(session: Session, id: TableId) -> None:
    with session.changing(id):
        await session.backend.protect_table(await session.backend.describe_table(id))


async def _store_columns(session: Session, id: TableId) -> None:
    with session.changing(id):
        table = await session.backend.describe_table(id)
        located = await session.locator.locate(id)
        schema = await in_thread(located, lambda: session.opener.open(located).schema)
        await replacing.replace(session.backend, table, table.location, table.properties or {}, schema)


_FIXES: Mapping[str, Callable[[Session, TableId], Awaitable[None]]] = {
    audit_checks.LOCATION_MISSING: _deregister,
    audit_checks.DECLARED_ONLY: _deregister,
    audit_checks.COLUMNS_DIFFER: _store_columns,
    audit_checks.UNPROTECTED: _protect,
    audit_checks.NOT_EXTERNAL: _protect,
}
