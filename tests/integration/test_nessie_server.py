"""The Nessie of other tests: it starts, responds, stores tables in its S3, and survives a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeTableRequest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import Namespace, TableId
from tests.servers.iceberg_rest import Nessie, nessie
from tests.servers.process import ServerError, s3
from tests.support.budget import thorough

# No test of the usual run needs this server.
pytestmark = [pytest.mark.integration, thorough]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    with nessie(tmp_path_factory.mktemp("nessie")) as running:
        yield running


@pytest.fixture
def client(server: Nessie) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.endpoint, trust_env=False) as connected:
        yield connected


def test_config_gives_an_escaped_prefix_for_the_warehouse(server: Nessie, client: httpx.Client) -> None:
    config = client.get("/v1/config", params={"warehouse": server.properties["warehouse"]}).raise_for_status().json()
    assert config["defaults"]["prefix"] == "main%7Cwarehouse"
    assert "namespace-separator" not in config["overrides"]


def test_tables_are_kept_through_a_crash_and_their_data_lies_in_s3(server: Nessie) -> None:
    with Namespace.connect("iceberg", server.properties) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["kept"]))
        declared = ns.declare_table(DeclareTableRequest(id=["kept", "t"]))
        assert declared.location is not None and declared.location.startswith(f"s3://{server.s3.bucket}/kept/t-")
        lance.write_dataset(pa.table({"id": [1, 2, 3]}), declared.location, storage_options=declared.storage_options)
        server.kill()
        server.restart()
        result = ns.describe_table(DescribeTableRequest(id=["kept", "t"]))
        assert lance.dataset(result.location, storage_options=result.storage_options).count_rows() == 3


def test_a_location_outside_the_s3_is_refused(server: Nessie, tmp_path: Path) -> None:
    with Namespace.connect("iceberg", server.properties) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["placed"]))
        with pytest.raises(InvalidInputError, match="Unknown or unsupported scheme: file"):
            ns.declare_table(DeclareTableRequest(id=["placed", "t"], location=tmp_path.as_uri()))
        assert not ns.exists(TableId(["placed", "t"]))


def test_an_s3_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="s3 is not ready after 0 s"), s3(tmp_path, "bucket", start_within=0.0):
        pass
