"""Real servers for the contract that need more than a line to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx
import pytest
from lance_namespace import CreateNamespaceRequest

from lance_ns_async import Namespace, NamespaceId, TableId
from tests.contract.site import Site
from tests.fakes.hive3.series import RawHive
from tests.fakes.hive3.series import table as hive_table
from tests.servers.hive import hive
from tests.servers.iceberg_rest import iceberg_rest, nessie

HiveVersion = Literal["2.3.9", "3.1.3", "4.0.1"]


@contextmanager
def real_nessie(tmp: Path) -> Iterator[Site]:
    """Provides Nessie with an S3; its credentials are environment variables, as tests pass only locations."""
    with nessie(tmp) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.s3.environment.items():
            patch.setenv(name, value)
        kept = {name: value for name, value in server.properties.items() if not name.startswith("storage.")}
        yield Site(
            "iceberg",
            kept,
            lambda id: _plant_iceberg(f"{server.endpoint}/v1/main%7Cwarehouse", "%1F", id),
            real=True,
            keeps_credentials=True,
        )


@contextmanager
def real_hive(tmp: Path, version: HiveVersion, *, properties: Mapping[str, str] | None = None) -> Iterator[Site]:
    with hive(tmp / "hive", version, properties=properties) as server:
        told = "its server tells several callers that they removed the table"
        once = ("test_a_table_is_dropped_once", "test_a_table_is_deregistered_once")
        exempt = dict.fromkeys((*once, "test_a_table_is_dropped_once_with_a_retention"), told)
        yield replace(hive_site(server.uri, tmp, version), exempt=exempt)


@contextmanager
def real_iceberg(tmp: Path) -> Iterator[Site]:
    with iceberg_rest(tmp) as server:

        def add_other_table(id: TableId) -> None:
            location = (tmp / "other" / "-".join(id)).as_uri()
            _plant_iceberg(f"{server.endpoint}/v1", "%2E", id, location=location)

        properties = {"endpoint": server.endpoint, "root": (tmp / "tables").as_uri()}
        lost = "its server reports a constraint of its database to callers that lost"
        exempt = {
            "test_of_concurrent_creations_of_a_namespace_one_wins": lost,
            "test_concurrent_creations_with_exist_ok_all_succeed": lost,
        }
        yield Site("iceberg", properties, add_other_table, real=True, keeps_credentials=True, exempt=exempt)


def hive_site(uri: str, tmp: Path, version: HiveVersion = "3.1.3") -> Site:
    """Returns a site; if there are catalogs, in a separate one, so that nothing depends on the default one."""
    properties = {"uri": uri, "root": (tmp / "tables").as_uri()}

    def add_other_table(id: TableId) -> None:
        location = (tmp / "other").as_uri()
        catalog = id[0] if len(id) == 3 else None
        external = {"EXTERNAL": "TRUE"}
        with RawHive(uri) as raw:
            raw.do("create_table", hive_table(catalog, id.parent.name, id.name, location=location, parameters=external))

    if version == "2.3.9":
        return Site("hive2", properties, add_other_table, nests=False)
    with Namespace.connect("hive3", properties) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=["lake"]))
    return Site("hive3", properties, add_other_table, above=NamespaceId(["lake"]), nests=False)


def _plant_iceberg(base: str, separator: str, id: TableId, **properties: str) -> None:
    """Creates an Iceberg table as an Iceberg client does."""
    body = {
        "name": id.name,
        "schema": {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
        },
        "stage-create": False,
        **properties,
    }
    levels = separator.join(quote(level, safe="") for level in id.parent)
    httpx.post(f"{base}/namespaces/{levels}/tables", json=body, trust_env=False).raise_for_status()
