"""Repeats rounds: `python -m tests.consistency crash dir --seed 17 --times 20`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.consistency import crash, maintained
from tests.consistency.places import place, track
from tests.consistency.races import PLANS, Race, racers
from tests.contract.site import Site
from tests.contract.sites import SITES


def crashes(site: Site, seeds: Iterable[int]) -> Iterator[crash.Round]:
    for seed in seeds:
        yield crash.run(place(site, seed), seed)


def races(site: Site, plan: str, seeds: Iterable[int]) -> Iterator[Race]:
    with racers(track(site)) as processes:
        for seed in seeds:
            yield processes.run(plan, seed)


def maintenance(site: Site, seeds: Iterable[int]) -> Iterator[maintained.Round]:
    for seed in seeds:
        yield maintained.run(maintained.stage(place(site, seed)), seed, kills=2)


def main() -> int:
    """Returns the exit status: 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.consistency")
    parser.add_argument("suite", choices=["crash", "race", "maintain"])
    parser.add_argument("site", choices=sorted(SITES))
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds follow each other")
    parser.add_argument("--plan", default="mixed", choices=sorted(PLANS), help="of a race")
    parser.add_argument("--times", type=int, default=1, help="how often each is run")
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    bad = 0
    for _ in range(chosen.times):
        with tempfile.TemporaryDirectory() as directory, SITES[chosen.site](Path(directory)) as site:
            rounds: Mapping[str, Callable[[], Iterator[crash.Round | Race | maintained.Round]]] = {
                "crash": lambda: crashes(site, seeds),
                "race": lambda: races(site, chosen.plan, seeds),
                "maintain": lambda: maintenance(site, seeds),
            }
            for round in rounds[chosen.suite]():
                print(f"{round.seed}: {round.seconds:.2f} s", flush=True)
                if round.violations:
                    bad += 1
                    print(round, flush=True)
    print(f"{chosen.seeds * chosen.times} rounds, {bad} with violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
