"""Versions that an Iceberg REST catalog commits: requests, conflicts, and lost responses."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, Call
from tests.fakes.iceberg import MANAGED, FakeIceberg
from tests.fakes.iceberg.catalog import NESSIE, Quirks
from tests.fakes.server import When
from tests.support.errors import catch

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms", "max_retries": "2"}
COMMIT = "POST .*/tables/t$"
NUMBERS = pa.table({"a": [1]})
WORDS = pa.table({"b": ["x"]})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a dataset whose manifests are used for tables: six versions with four schemas."""
    at = tmp_path_factory.mktemp("written")
    for data in (NUMBERS, NUMBERS, WORDS, WORDS, NUMBERS, pa.table({"a": ["1"]})):
        lance.write_dataset(data, at, mode="overwrite")
    return at


class Site:
    """A catalog with namespace `a`, which commits the versions of its tables, and a folder for them."""

    def __init__(self, server: FakeIceberg, ns: AsyncNamespace, root: Path, written: Path) -> None:
        self.server = server
        self.ns = ns
        self.root = root
        self._written = written

    async def declared(self, *names: str) -> None:
        for name in names or ("t",):
            await self.ns.declare_table(["a", name])

    def staged(self, number: int, table: str = "t") -> str:
        """Returns the location of a version's staged manifest, as Lance passes it."""
        name = f"{2**64 - 1 - number:020}.manifest"
        folder = self.root / "a" / table / "_versions"
        folder.mkdir(parents=True, exist_ok=True)
        return str(shutil.copy(self._written / "_versions" / name, folder / f"{name}-{uuid4()}")).lstrip("/")

    def request(self, number: int, **fields: Any) -> dict[str, Any]:
        staging = fields.pop("manifest_path", None) or self.staged(number)
        return {"id": ["a", "t"], "version": number, "manifest_path": staging, **fields}

    async def create(self, number: int, **fields: Any) -> None:
        await self.ns.create_table_version(self.request(number, **fields))

    async def latest(self, table: str = "t") -> int | None:
        return (await self.ns.describe_table(["a", table])).version

    def commits(self, table: str = "t") -> Sequence[Any]:
        """Returns the commits of a table since its declaration."""
        sent = [r.json for r in self.server.requests if r.method == "POST" and r.path.endswith(f"/tables/{table}")]
        return [it for it in sent if it["requirements"][0]["type"] != "assert-create"]

    @property
    def metadata(self) -> dict[str, Any]:
        result = self.server.metadata(("a",), "t")
        assert result is not None
        return result


@asynccontextmanager
async def site(server: FakeIceberg, tmp: Path, written: Path) -> AsyncIterator[Site]:
    options = {"root": tmp.as_uri(), "managed_by": "impl", "unique_locations": "false", **QUICK}
    with server:
        server.add_namespace(("a",))
        async with AsyncNamespace.connect("iceberg", {**options, "endpoint": server.endpoint}) as ns:
            yield Site(server, ns, tmp, written)


@pytest.fixture
async def here(tmp_path: Path, written: Path) -> AsyncIterator[Site]:
    async with site(FakeIceberg(), tmp_path, written) as opened:
        yield opened


def added(commit: Any) -> Any:
    return next(update["snapshot"] for update in commit["updates"] if update["action"] == "add-snapshot")


@pytest.mark.parametrize(
    ("connection", "table_properties", "managed"),
    [
        ({}, {}, False),
        ({"managed_by": "IMPL"}, {}, True),
        ({}, {"managed_by": "Impl"}, True),
        ({"iceberg.managed-by": "impl"}, {"managed_by": "storage"}, False),
    ],
)
async def test_declaration_sets_who_commits(
    server: FakeIceberg, tmp_path: Path, connection: dict[str, str], table_properties: dict[str, str], managed: bool
) -> None:
    properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), **connection}
    async with AsyncNamespace.connect("iceberg", properties) as ns:
        declared = await ns.declare_table(["a", "t"], properties=table_properties)
        result = await ns.describe_table(["a", "t"])
    assert declared.managed_versioning is managed and result.managed_versioning is managed
    assert result.version is None and result.properties is not None
    assert result.properties["managed_by"] == ("impl" if managed else "storage")


async def test_other_catalogs_do_not_commit_versions(here: Site) -> None:
    with pytest.raises(err.InvalidInputError, match=r"managed_by='server': it must be 'storage', .* or 'impl'"):
        await here.ns.declare_table(["a", "t"], properties={"managed_by": "Server"})
    with pytest.raises(err.InvalidInputError, match="managed_by: Input should be 'storage' or 'impl'"):
        AsyncNamespace.connect("iceberg", {"endpoint": "http://h", "managed_by": "server"})


