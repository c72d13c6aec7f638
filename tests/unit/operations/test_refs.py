"""Tags, branches and versions of tables, also as arguments of Python callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import lance_namespace as spec
import lance_namespace.errors as err
import numpy as np
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls import steps
from lance_ns_async.calls.steps import Scheduler, Step
from lance_ns_async.fleet import CleanupOptions, maintain
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import cleanups
from tests.support.errors import catch, outcomes_of
from tests.support.lake import ID, ROWS, Lake, stream


async def test_a_version_is_restored(here: Lake) -> None:
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    await here.ns.restore_table(spec.RestoreTableRequest(id=ID, version=1))
    assert (await here.dataset()).version == 3 and await here.values("id") == [1, 2, 3]
    with pytest.raises(err.TableVersionNotFoundError, match=r"^Table version not found: n\$t "):
        await here.ns.restore_table(spec.RestoreTableRequest(id=ID, version=9))


async def test_what_does_not_exist_is_reported_with_what_does(here: Lake) -> None:
    await here.ns.create_table_tag({"id": ID, "tag": "release", "version": 1})
    for version, message in (
        (9, "version 9: the newest is 1"),
        ("re1ease", "tag 're1ease': did you mean release?"),
        ("x", "tag 'x': known are release"),
    ):
        with pytest.raises((err.TableVersionNotFoundError, err.TableTagNotFoundError)) as raised:
            await here.ns.open(ID, version=version)
        assert str(raised.value).endswith(f" not found: n$t ({message})")
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    await here.ns.delete_table_tag({"id": ID, "tag": "release"})
    (await here.dataset()).cleanup_old_versions(timedelta(0))
    message = r"\(version 1: the newest is 2, so it was removed by a clean-up\)"
    await catch(err.TableVersionNotFoundError, here.ns.open(ID, version=1), message)


async def test_versions_are_tagged(here: Lake) -> None:
    ns = here.ns
    await ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="dev"))
    await ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, branch="dev"), stream(ROWS))
    await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="b", version=1))
    await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="a", version=3, branch="dev"))
    await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="c", version=2, branch="main"))

    async def tag(name: str) -> tuple[int, str | None]:
        it = await ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=ID, tag=name))
        return it.version, it.branch

    assert [await tag(name) for name in "abc"] == [(3, "dev"), (1, None), (2, None)]
    page = await ns.list_table_tags(spec.ListTableTagsRequest(id=ID, limit=2))
    assert [(name, it.version, it.branch) for name, it in page.tags.items()] == [("a", 3, "dev"), ("b", 1, None)]
    assert all(it.manifest_size > 0 for it in page.tags.values())
    rest = await ns.list_table_tags(spec.ListTableTagsRequest(id=ID, limit=2, page_token=page.page_token))
    assert list(rest.tags) == ["c"] and not rest.page_token
    await ns.update_table_tag(spec.UpdateTableTagRequest(id=ID, tag="a", version=1))
    assert await tag("a") == (1, None) and (await here.dataset(version="a")).version == 1
    await ns.delete_table_tag(spec.DeleteTableTagRequest(id=ID, tag="a"))
    await catch(err.TableTagNotFoundError, tag("a"), r"^Table tag not found: n\$t \(no tag 'a'\)")


async def test_a_tag_that_cannot_be_is_refused(here: Lake) -> None:
    ns = here.ns
    await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="a", version=1))
    odd = ("b c/d", "", "é", "b%20c", "b" * 201)
    refused: Sequence[tuple[str, dict[str, Any], type[err.LanceNamespaceError]]] = [
        *(("create", {"tag": tag, "version": 1}, err.InvalidInputError) for tag in odd),
        ("create", {"tag": "a", "version": 1}, err.TableTagAlreadyExistsError),
        ("create", {"tag": "b", "version": 9}, err.TableVersionNotFoundError),
        ("create", {"tag": "b", "version": 1, "branch": "no"}, err.TableBranchNotFoundError),
        ("update", {"tag": "b", "version": 1}, err.TableTagNotFoundError),
        ("update", {"tag": "a", "version": 9}, err.TableVersionNotFoundError),
        ("update", {"tag": "a", "version": 1, "branch": "no"}, err.TableBranchNotFoundError),
        ("delete", {"tag": "b"}, err.TableTagNotFoundError),
    ]
    for operation, fields, error in refused:
        await catch(error, getattr(ns, f"{operation}_table_tag")({"id": ID, **fields}), r"n\$t")
    assert list((await ns.list_table_tags(spec.ListTableTagsRequest(id=ID))).tags) == ["a"]


async def test_branches_are_made_and_deleted(here: Lake) -> None:
    ns = here.ns
    await ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="b", from_version=1))
    await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="a", from_branch="main"))
    await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="c", from_branch="b"))
    page = await ns.list_table_branches(spec.ListTableBranchesRequest(id=ID, limit=2))
    parents = [(name, it.parent_branch, it.parent_version) for name, it in page.branches.items()]
    assert parents == [("a", None, 2), ("b", None, 1)]
    rest = await ns.list_table_branches(spec.ListTableBranchesRequest(id=ID, limit=2, page_token=page.page_token))
    assert rest.branches["c"].parent_branch == "b" and rest.branches["c"].create_at > 0 and not rest.page_token
    await ns.delete_table_branch(spec.DeleteTableBranchRequest(id=ID, name="a"))
    assert list((await ns.list_table_branches(spec.ListTableBranchesRequest(id=ID))).branches) == ["b", "c"]


async def test_a_branch_that_cannot_be_is_refused(here: Lake) -> None:
    ns = here.ns
    await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="a"))
    await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="t", version=1, branch="a"))
    refused: Sequence[tuple[str, dict[str, Any], type[err.LanceNamespaceError]]] = [
        *(("create", {"name": name}, err.InvalidInputError) for name in ("main", "b c", "b" * 201)),
        ("create", {"name": "a"}, err.TableBranchAlreadyExistsError),
        ("create", {"name": "b", "from_branch": "no"}, err.TableBranchNotFoundError),
        ("create", {"name": "b", "from_version": 9}, err.TableVersionNotFoundError),
        ("delete", {"name": "no"}, err.TableBranchNotFoundError),
        ("delete", {"name": "main"}, err.InvalidInputError),
        ("delete", {"name": "a"}, err.InvalidTableStateError),
    ]
    for operation, fields, error in refused:
        await catch(error, getattr(ns, f"{operation}_table_branch")({"id": ID, **fields}), r"n\$t")
    assert list((await ns.list_table_branches(spec.ListTableBranchesRequest(id=ID))).branches) == ["a"]


async def test_names_that_are_as_odd_as_they_may_be_are_read_back(here: Lake) -> None:
    ns, long = here.ns, "x" * 200
    for name in (long, "a.json", "-_1"):
        await ns.create_table_tag(spec.CreateTableTagRequest(id=ID, tag=name, version=1))
        assert (await ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=ID, tag=name))).version == 1
    assert set((await ns.list_table_tags(spec.ListTableTagsRequest(id=ID))).tags) == {long, "a.json", "-_1"}
    names = (long, "é", "a/b")
    for name in names:
        await ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name=name))
        await ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, branch=name), stream(ROWS))
        assert (await ns.count_table_rows(spec.CountTableRowsRequest(id=ID, branch=name))).count == 6
    assert set((await ns.list_table_branches(spec.ListTableBranchesRequest(id=ID))).branches) == set(names)
    await ns.delete_table_branch(spec.DeleteTableBranchRequest(id=ID, name=long))
    await ns.drop_table(spec.DropTableRequest(id=ID))


async def test_of_several_that_make_one_branch_at_once_one_does(here: Lake) -> None:
    ns = here.ns
    for n in range(5):
        request = spec.CreateTableBranchRequest(id=ID, name=f"b{n}")
        outcomes = await outcomes_of(*(ns.create_table_branch(request) for _ in range(6)))
        assert outcomes.count(None) == 1 and outcomes.count(err.TableBranchAlreadyExistsError) == 5


async def test_a_branch_is_opened_and_written_by_its_name(tmp_path: Path) -> None:
    rows, more = pa.table({"id": [1]}), pa.table({"id": [2]})
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], rows)
        await ns.create_table_branch({"id": ["t"], "name": "dev"})
        written = await ns.write(["t"], more, mode="append", branch="dev")
        assert written.to_table() == pa.concat_tables([rows, more])
        assert (await ns.open(["t"], branch="dev")).version == written.version == 2
        assert (await ns.open(["t"], branch="dev", version=1)).to_table() == (await ns.open(["t"])).to_table() == rows
        assert (await ns.write(["t"], more, mode="overwrite", branch="dev")).to_table() == more
        with pytest.raises(err.TableBranchNotFoundError, match="no branch 'prod'; there are main, dev"):
            await ns.open(["t"], branch="prod")
        with pytest.raises(err.InvalidInputError, match=r"^branch 'dev': mode create creates a table"):
            await ns.write(["u"], rows, branch="dev")
        with pytest.raises(err.InvalidInputError, match=r"^tag 'x': a tag already has a version and a branch"):
            await ns.open(["t"], version="x", branch="dev")
        missing = (err.InvalidInputError, err.TableVersionNotFoundError, err.TableTagNotFoundError)
        none: Any
        for none in (1.0, "", -1, 2**64):
            await catch(missing, ns.open(["t"], version=none))
        assert (await ns.open(["t"], version=cast(Any, np.int64(1)))).version == 1


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "restore_table": {"version": 1},
    "create_table_tag": {"tag": "new", "version": 1},
    "update_table_tag": {"tag": "kept", "version": 1},
    "create_table_branch": {"name": "new", "from_version": 1},
}


@pytest.mark.parametrize("lost", ["data", "_versions"])
@pytest.mark.parametrize("change", CHANGES)
async def test_what_a_cleanup_removes_meanwhile_is_not_pointed_to(here: Lake, change: str, lost: str) -> None:
    ns, place = here.ns, Path(urlsplit(await here.location()).path)
    await cut_off(ns)
    with scheduled(_Cleanup(place, lost)), pytest.raises(err.TableVersionNotFoundError):
        await point_to_first(ns, change)
    await check_unchanged(here)


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_points_to_cleaned_versions(here: Lake, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanups, "MAX_WAIT_SECONDS", 0.0)
    ns, table = here.ns, Table(TableId(ID), await here.location())
    await cut_off(ns)
    with cleanups.announced(table):
        await catch(err.ConcurrentModificationError, point_to_first(ns, change), r"not ended .* or delete _refs")
        await check_unchanged(here)
    await point_to_first(ns, change)


async def test_a_restore_waits_for_the_end_of_a_cleanup(here: Lake) -> None:
    table = Table(TableId(ID), await here.location())
    await here.ns.write(ID, ROWS.slice(1), mode="overwrite")
    async with anyio.create_task_group() as group:
        with cleanups.announced(table):
            group.start_soon(here.ns.restore_table, {"id": ID, "version": 1})
            while (await here.dataset()).version < 3:
                await anyio.lowlevel.checkpoint()
    assert await here.values("id") == [1, 2, 3]


async def test_a_cleanup_in_progress_renews_its_announcement(here: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanups, "_RENEWAL", 0.001)
    announcements = Path(urlsplit(await here.location()).path) / "_refs" / "cleanups"
    with cleanups.announced(Table(TableId(ID), await here.location())):
        first = {*announcements.iterdir()}
        while first & {*announcements.iterdir()}:
            await anyio.lowlevel.checkpoint()
    assert not [*announcements.iterdir()]


async def test_a_killed_cleanup_does_not_count_for_ever(here: Lake) -> None:
    announcements = Path(urlsplit(await here.location()).path) / "_refs" / "cleanups"
    announcements.mkdir(parents=True)
    (announcements / "1700000000-ab").touch()
    await here.ns.create_table_tag({"id": ID, "tag": "t", "version": 1})
    await here.ns.write(ID, ROWS, mode="overwrite")
    await here.ns.delete_table_tag({"id": ID, "tag": "t"})
    report = await maintain(here.ns, [ID], cleanup=CleanupOptions(older_than=None, delete_unverified=True))
    assert not report.problems and not [*announcements.iterdir()]
    await catch(err.TableVersionNotFoundError, here.ns.restore_table({"id": ID, "version": 1}))


async def point_to_first(ns: AsyncNamespace, change: str) -> None:
    await getattr(ns, change)({"id": ID, **CHANGES[change]})


async def cut_off(ns: AsyncNamespace) -> None:
    """Makes a second version, and no reference to the first."""
    await ns.create_table_tag({"id": ID, "tag": "kept", "version": 1})
    await ns.write(ID, ROWS.slice(1), mode="overwrite")
    await ns.update_table_tag({"id": ID, "tag": "kept", "version": 2})


async def check_unchanged(here: Lake) -> None:
    """Checks that no such change took effect."""
    assert await here.values("id") == [2, 3]
    assert {name: it.version for name, it in (await here.ns.list_table_tags({"id": ID})).tags.items()} == {"kept": 2}
    assert not (await here.ns.list_table_branches({"id": ID})).branches


@dataclass
class _Cleanup:
    """Removes files of the first version while a change of references is under way."""

    place: Path
    lost: str

    @asynccontextmanager
    async def __call__(self, step: Step) -> AsyncIterator[None]:
        if step.continues:
            first, *_ = sorted((self.place / self.lost).glob("*.*"), key=lambda it: it.stat().st_mtime_ns)
            first.unlink()
        yield


@contextmanager
def scheduled(scheduler: Scheduler) -> Iterator[None]:
    token = steps.scheduler.set(scheduler)
    try:
        yield
    finally:
        steps.scheduler.reset(token)
