"""Runs of programs under one order, and their checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations_with_replacement, count, pairwise
from pathlib import Path
from random import Random

from lance_ns_async.calls.steps import Step
from tests.contract.site import Site
from tests.contract.sites import SITES, directory
from tests.fakes.s3 import FakeS3
from tests.interleavings.programs import Action, Event, Found, Outcome
from tests.interleavings.scheduler import Choose, Death, Run
from tests.interleavings.search import Search, by_list
from tests.interleavings.stages import SOURCE, PartitionedStage, Stage, connect


@contextmanager
def directory_on_s3(_tmp: Path) -> Iterator[Site]:
    with FakeS3() as server:
        options = {f"storage.{key}": value for key, value in server.options.items()}
        yield Site("dir", {"root": "s3://lake/x", **options})


SITES_HERE = {**SITES, "dir-s3": directory_on_s3, "dir-partitions": directory}
"""The catalogs, by the names of the sites of the contract."""


@asynccontextmanager
async def stage(site_name: str, tmp: Path, clients: int = 3) -> AsyncIterator[Stage]:
    with SITES_HERE[site_name](tmp) as site:
        async with AsyncExitStack() as stack:
            source = await connect(Site("dir", {"root": str(tmp / SOURCE)}), stack)
            it = (PartitionedStage if site_name == "dir-partitions" else Stage)(site, stack, source)
            await it.open(clients)
            yield it
            if isinstance(it, PartitionedStage):
                await it.run.aclose()


@dataclass(frozen=True)
class Case:
    """The programs of some clients."""

    programs: Sequence[str]
    exists: bool = True  # Whether the table `a` exists before
    death: Death | None = None

    def __str__(self) -> str:
        end = (
            "" if self.death is None else f", client {self.death.client} is killed before step {self.death.before + 1}"
        )
        return f"{' | '.join(self.programs)}{'' if self.exists else ', a is new'}{end}"


def cases(stage: Stage) -> list[Case]:
    new_pairs = combinations_with_replacement(stage.new_programs, 2)
    return [*pairs(stage), *(Case(pair, False) for pair in new_pairs)]


def pairs(stage: Stage) -> list[Case]:
    return [Case(pair) for pair in combinations_with_replacement(stage.programs, 2)]


def pick(stage: Stage, random: Random, clients: int = 3) -> Case:
    exists = random.random() < 0.8 or not stage.new_programs
    names = [*stage.programs] if exists else stage.new_programs
    return Case([random.choice(names) for _ in range(clients)], exists)


@dataclass
class Story:
    """One run: its steps, the answers, what was found afterwards, and what is wrong."""

    case: Case
    trace: Sequence[tuple[int, Step]] = ()
    events: Sequence[Event] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    wrong: str | None = None
    is_whole: bool = True
    has_death: bool = False

    def __str__(self) -> str:
        lines = [f"{self.case}: {self.wrong or 'explained'}"]
        for number, (client, step) in enumerate(self.trace):
            begins = [
                it.action for it in self.events if (it.client, it.begun) == (client, number) and it.ended > number
            ]
            lines += [f"      {' ' * 6 * client}client {client}: {action}" for action in begins]
            kind = "call" if step.remote else "work"
            lines.append(f"  {number:3} {' ' * 6 * client}{client}: {kind} {step.name} {step.subject[-40:]}")
        lines += [f"  client {it.client}, {it.begun}-{it.ended}: {it.action} -> {it.outcome}" for it in self.events]
        lines += [f"  found {name}: {found}" for name, found in self.found.items()]
        lines.append(f"  replay: {','.join(str(client) for client, _ in self.trace)}")
        return "\n".join(lines)


async def tell(stage: Stage, case: Case, choose: Choose) -> Story:
    first = await stage.begin(case.programs, exists=case.exists)
    run, story, events = Run(choose, case.death), Story(case), list[Event]()

    async def client(number: int, actions: Sequence[Action]) -> None:
        location: str | None = first
        for action in actions:
            begun = run.now
            try:
                outcome = await stage.perform(number, action, location)
            except BaseException:
                died = Outcome("dead", location=stage.target(action, location))
                events.append(Event(number, action, died, begun, 1_000_000))
                raise
            events.append(Event(number, action, outcome, begun, run.now))
            if outcome.error is not None:
                return
            location = outcome.location or location

    story.is_whole = await run.perform(
        [partial(client, n, stage.programs[name]) for n, name in enumerate(case.programs)]
    )
    story.trace, story.has_death = run.trace, run.has_death
    if run.has_death:
        assert case.death is not None
        await stage.replace(case.death.client)
    if not story.is_whole:
        return story
    story.events = sorted(events, key=lambda it: it.begun)
    story.found, left, story.wrong = await stage.judge(story.events, first)
    if story.wrong is not None:
        story.found = {**story.found, **left}
    return story


@dataclass
class Tally:
    """The orders of some programs on a site."""

    runs: int = 0
    pruned: int = 0
    wrong: list[Story] = field(default_factory=list)
    is_complete: bool = True
    has_deaths: bool = False  # Whether a client was killed in some order; it may need fewer steps than planned


class _Wrong(Exception):
    """Ends a search at the first order that is wrong."""


async def all_orders(stage: Stage, case: Case, *, most: int | None = None) -> Tally:
    """Runs programs in all orders that may differ, until one is wrong; `most` is their maximum number."""
    search, tally = Search(stage.depends), Tally()

    async def once(choose: Choose) -> bool:
        story = await tell(stage, case, choose)
        tally.has_deaths |= story.has_death
        if story.wrong is not None:
            tally.wrong.append(await shortest(stage, story))
            raise _Wrong
        return story.is_whole

    try:
        tally.is_complete = await search.explore(once, most=most)
    except _Wrong:
        tally.is_complete = False
    tally.runs, tally.pruned = search.runs, search.pruned
    return tally


async def all_deaths(stage: Stage, case: Case, *, most: int | None = None) -> list[Tally]:
    """Runs programs in all orders, and kills one client before each of its steps but the first one."""
    tallies = []
    for client in range(len(case.programs)):
        if client and case.programs[client] == case.programs[0]:
            continue
        for before in count(1):
            tally = await all_orders(stage, replace(case, death=Death(client, before)), most=most)
            if not tally.has_deaths:
                break
            tallies.append(tally)
    return tallies


async def shortest(stage: Stage, story: Story) -> Story:
    """Returns a run that is wrong, too, and in which the clients take turns as rarely as possible."""
    order = [client for client, _ in story.trace]
    best, changed = story, True
    while changed:
        changed = False
        for at in range(1, len(order)):
            if order[at] == order[at - 1]:
                continue
            # The next step of the client of the step before comes first.
            later = next((it for it in range(at + 1, len(order)) if order[it] == order[at - 1]), None)
            if later is None:
                continue
            trial = [*order[:at], order[later], *order[at:later], *order[later + 1 :]]
            again = await tell(stage, story.case, by_list(trial))
            if again.wrong is not None and _turns(again) < _turns(best):
                best, order, changed = again, [client for client, _ in again.trace], True
                break
    return best


def _turns(story: Story) -> int:
    return sum(one != other for one, other in pairwise([client for client, _ in story.trace]))
