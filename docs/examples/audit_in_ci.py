"""Fail a CI job if a table of the catalog is damaged."""

import sys

from lance_ns_async import Namespace
from lance_ns_async.fleet.sync import audit


def main() -> int:
    with Namespace.connect("dir", {"root": "lake"}) as ns:
        report = audit(ns, "sales.**", deep=True)
    for row in report.problems:
        print(row.id, row.outcome, row.reason)
    print(len(report.problems), "problems")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
