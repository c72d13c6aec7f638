"""The operations on versions: through pylance, with a failing storage, and on tables whose storage commits them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from uuid import uuid4

import lance
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import DirNamespace, IcebergNamespace, Namespace
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.iceberg.catalog import NESSIE, Quirks
from tests.fakes.s3 import FakeS3
from tests.support.budget import with_usual

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms", "max_retries": "2"}
ID = ["a", "t é"]
COMMIT = r"POST .*/tables/t%20%C3%A9"


@dataclass
class Site:
    """A catalog that commits versions, and the storage of its tables."""

    server: FakeIceberg
    ns: IcebergNamespace
    root: str
    options: dict[str, str]

    @property
    def location(self) -> str:
        result = self.ns.describe_table(spec.DescribeTableRequest(id=ID)).location
        assert result is not None
        return result

    def write(self, value: int, mode: str) -> int:
        version: int = lance.write_dataset(rows(value), mode=mode, namespace_client=self.ns, table_id=ID).version
        return version

    def fill(self, versions: int) -> None:
        for number in range(1, versions + 1):
            assert self.write(number, "append" if number > 1 else "create") == number

    def open(self, version: int | str | None = None) -> Any:
        return lance.dataset(namespace_client=self.ns, table_id=ID, version=version)

    def values(self, version: int | str | None = None) -> list[int]:
        return sorted(self.open(version).to_table()["n"].to_pylist())

    @property
    def session(self) -> lance.file.LanceFileSession:
        return lance.file.LanceFileSession(self.location, storage_options=self.options or None)

    def files(self) -> list[str]:
        return [path.removeprefix("_versions/") for path in self.session.list("_versions") if "manifest" in path]

    def listed(self, **fields: Any) -> list[int]:
        return [version.version for version in self.page(**fields).versions]

    def page(self, **fields: Any) -> Any:
        return self.ns.list_table_versions(spec.ListTableVersionsRequest(id=ID, **fields))

    def describe(self, version: int | None = None) -> spec.TableVersion:
        return self.ns.describe_table_version(spec.DescribeTableVersionRequest(id=ID, version=version)).version

    def delete(self, *ranges: tuple[int, int]) -> int | None:
        return deleted(self.ns, ID, *ranges)

    def staging(self, number: int) -> str:
        """Returns the location of a version's manifest as it was passed to the catalog."""
        snapshot = next(it for it in self.metadata["snapshots"] if it["snapshot-id"] == number)
        path: str = snapshot["summary"]["lance.staging"]
        return path

    @property
    def metadata(self) -> dict[str, Any]:
        kept = self.server.metadata(ID[:1], ID[1])
        assert kept is not None
        return kept

    def undo_move(self, number: int) -> None:
        """Restores the state in which the writer of a version died just after its commit."""
        staging = self.staging(number).rpartition("/")[2]
        self.rename(f"{staging.partition('.manifest')[0]}.manifest", staging)

    def rename(self, name: str, to: str | None) -> None:
        """Moves a manifest, or removes it."""
        session = self.session
        if to is not None:
            with TemporaryDirectory() as folder:
                session.download_file(f"_versions/{name}", f"{folder}/copy")
                session.upload_file(f"{folder}/copy", f"_versions/{to}")
        session.delete_file(f"_versions/{name}")


def deleted(ns: Namespace, id: list[str], *ranges: tuple[int, int]) -> int | None:
    bounds = [{"start_version": start, "end_version": end} for start, end in ranges]
    return ns.batch_delete_table_versions({"id": id, "ranges": bounds}).deleted_count


def rows(*values: int) -> pa.Table:
    return pa.table({"n": list(values)})


def name(number: int) -> str:
    return f"{2**64 - 1 - number:020}.manifest"


# The catalog and the storage do not depend on each other.
@pytest.fixture(
    params=with_usual(["iceberg-local", "iceberg-s3", "nessie-local", "nessie-s3"], "iceberg-local", "nessie-s3")
)
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    catalog, _, storage = request.param.partition("-")
    quirks = Quirks() if catalog == "iceberg" else NESSIE
    if storage == "local":
        yield from site(quirks, (tmp_path / "ro ot").as_uri(), {})
        return
    with FakeS3() as s3:
        yield from site(quirks, "s3://lake/ro~o t", s3.options)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    yield from site(Quirks(), (tmp_path / "root").as_uri(), {})


