"""Tries orders: `python -m tests.interleavings iceberg-fake dir --deaths`, or some pairs, or one order again.

Prints a line for each pair of programs, and the steps of the first order that has no explanation.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter

from tests.interleavings.programs import IN_PARTITIONS, PROGRAMS
from tests.interleavings.runs import Case, all_deaths, all_orders, cases, pick, stage, tell
from tests.interleavings.search import by_chance, by_list
from tests.interleavings.stages import Stage


async def main(options: argparse.Namespace) -> int:
    wrong = 0
    for site in options.sites:
        with tempfile.TemporaryDirectory() as tmp:
            async with stage(site, Path(tmp)) as it:
                if options.replay:
                    programs = options.pairs[0].rstrip("-").split(",")
                    clients = [int(client) for client in options.replay.split(",")]
                    story = await tell(it, Case(programs, not options.pairs[0].endswith("-")), by_list(clients))
                    print(story)
                    wrong += story.wrong is not None
                elif options.seeds:
                    wrong += await _by_chance(it, site, options.seeds, options.first_seed)
                else:
                    chosen = [Case(pair.rstrip("-").split(","), not pair.endswith("-")) for pair in options.pairs]
                    wrong += await _all(it, site, chosen or cases(it), options)
    return wrong


async def _all(stage: Stage, site: str, chosen: Sequence[Case], options: argparse.Namespace) -> int:
    begun, runs, pruned, wrong, unfinished = perf_counter(), 0, 0, 0, 0
    for case in chosen:
        start = perf_counter()
        tallies = await all_deaths(stage, case, most=options.most) if options.deaths else []
        for tally in [await all_orders(stage, case, most=options.most), *tallies]:
            runs, pruned, wrong = runs + tally.runs, pruned + tally.pruned, wrong + len(tally.wrong)
            unfinished += not tally.is_complete
            for story in tally.wrong:
                print(story, flush=True)
        if options.verbose:
            print(f"{site} {case}: {runs} orders so far, {perf_counter() - start:.1f} s", flush=True)
    seconds = perf_counter() - begun
    print(
        f"{site}: {len(chosen)} pairs, {runs} orders and {pruned} given up in {seconds:.0f} s, {wrong} wrong, "
        f"{unfinished} pairs not finished",
        flush=True,
    )
    return wrong


async def _by_chance(stage: Stage, site: str, seeds: int, first: int) -> int:
    begun, wrong = perf_counter(), 0
    for seed in range(first, first + seeds):
        random = Random(seed)
        story = await tell(stage, pick(stage, random), by_chance(random))
        if story.wrong is not None:
            wrong += 1
            print(f"seed {seed}\n{story}", flush=True)
    print(f"{site}: {seeds} seeds of three clients in {perf_counter() - begun:.0f} s, {wrong} wrong", flush=True)
    return wrong


parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
parser.add_argument("sites", nargs="+", help="dir-s3, dir-partitions, or sites of tests/contract/sites.py")
parser.add_argument(
    "--pairs",
    nargs="+",
    default=[],
    help=f"as drop,move, or create,drop- for a new table: {[*PROGRAMS]}, on dir-partitions {[*IN_PARTITIONS]}",
)
parser.add_argument("--most", type=int, help="maximum number of orders of a pair")
parser.add_argument("--deaths", action="store_true", help="also kill a client before each of its steps")
parser.add_argument("--seeds", type=int, default=0, help="number of random orders of three clients, instead of pairs")
parser.add_argument("--first-seed", type=int, default=0)
parser.add_argument("--replay", help="the clients of the steps, as a wrong order prints them")
parser.add_argument("--verbose", action="store_true")

if __name__ == "__main__":
    sys.exit(bool(asyncio.run(main(parser.parse_args()))))