@pytest.mark.parametrize(
    ("properties", "snapshots", "format", "version"),
    [
        (MANAGED, 3, 2, 3),
        *((MANAGED, 0, it, None) for it in (2, 3)),
        *((it, 3, 2, None) for it in ({"table_type": "lance", "managed_by": "storage"}, {"table_type": "lance"})),
    ],
)
async def test_current_snapshot_is_the_version(
    here: Site, properties: dict[str, str], snapshots: int, format: int, version: int | None
) -> None:
    here.server.add_table(("a",), "t", properties=properties, snapshots=snapshots, format_version=format)
    result = await here.ns.describe_table(["a", "t"])
    assert (result.version, result.managed_versioning) == (version, properties == MANAGED)


async def test_the_first_version_brings_the_schema_that_guards_it(here: Site) -> None:
    await here.declared()
    staging = here.staged(1)
    made = await here.ns.create_table_version(here.request(1, manifest_path=staging, metadata={"by": "me"}))
    (commit,) = here.commits()
    assert commit["requirements"][1:] == [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
    ]
    assert [
        update["action"] for update in commit["updates"]
    ] == "add-schema set-current-schema add-snapshot set-snapshot-ref".split()
    kept = here.metadata
    assert (kept["current-snapshot-id"], kept["current-schema-id"], kept["last-sequence-number"]) == (1, 1, 1)
    assert kept["schemas"][1]["fields"] == [{"id": 1, "name": "a", "required": False, "type": "long"}]
    (snapshot,) = kept["snapshots"]
    assert snapshot["manifest-list"] == f"{here.root.as_uri()}/a/t/_versions/{2**64 - 2:020}.manifest"
    assert snapshot["summary"] == {"operation": "append", "lance.metadata.by": "me", "lance.staging": staging}
    assert "parent-snapshot-id" not in snapshot
    assert made.version is not None and made.version.manifest_path == staging.partition(".manifest")[0] + ".manifest"
    assert made.version.timestamp_millis == snapshot["timestamp-ms"] and made.version.metadata == {"by": "me"}
    assert [entry["snapshot-id"] for entry in kept["snapshot-log"]] == [1]


async def test_later_versions_name_the_one_before_and_schemas_come_when_they_change(here: Site) -> None:
    await here.declared()
    for number in range(1, 7):
        await here.create(number)
    commits = here.commits()
    assert [commit["requirements"][1]["snapshot-id"] for commit in commits] == [None, 1, 2, 3, 4, 5]
    assert all(len(commit["requirements"]) == 2 for commit in commits[1:])
    assert [added(commit).get("parent-snapshot-id") for commit in commits] == [None, 1, 2, 3, 4, 5]
    # An earlier one becomes current again.
    assert [added(commit)["schema-id"] for commit in commits] == [1, 1, 2, 2, 1, 3]
    assert [len(commit["updates"]) for commit in commits] == [4, 2, 4, 2, 3, 4]
    kept = here.metadata
    types = [[(field["name"], field["type"]) for field in schema["fields"]] for schema in kept["schemas"]]
    assert types == [[], [("a", "long")], [("b", "string")], [("a", "string")]]
    assert (kept["current-snapshot-id"], kept["current-schema-id"]) == (6, 3)
    times = [entry["timestamp-ms"] for entry in kept["snapshot-log"]]
    assert times == sorted(times) and [entry["snapshot-id"] for entry in kept["snapshot-log"]] == [1, 2, 3, 4, 5, 6]


async def test_the_time_of_a_version_is_not_before_the_last_change(here: Site) -> None:
    await here.declared()
    here.metadata["last-updated-ms"] += 10_000_000
    last = here.metadata["last-updated-ms"]
    await here.create(1)
    assert here.metadata["snapshots"][0]["timestamp-ms"] == last


@pytest.mark.parametrize(
    ("format", "more", "keys"),
    [(1, {}, set()), (2, {}, {"sequence-number"}), (3, {"next-row-id": 7}, {"sequence-number", "first-row-id"})],
)
async def test_each_format_has_its_own_snapshots(here: Site, format: int, more: dict[str, int], keys: set[str]) -> None:
    location = (here.root / "a" / "t").as_uri()
    here.server.add_table(("a",), "t", properties=MANAGED, location=location)
    here.metadata.update({"format-version": format, **more})
    await here.create(1)
    (snapshot,) = here.metadata["snapshots"]
    assert {"sequence-number", "first-row-id"} & snapshot.keys() == keys
    assert (snapshot.get("first-row-id"), snapshot.get("added-rows")) == ((7, 0) if more else (None, None))


