"""Settings of the Hive Metastore's client, and the errors for each response of a metastore."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, Policy
from lance_ns_async.backends.hive3.responses import ERRORS
from tests.fakes.certificates import Certificates
from tests.fakes.hive3 import FakeHive
from tests.support.errors import catch
from tests.support.hive import connected, create, declare, describe, drop, kept, namespaces, rename, tables
from tests.support.running import running

Do = Callable[[AsyncNamespace], Awaitable[object]]
Error = type[err.LanceNamespaceError]


@pytest.fixture
def server() -> Iterator[FakeHive]:
    with FakeHive() as server:
        server.add_catalog("lake")
        server.add_database("lake", "d")
        server.add_table("lake", "d", "t")
        yield server


ALTER = "alter_table_with_environment_context"

DOES: dict[str, Do] = {
    "get_catalogs": lambda ns: namespaces(ns),
    "get_catalog": lambda ns: kept(ns, "lake"),
    "create_catalog": lambda ns: ns.create_namespace(create("new")),
    "drop_catalog": lambda ns: ns.drop_namespace(drop("lake", cascade=True)),
    "get_databases": lambda ns: namespaces(ns, "lake"),
    "get_database": lambda ns: kept(ns, "lake", "d"),
    "create_database": lambda ns: ns.create_namespace(create("lake", "new")),
    "drop_database": lambda ns: ns.drop_namespace(drop("lake", "d")),
    "get_table_names_by_filter": lambda ns: tables(ns, "lake", "d"),
    "get_table_req": lambda ns: ns.describe_table(describe("lake", "d", "t")),
    "create_table": lambda ns: ns.declare_table(declare("lake", "d", "new")),
    ALTER: lambda ns: ns.rename_table(rename("lake", "d", "t", to="u")),
    "drop_table": lambda ns: ns.deregister_table(["lake", "d", "t"]),
}
"""An operation that calls each method."""

ANSWERS: dict[Error, list[tuple[str, str, str]]] = {
    err.NamespaceNotFoundError: [
        *((it, "NoSuchObjectException", "No catalog lake") for it in ("get_catalog", "drop_catalog")),
        *(("get_database", "NoSuchObjectException", it) for it in ("d", "database lake.d")),
        *(("drop_table", "NoSuchObjectException", it) for it in ("d", "database lake.d")),
        ("create_table", "NoSuchObjectException", "what it is in is gone"),
        ("get_table_names_by_filter", "UnknownDBException", "DB name is null or empty"),
        ("create_database", "InvalidObjectException", "No such catalog lake"),
        *(("create_table", "InvalidObjectException", it) for it in ("d", "database lake.d")),
        (ALTER, "InvalidOperationException", "Unable to change. Database d does not exist Check logs.e"),
        (ALTER, "InvalidOperationException", "Unable to change. Database lake.e doesn't exist."),
        ("drop_database", "MetaException", 'java.lang.NullPointerException: Cannot invoke x() because "db" is null'),
    ],
    err.NamespaceAlreadyExistsError: [
        ("create_catalog", "AlreadyExistsException", "Catalog new already exists"),
        ("create_database", "AlreadyExistsException", "Database new already exists"),
        ("create_database", "MetaException", "Duplicate entry 'new' for key 'UNIQUE_DATABASE'"),
    ],
    err.NamespaceNotEmptyError: [
        ("drop_database", "InvalidOperationException", "Database d is not empty. One or more tables exist."),
        ("drop_catalog", "InvalidOperationException", "There are non-default databases in the catalog lake so it"),
        ("drop_catalog", "InvalidOperationException", "There are still objects in the default database for catalog"),
    ],
    err.TableNotFoundError: [
        *((it, "NoSuchObjectException", "lake.d.t table not found") for it in ("get_table_req", "drop_table")),
        (ALTER, "InvalidOperationException", "lake.d.t table not found"),
        (ALTER, "InvalidOperationException", "table lake.d.t doesn't exist"),
    ],
    err.TableAlreadyExistsError: [
        ("create_table", "AlreadyExistsException", "Table lake.d.new already exists"),
        ("create_table", "MetaException", 'violates unique constraint "UNIQUETABLE"'),
        (ALTER, "InvalidOperationException", "new table d.u already exists"),
    ],
    err.PermissionDeniedError: [
        ("create_table", "MetaException", "AccessControlException Permission denied: user=me, access=WRITE")
    ],
    err.InvalidInputError: [
        ("create_database", "InvalidObjectException", "n w is not a valid database name"),
        ("create_catalog", "InvalidObjectException", "You must specify a path for the catalog"),
        ("create_table", "InvalidObjectException", "n w is not a valid object name"),
        (ALTER, "InvalidOperationException", "partition keys can not be changed."),
        ("drop_database", "MetaException", "Can not drop default database in catalog hive"),
        ("create_table", "MetaException", 'UnsupportedFileSystemException No FileSystem for scheme "s3"'),
        ("create_table", "MetaException", "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.X not found"),
        ("create_table", "MetaException", "java.net.URISyntaxException: Relative path in absolute URI: file:./x"),
        ("create_table", "MetaException", "file:/proc/x is not a directory or unable to create one"),
        ("create_table", "MetaException", "ParentNotDirectoryException Parent path is not a directory: file:/etc"),
        ("create_database", "MetaException", "Unable to create database path file:/x, failed to create database d"),
        ("create_database", "MetaException", 'Attempt to store value "x" in column "NAME" that has maximum length'),
        ("create_database", "MetaException", "Put request failed : INSERT INTO DATABASE_PARAMS"),
    ],
    err.ConcurrentModificationError: [
        (ALTER, "MetaException", "The table has been modified. The parameter value for key 'k' is 'a'")
    ],
    err.InternalError: [
        ("create_table", "MetaException", 'java.lang.NullPointerException: because "cols" is null'),
        ("create_table", "MetaException", "Invalid SerDeInfo object"),
        ("get_catalogs", "MetaException", "the database is down"),
        ("get_databases", "TApplicationException", "Internal error processing get_databases"),
    ],
}
"""The possible replies of each method, by their meaning."""


@pytest.mark.parametrize(
    ("error", "method", "exception", "message"),
    [(error, *answer) for error, answers in ANSWERS.items() for answer in answers],
)
async def test_error_of_each_answer(
    server: FakeHive, ns: AsyncNamespace, error: Error, method: str, exception: str, message: str
) -> None:
    server.fail(exception, message, match=f"^{method} ")
    assert type((await catch(error, DOES[method](ns))).value) is error
    assert server.calls.count(method) == 1


@pytest.mark.parametrize(
    ("exception", "message", "error"),
    [
        ("InvalidOperationException", "table lake.d.t doesn't exist", None),
        ("MetaException", "Put request failed : INSERT INTO TABLE_PARAMS", err.ConcurrentModificationError),
    ],
)
async def test_replacement_of_a_dropped_table(
    server: FakeHive, ns: AsyncNamespace, exception: str, message: str, error: Error | None
) -> None:
    server.fail(exception, message, match="^alter_table")
    location = "file:///elsewhere/t"
    replace = ns.register_table({"id": ["lake", "d", "t"], "location": location, "mode": "Overwrite"})
    if error is None:
        assert (await replace).location == location
    else:
        await catch(error, replace, "Put request failed")


async def test_a_database_that_cannot_compare_parameters_is_asked_without(server: FakeHive, ns: AsyncNamespace) -> None:
    sql = 'Error executing SQL query "update "TABLE_PARAMS" set "PARAM_VALUE"=?"'
    server.fail("MetaException", f"JDODataStoreException: {sql}. ERROR 42818: 'CLOB (UCS_BASIC)'", match=f"^{ALTER} ")
    await ns.rename_table(rename("lake", "d", "t", to="u"))
    assert await tables(ns, "lake", "d") == ["u"]


def test_every_entry_of_the_error_table_is_known() -> None:
    """The entries that belong to no exception of a method, and those of the replies above."""
    met = {"timeout", "refused", "untrusted", "disconnected", "deadline", "circuit"}
    wire = met | {"mismatch", "unauthenticated", "UNKNOWN_METHOD"}
    codes = {code if isinstance(code, str | int) else code[0] for code in ERRORS} - wire
    exceptions = {exception for answers in ANSWERS.values() for _, exception, _ in answers}
    explained = {"NoSuchDatabase", "NoSuchTable", "TableExists", "Duplicate", "NotEmpty", "Denied", "Unacceptable"}
    assert codes == (exceptions - {"TApplicationException"}) | explained | {"NotStored", "Replaced", "Incomparable"}


async def test_a_server_that_is_not_there_is_unavailable(server: FakeHive, ns: AsyncNamespace) -> None:
    server.stop()
    for do in DOES.values():
        await catch(err.ServiceUnavailableError, do(ns), "cannot connect to")


async def test_the_user_is_sent_first_and_shown_as_identity(server: FakeHive) -> None:
    async with connected(server, ugi="alice:staff, dev") as ns:
        await kept(ns, "lake")
        await kept(ns, "lake", "d")
        assert ns.namespace_id().startswith(f"lance_ns_async:hive3:{server.uri}|alice#")
    assert server.calls == ["set_ugi", "get_catalog", "get_database"]
    assert server.requests[0].arguments == {1: "alice", 2: ["staff", "dev"]}


async def test_a_password_is_sent_over_tls_and_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    made = Certificates.made(tmp_path)
    secure = {"use_ssl": "true", "ca_bundle": made.ca_bundle, "auth": "plain", "user": "me"}
    with FakeHive(require_plain_sasl=("me", "sesame"), tls=made.server) as server:
        async with connected(server, **secure, password="sesame") as ns:
            assert await namespaces(ns) == ["hive"]
            assert "sesame" not in repr(ns) + ns.namespace_id()
        async with connected(server, **secure, password="sesame2") as ns:
            caught = await catch(err.UnauthenticatedError, namespaces(ns))
        assert "sesame" not in str(caught.value) + caplog.text


async def test_frames_are_a_setting() -> None:
    async with running(connected, FakeHive(framed=True), framed="true") as (_server, ns):
        assert await namespaces(ns) == ["hive"]


async def test_a_policy_of_the_users_own_opens_no_more_connections(server: FakeHive) -> None:
    properties = {"uri": server.uri, "client.pool-size": "2"}
    async with AsyncNamespace.connect("hive3", properties, policy=Policy(max_in_flight=16)) as ns:
        await ns.describe_tables([["lake", "d", "t"], *(["lake", f"d{i}", "t"] for i in range(30))])
    assert server.connections == 2
