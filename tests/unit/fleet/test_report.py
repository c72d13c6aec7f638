"""Reports of operations on whole lakes: counts, forms, and rows that survive a journal."""

from __future__ import annotations

import json

import pytest
from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError, ThrottlingError

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.fleet import Report, Row
from lance_ns_async.fleet.run import failure_row, start

T = TableId(["a$b", "t"])
ROWS = [
    Row(T, "registered", location="s3://b/t"),
    Row(TableId(["u"]), "registered", location="s3://b/u", fields={"size": 3}),
    Row(NamespaceId(["n"]), "denied", "not <allowed>", attempts=2),
    Row("s3://b/v\n", "failed", "broken", fields={"size": "large"}),
]


def test_rows_survive_json() -> None:
    assert [Row.from_dict(json.loads(json.dumps(row.to_dict()))) for row in ROWS] == ROWS


def test_fields_cannot_replace_the_rows_own() -> None:
    with pytest.raises(ValueError, match="outcome"):
        Row(T, "x", fields={"outcome": "y"})


def test_a_report_counts_and_selects() -> None:
    report = Report("discover", ROWS, seconds=2.5, calls=7, p50=0.002, p95=0.2, counters={"requests": 9}, resumed=1)
    assert dict(report.counts) == {"registered": 2, "denied": 1, "failed": 1}
    assert [row.outcome for row in report.problems] == ["denied", "failed"]
    assert report.line() == (
        "discover: 2 registered, 1 denied, 1 failed in 2.5 s (7 calls, p50 2 ms, p95 0.2 s; 9 requests); "
        "1 from the journal"
    )


def test_text_and_html_list_the_problems() -> None:
    report = Report("audit", ROWS, problem_outcomes=frozenset({"failed", "denied"}))
    assert repr(report).splitlines()[1:] == ["  denied   n  not <allowed>", "  failed   s3://b/v\ufffd  broken"]
    html = report._repr_html_()
    assert "not &lt;allowed&gt;" in html and html.index("not &lt;") < html.index("registered</span></td>")
    assert "<table>" not in Report("audit", [])._repr_html_()


def test_long_sections_are_cut() -> None:
    report = Report("copy", [Row(TableId([f"t{n}"]), "failed", "x") for n in range(25)])
    assert repr(report).endswith("... and 5 more") and "and 5 more" in report._repr_html_()


def test_json_and_arrow_have_all_rows() -> None:
    report = Report("discover", ROWS, dry_run=True)
    values = json.loads(report.to_json())
    assert values["dry_run"] and [Row.from_dict(row) for row in values["rows"]] == ROWS
    table = report.to_arrow()
    assert table["names"].to_pylist() == [["a$b", "t"], ["u"], ["n"], None]
    assert table["size"].to_pylist() == [None, "3", None, '"large"']
    assert Report("discover", []).to_arrow().num_rows == 0


def test_a_failure_becomes_a_row_with_its_attempts() -> None:
    failure = Failure(429, message="slow down")
    failure.attempts = 4
    assert failure_row(T, with_failure(ThrottlingError("Throttled"), failure)).attempts == 4
    assert failure_row(T, PermissionDeniedError("no")).outcome == "denied"


def test_progress_never_exceeds_its_total() -> None:
    steps: list[tuple[int, int]] = []
    with start("copy", progress=lambda finished, total: steps.append((finished, total))) as run:
        run.expect(2)
        run.advance()
        run.advance(2)
    assert steps == [(1, 2), (3, 3)]


def test_errors_of_a_report_are_raised() -> None:
    assert len(Report("copy", ROWS[:2]).raise_for_errors().rows) == 2
    with pytest.raises(InvalidTableStateError, match=r"^discover: 2 of 4 failed: not <allowed>; broken$"):
        Report("discover", ROWS).raise_for_errors()