def site(quirks: Quirks, root: str, options: dict[str, str], **properties: str) -> Iterator[Site]:
    with FakeIceberg(quirks) as server:
        merged = {"endpoint": server.endpoint, "root": root, "managed_by": "impl", **QUICK, **properties}
        with IcebergNamespace(**merged, **{f"storage.{key}": value for key, value in options.items()}) as ns:
            ns.create_namespace(spec.CreateNamespaceRequest(id=ID[:1]))
            yield Site(server, ns, root, options)


def test_lance_writes_and_reads_by_the_catalog(everywhere: Site) -> None:
    at = everywhere
    modes = ("create", "append", "overwrite", "append")
    assert [at.write(number, mode) for number, mode in enumerate(modes, 1)] == [1, 2, 3, 4]
    assert at.open().version == 4
    assert [at.values(version) for version in (None, 1, 2, 3)] == [[3, 4], [1], [1, 2], [3]]
    assert at.files() and all(path.endswith(".manifest") for path in at.files())
    described = at.ns.describe_table(spec.DescribeTableRequest(id=ID))
    assert (described.version, described.managed_versioning) == (4, True)
    dataset = at.open()
    dataset.delete("n = 3")
    dataset.add_columns({"m": "n + 1"})
    dataset.tags.create("kept", 2)
    dataset.checkout_version(2).restore()
    assert at.open().version == 7 and at.values() == at.values("kept") == [1, 2]
    assert at.listed() == [1, 2, 3, 4, 5, 6, 7]


def test_versions_are_reported(everywhere: Site) -> None:
    at = everywhere
    at.fill(3)
    sizes = {}
    for version in at.page().versions:
        assert version.manifest_path.endswith(f"/_versions/{name(version.version)}")
        assert at.describe(version.version).manifest_path == version.manifest_path
        sizes[version.version] = version.manifest_size
    assert at.describe() == at.describe(3) == at.page(descending=True, limit=1).versions[0]
    assert at.describe().timestamp_millis and isinstance(sizes[3], int)
    for missing in (0, 4):
        with pytest.raises(err.TableVersionNotFoundError, match=rf"version not found: a\$t é \(version {missing}"):
            at.describe(missing)
    with pytest.raises(ValueError, match="Table version not found"):
        at.open(4)


def test_a_table_without_versions_has_none(here: Site) -> None:
    here.ns.declare_table(spec.DeclareTableRequest(id=ID))
    assert here.listed() == here.listed(descending=True, limit=1) == []
    for number in (None, 1):
        with pytest.raises(err.TableVersionNotFoundError, match=r"it has no version yet|version 1"):
            here.describe(number)
    assert here.delete((0, -1)) == 0
    assert here.ns.describe_table(spec.DescribeTableRequest(id=ID, check_declared=True)).is_only_declared


@pytest.mark.parametrize("descending", [None, False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_lists_come_in_pages(here: Site, descending: bool | None, limit: int) -> None:
    here.fill(5)
    result: list[int] = []
    token: str | None = None
    for _ in range(9):
        page = here.page(limit=limit, descending=descending, page_token=token)
        assert len(page.versions) <= limit
        result += [version.version for version in page.versions]
        if (token := page.page_token) is None:
            break
    assert result == ([5, 4, 3, 2, 1] if descending else [1, 2, 3, 4, 5])


def test_pages_are_checked_and_the_latest_version_costs_one_short_call(here: Site) -> None:
    here.fill(2)
    here.server.clear()
    assert here.listed(descending=True, limit=1) == [2]
    (request,) = here.server.requests
    assert request.path.endswith("?snapshots=refs")
    with pytest.raises(err.InvalidInputError, match="limit 0"):
        here.page(limit=0)
    for token in ("x", "WyJhIl0="):
        with pytest.raises(err.InvalidInputError, match="not one of this listing"):
            here.page(page_token=token)


def test_what_a_dead_writer_left_is_finished_by_who_reads(everywhere: Site) -> None:
    at = everywhere
    at.write(1, "create")
    readers: Sequence[Callable[[], object]] = [
        *(lambda: at.open().count_rows(), lambda: at.write(9, "append")),
        lambda: at.describe(at.ns.describe_table(spec.DescribeTableRequest(id=ID)).version),
        *(lambda: at.listed(descending=True, limit=1), lambda: at.listed()),
        lambda: at.ns.describe_table(spec.DescribeTableRequest(id=ID, load_detailed_metadata=True)),
    ]
    for read in readers:
        number = at.write(2, "append")
        at.undo_move(number)
        assert name(number) not in at.files()
        read()
        assert name(number) in at.files() and all(path.endswith(".manifest") for path in at.files())


def test_many_may_move_a_manifest_at_once(everywhere: Site) -> None:
    at = everywhere
    at.write(1, "create")

    def write(value: int) -> None:
        for _ in range(4):
            at.write(value, "append")

    def read() -> None:
        for _ in range(8):
            assert at.listed(descending=True, limit=1) and at.describe().version and at.values()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, 2), threads.submit(write, 3), threads.submit(read), threads.submit(read)]:
            done.result()
    assert at.values() == [1, 2, 2, 2, 2, 3, 3, 3, 3] and at.listed() == list(range(1, 10))
    assert all(path.endswith(".manifest") for path in at.files())


