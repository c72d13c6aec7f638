"""The summary at the end of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from lance_ns_async.cli.demo.reading import Read
from lance_ns_async.cli.demo.resolving import Resolution
from lance_ns_async.cli.demo.tables import Creation
from lance_ns_async.cli.output import Page


@dataclass(frozen=True, slots=True)
class Summary:
    """The results and times of all steps of the demo."""

    where: str
    """The catalog, without secrets."""
    tables: int
    rows: int
    """Rows in each table."""
    creation: Creation
    resolution: Resolution
    read: Read | None
    """None if Spark was not used."""

    def show(self) -> None:
        """Prints the summary to standard output, as plain text if that is not a terminal."""
        page = Page()
        page.print(f"{self.tables:,} Lance tables of {self.rows:,} rows in {self.where}\n", soft_wrap=True)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("step", no_wrap=True)
        table.add_column("seconds", justify="right", no_wrap=True)
        table.add_column("")
        for step, seconds, remark in self._lines():
            table.add_row(step, _seconds(seconds), remark)
        page.lay(table)
        if self.read is not None:
            page.print(f"\n{self._verdict(self.read)}", soft_wrap=True)

    @property
    def is_right(self) -> bool:
        """Whether Spark read exactly the tables and rows that were created."""
        return self.read is None or (self.read.tables, self.read.rows) == (self.tables, self.tables * self.rows)

    def _lines(self) -> Iterator[tuple[str, float, str]]:
        creation, resolution, read = self.creation, self.resolution, self.read
        if creation.new:
            existing = f", {creation.existing:,} existed already" if creation.existing else ""
            yield (
                "create",
                creation.seconds,
                f"{creation.new:,} tables{existing}; {_rate(creation.new, creation.seconds)} tables/s",
            )
        else:
            yield "find", creation.seconds, f"all {creation.existing:,} tables existed already"
        calls = "1 call" if resolution.calls == 1 else f"{resolution.calls:,} calls"
        yield "resolve", resolution.resolving, f"{calls}; {_rate(self.tables, resolution.resolving)} tables/s"
        ratio = resolution.one_by_one / resolution.resolving
        yield (
            "  (one by one)",
            resolution.one_by_one,
            f"{ratio:,.1f} x as long, projected from {resolution.sample} tables",
        )
        yield (
            "open",
            resolution.opening,
            f"each once, to pin its version; {_rate(self.tables, resolution.opening)} tables/s",
        )
        if read is not None:
            total = self.tables * self.rows
            yield "start Spark", read.starting, ""
            yield "plan", read.planning, "one DataFrame of all tables"
            yield (
                "run",
                read.running,
                f"{_rate(total, read.running)} rows/s, {_rate(self.tables, read.running)} tables/s",
            )

    def _verdict(self, read: Read) -> str:
        counts = f"Spark read {read.rows:,} rows of {read.tables:,} tables"
        if not self.is_right:
            return f"{counts}, but {self.tables * self.rows:,} rows of {self.tables:,} tables were written"
        return f"{counts}, which is correct; mean score {read.mean_score:.4f}, longest vector {read.longest:.3f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds >= 0.1 else f"{seconds:.3f}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}"
