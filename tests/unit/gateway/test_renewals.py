"""Workers that read and write by pylance alone, with credentials that this process renews."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import lance
import lance_namespace
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.gateway import renewing
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import KeyedS3, RenewingPolaris

ROWS = pa.table({"id": range(6)})
ID = ["shop", "db", "t0000"]
OTHER = ["shop", "db", "t0001"]


@pytest.fixture
def s3() -> Iterator[KeyedS3]:
    with KeyedS3() as running:
        yield running


@pytest.fixture
def catalog(s3: KeyedS3) -> Iterator[RenewingPolaris]:
    with RenewingPolaris(s3) as running:
        running.write_tables(2, ROWS, max_rows_per_file=1)
        running.lasts = 40.0
        yield running


@pytest.fixture
def ns(catalog: RenewingPolaris) -> Iterator[Namespace]:
    with Namespace.connect("polaris", {**catalog.properties, "max_retries": "0"}) as connected:
        yield connected


def client(lake: Mapping[str, Any], **properties: str) -> Any:
    """The namespace of a worker, whose arguments came in a pickle."""
    there = pickle.loads(pickle.dumps(lake))
    assert type(there["namespace_properties"]) is dict
    return lance_namespace.connect(there["namespace_impl"], {**there["namespace_properties"], **properties})


def test_workers_read_and_write_with_renewed_credentials(ns: Namespace, s3: KeyedS3, catalog: RenewingPolaris) -> None:
    with renewing(ns, "shop.db.*") as lake:
        assert lake["namespace_properties"]["header.x-lance-token"] not in repr(lake)
        s3.revoked.update(catalog.issued)
        with ThreadPoolExecutor(8) as workers:
            datasets = workers.map(lambda n: lance.dataset(namespace_client=n, table_id=ID), [client(lake)] * 8)
            assert [it.count_rows("id >= 0") for it in datasets] == [6] * 8
        assert len(catalog.issued) == 3
        lance.write_dataset(ROWS, namespace_client=client(lake), table_id=OTHER, mode="append")
        assert len(catalog.issued) == 4
    assert ns.open(OTHER).count_rows() == 12


@pytest.mark.parametrize(
    ("lasts", "outcome"), [(40.0, nullcontext()), (0.0, pytest.raises(err.ServiceUnavailableError, match="HTTP 503"))]
)
def test_credentials_are_used_to_their_end_while_the_catalog_is_down(
    ns: Namespace, catalog: RenewingPolaris, lasts: float, outcome: AbstractContextManager[object]
) -> None:
    catalog.lasts = lasts
    with renewing(ns, [ID]) as lake, outcome:
        catalog.fail(503, times=None)
        response = client(lake).describe_table(lance_namespace.DescribeTableRequest(id=ID))
        assert response.storage_options["aws_access_key_id"] == "KEY1"


def test_the_endpoint_is_for_these_tables_while_it_is_open(ns: Namespace, catalog: RenewingPolaris) -> None:
    with renewing(ns, [ID]) as lake:
        calls = len(catalog.requests)
        for refused, id, operation, remedy in (
            (client(lake), OTHER, "describe_table", "`renewing` did not include it"),
            (client(lake), [*ID[:2], "new"], "declare_table", "declare it in the catalog before"),
            (client(lake), ID, "drop_table", "does not have this operation"),
            (client(lake, **{"header.x-lance-token": "wrong"}), ID, "describe_table", "token is wrong"),
        ):
            request = getattr(lance_namespace, f"{operation.title().replace('_', '')}Request")(id=id)
            with pytest.raises(err.LanceNamespaceError, match=remedy):
                getattr(refused, operation)(request)
        assert len(catalog.requests) == calls
    with pytest.raises(err.LanceNamespaceError):
        client(lake).describe_table(lance_namespace.DescribeTableRequest(id=ID))


@pytest.mark.parametrize(
    ("what", "host", "error", "message"),
    [
        ("shop.db.no", "127.0.0.1", err.TableNotFoundError, r"shop\$db\$no"),
        ("shop.db.x*", "127.0.0.1", err.TableNotFoundError, r"no table matches shop\.db\.x\*"),
        ([], "127.0.0.1", err.TableNotFoundError, r"no table matches \[\]"),
        (5, "127.0.0.1", err.InvalidInputError, "an id, a pattern .* not of type int"),
        ([5], "127.0.0.1", err.InvalidInputError, "a text or a sequence of names, not of type int"),
        ("shop.db.*", "10.255.255.1", err.InvalidInputError, "host 10.255.255.1: cannot listen there"),
        *(
            ("shop.db.*", host, err.InvalidInputError, "a host name or an address only, at which the workers reach")
            for host in ("0.0.0.0", "::", "0", "http://127.0.0.1", "127.0.0.1:99", "", "no such host")
        ),
    ],
)
def test_what_cannot_be_renewed_is_an_error(
    ns: Namespace, what: Any, host: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), renewing(ns, what, host=host):
        pass


@pytest.mark.parametrize("connect", [AsyncNamespace.connect, lance_namespace.connect])
def test_other_namespaces_cannot_be_renewed(connect: Callable[..., Any], tmp_path: Path) -> None:
    other = connect("dir", {"root": str(tmp_path)})
    with pytest.raises(err.InvalidInputError, match=f"Namespace.connect returns, not of type .*{type(other).__name__}"):
        renewing(other, "*").__enter__()


def test_tables_whose_versions_the_catalog_commits_are_refused(tmp_path: Path) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", properties) as ns:
            ns.create_namespace("db")
            ns.write("db.t", ROWS)
            with pytest.raises(err.UnsupportedOperationError, match="class path of the catalog"), renewing(ns, "db.t"):
                pass
