"""Runs the kit on this package's catalogs and on other implementations, and writes the page: `nox -s compatibility`."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lance_namespace
from lance.namespace import RestAdapter

from lance_ns_async import Namespace
from lance_ns_async.conformance import FEATURES, Report, Result, Target, class_target, run, server_target
from tests.contract.sites import SITES
from tests.documentation.pages import PAGES
from tests.servers.catalogs import CATALOGS
from tests.support.gateway import served

PAGE = PAGES / "compatibility.md"
_BLOCK = re.compile(r"(<!-- matrix -->\n).*(<!-- /matrix -->)", re.DOTALL)
_NAME = re.compile(r"conformance_[0-9a-f]{6}_\d+")

OURS = {
    "dir": "dir",
    "iceberg, Iceberg REST 1.11.0": "iceberg-1.11.0",
    "hive2, Hive 2.3.9": "hive-2.3.9",
    "hive3, Hive 3.1.3": "hive-3.1.3",
    "hive3, Hive 4.0.1": "hive-4.0.1",
    "iceberg, Nessie 0.99.0": "nessie-0.99.0",
    "glue, moto": "glue",
    "polaris, fake": "polaris-fake",
    "lakekeeper, fake": "lakekeeper-fake",
    "unity, fake of 0.6": "unity-fake",
    "rest, this package's gateway to dir": "rest-on-a-gateway",
    "rest, pylance's server": "rest-on-pylance",
}
"""Catalogs of this package, with the server, and their sites."""

PEERS = ("glue", "hive2", "hive3", "iceberg", "polaris", "unity")
"""The classes of lance-namespace-impls."""


FEW = ("reading", "namespaces", "tables", "listing")
"""The features for the peer on Hive: its calls wait for each other's locks in Derby, five seconds for each table."""


def main() -> None:
    own = []
    with tempfile.TemporaryDirectory() as folder:
        others = list(map(_run, _targets(Path(folder, "others"))))
        for name, site in OURS.items():
            own.append(_run(*_ours(name, site, _made(folder, site))))
    text = _BLOCK.sub(lambda match: f"{match[1]}{_page(own, others)}{match[2]}", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")


def _run(target: Target, stack: ExitStack | None = None) -> Report:
    with stack or ExitStack():
        report = run(target, features=FEW if "`hive" in target.name else ())
    sys.stderr.write("\n  ".join([report.line(), *report.leftovers]) + "\n")
    return report


def _ours(name: str, site: str, folder: Path) -> tuple[Target, ExitStack]:
    stack = ExitStack()
    opened = stack.enter_context(SITES[site](folder))
    return Target(
        name, lambda: Namespace.connect(opened.impl, opened.properties), opened.above, takes_mappings=True
    ), stack


def _targets(folder: Path) -> Iterator[Target]:
    """Yields the other implementations while their servers run."""
    pylance = version("pylance")
    yield class_target(
        "lance.namespace.DirectoryNamespace", {"root": str(_made(folder, "dir"))}, name=f"pylance {pylance}, `dir`"
    )
    with RestAdapter("dir", {"root": str(_made(folder, "adapter"))}, port=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        yield class_target("lance.namespace.RestNamespace", {"uri": url}, name=f"pylance {pylance}, `rest`")
        yield server_target(url, name=f"pylance {pylance}, its REST server")
    with served("dir", {"root": str(_made(folder, "gateway"))}) as gateway:
        yield server_target(gateway.url, gateway.headers, name="this package's gateway, without its client")
    with ExitStack() as stack:
        start = cache(lambda impl: stack.enter_context(CATALOGS[impl](_made(folder, impl))))
        for impl in PEERS:
            with _peer(impl, _made(folder, f"peer-{impl}"), start) as target:
                yield target


@contextmanager
def _peer(impl: str, folder: Path, start: Any) -> Iterator[Target]:
    from tests.ecosystem import test_migration

    with test_migration.CATALOGS[impl](folder, start) as old:
        yield Target(
            f"lance-namespace-impls {version('lance-namespace-impls')}, `{impl}`",
            lambda: lance_namespace.connect(old.impl, dict(old.properties)),
            old.above,
            takes_mappings=True,
        )


def _made(folder: Path | str, name: str) -> Path:
    made = Path(folder, name)
    made.mkdir(parents=True)
    return made


def _page(own: list[Report], others: list[Report]) -> str:
    reports = [*own, *others]
    head = f"| implementation | {' | '.join(FEATURES)} | ok | wrong | not supported |"
    lines = [
        f"Run on {reports[0].date} with lance-namespace {version('lance-namespace')}.\n",
        head,
        f"|---|{'---|' * (len(FEATURES) + 3)}",
        *(_row(it) for it in reports),
    ]
    for report in reports:
        wrong = _wrong(report)
        if wrong:
            lines += [f"\n### {report.target}\n", "| rule | found | calls |", "|---|---|---|", *wrong]
    return "\n".join([*lines, ""])


def _row(report: Report) -> str:
    cells = []
    for feature in FEATURES:
        results = [it.result for it in report.checks if it.feature == feature]
        ok, wrong = results.count(Result.OK), results.count(Result.WRONG)
        cells.append(" ".join(filter(None, (str(ok) if ok else "", f"**{wrong} wrong**" if wrong else ""))))
    counts = (report.counts[it] for it in (Result.OK, Result.WRONG, Result.UNSUPPORTED))
    return f"| {report.target} | {' | '.join(cells)} | {' | '.join(map(str, counts))} |"


def _wrong(report: Report) -> list[str]:
    """Returns a row for each rule that is not met; cases of one rule with the same reason are one row."""
    rows: dict[tuple[str, str], str] = {}
    for check in report.checks:
        if check.result is Result.WRONG:
            rule, reason = check.name.split(" (", 1)[0], _escaped(_NAME.sub("home", check.reason))
            calls = [
                f"{it.operation} {_fields(it.request)}" for it in check.calls if it.operation != "create_namespace"
            ]
            calls = calls or [f"{it.operation} {_fields(it.request)}" for it in check.calls]
            rows.setdefault((rule, reason), "; ".join(f"`{_escaped(it)}`" for it in calls[-3:]))
    return [f"| {rule} | {reason} | {calls} |" for (rule, reason), calls in rows.items()]


def _fields(request: Mapping[str, Any]) -> str:
    id = ".".join(request.get("id") or []) or "the root"
    rest = " ".join(f"{name}={value}" for name, value in request.items() if name != "id")
    return _NAME.sub("home", f"{id} {rest}".strip())


def _escaped(text: str) -> str:
    """Returns text for the cell of a table, on one line and without the addresses of this run."""
    text = re.sub(r"http://127\.0\.0\.1:\d+|file:/+[\w./-]*|/tmp/[\w./-]*", "...", " ".join(text.split()))
    return text[:200].replace("|", r"\|").replace("`", "'").replace("<", "&lt;")


if __name__ == "__main__":
    main()
