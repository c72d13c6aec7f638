"""A program that writes and reads a table by Daft on Ray, because a process with Daft can have only one runner. It
reads daft-lance's arguments from its input, and prints the rows and the processes that called the catalog."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import daft
import daft_lance

from tests.ecosystem.catalogs import Diary
from tests.ecosystem.ray_cluster import running


def main() -> None:
    table = json.load(sys.stdin)
    diary = Diary(Path(table["namespace_properties"]["diary"]))
    running()
    daft.set_runner_ray()
    daft_lance.write_lance(daft.from_pydict({"id": [1, 2]}), mode="create", **table).collect()
    daft_lance.write_lance(daft.from_pydict({"id": [3]}), mode="append", **table).collect()
    diary.forget()
    rows = daft_lance.read_lance(**table).where(daft.col("id") > 1).sort("id").to_pydict()
    report = {"rows": rows, "driver": diary.calls(here=True), "workers": diary.calls(here=False)}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