@pytest.mark.parametrize("quirks", [Quirks(), NESSIE])
@pytest.mark.parametrize("number", [1, 2])
async def test_of_many_writers_one_wins(tmp_path: Path, written: Path, quirks: Quirks, number: int) -> None:
    async with site(FakeIceberg(quirks), tmp_path, written) as here:
        await here.declared()
        if number == 2:
            await here.create(1)
        requests = [here.request(number) for _ in range(8)]
        won: list[str] = []
        lost: list[err.LanceNamespaceError] = []

        async def write(request: dict[str, Any]) -> None:
            try:
                await here.ns.create_table_version(request)
                won.append(request["manifest_path"])
            except err.ConcurrentModificationError as e:
                lost.append(e)

        # They all have read the same latest version before any of them commits.
        with here.server.hold(COMMIT) as hold:
            async with anyio.create_task_group() as group:
                for request in requests:
                    group.start_soon(write, request)
                await hold.reached(8)
                hold.release()
        assert len(won) == 1 and len(lost) == 7
        assert here.metadata["snapshots"][-1]["summary"]["lance.staging"] == won[0]
        assert all("is taken; the latest is" in str(e) or "its manifest already exists" in str(e) for e in lost)


async def test_versions_may_have_gaps_and_be_created_again_but_not_anew(here: Site) -> None:
    await here.declared()
    request = here.request(2)
    first = await here.ns.create_table_version(request)
    await here.create(5)
    assert [version.version for version in (await here.ns.list_table_versions(["a", "t"])).versions] == [2, 5]
    assert await here.ns.create_table_version(request) == first
    await catch(err.ConcurrentModificationError, here.create(2), r"^Concurrent modification: a\$t \(version 2 is taken")
    assert len(here.commits()) == 2


def lose(server: FakeIceberg, fails: int | str, when: When) -> None:
    """Loses the next commit, or its answer."""
    if isinstance(fails, int):
        server.fail(fails, match=COMMIT, when=when)
    else:
        server.cut(match=COMMIT, when=when)


@pytest.mark.parametrize("fails", ["cut", 500, 502, 503, 504])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("quirks", [Quirks(), NESSIE])
async def test_lost_commit_is_found(tmp_path: Path, written: Path, quirks: Quirks, number: int, fails: Any) -> None:
    async with site(FakeIceberg(quirks), tmp_path, written) as here:
        await here.declared()
        if number == 2:
            await here.create(1)
        here.server.clear()
        lose(here.server, fails, "after")
        await here.create(number)
        assert len(here.commits()) == 1 and await here.latest() == number


@pytest.mark.parametrize("fails", ["cut", 500, 503])
async def test_a_commit_that_never_arrived_is_sent_again(here: Site, fails: int | str) -> None:
    await here.declared()
    lose(here.server, fails, "before")
    await here.create(1)
    assert len(here.commits()) == 2 and len(here.metadata["snapshots"]) == 1


@pytest.mark.parametrize(
    ("break_it", "sent"),
    [
        (lambda server: server.cut(match=COMMIT, times=None), 3),
        # There is not enough time left, so it fails at once, and nothing is sent again.
        (lambda server: server.fail(503, match=COMMIT, headers={"Retry-After": "3600"}), 1),
        # Whatever becomes of the repetitions.
        (lambda server: (server.cut(match=COMMIT), server.fail(409, match=COMMIT, times=None)), 3),
    ],
    ids=["no-answer", "long-wait", "refused-repetitions"],
)
async def test_a_commit_without_an_answer_is_in_doubt(here: Site, break_it: Any, sent: int) -> None:
    await here.declared()
    break_it(here.server)
    await catch(err.ServiceUnavailableError, here.create(1), "whether it took effect is unknown")
    assert len(here.commits()) == sent and await here.latest() is None


async def test_where_looking_fails_the_outcome_is_unknown(here: Site) -> None:
    await here.declared()
    here.server.cut(match=COMMIT, when="after")
    with here.server.hold(COMMIT) as hold:
        async with anyio.create_task_group() as group:

            async def write() -> None:
                await catch(err.ServiceUnavailableError, here.create(1), "whether it took effect is unknown")

            group.start_soon(write)
            await hold.reached()
            here.server.fail(403, match="GET .*/tables/t", times=None)
            hold.release()
    here.server.heal()
    # A later client finds it, and completes it.
    result = await here.ns.describe_table_version(["a", "t"])
    assert result.version.version == 1 and await anyio.Path("/", result.version.manifest_path).exists()


