"""Iceberg table metadata, and commits that change it, as in the Iceberg project's own test server. A kind of
requirement or update is one function and one entry in `REQUIREMENTS` or `UPDATES`."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tests.fakes.http import Refusal

_LEEWAY_MILLIS = 60_000  # Maximum number of milliseconds by which a snapshot may be older than the table's last change
Json = dict[str, Any]
Loaded = dict[str, Any]  # The response to the load of a table: `metadata-location` and `metadata`


def commit(table: Loaded | None, requirements: Sequence[Json], updates: Sequence[Json]) -> Loaded:
    """Returns the table after a commit of known kinds; None means that the table does not exist."""
    for requirement in requirements:
        REQUIREMENTS[requirement["type"]](table, requirement)
    draft = Draft(table)
    for update in updates:
        UPDATES[update["action"]](draft, update)
    if table is None:
        _check_complete(draft.metadata, bool(updates))
    return draft.finished()


def lax(
    table: Loaded, requirements: Sequence[Json], updates: Sequence[Json]
) -> tuple[Loaded, Sequence[Json], Sequence[Json]]:
    """Returns a commit to an existing table, without the parts that Nessie does not enforce."""
    if any(update["action"] == "remove-snapshots" for update in updates):
        raise Refusal(500, "UnsupportedOperationException", "remove-snapshots")
    last = table["metadata"]["last-sequence-number"]
    kept = [it for it in requirements if it["type"] != "assert-ref-snapshot-id" or it["snapshot-id"] is not None]
    if any(update["action"] == "add-snapshot" for update in updates):
        # The newest one replaces earlier ones.
        table = {**table, "metadata": {**table["metadata"], "snapshots": []}}
    applied = [
        {**it, "snapshot": {**it["snapshot"], "sequence-number": last + 1}} if "snapshot" in it else it
        for it in updates
        # Unknown changes are ignored.
        if it["action"] not in ("set-location", "remove-snapshot-ref")
    ]
    return table, kept, applied


def creation(location: str, properties: Mapping[str, str], snapshots: int = 0, format_version: int = 2) -> list[Json]:
    """Returns the updates that create a table with an empty schema and some snapshots, the last of them current."""
    now = int(time.time() * 1000)
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": str(uuid4())},
        {"action": "upgrade-format-version", "format-version": format_version},
        {"action": "set-location", "location": location},
        {"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": []}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-properties", "updates": dict(properties)},
    ]
    for version in range(1, snapshots + 1):
        snapshot = {
            "snapshot-id": version,
            "sequence-number": version,
            "timestamp-ms": now,
            "schema-id": 0,
            "manifest-list": f"{location}/_versions/{version}.manifest",
            "summary": {"operation": "append"},
        }
        ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": version}
        updates += [{"action": "add-snapshot", "snapshot": snapshot}, ref]
    return updates


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table that is added with an id and then set as current."""

    name: str
    listed: str
    id_key: str
    choice: str


SCHEMA = Part("schema", "schemas", "schema-id", "current-schema-id")
SPEC = Part("spec", "partition-specs", "spec-id", "default-spec-id")
ORDER = Part("sort order", "sort-orders", "order-id", "default-sort-order-id")


class Draft:
    """The metadata of a table during a commit."""

    def __init__(self, table: Loaded | None) -> None:
        self._before = table
        self.metadata: Json = copy.deepcopy(table["metadata"]) if table else _blank()
        self._added: dict[Part, list[int]] = {SCHEMA: [], SPEC: [], ORDER: []}

    def add(self, part: Part, value: Json) -> None:
        """Adds a part with the next free id; if an equal one exists, that one counts as added."""
        present = self.metadata[part.listed]
        for old in present:
            if {**old, part.id_key: 0} == {**value, part.id_key: 0}:
                # One that an earlier commit added is not the one that was added last.
                if old[part.id_key] in self._added[part]:
                    self._added[part].append(old[part.id_key])
                return
        id = max((old[part.id_key] for old in present), default=-1) + 1
        present.append({**value, part.id_key: id})
        self._added[part].append(id)

    def choose(self, part: Part, id: int) -> None:
        """Sets a part as current; -1 is the one that was added last."""
        if id == -1:
            if not self._added[part]:
                message = f"Cannot set last added {part.name}: no {part.name} has been added"
                raise Refusal(400, "ValidationException", message)
            id = self._added[part][-1]
        elif all(old[part.id_key] != id for old in self.metadata[part.listed]):
            message = f"Cannot set {part.choice.split('-')[0]} {part.name} to unknown {part.name}: {id}"
            raise Refusal(400, "IllegalArgumentException", message)
        self.metadata[part.choice] = id

    def finished(self) -> Loaded:
        """Returns the table with the changes of each commit: time, logs and a new metadata file."""
        metadata, now = self.metadata, int(time.time() * 1000)
        current, current_before = metadata["current-snapshot-id"], -1
        if self._before is not None:
            before = self._before["metadata"]
            current_before = before["current-snapshot-id"]
            file = {"timestamp-ms": before["last-updated-ms"], "metadata-file": self._before["metadata-location"]}
            metadata["metadata-log"].append(file)
        if current not in (current_before, None, -1):
            at = next(s["timestamp-ms"] for s in metadata["snapshots"] if s["snapshot-id"] == current)
            metadata["snapshot-log"].append({"timestamp-ms": at, "snapshot-id": current})
        metadata["last-updated-ms"] = now
        folder = metadata["properties"].get("write.metadata.path") or f"{metadata['location']}/metadata"
        name = f"{len(metadata['metadata-log']):05}-{uuid4()}.metadata.json"
        return {"metadata-location": f"{folder}/{name}", "metadata": metadata}


