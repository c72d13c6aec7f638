"""daft-lance in Daft's Ray runner: its workers are processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lance_namespace import CreateNamespaceRequest

from tests.ecosystem import ray_watched
from tests.ecosystem.catalogs import running
from tests.ecosystem.ray_watched import Diary

ROOT = Path(__file__).parent.parent.parent


def test_workers_ask_the_catalog_by_properties_alone(tmp_path: Path) -> None:
    with running("polaris", tmp_path) as catalog, catalog.connect() as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["lake", "a"]))
        table = {
            "namespace_impl": ray_watched.CLASS_PATH,
            "namespace_properties": Diary(tmp_path / "diary").properties(catalog),
            "table_id": ["lake", "a", "t"],
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.ecosystem.daft_on_ray"],
            cwd=ROOT,
            input=json.dumps(table),
            capture_output=True,
            text=True,
            check=True,
        )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "rows": {"id": [2, 3]},
        "driver": ["describe_table"] * 2,
        # One for each fragment. The catalog lets nobody in without the credential that is among the properties.
        "workers": ["describe_table"] * 2,
    }
    _, secret = catalog.properties["credential"].split(":")
    assert secret not in done.stdout + done.stderr
