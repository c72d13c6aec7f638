"""Counts the calls of our own functions in one operation, and the files that they are in.

Run it with `python -m benchmarks.describe.steps`. The catalog is Iceberg REST, in the same process.
"""

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import lance_ns_async
from benchmarks.support.report import table
from lance_ns_async import Namespace
from tests.fakes.iceberg import FakeIceberg

PACKAGE = str(Path(lance_ns_async.__file__).parent)
TABLES = 100


class Steps:
    """Counts calls by file in all threads that start after it; a resumed coroutine is no call."""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._is_on = False
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def count(self, work: Callable[[], object]) -> tuple[int, int]:
        """Does the work; returns the number of calls, and of files."""
        self._files.clear()
        self._is_on = True
        work()
        self._is_on = False
        return self._files.total(), len(self._files)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if self._is_on and event == "call" and file.startswith(PACKAGE) and not _is_resumed(frame):
            self._files[file] += 1


def _is_resumed(frame: FrameType) -> bool:
    # A frame begins with the instructions before the first line of its body.
    return frame.f_lineno != frame.f_code.co_firstlineno


def main() -> None:
    """Prints the counts of four operations."""
    steps, rows = Steps(), []
    data = pa.table({"id": [1]})
    with FakeIceberg() as server, tempfile.TemporaryDirectory() as root:
        with Namespace.connect("iceberg", {"endpoint": server.endpoint, "root": Path(root).as_uri()}) as ns:
            names = [f"t{number}" for number in range(TABLES)]
            for namespace in ("db", "new"):
                server.add_namespace([namespace])
            # The namespace of the table that is dropped contains another one.
            server.add_table(["new"], "other")
            for name in names:
                server.add_table(["db"], name)
            for run in ("warm-up", "counted"):
                one = steps.count(lambda: ns.describe_table({"id": ["db", "t0"]}))
                many, files = steps.count(lambda: ns.describe_tables([("db", name) for name in names]))
                new = ["new", run]
                written = steps.count(lambda new=new: ns.write(new, data))  # type: ignore[misc]
                dropped = steps.count(lambda new=new: ns.drop_table({"id": new}))  # type: ignore[misc]
        rows = [
            ("describe of a table", *map(str, one)),
            (f"a table of a bulk describe of {TABLES}", f"{many / TABLES:.0f}", str(files)),
            ("write of a new table", *map(str, written)),
            ("drop of a table", *map(str, dropped)),
        ]
    print(table(("operation", "calls", "files"), rows))


if __name__ == "__main__":
    main()
