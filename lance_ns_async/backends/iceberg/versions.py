"""Table versions committed by an Iceberg REST catalog: each is a snapshot, and `main` refers to the current one.

A commit requires that the current snapshot is still the expected one, so that only one of several concurrent writers
succeeds. The snapshot's summary contains the path of the manifest, which is unique for each writer. A writer that lost
the response to its commit can therefore read the table and find out whether the commit took effect.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err

from lance_ns_async.backends.base import Prepare, Version, Versions
from lance_ns_async.backends.iceberg.schema import iceberg_schema
from lance_ns_async.backends.shared.iceberg_wire import identifier
from lance_ns_async.backends.shared.response_checks import text
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import TryAgainError
from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import error_about, failure_of
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.lance_layout import VERSIONS

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]

_STAGING = "lance.staging"
_SIZE = "lance.size"
_METADATA = "lance.metadata."


@dataclass(frozen=True, slots=True)
class TableState:
    """The loaded state of a table that its next commit needs."""

    table: Table
    uuid: str
    format: int
    last_sequence: int
    last_updated: int
    """Time of the last update, in milliseconds since the Unix epoch."""
    next_row: int | None
    last_column: int
    schema_id: int
    schemas: Mapping[int, Sequence[Json]]
    """The fields of each schema in the table's metadata, by schema id."""
    versions: Sequence[Version]
    """The loaded versions, newest first, starting with the current one; empty if the storage commits versions."""

    @property
    def current(self) -> int | None:
        """The current version; None if no version was committed yet."""
        return self.table.version

    def version(self, number: int) -> Version | None:
        """Returns the loaded version with a number; None if it was not loaded."""
        return next((version for version in self.versions if version.number == number), None)


def table_state(decode: Callable[[Any], Table], body: Any) -> TableState:
    """Returns the table and its versions in a load response; `decode` returns the table alone."""
    loaded_table, metadata = decode(body), body["metadata"]
    current = loaded_table.version
    versions = [] if current is None else [version(it) for it in metadata["snapshots"] if it["snapshot-id"] <= current]
    return TableState(
        loaded_table,
        uuid=metadata["table-uuid"],
        format=metadata["format-version"],
        last_sequence=metadata.get("last-sequence-number", 0),
        last_updated=metadata["last-updated-ms"],
        next_row=metadata.get("next-row-id"),
        last_column=metadata["last-column-id"],
        schema_id=metadata["current-schema-id"],
        schemas={it["schema-id"]: it["fields"] for it in metadata["schemas"]},
        versions=sorted(versions, key=lambda version: -version.number),
    )


def version(snapshot: Any) -> Version:
    """Returns the version that a snapshot represents."""
    summary = snapshot.get("summary") or {}
    size, staging = summary.get(_SIZE), summary.get(_STAGING)
    return Version(
        snapshot["snapshot-id"],
        None if staging is None else text(staging),
        size=None if size is None else int(size),
        timestamp_millis=snapshot["timestamp-ms"],
        metadata={key.removeprefix(_METADATA): it for key, it in summary.items() if key.startswith(_METADATA)},
    )


def change(state: TableState, version: Version, schema: pa.Schema, properties: Mapping[str, str]) -> Json:
    """Returns the commit that makes a version the current one if `state.current` is still the current version.

    Args:
        schema: The schema of the version.
        properties: Properties to add to the table if it does not have them.
    """
    updates, schema_id = _schema_updates(state, schema)
    present = state.table.properties or {}
    if lacking := {key: value for key, value in properties.items() if key not in present}:
        updates.append({"action": "set-properties", "updates": lacking})
    requirements: list[Json] = [
        {"type": "assert-table-uuid", "uuid": state.uuid},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": state.current},
    ]
    if state.current is None:
        # Some servers do not enforce that there is no snapshot yet. The schema id detects a first commit, too, because
        # that changes the schema.
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": state.schema_id})
    summary = {"operation": "append", **{_METADATA + key: item for key, item in version.metadata.items()}}
    summary[_STAGING] = version.staging or ""
    if version.size is not None:
        summary[_SIZE] = str(version.size)
    snapshot: Json = {
        "snapshot-id": version.number,
        "timestamp-ms": version.timestamp_millis,
        "schema-id": schema_id,
        "manifest-list": f"{state.table.location}/{VERSIONS}/{(version.manifest or '').rpartition('/')[2]}",
        "summary": summary,
    }
    if state.current is not None:
        snapshot["parent-snapshot-id"] = state.current
    if state.format > 1:
        snapshot["sequence-number"] = state.last_sequence + 1
    if state.next_row is not None:
        snapshot |= {"first-row-id": state.next_row, "added-rows": 0}
    return {
        "identifier": identifier(state.table.id),
        "requirements": requirements,
        "updates": [
            *updates,
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": version.number},
        ],
    }


def snapshot_removal(state: TableState, numbers: Sequence[int]) -> Json | None:
    """Returns the commit that removes the snapshots of versions, except the current one; None if there are none."""
    ids = [version.number for version in state.versions[1:] if version.number in numbers]
    if not ids:
        return None
    return {
        "identifier": identifier(state.table.id),
        "requirements": [{"type": "assert-table-uuid", "uuid": state.uuid}],
        "updates": [{"action": "remove-snapshots", "snapshot-ids": ids}],
    }


