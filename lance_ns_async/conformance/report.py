"""The result of a run: a row for each check, with the requests that show it, in JSON and HTML, and as a badge."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class Result(StrEnum):
    """What a check found."""

    OK = "ok"
    UNSUPPORTED = "not supported"
    WRONG = "wrong"


@dataclass(frozen=True)
class Call:
    """One call of a check."""

    operation: str
    request: Any
    """The fields of the request that were set."""
    answer: str
    """The response, or the error with its code; long ones are cut."""


@dataclass(frozen=True)
class Check:
    """One rule of the spec, and what was found."""

    feature: str
    """The group of the check, e.g. `namespaces`."""
    name: str
    """The rule, as a sentence."""
    result: Result
    reason: str = ""
    """Why it is wrong, or not supported."""
    calls: Sequence[Call] = ()
    """The calls of the check, in order."""


@dataclass(frozen=True)
class Report:
    """All checks of a run."""

    target: str
    checks: Sequence[Check]
    leftovers: Sequence[str] = ()
    """What the checks created and could not remove."""
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def counts(self) -> Counter[Result]:
        """Returns the number of checks with each result."""
        return Counter(it.result for it in self.checks)

    @property
    def conforms(self) -> bool:
        """Returns whether no check is wrong, and some check was run."""
        return not self.counts[Result.WRONG] and bool(self.counts[Result.OK])

    def line(self) -> str:
        """Returns the summary, e.g. `catalog: 70 ok, 3 wrong, 12 not supported`."""
        counts = ", ".join(f"{self.counts[it]} {it}" for it in (Result.OK, Result.WRONG, Result.UNSUPPORTED))
        return f"{self.target}: {counts}"

    def to_json(self) -> str:
        """Returns the report as JSON: `target`, `date`, `summary`, `checks` and `leftovers`."""
        summary = {str(it): self.counts[it] for it in Result}
        value = {"target": self.target, "date": self.date, "summary": summary, "leftovers": list(self.leftovers)}
        return json.dumps({**value, "checks": [asdict(it) for it in self.checks]}, indent=2, ensure_ascii=False) + "\n"

    def to_html(self) -> str:
        """Returns the report as a page: problems first, each with the calls that show it."""
        features = list(dict.fromkeys(it.feature for it in self.checks))
        order = list(Result)
        rows = "".join(
            f"<tr><th>{html.escape(feature)}</th>"
            + "".join(
                f"<td class={it.name}>{sum(c.feature == feature and c.result is it for c in self.checks) or ''}</td>"
                for it in order
            )
            + "</tr>"
            for feature in features
        )
        ranked = sorted(self.checks, key=lambda it: order.index(it.result), reverse=True)
        return _PAGE.format(
            title=html.escape(self.line()),
            target=html.escape(self.target),
            date=self.date,
            heads="".join(f"<th>{it}</th>" for it in order),
            rows=rows,
            left="".join(f"<p class=WRONG>left behind: {html.escape(it)}</p>" for it in self.leftovers),
            checks="".join(map(_details, ranked)),
        )

    def to_badge(self) -> str:
        """Returns a badge as SVG."""
        counts = self.counts
        text = f"{counts[Result.OK]} ok" + (f", {counts[Result.WRONG]} wrong" if counts[Result.WRONG] else "")
        return _BADGE.format(text=text, colour="#2e7d32" if self.conforms else "#c62828", width=7 * len(text) + 12)

    def write(self, folder: Path) -> None:
        """Writes `conformance.json`, `conformance.html` and `conformance.svg` into a folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("json", self.to_json()), ("html", self.to_html()), ("svg", self.to_badge())):
            (folder / f"conformance.{suffix}").write_text(text, encoding="utf-8")


def _details(check: Check) -> str:
    calls = "".join(
        f"<li><code>{html.escape(it.operation)}({html.escape(json.dumps(it.request, ensure_ascii=False))})</code>"
        f"<br>{html.escape(it.answer)}</li>"
        for it in check.calls
    )
    opened = " open" if check.result is Result.WRONG else ""
    return (
        f"<details{opened}><summary><b class={check.result.name}>{check.result}</b> "
        f"{html.escape(check.feature)}: {html.escape(check.name)}</summary>"
        f"<p>{html.escape(check.reason)}</p><ol>{calls}</ol></details>"
    )


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse }} th, td {{ padding: .2rem .8rem; text-align: right }}
th:first-child {{ text-align: left }} tr + tr {{ border-top: 1px solid #8884 }}
summary {{ cursor: pointer }} code {{ overflow-wrap: anywhere }}
.OK {{ color: light-dark(#2e7d32, #81c784) }} .WRONG {{ color: light-dark(#c62828, #ef9a9a) }}
.UNSUPPORTED {{ color: #888 }}
</style>
<h1>{title}</h1>
<p>Lance Namespace spec, tested on {date}.</p>
<table><tr><th></th>{heads}</tr>{rows}</table>
{left}
<h2>Checks</h2>
{checks}
</html>
"""

_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="Lance: {text}">
<rect width="100%" height="20" rx="3" fill="{colour}"/>
<text x="50%" y="14" fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">{text}</text>
</svg>
"""