def _assert_create(table: Loaded | None, _: Json) -> None:
    if table is not None:
        raise Refusal(409, "CommitFailedException", "Requirement failed: table already exists")


def _assert_table_uuid(table: Loaded | None, requirement: Json) -> None:
    result = table["metadata"]["table-uuid"] if table else None
    if result != requirement["uuid"]:
        message = f"Requirement failed: UUID does not match: expected {result} != {requirement['uuid']}"
        raise Refusal(409, "CommitFailedException", message)


def _assert_ref_snapshot_id(table: Loaded | None, requirement: Json) -> None:
    name, expected = requirement["ref"], requirement["snapshot-id"]
    result = table["metadata"]["refs"].get(name) if table else None
    if result is None and expected is not None:
        what = f"branch or tag {name} is missing, expected {expected}"
    elif result is not None and expected is None:
        what = f"{result['type']} {name} was created concurrently"
    elif result is not None and result["snapshot-id"] != expected:
        what = f"{result['type']} {name} has changed: expected id {expected} != {result['snapshot-id']}"
    else:
        return
    raise Refusal(409, "CommitFailedException", f"Requirement failed: {what}")


def _assert_current_schema_id(table: Loaded | None, requirement: Json) -> None:
    result, expected = table["metadata"]["current-schema-id"] if table else None, requirement["current-schema-id"]
    if result != expected:
        message = f"Requirement failed: current schema changed: expected id {expected} != {result}"
        raise Refusal(409, "CommitFailedException", message)


def _upgrade_format_version(draft: Draft, update: Json) -> None:
    now, then = draft.metadata["format-version"], update["format-version"]
    if then < now:
        raise Refusal(400, "IllegalArgumentException", f"Cannot downgrade v{now} table to v{then}")
    draft.metadata["format-version"] = then
    if then > 2 and draft.metadata["current-snapshot-id"] == -1:
        draft.metadata["current-snapshot-id"] = None


def _add_schema(draft: Draft, update: Json) -> None:
    draft.add(SCHEMA, _spelled(update["schema"]))
    draft.metadata["last-column-id"] = max(draft.metadata["last-column-id"], update.get("last-column-id", 0))


def _remove_properties(draft: Draft, update: Json) -> None:
    for key in update["removals"]:
        draft.metadata["properties"].pop(key, None)


def _add_snapshot(draft: Draft, update: Json) -> None:
    snapshot, metadata = update["snapshot"], draft.metadata
    for part, name in ((SCHEMA, "schema"), (SPEC, "partition spec"), (ORDER, "sort order")):
        if not metadata[part.listed]:
            message = f"Attempting to add a snapshot before a {name} is added"
            raise Refusal(400, "ValidationException", message)
    if any(old["snapshot-id"] == snapshot["snapshot-id"] for old in metadata["snapshots"]):
        message = f"Snapshot already exists for id: {snapshot['snapshot-id']}"
        raise Refusal(400, "ValidationException", message)
    for needed in ("manifest-list", "timestamp-ms"):
        if needed not in snapshot:
            raise Refusal(500, "IllegalArgumentException", f"Cannot parse missing field: {needed}")
    if snapshot["timestamp-ms"] < metadata.get("last-updated-ms", 0) - _LEEWAY_MILLIS:
        raise Refusal(400, "IllegalArgumentException", "[BUG] Expected sorted snapshot log entries.")
    sequence, last = snapshot.get("sequence-number", 0), metadata["last-sequence-number"]
    if metadata["format-version"] > 1 and sequence <= last:
        what = f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
        raise Refusal(409, "CommitFailedException", f"Validation failed, please retry: {what}")
    metadata["snapshots"].append(snapshot)
    metadata["last-sequence-number"] = sequence