def _schema_updates(state: TableState, schema: pa.Schema) -> tuple[list[Json], int]:
    """Returns the updates that make a schema the table's current Iceberg schema, and its id; no updates if it is."""
    new = max(state.schemas) + 1
    new_schema, last_column = iceberg_schema(schema, new)
    if state.schemas[state.schema_id] == new_schema["fields"]:
        return [], state.schema_id
    for id, fields in state.schemas.items():
        if fields == new_schema["fields"]:
            return [{"action": "set-current-schema", "schema-id": id}], id
    add = {"action": "add-schema", "schema": new_schema, "last-column-id": max(state.last_column, last_column)}
    return [add, {"action": "set-current-schema", "schema-id": -1}], new


Load = Callable[[TableId, bool], Awaitable[TableState]]
"""Function that loads a table with all snapshots (True), or only those that branches and tags refer to (False)."""

Send = Callable[[Sequence[Json]], Awaitable[None]]
"""Function that sends commits, which take effect all together or not at all."""


async def commit(
    versions: Mapping[TableId, Version],
    *,
    load: Load,
    send: Send,
    prepare: Prepare,
    caller: Caller,
    properties: Mapping[str, str],
) -> Mapping[TableId, Versions]:
    """Commits a version of each table; after an error, reads the tables before it reports a conflict or sends again.

    Sending again is safe, because a commit that did take effect makes its repetition fail. The caller's
    policy sets the number of repetitions and the pauses.

    Args:
        versions: The versions to commit, by table.
        properties: Properties to add to the tables that do not have them.

    Returns:
        For each table, the committed version.
    """
    schemas: dict[TableId, pa.Schema] = {}
    doubt: err.LanceNamespaceError | None = None
    tables = await _load_all(versions, load)
    committed_versions = await _find_committed(versions, tables, load, doubt)

    async def attempt() -> Mapping[TableId, Versions]:
        nonlocal doubt, tables, committed_versions
        # All clients use the same order, which reduces conflicts.
        missing = sorted(id for id in versions if id not in committed_versions)
        if not missing:
            return committed_versions
        for id in missing:
            if id not in schemas:
                schemas[id] = await prepare(tables[id].table, versions[id])
        timed_versions = {id: replace(versions[id], timestamp_millis=_now(tables[id])) for id in missing}
        server_pause = 0.0
        try:
            await send([change(tables[id], timed_versions[id], schemas[id], properties) for id in missing])
            if len(versions) == 1:
                return {id: Versions(tables[id].table, [timed_versions[id]]) for id in versions}
            # In a race, some servers report success for a commit of several tables and then discard it.
            last: err.LanceNamespaceError = err.InternalError(
                "Internal error: the server reported a commit that did not happen"
            )
        except err.ConcurrentModificationError as e:
            last = err.InternalError(f"Internal error: the server rejected a commit without a conflicting version: {e}")
            server_pause = _server_pause(e)
        except (err.InternalError, err.ServiceUnavailableError, err.ThrottlingError) as e:
            if (failure := failure_of(e)) is not None and failure.delivered is False:
                raise doubt or e from failure
            last = doubt = doubt or e
            server_pause = _server_pause(e)
        try:
            tables = await _load_all(versions, load)
        except err.LanceNamespaceError as e:
            raise doubt or e from last
        committed_versions = await _find_committed(versions, tables, load, doubt)
        if len(committed_versions) == len(versions):
            return committed_versions
        # An earlier attempt with an unknown outcome may still take effect, so its error has precedence over later ones.
        raise TryAgainError(doubt or last, retry_after=server_pause)

    return await caller.repeat(attempt)


async def _load_all(versions: Mapping[TableId, Version], load: Load) -> Mapping[TableId, TableState]:
    tables: dict[TableId, TableState] = {}

    async def one(id: TableId) -> None:
        tables[id] = await load(id, False)

    await each(one, versions, max_in_flight=len(versions))
    return tables


async def _find_committed(
    versions: Mapping[TableId, Version],
    tables: Mapping[TableId, TableState],
    load: Load,
    doubt: err.LanceNamespaceError | None,
) -> dict[TableId, Versions]:
    """Returns the requested versions that are committed.

    Args:
        doubt: The error of an attempt that may have taken effect; None if there is none.
    """
    committed_versions: dict[TableId, Versions] = {}
    conflicts: dict[TableId, str] = {}
    for id, version in versions.items():
        state = tables[id]
        if state.current is None or state.current < version.number:
            continue
        if state.version(version.number) is None:
            state = await load(id, True)
        committed_version = state.version(version.number)
        if committed_version is None and doubt is not None:
            raise error_about(
                err.ServiceUnavailableError,
                id,
                f"version {version.number} exists, but the catalog lists only its latest "
                f"version {state.current}; whether by this commit is unknown: {doubt}",
            )
        if committed_version is not None and committed_version.staging == version.staging:
            committed_versions[id] = Versions(state.table, [committed_version])
        else:
            conflicts[id] = f"{id} (version {version.number} is taken; the latest is {state.current})"
    if conflicts and committed_versions:
        raise err.InternalError(
            f"Internal error: {', '.join(conflicts.values())}, though the same commit took effect for "
            f"{', '.join(map(str, committed_versions))}: this server does not commit tables together"
        )
    if conflicts:
        raise err.ConcurrentModificationError(f"Concurrent modification: {', '.join(conflicts.values())}") from doubt
    return committed_versions


def _server_pause(error: err.LanceNamespaceError) -> float:
    """Returns the pause that the server requested, in seconds; 0 if none."""
    failure = failure_of(error)
    return 0.0 if failure is None else failure.retry_after or 0.0


def _now(state: TableState) -> int:
    # Snapshot times of a table must not decrease, even if the clocks of its writers differ.
    return max(int(time.time() * 1000), state.last_updated)
