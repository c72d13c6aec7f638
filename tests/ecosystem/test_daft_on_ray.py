"""daft-lance in Daft's Ray runner, whose workers are separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.ecosystem.catalogs import Catalog, Diary, on_one_catalog

ROOT = Path(__file__).parent.parent.parent
SECRETS = ("credential", "secret_access_key")
"""Properties with secrets; catalogs with these reject connections without them."""


@on_one_catalog
def test_workers_call_the_catalog_with_properties_only(catalog: Catalog, home: list[str], diary: Diary) -> None:
    table = {**diary.place(catalog), "table_id": [*home, "t"]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ecosystem.daft_on_ray"],
        cwd=ROOT,
        input=json.dumps(table),
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["rows"] == {"id": [2, 3]}
    # The driver requests credentials, too, and each process requests the configuration of Iceberg.
    assert [it for it in report["driver"] if it != "vend_credentials"] == ["describe_table"] * 2
    # One call for each fragment.
    assert [it for it in report["workers"] if it != "get_config"] == ["describe_table"] * 2
    for name in set(SECRETS) & set(catalog.properties):
        assert catalog.properties[name].rpartition(":")[2] not in done.stdout + done.stderr