def test_a_manifest_that_is_nowhere_is_reported(here: Site) -> None:
    here.fill(2)
    here.rename(name(2), None)
    for read in (here.describe, here.listed, lambda: here.listed(descending=True, limit=1)):
        with pytest.raises(err.InvalidTableStateError, match="its latest version 2 has no manifest"):
            read()
    here.rename(name(1), None)
    with pytest.raises(err.TableVersionNotFoundError, match="version 1: its manifest was removed"):
        here.describe(1)


def test_lance_rebases_what_loses(here: Site) -> None:
    here.write(1, "create")
    stale = here.open()
    here.write(2, "append")
    assert lance.write_dataset(rows(3), stale, mode="append").version == 3 and here.values() == [1, 2, 3]
    # One that loses at the commit itself.
    with here.server.hold(COMMIT) as hold:
        done: list[int] = []
        writers = [Thread(target=lambda n=n: done.append(here.write(n, "append"))) for n in (4, 5)]
        for writer in writers:
            writer.start()
        hold.wait_for(2)
        hold.release()
        for writer in writers:
            writer.join()
    assert sorted(done) == [4, 5] and here.values() == [1, 2, 3, 4, 5]
    assert all(path.endswith(".manifest") for path in here.files())


def test_lance_is_none_the_wiser_of_a_lost_answer(everywhere: Site) -> None:
    at = everywhere
    at.server.cut(match="POST .*/tables/", when="after")
    assert at.write(1, "create") == 1
    at.server.cut(match=COMMIT, when="after")
    assert at.write(2, "append") == 2
    at.server.cut(match=COMMIT)
    assert at.write(3, "append") == 3 and at.values() == [1, 2, 3]


def test_lance_finds_its_commit_where_we_could_not_tell(here: Site) -> None:
    here.write(1, "create")
    here.server.cut(match=COMMIT, when="after")
    # A describe and a listing load the table, too; the lookup after the commit is the one that fails.
    failed = False

    def fail(call: object) -> None:
        nonlocal failed
        if not failed and getattr(call, "outcome", "") == "disconnected":
            here.server.fail(403, match=r"GET .*/tables/t%20%C3%A9")
            failed = True

    with here.ns.observe(fail):
        assert here.write(2, "append") == 2
    assert failed and here.values() == [1, 2]


def test_lance_does_not_know_what_the_server_refused(here: Site) -> None:
    here.write(1, "create")
    here.server.fail(403, match=COMMIT)
    with pytest.raises(OSError, match="Commit result for version 2 is unknown"):
        here.write(2, "append")
    assert here.values() == [1] and here.listed() == [1]
    assert here.write(2, "append") == 2 and here.values() == [1, 2]


def test_versions_are_deleted(everywhere: Site) -> None:
    at = everywhere
    at.fill(7)
    assert at.delete() == 0 and at.delete((2, 3), (0, 2), (9, 12)) == 2
    assert at.delete((2, 3)) == 0 and at.listed() == [3, 4, 5, 6, 7]
    at.open().tags.create("kept", 4)
    with pytest.raises(err.InvalidTableStateError, match="version 4 cannot be deleted: tag 'kept' refers to it"):
        at.delete((0, -1))
    # A branch that was created without the catalog still needs the version at which it began.
    lance.dataset(at.location, storage_options=at.options or None).create_branch("b", 5)
    with pytest.raises(err.InvalidTableStateError, match="version 5 cannot be deleted: branch 'b' refers to it"):
        at.delete((5, -1))
    assert at.delete((3, 4), (6, -1)) == 2
    assert at.listed() == [4, 5, 7] and at.values(4) == [1, 2, 3, 4]
    with pytest.raises(err.InvalidInputError, match=r"\[7, 8\) contains the latest version 7"):
        at.delete((7, 8))
    for wrong in ((-1, 3), (5, 2)):
        with pytest.raises(err.InvalidInputError, match="ranges: "):
            at.delete(wrong)
    with pytest.raises(err.TableVersionNotFoundError):
        at.describe(6)
    assert at.write(8, "append") == 8


