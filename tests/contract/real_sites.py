"""Real servers that the contract is tested on, where starting one takes more than a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from lance_ns_async import TableId
from tests.contract.site import Site
from tests.servers.nessie import nessie


@contextmanager
def real_nessie(tmp: Path) -> Iterator[Site]:
    """Nessie with an S3; how to reach that stands in the environment, as tests give Lance a location alone."""
    with nessie(tmp) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.s3.environment.items():
            patch.setenv(name, value)
        kept = {name: value for name, value in server.properties.items() if not name.startswith("storage.")}
        yield Site("iceberg", kept, lambda id: _plant_iceberg(server.endpoint, id), renames=True)


def _plant_iceberg(endpoint: str, id: TableId) -> None:
    """An Iceberg table as an Iceberg client would make it."""
    body = {
        "name": id.name,
        "schema": {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
        },
        "stage-create": False,
    }
    levels = "%1F".join(quote(level, safe="") for level in id.parent)
    answer = httpx.post(f"{endpoint}/v1/main%7Cwarehouse/namespaces/{levels}/tables", json=body, trust_env=False)
    answer.raise_for_status()
