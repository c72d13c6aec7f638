"""The commands `versions`, `restore`, `tag`, `branch` and `index`: what a table has besides its rows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import lance_namespace.errors as err
from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.changing import ask
from lance_ns_async.cli.errors import hint, say
from lance_ns_async.cli.options import (
    Branch,
    ChangeFormat,
    CommonOptions,
    OutputFormat,
    Repeated,
    TableName,
    Version,
    Yes,
)
from lance_ns_async.cli.output import Format, OutputRow
from lance_ns_async.cli.parsing import parse_pairs
from lance_ns_async.cli.selecting import find_version, open_table
from lance_ns_async.errors import suggest

if TYPE_CHECKING:
    from lance import LanceDataset

    from lance_ns_async import Namespace
    from lance_ns_async.model import TableId

TagName = Annotated[str, Argument(help="Name of the tag, e.g. checked.")]
BranchName = Annotated[str, Argument(help="Name of the branch, e.g. trial.")]


def versions(
    on: CommonOptions,
    table: TableName,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="Maximum number of versions.")] = None,
    branch: Branch = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """List the versions of a table with their rows and operations, the newest first; opens the dataset."""
    with open_table(on.require(), table) as (catalog, id):
        request = {"id": list(id), "branch": branch, "limit": limit, "descending": True}
        listed = catalog.list_table_versions(request).versions
        operations = _read_operations(catalog, id, branch, [it.version for it in listed])
    rows = [
        {
            "version": it.version,
            "created": None if it.timestamp_millis is None else _time(it.timestamp_millis / 1000),
            "operation": operation,
            "rows": rows and int(rows),
        }
        for it, operation in zip(listed, operations, strict=True)
        for rows in [(it.metadata or {}).get("total_rows")]
    ]
    _write(rows, ("version", "created", "operation", "rows"), format, f"no versions of {id}")


def _read_operations(
    catalog: Namespace, id: TableId, branch: str | None, numbers: Sequence[int]
) -> Sequence[str | None]:
    """Returns the names of the operations that made the versions; None for those that are unknown."""
    from lance_ns_async.storage.datasets import Snapshot, operation_names

    def read(dataset: LanceDataset, _: object) -> Sequence[str | None]:
        return operation_names(dataset, numbers)

    try:
        return catalog.run(lambda client: client.session.read(list(id), read, Snapshot(branch=branch)))
    except err.LanceNamespaceError as error:
        # The versions may be those of a server whose storage is not reachable from here.
        say(f"warning: operations are unknown: {error}")
        return [None] * len(numbers)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")


def _write(rows: Sequence[OutputRow], columns: Sequence[str], format: Format, nothing: str) -> None:
    """Writes the rows; without any, a hint says so."""
    if not output.write(rows, columns, format):
        hint(nothing)


def restore(
    on: CommonOptions,
    table: TableName,
    version: Annotated[str, Argument(help="Number of a version, or a tag.")],
    branch: Branch = None,
    format: ChangeFormat = None,
) -> None:
    """Make an old version of a table the newest one again; the versions in between stay."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        request = find_version(catalog, id, version, branch)
        catalog.restore_table(request)
        number = request["version"]
        latest = catalog.describe_table({**request, "version": None, "load_detailed_metadata": True}).version
        tell(f"restored version {number} of {id}; its version is now {latest}", id, f"version {number} restored")


def list_tags(on: CommonOptions, table: TableName, format: OutputFormat = Format.TABLE) -> None:
    """List the tags of a table."""
    with open_table(on.require(), table) as (catalog, id):
        response = catalog.list_table_tags({"id": list(id)})
    rows = [{"tag": name, "version": it.version, "branch": it.branch} for name, it in response.tags.items()]
    _write(rows, ("tag", "version", "branch"), format, f"no tags on {id}")


def create_tag(
    on: CommonOptions,
    table: TableName,
    tag: TagName,
    version: Version = None,
    branch: Branch = None,
    format: ChangeFormat = None,
) -> None:
    """Give a version of a table a name, which keeps it from being removed."""
    _tag(on, table, tag, version, branch, format, moves=False)


def move_tag(
    on: CommonOptions,
    table: TableName,
    tag: TagName,
    version: Version = None,
    branch: Branch = None,
    format: ChangeFormat = None,
) -> None:
    """Move a tag to another version."""
    _tag(on, table, tag, version, branch, format, moves=True)


def _tag(
    on: CommonOptions,
    table: str,
    tag: str,
    version: str | None,
    branch: str | None,
    format: Format | None,
    *,
    moves: bool,
) -> None:
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        place = find_version(catalog, id, version, branch)
        if place["version"] is None:
            place["version"] = catalog.describe_table({**place, "load_detailed_metadata": True}).version
        change = catalog.update_table_tag if moves else catalog.create_table_tag
        change({**place, "tag": tag})
        done = "moved" if moves else "created"
        where = f"version {place['version']}" + (f" of branch {place['branch']}" if place["branch"] else "")
        tell(f"{done} tag {tag} of {id}: {where}", id, f"tag {tag} {done}")


