"""Reports, as data and as text."""

from __future__ import annotations

from lance_namespace.errors import (
    InternalError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.errors import Failure, with_failure
from lance_ns_async.rendering import printable
from lance_ns_async.spark.resolve.report import PrefetchReport, Problem, one_error, report
from lance_ns_async.tabular import Subject

T = TableId(["db", "t"])


def test_errors_are_sorted_by_what_they_mean() -> None:
    errors: list[tuple[Subject, LanceNamespaceError]] = [
        (T, TableNotFoundError("a")),
        (NamespaceId(["nix"]), NamespaceNotFoundError("b")),
        ("x.*", TableNotFoundError("c")),
        (TableId(["nix"]), TableNotFoundError("a table and a namespace may have the same names")),
        (TableId(["d"]), PermissionDeniedError("d")),
        (TableId(["e"]), UnauthenticatedError("e")),
        (TableId(["f"]), ServiceUnavailableError("f")),
        (TableId(["g"]), InvalidTableStateError("g")),
        (TableId(["h"]), InternalError("h")),
    ]
    result = report(5, errors, seconds=1.0, calls=[])
    assert [problem.reason for problem in result.missing] == [str(error) for _, error in errors[:4]]
    assert [problem.reason for problem in result.denied] == ["d", "e"]
    assert [problem.reason for problem in result.failed] == ["f", "g", "h"]
    assert [problem.subject for problem in result.problems] == [subject for subject, _ in errors]


def test_it_shows_the_number_of_attempts() -> None:
    failure = Failure(429, message="slow down")
    failure.attempts = 4
    error = with_failure(ThrottlingError("Throttled: t"), failure)
    result = report(0, [(T, error)], seconds=0.0, calls=[])
    assert result.failed == (Problem(T, "Throttled: t", attempts=4),)


def test_times_are_those_of_the_calls() -> None:
    result = report(100, [], seconds=2.0, calls=[n / 100 for n in range(100, 0, -1)])
    assert (result.calls, result.p50, result.p95) == (100, 0.51, 0.96)
    assert report(1, [], seconds=0.0, calls=[0.25]).p95 == 0.25
    assert report(1, [], seconds=0.0, calls=[]).p50 is None


def test_one_line_says_it_all() -> None:
    missing = (Problem(T, "gone"), Problem(T, "gone"))
    message = PrefetchReport(997, missing, (Problem(T, "no"),), seconds=0.61, calls=9, p50=0.0031, p95=0.12)
    assert message.line() == "resolved 997/1000 in 0.6 s (p50 3 ms, p95 0.1 s); 2 missing, 1 denied"
    assert str(PrefetchReport(3, seconds=0.012)) == "resolved 3/3 in 12 ms"


def test_printed_it_is_a_short_table() -> None:
    missing = tuple(Problem(TableId(["db", f"t{n}"]), f"gone {n}") for n in range(30))
    lines = str(PrefetchReport(0, missing, (), (Problem("x.*", "no\x1b[31m\nway"),))).splitlines()
    assert lines[0] == "resolved 0/31 in 0 ms; 30 missing, 1 failed"
    assert lines[1] == "  missing  db$t0   gone 0"
    assert lines[20] == "  missing  db$t19  gone 19"
    assert lines[21] == "  missing  ... and 10 more"
    assert lines[22] == "  failed   x.*  no\ufffd[31m\ufffdway"
    assert len(lines) == 23


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    assert printable("db$é 表 a b\t\x1b[2J\r\x9b\u202e.") == "db$é 表 a b\ufffd\ufffd[2J\ufffd\ufffd\ufffd."


def test_a_notebook_gets_html_that_shows_text_as_text() -> None:
    problems = tuple(Problem(TableId([f"<b>{n}"]), "a & b") for n in range(21))
    html = PrefetchReport(1, problems)._repr_html_()
    assert "<td>&lt;b&gt;0</td><td>a &amp; b</td></tr>" in html
    assert html.count("<tr>") == 1 + 20 + 1
    assert "... and 1 more" in html
    assert "<table>" not in PrefetchReport(1)._repr_html_()


def test_one_error_stands_for_all() -> None:
    errors = [TableNotFoundError(f"Table not found: t{n}") for n in range(7)]
    error = one_error(errors, of=10)
    assert isinstance(error, TableNotFoundError)
    assert str(error).startswith("7 of 10 could not be resolved: Table not found: t0; ")
    assert str(error).endswith("Table not found: t4; and 2 more")
    assert error.__cause__ is errors[0]
