"""The plot of the connector benchmark: planning time of a union by the number of its tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.connector.cell import Run
from benchmarks.support.figures import Spread

STYLES = {
    "straight": ("#7a7a7a", "v", "the connector alone"),
    "endpoint": ("#30638e", "s", "through Locations.serve"),
    "dataframe": ("#d1495b", "o", "Locations.dataframe"),
}
"""Colour, marker and name of each way, in the order of the legend."""

CALLS_A_TABLE = 5
"""Number of describes of a table until the plan is ready: two for the analysis, three for the plan."""

Key = tuple[int, float, str, str]


def plot(found: Mapping[Key, Sequence[Run]], path: Path) -> None:
    """Draws a panel for each latency into an SVG or PNG file."""
    matplotlib.rcParams["svg.hashsalt"] = "connector"
    latencies = sorted({latency for _, latency, _, _ in found})
    figure = Figure(figsize=(5 * len(latencies), 4.5), layout="constrained")
    panels = figure.subplots(1, len(latencies), sharey=True, squeeze=False)[0]
    for axes, latency in zip(panels, latencies, strict=True):
        plot_latency(axes, found, latency)
    panels[0].set_ylabel("seconds until planned")
    panels[-1].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def plot_latency(axes: Axes, found: Mapping[Key, Sequence[Run]], latency: float) -> None:
    """Plots all ways at one latency, and the time that the connector's own calls take."""
    sizes = sorted({tables for tables, at, _, _ in found if at == latency})
    for way, (colour, marker, label) in STYLES.items():
        points = {
            tables: Spread.of(run.planned for run in runs).median
            for (tables, at, of, _), runs in sorted(found.items())
            if (at, of) == (latency, way)
        }
        axes.plot(list(points), list(points.values()), color=colour, marker=marker, label=label)
    if latency:
        law = [CALLS_A_TABLE * tables * latency for tables in sizes]
        axes.plot(sizes, law, color="#b0b0b0", linestyle=":", label=f"{CALLS_A_TABLE} calls per table, one by one")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{tables:,}" for tables in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="tables in the union", title=f"{latency * 1e3:g} ms latency of the catalog")
    axes.grid(alpha=0.3)