def delete_tag(
    on: CommonOptions, table: TableName, tag: TagName, yes: Yes = False, format: ChangeFormat = None
) -> None:
    """Delete a tag of a table; its version stays."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        _check_exists(id, "tag", tag, catalog.list_table_tags({"id": list(id)}).tags, err.TableTagNotFoundError)
        ask(f"Delete tag {tag} of {id}?", yes, look_first=f"lance-ns tag list {shlex.quote(str(id))}")
        catalog.delete_table_tag({"id": list(id), "tag": tag})
        tell(f"deleted tag {tag} of {id}", id, f"tag {tag} deleted")


def _check_exists(
    id: TableId, kind: str, name: str, names: Iterable[str], error: type[err.LanceNamespaceError]
) -> None:
    """Raises the error if a tag, a branch or an index does not exist, before a question about it."""
    if name not in (existing := list(names)):
        raise error(f"{id}: no {kind} {name!r}; {suggest(name, existing, quoted=True)}")


def list_branches(on: CommonOptions, table: TableName, format: OutputFormat = Format.TABLE) -> None:
    """List the branches of a table except main, and where they start."""
    with open_table(on.require(), table) as (catalog, id):
        response = catalog.list_table_branches({"id": list(id)})
    rows = [
        {
            "branch": name,
            "from": it.parent_branch or "main",
            "version": it.parent_version,
            "created": _time(it.create_at),
        }
        for name, it in response.branches.items()
    ]
    _write(rows, ("branch", "from", "version", "created"), format, f"no branches of {id} except main")


def create_branch(
    on: CommonOptions,
    table: TableName,
    branch: BranchName,
    source: Annotated[
        str | None, Option("--from", metavar="BRANCH", help="Branch to start at; main by default.")
    ] = None,
    version: Version = None,
    format: ChangeFormat = None,
) -> None:
    """Create a branch of a table, which starts at a version of another branch."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        place = find_version(catalog, id, version, source)
        start = {"from_branch": place["branch"], "from_version": place["version"]}
        catalog.create_table_branch({"id": list(id), "name": branch, **start})
        # Another client may have deleted it already.
        origin = catalog.list_table_branches({"id": list(id)}).branches.get(branch)
        where = f" from version {origin.parent_version} of {origin.parent_branch or 'main'}" if origin else ""
        tell(f"created branch {branch} of {id}{where}", id, f"branch {branch} created")


def delete_branch(
    on: CommonOptions, table: TableName, branch: BranchName, yes: Yes = False, format: ChangeFormat = None
) -> None:
    """Delete a branch of a table, and the data that only this branch uses."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        names = ["main", *catalog.list_table_branches({"id": list(id)}).branches]
        _check_exists(id, "branch", branch, names, err.TableBranchNotFoundError)
        ask(f"Delete branch {branch} of {id}?", yes, look_first=f"lance-ns branch list {shlex.quote(str(id))}")
        catalog.delete_table_branch({"id": list(id), "name": branch})
        tell(f"deleted branch {branch} of {id}", id, f"branch {branch} deleted")


def list_indexes(on: CommonOptions, table: TableName, format: OutputFormat = Format.TABLE) -> None:
    """List the indexes of a table, and how many rows they cover."""
    with open_table(on.require(), table) as (catalog, id):
        response = catalog.list_table_indices({"id": list(id)})
    rows = [
        {
            "index": it.index_name,
            "type": it.index_type,
            "columns": ", ".join(it.columns),
            "rows": it.num_indexed_rows,
            "rows without": it.num_unindexed_rows,
        }
        for it in response.indexes
    ]
    _write(rows, ("index", "type", "columns", "rows", "rows without"), format, f"no indexes on {id}")


def create_index(
    on: CommonOptions,
    table: TableName,
    column: Annotated[str, Argument(help="Column of vectors, scalars or text.")],
    type: Annotated[
        str | None, Option(help="Such as BTREE, BITMAP, FTS or IVF_PQ; by default IVF_PQ for vectors, else BTREE.")
    ] = None,
    name: Annotated[str | None, Option(help="Name of the index; by default made from the column.")] = None,
    settings: Annotated[
        Repeated,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting of this type, e.g. distance_type=cosine or num_partitions=256; may be repeated.",
        ),
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Create an index on a column of a table."""
    fields = {key: _parse_setting(value) for key, value in parse_pairs("--set", settings).items()}
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        kind = type or _usual_type(catalog, id, column)
        catalog.create_table_index({**fields, "id": list(id), "column": column, "index_type": kind, "name": name})
        tell(f"created an index of type {kind} on {column} of {id}", id, f"index on {column} created")
        created = catalog.list_table_indices({"id": list(id)}).indexes
        if any(it.index_name == (name or f"{column}_idx") and it.num_indexed_rows == 0 for it in created):
            hint("the index has no rows yet, because the table has too few; lance-ns maintain adds them later")


def _parse_setting(text: str) -> Any:
    """Returns a number or a boolean; other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _usual_type(catalog: Namespace, id: TableId, column: str) -> str:
    """Returns the default type of an index on a column. Cost: one open."""
    from lance_ns_async.operations.searching import dimension

    return "IVF_PQ" if any(it.name == column and dimension(it.type) for it in catalog.open(id).schema) else "BTREE"


def drop_index(
    on: CommonOptions,
    table: TableName,
    index: Annotated[str, Argument(help="Name of the index; see lance-ns index list.")],
    yes: Yes = False,
    format: ChangeFormat = None,
) -> None:
    """Drop an index of a table; older versions keep it."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        names = [it.index_name for it in catalog.list_table_indices({"id": list(id)}).indexes]
        _check_exists(id, "index", index, names, err.TableIndexNotFoundError)
        ask(f"Drop index {index} of {id}?", yes, look_first=f"lance-ns index list {shlex.quote(str(id))}")
        catalog.drop_table_index({"id": list(id), "index_name": index})
        tell(f"dropped index {index} of {id}", id, f"index {index} dropped")
