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

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    ThrottlingError,
)

from lance_ns_async.backends.base import Prepare, Version, Versions
from lance_ns_async.backends.iceberg.schema import iceberg_schema
from lance_ns_async.backends.iceberg.wire import identifier, table
from lance_ns_async.backends.values import text
from lance_ns_async.calls.concurrency import each
from lance_ns_async.calls.policy import Caller
from lance_ns_async.calls.repetition import TryAgainError
from lance_ns_async.errors import failure_of
from lance_ns_async.model import Table, TableId

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]

_STAGING = "lance.staging"
_SIZE = "lance.size"
_METADATA = "lance.metadata."


@dataclass(frozen=True, slots=True)
class Held:
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


def held(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> Held:
    """Returns the table and its versions in a load response."""
    found, metadata = table(id, storage_options, body), body["metadata"]
    current = found.version
    versions = [] if current is None else [version(it) for it in metadata["snapshots"] if it["snapshot-id"] <= current]
    return Held(
        found,
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


def change(held: Held, version: Version, schema: pa.Schema, properties: Mapping[str, str]) -> Json:
    """Returns the commit that makes a version the current one if `held.current` is still the current version.

    Args:
        schema: The schema of the version.
        properties: Properties to add to the table if it does not have them.
    """
    updates, schema_id = _shown(held, schema)
    kept = held.table.properties or {}
    if lacking := {key: value for key, value in properties.items() if key not in kept}:
        updates.append({"action": "set-properties", "updates": lacking})
    requirements: list[Json] = [
        {"type": "assert-table-uuid", "uuid": held.uuid},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": held.current},
    ]
    if held.current is None:
        # Some servers do not enforce that there is no snapshot yet. The schema id detects a first commit, too, because
        # that changes the schema.
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": held.schema_id})
    summary = {"operation": "append", **{_METADATA + key: told for key, told in version.metadata.items()}}
    summary[_STAGING] = version.staging or ""
    if version.size is not None:
        summary[_SIZE] = str(version.size)
    snapshot: Json = {
        "snapshot-id": version.number,
        "timestamp-ms": version.timestamp_millis,
        "schema-id": schema_id,
        "manifest-list": f"{held.table.location}/_versions/{(version.manifest or '').rpartition('/')[2]}",
        "summary": summary,
    }
    if held.current is not None:
        snapshot["parent-snapshot-id"] = held.current
    if held.format > 1:
        snapshot["sequence-number"] = held.last_sequence + 1
    if held.next_row is not None:
        snapshot |= {"first-row-id": held.next_row, "added-rows": 0}
    return {
        "identifier": identifier(held.table.id),
        "requirements": requirements,
        "updates": [
            *updates,
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": version.number},
        ],
    }


def forgetting(held: Held, numbers: Sequence[int]) -> Json | None:
    """Returns the commit that removes the snapshots of versions, except the current one; None if there are none."""
    ids = [version.number for version in held.versions[1:] if version.number in numbers]
    if not ids:
        return None
    return {
        "identifier": identifier(held.table.id),
        "requirements": [{"type": "assert-table-uuid", "uuid": held.uuid}],
        "updates": [{"action": "remove-snapshots", "snapshot-ids": ids}],
    }


def _shown(held: Held, schema: pa.Schema) -> tuple[list[Json], int]:
    """Returns the updates that make a schema the table's current Iceberg schema, and its id; no updates if it is."""
    new = max(held.schemas) + 1
    wanted, last_column = iceberg_schema(schema, new)
    if held.schemas[held.schema_id] == wanted["fields"]:
        return [], held.schema_id
    for id, fields in held.schemas.items():
        if fields == wanted["fields"]:
            return [{"action": "set-current-schema", "schema-id": id}], id
    add = {"action": "add-schema", "schema": wanted, "last-column-id": max(held.last_column, last_column)}
    return [add, {"action": "set-current-schema", "schema-id": -1}], new


Load = Callable[[TableId, bool], Awaitable[Held]]
"""Function that loads a table with all snapshots (True), or only those that branches and tags refer to (False)."""

Send = Callable[[Sequence[Json]], Awaitable[None]]
"""Function that sends commits, which take effect all together or not at all."""


async def commit(
    wanted: Mapping[TableId, Version],
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
        wanted: The versions to commit, by table.
        properties: Properties to add to the tables that do not have them.

    Returns:
        For each table, the committed version.

    Raises:
        ConcurrentModificationError: Another writer has committed a version with the same number.
        LanceNamespaceError: The tables cannot be loaded, or it is unknown whether the commit took effect.
    """
    schemas: dict[TableId, pa.Schema] = {}
    doubt: LanceNamespaceError | None = None
    tables = await _loaded(wanted, load)
    made = await _made(wanted, tables, load, doubt)

    async def attempt() -> Mapping[TableId, Versions]:
        nonlocal doubt, tables, made
        # All clients use the same order, which reduces conflicts.
        missing = sorted(id for id in wanted if id not in made)
        if not missing:
            return made
        for id in missing:
            if id not in schemas:
                schemas[id] = await prepare(tables[id].table, wanted[id])
        stamped = {id: replace(wanted[id], timestamp_millis=_now(tables[id])) for id in missing}
        asked = 0.0
        try:
            await send([change(tables[id], stamped[id], schemas[id], properties) for id in missing])
            if len(wanted) == 1:
                return {id: Versions(tables[id].table, [stamped[id]]) for id in wanted}
            # In a race, some servers report success for a commit of several tables and then discard it.
            last: LanceNamespaceError = InternalError("Internal error: the server says it committed, and did not")
        except ConcurrentModificationError as e:
            last = InternalError(f"Internal error: the server refuses a commit that nothing came before: {e}")
            asked = _asked_pause(e)
        except (InternalError, ServiceUnavailableError, ThrottlingError) as e:
            if (failure := failure_of(e)) is not None and failure.delivered is False:
                raise doubt or e from failure
            last = doubt = doubt or e
            asked = _asked_pause(e)
        try:
            tables = await _loaded(wanted, load)
        except LanceNamespaceError as e:
            raise doubt or e from last
        made = await _made(wanted, tables, load, doubt)
        if len(made) == len(wanted):
            return made
        # An earlier attempt with an unknown outcome may still take effect, so its error has precedence over later ones.
        raise TryAgainError(doubt or last, retry_after=asked)

    return await caller.repeat(attempt)


async def _loaded(wanted: Mapping[TableId, Version], load: Load) -> Mapping[TableId, Held]:
    tables: dict[TableId, Held] = {}

    async def one(id: TableId) -> None:
        tables[id] = await load(id, False)

    await each(one, wanted, max_in_flight=len(wanted))
    return tables


async def _made(
    wanted: Mapping[TableId, Version], tables: Mapping[TableId, Held], load: Load, doubt: LanceNamespaceError | None
) -> dict[TableId, Versions]:
    """Returns the requested versions that are committed.

    Args:
        doubt: The error of an attempt that may have taken effect; None if there is none.

    Raises:
        ConcurrentModificationError: Another writer has committed one of the versions.
        ServiceUnavailableError: It is unknown who has committed a version.
        InternalError: The server has committed only a part of the tables.
    """
    made: dict[TableId, Versions] = {}
    taken: dict[TableId, str] = {}
    for id, version in wanted.items():
        known = tables[id]
        if known.current is None or known.current < version.number:
            continue
        if known.version(version.number) is None:
            known = await load(id, True)
        found = known.version(version.number)
        if found is None and doubt is not None:
            raise ServiceUnavailableError(
                f"Service unavailable: {id} (version {version.number} is made, but the catalog tells of its latest "
                f"version {known.current} alone; whether by this commit is unknown: {doubt})"
            )
        if found is not None and found.staging == version.staging:
            made[id] = Versions(known.table, [found])
        else:
            taken[id] = f"{id} (version {version.number} is taken; the latest is {known.current})"
    if taken and made:
        raise InternalError(
            f"Internal error: {', '.join(taken.values())}, though the same commit took effect for "
            f"{', '.join(map(str, made))}: this server does not commit tables together"
        )
    if taken:
        raise ConcurrentModificationError(f"Concurrent modification: {', '.join(taken.values())}") from doubt
    return made


def _asked_pause(error: LanceNamespaceError) -> float:
    """Returns the pause that the server requested, in seconds; 0 if none."""
    failure = failure_of(error)
    return 0.0 if failure is None else failure.retry_after or 0.0


def _now(held: Held) -> int:
    # Snapshot times of a table must not decrease, even if the clocks of its writers differ.
    return max(int(time.time() * 1000), held.last_updated)