@pytest.mark.parametrize(("quirks", "message"), [(Quirks(), None), (NESSIE, "lists only its latest version 2")])
async def test_lost_commit_below_another(tmp_path: Path, written: Path, quirks: Quirks, message: str | None) -> None:
    async with site(FakeIceberg(quirks), tmp_path, written) as here:
        await here.declared()
        staging = here.staged(2)

        def build(call: Call) -> None:
            if call.outcome == "disconnected":
                uuid = {"type": "assert-table-uuid", "uuid": here.metadata["table-uuid"]}
                snapshot = {**added(here.commits()[0]), "snapshot-id": 2, "sequence-number": 2}
                snapshot["summary"] = {"operation": "append", "lance.staging": staging}
                ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2}
                updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": snapshot}, ref]
                here.server.commit(("a",), "t", [uuid], updates)

        here.server.cut(match=COMMIT, when="after")
        with here.ns.observe(build):
            if message is None:
                await here.create(1)
            else:
                await catch(err.ServiceUnavailableError, here.create(1), message)
        assert len(here.commits()) == 1 and await here.latest() == 2


@pytest.mark.parametrize(("status", "cls"), [(403, err.PermissionDeniedError), (404, err.TableNotFoundError)])
async def test_refusals_are_reported_unchanged(here: Site, status: int, cls: type[err.LanceNamespaceError]) -> None:
    await here.declared()
    here.server.fail(status, match=COMMIT)
    await catch(cls, here.create(1), "create_table_version")
    assert len(here.commits()) == 1


async def test_an_unexplained_refusal_is_checked(here: Site) -> None:
    await here.declared()
    here.server.fail(409, match=COMMIT)
    await here.create(1)
    assert len(here.commits()) == 2
    here.server.fail(409, match=COMMIT, times=None)
    await catch(err.InternalError, here.create(2), r"rejected a commit without a conflicting version: .* HTTP 409")
    assert len(here.commits()) == 5 and await here.latest() == 1


def entry(here: Site, table: str, number: int) -> dict[str, Any]:
    return {"id": ["a", table], "version": number, "manifest_path": here.staged(number, table)}


async def test_several_tables_are_committed_at_once(here: Site) -> None:
    await here.declared("t", "u")
    entries = [entry(here, "u", 1), entry(here, "t", 2)]
    made = await here.ns.batch_create_table_versions({"entries": entries})
    folders = [version.manifest_path.partition("/_versions")[0].rpartition("/")[2] for version in made.versions]
    assert ([version.version for version in made.versions], folders) == ([1, 2], ["u", "t"])
    assert (await here.latest("u"), await here.latest("t")) == (1, 2)
    assert sum(request.path.endswith("transactions/commit") for request in here.server.requests) == 1
    # Where one version is taken, none is made.
    with pytest.raises(err.ConcurrentModificationError, match=r"a\$t \(version 2 is taken; the latest is 2\)"):
        await here.ns.batch_create_table_versions({"entries": [entry(here, "u", 2), entry(here, "t", 2)]})
    assert await here.latest("u") == 1


async def test_a_server_that_commits_tables_one_by_one_is_reported(here: Site) -> None:
    await here.declared("t", "u")
    mine = [entry(here, "t", 1), entry(here, "u", 1)]
    await here.ns.batch_create_table_versions({"entries": mine[:1]})
    await here.ns.batch_create_table_versions({"entries": [entry(here, "u", 1)]})
    with pytest.raises(err.InternalError, match=r"a\$u \(version 1 is taken.*took effect for a\$t"):
        await here.ns.batch_create_table_versions({"entries": mine})


async def test_thanks_for_several_tables_are_checked(here: Site) -> None:
    await here.declared("t", "u")
    entries = [entry(here, "t", 1), entry(here, "u", 1)]
    here.server.reply("", status=204, match="transactions/commit")
    made = await here.ns.batch_create_table_versions({"entries": entries})
    assert len(made.versions) == 2 and (await here.latest("t"), await here.latest("u")) == (1, 1)
    here.server.reply("", status=204, match="transactions/commit", times=None)
    entries = [entry(here, "t", 2), entry(here, "u", 2)]
    with pytest.raises(err.InternalError, match="reported a commit that did not happen"):
        await here.ns.batch_create_table_versions({"entries": entries})


async def test_not_every_server_commits_several_tables(tmp_path: Path, written: Path) -> None:
    async with site(FakeIceberg(Quirks(transactions=False)), tmp_path, written) as here:
        await here.declared("t", "u")
        entries = [entry(here, "t", 1), entry(here, "u", 1)]
        with pytest.raises(err.UnsupportedOperationError, match="commit them one by one"):
            await here.ns.batch_create_table_versions({"entries": entries})
        assert len((await here.ns.batch_create_table_versions({"entries": entries[:1]})).versions) == 1


async def test_missing_tables_are_missing(here: Site) -> None:
    for call in (
        here.create(1),
        here.ns.list_table_versions(["a", "t"]),
        here.ns.describe_table_version(["a", "t"], version=1),
        here.ns.batch_delete_table_versions({"id": ["a", "t"], "ranges": []}),
    ):
        await catch(err.TableNotFoundError, call, r"^Table not found: a\$t")