def test_a_delete_that_died_half_way_is_done_again(here: Site) -> None:
    here.fill(2)
    kept = here.metadata
    kept["snapshots"] = [it for it in kept["snapshots"] if it["snapshot-id"] == 2]
    assert here.listed() == [1, 2] and here.delete((0, -1)) == 1
    assert here.listed() == [2] and here.files() == [name(2)]


def test_what_lance_cleans_up_is_no_version_any_more(here: Site) -> None:
    here.fill(3)
    here.open().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert here.listed() == [3]
    with pytest.raises(err.TableVersionNotFoundError):
        here.describe(1)
    assert here.values() == [1, 2, 3]


def test_versions_that_others_committed_are_found(here: Site) -> None:
    location = f"{here.root}/other"
    for _ in range(3):
        lance.write_dataset(rows(1), location, mode="append")
    properties = {"table_type": "LANCE", "managed_by": "IMPL"}
    here.server.add_table(ID[:1], ID[1], properties=properties, location=location, snapshots=2)
    # The third is only in the storage: the catalog knows two.
    assert here.listed() == [1, 2] and here.values() == [1, 1]
    assert here.open(1).count_rows() == 1
    with pytest.raises(err.TableVersionNotFoundError, match="version 3"):
        here.describe(3)
    # A later writer commits on top of it, so it becomes a version of the catalog.
    assert here.write(2, "append") == 4
    assert here.listed() == [1, 2, 3, 4] and here.values(3) == [1, 1, 1] and here.values() == [1, 1, 1, 2]


def test_a_table_of_the_storage_may_become_one_of_the_catalog(here: Site) -> None:
    location = f"{here.root}/before"
    lance.write_dataset(rows(1), location)
    lance.write_dataset(rows(2), location, mode="append")
    here.ns.register_table(spec.RegisterTableRequest(id=ID, location=location))
    assert here.listed() == [] and here.values() == [1, 2] and here.values(1) == [1]
    assert here.write(3, "append") == 3
    assert here.listed() == [1, 2, 3] and here.values(2) == [1, 2] and here.values() == [1, 2, 3]


def test_details_are_those_of_the_latest_version_of_the_catalog(here: Site) -> None:
    here.write(1, "create")
    lance.write_dataset(rows(2), here.location, mode="append")
    result = here.ns.describe_table(spec.DescribeTableRequest(id=ID, load_detailed_metadata=True, check_declared=True))
    assert (result.version, result.is_only_declared) == (1, False) and here.values() == [1]
    # A version that another client committed without the catalog is not overwritten.
    with pytest.raises(err.ConcurrentModificationError, match="version 2: its manifest already exists"):
        here.ns.create_table_version(create(here, 2, f"{name(2)}-x"))
    assert here.listed() == [1]


def create(at: Site, number: int, staging: str, **fields: Any) -> spec.CreateTableVersionRequest:
    folder = at.describe(1).manifest_path.rpartition("/")[0]
    path = fields.pop("manifest_path", f"{folder}/{staging}")
    return spec.CreateTableVersionRequest(id=ID, version=number, manifest_path=path, **fields)


@pytest.mark.parametrize(
    ("staging", "fields", "message"),
    [
        (f"{name(2)}-gone", {}, "the file does not exist"),
        (f"{name(2)}-short", {}, "the file cannot be read"),
        (f"{name(2)}-other", {}, "the file is the manifest of version 1"),
        (f"{name(2)}-other", {"manifest_size": 7}, r"its size is \d+ bytes, not 7"),
        (name(2), {}, "with a suffix"),
        (f"{name(3)}-other", {}, "the manifest of version 2 must be"),
        ("2.other", {}, "the manifest of version 2 must be"),
        ("", {"manifest_path": f"elsewhere/_versions/{name(2)}-other"}, "the file is not in .*/_versions"),
        ("", {"manifest_path": "", "version": 0}, "the first version is 1"),
        (f"{name(2)}-other", {"branch": "b"}, r"Not supported: branch 'b'"),
    ],
)
def test_what_is_no_manifest_is_not_committed(here: Site, staging: str, fields: dict[str, Any], message: str) -> None:
    here.write(1, "create")
    folder = Path("/", here.describe(1).manifest_path).parent
    (folder / f"{name(2)}-short").write_bytes(b"no manifest" * 10)
    shutil.copy(folder / name(1), folder / f"{name(2)}-other")
    here.server.clear()
    with pytest.raises((err.InvalidInputError, err.UnsupportedOperationError), match=message):
        here.ns.create_table_version(create(here, fields.pop("version", 2), staging, **fields))
    assert not [request for request in here.server.requests if request.method == "POST"]


