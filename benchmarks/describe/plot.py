"""The plot of the describe benchmark: CPU, wall time and speed, with the goals."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.describe.plan import IN_FLIGHT, LATENCIES
from benchmarks.support.figures import Figures, Key

LATENCY = 0.02

STYLES = {
    "ours": ("#d1495b", "o", "lance-ns-async"),
    "ours sync": ("#edae49", "P", "lance-ns-async, sync"),
    "aiohttp": ("#30638e", "s", "bare aiohttp"),
    "httpx": ("#00798c", "^", "httpx.AsyncClient"),
    "peer threads": ("#7a7a7a", "D", "peer, 64 threads"),
    "peer": ("#b0b0b0", "v", "peer, sequential"),
}
"""Colour, marker and name of each stack, in the order of the legend."""


LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}


def plot(found: Mapping[Key, Figures], path: Path) -> None:
    """Draws the three panels into an SVG or PNG file."""
    matplotlib.rcParams["svg.hashsalt"] = "describe"
    figure = Figure(figsize=(15, 5), layout="constrained")
    cpu, wall, speed = figure.subplots(1, 3, width_ratios=(1, 1.2, 1))
    plot_cpu(cpu, found)
    plot_wall(wall, found)
    plot_speed(speed, found)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def plot_cpu(axes: Axes, found: Mapping[Key, Figures]) -> None:
    """Plots the client CPU of a describe by requests in flight."""
    for stack, (colour, marker, label) in STYLES.items():
        points = [(c, found[stack, LATENCY, c].cpu) for c in (1, *IN_FLIGHT) if (stack, LATENCY, c) in found]
        if points:
            xs, values = zip(*points, strict=True)
            middle = [value.median for value in values]
            spread = [[value.median - value.least for value in values], [value.most - value.median for value in values]]
            axes.errorbar(xs, middle, spread, color=colour, marker=marker, capsize=3, label=label)
    goal_line(axes, 200, "goal: 200 µs")
    goal_line(axes, 130, "stretch: 130 µs", style=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, *IN_FLIGHT], [str(c) for c in (1, *IN_FLIGHT)])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="requests in flight", ylabel="µs", title=f"Client CPU per describe, {LATENCY * 1e3:g} ms")
    axes.legend(fontsize=8)


def plot_wall(axes: Axes, found: Mapping[Key, Figures]) -> None:
    """Plots the wall time relative to the ideal, by latency and requests in flight."""
    places = [(latency, c) for latency in LATENCIES if latency for c in IN_FLIGHT]
    # Ours comes last, so that it is drawn on top.
    for stack, (colour, marker, _) in reversed(STYLES.items()):
        points = [
            (place, spread.median)
            for place, (latency, c) in enumerate(places)
            if (figure := found.get((stack, latency, c))) and (spread := figure.over_ideal)
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, color=colour, marker=marker, linestyle="none")
    for latency, c, bound in ((0.02, 64, 1.3), (0.05, 256, 1.4)):
        place = places.index((latency, c))
        axes.hlines(bound, place - 0.4, place + 0.4, color="black", linestyle="--", linewidth=1)
        axes.annotate(f"goal {bound}", (place, bound), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([1, 1.5, 2, 5, 10, 50], ["1", "1.5", "2", "5", "10", "50"])
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(places)), [f"{latency * 1e3:g} ms\n{c}" for latency, c in places], fontsize=8)
    axes.set(xlabel="latency, requests in flight", title="Wall time / ideal")


def plot_speed(axes: Axes, found: Mapping[Key, Figures]) -> None:
    """Plots the describes per second with 64 in flight, and the ratio to the sequential peer."""
    cells = {stack: (stack, LATENCY, 1 if stack == "peer" else 64) for stack in STYLES}
    stacks = [stack for stack in STYLES if cells[stack] in found][::-1]
    rates = [found[cells[stack]].rate.median for stack in stacks]
    axes.barh([STYLES[s][2] for s in stacks], rates, color=[STYLES[s][0] for s in stacks])
    peer = found.get(cells["peer"])
    for place, rate in enumerate(rates):
        times = f" ({rate / peer.rate.median:.0f}x)" if peer else ""
        axes.annotate(f"{rate:,.0f}{times}", (rate, place), (4, 0), textcoords="offset points", va="center", bbox=LABEL)
    ideal = 64 / LATENCY
    axes.axvline(ideal, color="black", linewidth=0.8)
    axes.annotate("ideal", (ideal, 1), (3, -12), xycoords=("data", "axes fraction"), textcoords="offset points")
    axes.set_xlim(0, ideal * 1.25)
    axes.set(xlabel="describes per second", title=f"Speed, {LATENCY * 1e3:g} ms, 64 in flight")


def goal_line(axes: Axes, height: float, text: str, style: str = "--") -> None:
    """Draws a horizontal line with a name."""
    axes.axhline(height, color="black", linestyle=style, linewidth=1)
    axes.annotate(
        text,
        (1, height),
        (-4, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