def _remove_snapshots(draft: Draft, update: Json) -> None:
    kept = [old for old in draft.metadata["snapshots"] if old["snapshot-id"] not in update["snapshot-ids"]]
    draft.metadata["snapshots"] = kept


def _remove_snapshot_ref(draft: Draft, update: Json) -> None:
    name = update["ref-name"]
    draft.metadata["refs"].pop(name, None)
    if name == "main":
        draft.metadata["current-snapshot-id"] = -1


def _set_snapshot_ref(draft: Draft, update: Json) -> None:
    name, id = update["ref-name"], update["snapshot-id"]
    if all(old["snapshot-id"] != id for old in draft.metadata["snapshots"]):
        raise Refusal(400, "ValidationException", f"Cannot set {name} to unknown snapshot: {id}")
    draft.metadata["refs"][name] = {"snapshot-id": id, "type": update["type"]}
    if name == "main":
        draft.metadata["current-snapshot-id"] = id


REQUIREMENTS: Mapping[str, Callable[[Loaded | None, Json], None]] = {
    "assert-create": _assert_create,
    "assert-table-uuid": _assert_table_uuid,
    "assert-ref-snapshot-id": _assert_ref_snapshot_id,
    "assert-current-schema-id": _assert_current_schema_id,
}

UPDATES: Mapping[str, Callable[[Draft, Json], None]] = {
    "assign-uuid": lambda draft, update: draft.metadata.update({"table-uuid": update["uuid"]}),
    "upgrade-format-version": _upgrade_format_version,
    "set-location": lambda draft, update: draft.metadata.update(location=update["location"].rstrip("/")),
    "add-schema": _add_schema,
    "set-current-schema": lambda draft, update: draft.choose(SCHEMA, update["schema-id"]),
    "add-spec": lambda draft, update: draft.add(SPEC, update["spec"]),
    "set-default-spec": lambda draft, update: draft.choose(SPEC, update["spec-id"]),
    "add-sort-order": lambda draft, update: draft.add(ORDER, update["sort-order"]),
    "set-default-sort-order": lambda draft, update: draft.choose(ORDER, update["sort-order-id"]),
    "set-properties": lambda draft, update: draft.metadata["properties"].update(update["updates"]),
    "remove-properties": _remove_properties,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_snapshot_ref,
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": _remove_snapshot_ref,
}


def _check_complete(metadata: Json, has_updates: bool) -> None:
    for there, what in (
        (has_updates, 'invoke "org.apache.iceberg.TableMetadata.metadataFileLocation()" because "tableMetadata"'),
        (metadata["schemas"], 'invoke "org.apache.iceberg.Schema.asStruct()" because "schema"'),
        (metadata["partition-specs"], 'read field "fields" because "spec"'),
        (metadata["sort-orders"], 'read field "fields" because "sortOrder"'),
    ):
        if not there:
            raise Refusal(500, "NullPointerException", f"Cannot {what} is null")
    if metadata["location"] is None:
        # The real server sends this after ninety seconds of attempts.
        raise Refusal(400, "IllegalArgumentException", "Cannot parse to a string value: location: null")


def _blank() -> Json:
    lists = ("schemas", "partition-specs", "sort-orders", "snapshots", "snapshot-log", "metadata-log")
    return {
        "format-version": 2,
        "table-uuid": str(uuid4()),
        "location": None,
        "last-sequence-number": 0,
        "last-column-id": 0,
        "current-schema-id": 0,
        "default-spec-id": 0,
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "properties": {},
        "current-snapshot-id": -1,
        "refs": {},
        "statistics": [],
        "partition-statistics": [],
        **{name: [] for name in lists},
    }


def _spelled(type: Any) -> Any:
    """Returns a schema with `decimal(20, 0)` instead of `decimal(20,0)`, at any depth."""
    match type:
        case dict():
            return {key: value if key == "name" else _spelled(value) for key, value in type.items()}
        case list():
            return [_spelled(value) for value in type]
        case str():
            return re.sub(r"^decimal\((\d+),\s*(\d+)\)$", r"decimal(\1, \2)", type)
    return type