@pytest.mark.parametrize("links", [True, False])
def test_another_manifest_is_never_replaced(everywhere: Site, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    at = everywhere
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    at.fill(2)
    staged = f"{name(3)}-{uuid4()}"
    options = at.options or None
    assert lance.write_dataset(rows(3), at.location, mode="append", storage_options=options).version == 3
    at.rename(name(3), staged)
    session = at.session

    def past(call: object) -> None:
        if at.server.requests[-1].method == "POST":
            with TemporaryDirectory() as folder:
                Path(folder, "past").write_bytes(b"written past the catalog")
                session.upload_file(f"{folder}/past", f"_versions/{name(3)}")

    message = "another client committed a version without the catalog"
    with at.ns.observe(past), pytest.raises(err.InvalidTableStateError, match=message) as raised:
        at.ns.create_table_version(create(at, 3, staged))
    assert raised.value.__notes__ == ["version 3 of a$t é is committed; a request for it tries this step again"]
    with TemporaryDirectory() as folder:
        session.download_file(f"_versions/{name(3)}", f"{folder}/found")
        assert Path(folder, "found").read_bytes() == b"written past the catalog"
    assert staged in at.files()


def no_link(*_: object) -> None:
    """A replacement of `os.link` where there are no hard links."""
    raise PermissionError(1, "Operation not permitted")


def test_batches_hold_versions_alone(here: Site) -> None:
    here.fill(2)
    version = {"id": ID, "version": 2, "manifest_path": f"x/{name(2)}-x"}

    def commit(*operations: dict[str, Any]) -> object:
        return here.ns.batch_commit_tables({"operations": list(operations)})

    for operation in ("declare_table", "deregister_table"):
        with pytest.raises(err.UnsupportedOperationError, match=f"{operation} in a commit of several operations"):
            commit({operation: {"id": ID}})
    with pytest.raises(err.UnsupportedOperationError, match="delete_table_versions"):
        commit({"delete_table_versions": {"id": ID, "ranges": []}})
    with pytest.raises(err.InvalidInputError, match="each must have exactly one operation, not 0"):
        commit({})
    with pytest.raises(err.InvalidInputError, match="one operation, not 2: declare_table, create_table_version"):
        commit({"declare_table": {"id": ID}, "create_table_version": version})
    with pytest.raises(err.InvalidInputError, match="it appears twice"):
        commit({"create_table_version": version}, {"create_table_version": version})
    assert here.ns.batch_commit_tables(spec.BatchCommitTablesRequest(operations=[])).results == []
    request = {"id": ID, "version": 2, "manifest_path": here.staging(2)}
    (result,) = here.ns.batch_commit_tables({"operations": [{"create_table_version": request}]}).results
    assert result.create_table_version is not None and result.create_table_version.version == here.describe(2)


def test_branches_are_no_matter_of_the_catalog(here: Site) -> None:
    here.write(1, "create")
    for call in (here.listed, here.page):
        with pytest.raises(err.UnsupportedOperationError, match="Not supported: branch 'b'"):
            call(branch="b")
    assert here.listed(branch="main") == [1]
    with pytest.raises(OSError, match="Not supported: branch 'b'"):
        here.open().create_branch("b")


@pytest.fixture(params=["dir", "iceberg"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Namespace, list[str]]]:
    """Provides a namespace whose storage commits versions, and a table in it that has none yet."""
    if request.param == "dir":
        with DirNamespace(root=str(tmp_path)) as ns:
            yield ns, ["t"]
        return
    for at in site(Quirks(), tmp_path.as_uri(), {}, managed_by="storage"):
        yield at.ns, ID


def test_versions_of_the_storage_are_reported_and_not_made(stored: tuple[Namespace, list[str]]) -> None:
    ns, id = stored
    declared = ns.declare_table(spec.DeclareTableRequest(id=id))
    assert declared.managed_versioning is False
    assert ns.list_table_versions(spec.ListTableVersionsRequest(id=id)).versions == []
    assert ns.list_table_versions(spec.ListTableVersionsRequest(id=id, limit=1, descending=True)).versions == []
    with pytest.raises(err.TableVersionNotFoundError):
        ns.describe_table_version(spec.DescribeTableVersionRequest(id=id))
    for value, mode in ((1, "create"), (2, "append")):
        lance.write_dataset(rows(value), declared.location, mode=mode)
    listed = ns.list_table_versions(spec.ListTableVersionsRequest(id=id)).versions
    assert [version.version for version in listed] == [1, 2]
    assert all(Path("/", version.manifest_path).exists() and version.timestamp_millis for version in listed)
    assert listed[1].metadata is not None and listed[1].metadata["total_rows"] == "2"
    for number in (None, 2):
        assert ns.describe_table_version(spec.DescribeTableVersionRequest(id=id, version=number)).version == listed[1]
    assert ns.list_table_versions(spec.ListTableVersionsRequest(id=id, limit=1, descending=True)).versions == listed[1:]
    with pytest.raises(err.TableVersionNotFoundError, match="version 3"):
        ns.describe_table_version(spec.DescribeTableVersionRequest(id=id, version=3))
    version = spec.CreateTableVersionRequest(id=id, version=3, manifest_path=f"x/_versions/{name(3)}-x")
    with pytest.raises(err.UnsupportedOperationError, match=r"Not supported: .*Lance"):
        ns.create_table_version(version)


def test_versions_of_the_storage_are_removed_with_what_only_they_hold(stored: tuple[Namespace, list[str]]) -> None:
    ns, id = stored
    location = ns.declare_table(spec.DeclareTableRequest(id=id)).location
    assert location is not None
    assert deleted(ns, id, (0, -1)) == 0
    for value in range(6):
        lance.write_dataset(rows(value), location, mode="overwrite")
    lance.dataset(location).tags.create("kept", 4)
    files = len([*Path(location.removeprefix("file://"), "data").iterdir()])
    with pytest.raises(err.InvalidInputError, match=r"\[5, 7\) contains the latest version 6"):
        deleted(ns, id, (5, 7))
    with pytest.raises(err.InvalidTableStateError, match="version 4 cannot be deleted: tag 'kept'"):
        deleted(ns, id, (0, -1))
    assert deleted(ns, id, (2, 4), (5, -1)) == 3
    assert [it.version for it in ns.list_table_versions(spec.ListTableVersionsRequest(id=id)).versions] == [1, 4, 6]
    assert len([*Path(location.removeprefix("file://"), "data").iterdir()]) == files - 3
    assert lance.dataset(location).to_table().num_rows == 1


def test_a_storage_that_cannot_be_reached_commits_nothing(tmp_path: Path) -> None:
    with FakeS3() as s3:
        for at in site(Quirks(), "s3://lake/x", s3.options):
            at.write(1, "create")
            staging = create(at, 2, f"{name(2)}-x")
            s3.fail(500, times=None)
            with pytest.raises(err.InternalError, match="at s3://lake/x/"):
                at.ns.create_table_version(staging)
            s3.heal()
            assert at.ns.describe_table(spec.DescribeTableRequest(id=ID)).version == 1


def test_versions_of_a_branch_are_reported_where_the_storage_commits_them(tmp_path: Path) -> None:
    with DirNamespace(root=str(tmp_path)) as ns:
        ns.write(["t"], rows(1))
        ns.write(["t"], rows(2), mode="append")
        ns.create_table_branch({"id": ["t"], "name": "dev", "from_version": 1})
        ns.write(["t"], rows(3), mode="append", branch="dev")
        versions = ns.list_table_versions({"id": ["t"], "branch": "dev"}).versions
        newest = ns.describe_table_version({"id": ["t"], "branch": "dev"}).version
        assert [it.version for it in versions][-1] == newest.version == 2
        assert "/tree/dev/_versions/" in newest.manifest_path and Path("/", newest.manifest_path).is_file()
        assert [it.version for it in ns.list_table_versions({"id": ["t"]}).versions] == [1, 2]
        (last,) = ns.list_table_versions({"id": ["t"], "branch": "dev", "descending": True, "limit": 1}).versions
        assert last == newest
        with pytest.raises(err.TableBranchNotFoundError, match="no branch 'prod'"):
            ns.list_table_versions({"id": ["t"], "branch": "prod"})
        with pytest.raises(err.UnsupportedOperationError, match="use delete_table_branch to delete all"):
            ns.batch_delete_table_versions({"id": ["t"], "branch": "dev", "ranges": []})
