"""Vended credentials from end to end: Apache's Iceberg REST catalog, and moto's S3, which verifies the keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest
from lance_namespace.errors import UnauthenticatedError

from lance_ns_async import AsyncNamespace
from tests.servers.iceberg_rest import IcebergRest, iceberg_rest
from tests.servers.s3 import S3, s3
from tests.servers.vending import StorageKeys, VendingCatalog
from tests.support.aws import forget_aws
from tests.support.lake import ROWS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3"), "lake") as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with iceberg_rest(tmp_path_factory.mktemp("iceberg")) as running:
        yield running


@pytest.fixture(scope="module")
def keys(storage: S3) -> StorageKeys:
    return StorageKeys(storage)


@pytest.fixture
def catalog(
    server: IcebergRest, keys: StorageKeys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[VendingCatalog]:
    forget_aws(monkeypatch, tmp_path)
    with VendingCatalog(server.endpoint, keys) as running:
        yield running


async def declare(ns: AsyncNamespace, server: IcebergRest, name: str) -> list[str]:
    """Declares a table in the bucket; its Iceberg metadata stays in the folder of the server, which has no S3."""
    await ns.create_namespace(CreateNamespaceRequest(id=["db"], mode="ExistOk"))
    id = ["db", name]
    properties = {"write.metadata.path": f"file://{server.warehouse}/metadata-{name}"}
    await ns.declare_table(DeclareTableRequest(id=id, location=f"s3://lake/{name}", properties=properties))
    return id


async def test_data_is_written_and_read_with_vended_keys_alone(catalog: VendingCatalog, server: IcebergRest) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "orders")
        await ns.write(id, ROWS, mode="append")
        await ns.write(id, ROWS, mode="append")
        assert (await ns.open(id)).count_rows() == 2 * ROWS.num_rows
        assert (await ns.open(id)).to_table().slice(0, ROWS.num_rows) == ROWS
    assert len(catalog.issued) >= 2 and len(set(catalog.issued)) == len(catalog.issued)


async def test_other_keys_are_refused(catalog: VendingCatalog, server: IcebergRest, storage: S3) -> None:
    own = {f"storage.{name}": value for name, value in storage.storage.items()}
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "secret")
        await ns.write(id, ROWS, mode="append")
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **own}) as ns:
        with pytest.raises(UnauthenticatedError):
            await ns.open(id)


async def test_a_read_goes_on_after_its_keys_were_withdrawn(
    catalog: VendingCatalog, server: IcebergRest, keys: StorageKeys
) -> None:
    catalog.seconds = 1.0
    async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url}) as ns:
        id = await declare(ns, server, "long")
        for _ in range(2):
            await ns.write(id, ROWS, mode="append")
        first, second = (await ns.open(id)).get_fragments()
        assert first.to_table() == ROWS
        before = len(catalog.issued)
        keys.withdraw()
        assert second.to_table() == ROWS
        assert len(catalog.issued) > before
