"""Writes to existing datasets: inserts, merges, updates and deletes of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err
import pyarrow as pa
from lance_namespace import MergeInsertIntoTableRequest

from lance_ns_async.calls.steps import next_step
from lance_ns_async.errors import PHRASES, error_about, suggest
from lance_ns_async.lifecycle import first_version
from lance_ns_async.model import Table
from lance_ns_async.settings import seconds
from lance_ns_async.storage import arrow, fields, guard
from lance_ns_async.storage.datasets import MAIN, Snapshot
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

_RETRIES = 10  # Number of retries of an update after a conflict; pylance's default.

_FEW = 10  # Number of columns that a message names.


def insert(opener: Opener, table: Table, branch: str | None, data: Any, mode: str) -> LanceDataset:
    """Appends rows to a dataset, or replaces all its rows; creates the first version of a declared table.

    Args:
        opener: Opens the table.
        table: The table.
        branch: The branch; None for main.
        data: Arrow data with a schema.
        mode: `append` or `overwrite`.

    Returns:
        The dataset.
    """
    snapshot = Snapshot(branch=branch)
    try:
        dataset = opener.open(table, snapshot)
    except err.TableNotFoundError:
        if branch not in (None, MAIN):
            raise
        fields.check_columns(data.schema.names, "columns")
        try:
            return first_version.create(opener, table, data)
        except err.TableAlreadyExistsError as e:
            if not isinstance(data, pa.Table | pa.RecordBatch):
                # The data may be readable only once, and was read.
                raise error_about(
                    err.ConcurrentModificationError, table.id, f"another client wrote its first version; {mode} again"
                ) from e
        dataset = opener.open(table, snapshot)
    if mode == "overwrite":
        fields.check_columns(data.schema.names, "columns")
    next_step(mode, table.location)
    try:
        with translate_errors(table):
            dataset.insert(arrow.stoppable(data), mode=mode)
    except err.TableSchemaValidationError as e:
        if mode == "append" and (differences := _differences(data.schema, dataset.schema)):
            raise error_about(type(e), table.id, ", ".join(differences)) from e.__cause__
        raise
    return dataset


def _differences(rows: pa.Schema, table: pa.Schema) -> list[str]:
    """Returns what keeps rows from being appended to a table."""
    unused = [name for name in table.names if name not in rows.names]
    differences: list[str] = []
    for field in rows:
        if field.name not in table.names:
            suggestion = suggest(field.name, unused, most=_FEW) if unused else "remove it, or add it to the table"
            differences.append(f"column {field.name!r} is only in the rows; {suggestion}")
        elif not field.type.equals(type := table.field(field.name).type):
            differences.append(f"column {field.name!r} is {field.type} in the rows, but {type} in the table")
    return differences


def check_merge(request: MergeInsertIntoTableRequest) -> timedelta | None:
    """Returns the timeout for Lance; None if the request sets none."""
    if not request.on:
        raise err.InvalidInputError("on: required; name the columns that identify a row")
    if request.when_matched_update_all_filt is not None and not request.when_matched_update_all:
        raise err.InvalidInputError("when_matched_update_all_filt: allowed only with when_matched_update_all")
    if request.when_not_matched_by_source_delete_filt is not None and not request.when_not_matched_by_source_delete:
        raise err.InvalidInputError(
            "when_not_matched_by_source_delete_filt: allowed only with when_not_matched_by_source_delete"
        )
    if not (
        request.when_matched_update_all
        or request.when_not_matched_insert_all
        or request.when_not_matched_by_source_delete
    ):
        raise err.InvalidInputError(
            "merge: no action is set; set when_matched_update_all, when_not_matched_insert_all or "
            "when_not_matched_by_source_delete"
        )
    if request.timeout is None:
        return None
    try:
        return timedelta(seconds=seconds("timeout", request.timeout))
    except OverflowError:
        raise err.InvalidInputError(f"timeout {request.timeout!r}: too large") from None


def merge_texts(request: MergeInsertIntoTableRequest) -> Texts:
    """Returns the SQL texts of a merge."""
    return Texts(
        {
            "when_matched_update_all_filt": request.when_matched_update_all_filt,
            "when_not_matched_by_source_delete_filt": request.when_not_matched_by_source_delete_filt,
        }
    )


def merge(
    opener: Opener, table: Table, request: MergeInsertIntoTableRequest, rows: pa.Table, timeout: timedelta | None
) -> tuple[Mapping[str, int], int]:
    """Merges rows into the table, as specified by a checked request.

    A declared table gets its first version if the request inserts rows.

    Returns:
        pylance's counts of updated, inserted and deleted rows, and the version.
    """
    snapshot = Snapshot(branch=request.branch)
    try:
        dataset = opener.open(table, snapshot)
    except err.TableNotFoundError:
        if request.branch not in (None, MAIN) or not request.when_not_matched_insert_all:
            raise
        _check_keys(table, request.on or [], rows)
        try:
            dataset = first_version.create(opener, table, rows)
            counts: Mapping[str, int] = {
                "num_updated_rows": 0,
                "num_inserted_rows": rows.num_rows,
                "num_deleted_rows": 0,
            }
            return counts, dataset.version
        except err.TableAlreadyExistsError:
            dataset = opener.open(table, snapshot)
    next_step("merge", table.location)
    counts = _merge(dataset, request, rows, timeout)
    return counts, dataset.version


def _check_keys(table: Table, on: Sequence[str], rows: pa.Table) -> None:
    """Raises the errors that a merge into an existing table with these columns would raise."""
    fields.check_columns(rows.schema.names, "columns")
    if missing := [path for path in on if fields.split_path(path)[0] not in rows.schema.names]:
        phrase = PHRASES[err.TableColumnNotFoundError]
        raise err.TableColumnNotFoundError(f"{phrase}: {table.id} (on: {missing[0]}: not a column of the rows)")


def _merge(
    dataset: LanceDataset, request: MergeInsertIntoTableRequest, rows: pa.Table, timeout: timedelta | None
) -> Mapping[str, int]:
    guard.current().check_built_values(dataset, merge_texts(request))
    merging = dataset.merge_insert(request.on)
    if request.when_matched_update_all:
        merging = merging.when_matched_update_all(request.when_matched_update_all_filt)
    if request.when_not_matched_insert_all:
        merging = merging.when_not_matched_insert_all()
    if request.when_not_matched_by_source_delete:
        merging = merging.when_not_matched_by_source_delete(request.when_not_matched_by_source_delete_filt)
    if request.use_index is not None:
        merging = merging.use_index(request.use_index)
    if timeout is not None:
        merging = merging.retry_timeout(timeout)
    counts: Mapping[str, int] = merging.execute(arrow.stoppable(rows))
    return counts


def updates(pairs: Sequence[Sequence[str]]) -> Mapping[str, str]:
    """Returns the SQL expressions of the columns to update, keyed by unquoted names, which pylance requires."""
    expressions: dict[str, str] = {}
    for path, expression in pairs:
        name, *below = fields.split_path(path)
        if below:
            raise err.UnsupportedOperationError(
                f"Not supported: updates: {path} (Lance updates whole columns); update {fields.join_path([name])}"
            )
        if name in expressions:
            raise err.InvalidInputError(f"updates: {path}: duplicate column")
        expressions[name] = expression
    if not expressions:
        raise err.InvalidInputError("updates: must not be empty")
    return expressions


def update(dataset: LanceDataset, new: Mapping[str, str], predicate: str | None) -> tuple[int, int]:
    """Updates the rows that match; returns their number and the new version."""
    texts = Texts({"predicate": predicate}, {f"updates: {name}": sql for name, sql in new.items()})
    # A retry would read other rows than those that were measured.
    retries = 0 if guard.current().check_built_values(dataset, texts, predicate) else _RETRIES
    count: int = dataset.update(dict(new), where=predicate, conflict_retries=retries)["num_rows_updated"]
    return count, dataset.version


def delete(dataset: LanceDataset, predicate: str) -> int:
    """Deletes the rows that match; returns the new version."""
    guard.current().check_built_values(dataset, Texts({"predicate": predicate}))
    dataset.delete(predicate)
    version: int = dataset.version
    return version
