"""The search for all orders of steps that may differ in a result.

Two steps that only read, or that concern different things, may be exchanged. Of the orders that differ only by such
exchanges, one is enough: the search goes back only to steps that depend on a later step of another client (dynamic
partial-order reduction by Flanagan and Godefroid), and does not try again what a sibling has tried (sleep sets by
Godefroid). It stores no states: each order is run from its beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from lance_ns_async.calls.steps import Step
from tests.interleavings.scheduler import Choose

Depends = Callable[[Step, Step], bool]

RunOnce = Callable[[Choose], Awaitable[bool]]
"""Runs the clients from the beginning; returns whether the run came to its end."""


@dataclass
class _Node:
    options: Mapping[int, Step]
    asleep: set[int]
    to_try: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    chosen: int = -1


@dataclass
class Search:
    """A depth-first search; `runs` and `pruned` count the orders that were run, and those that were given up."""

    depends: Depends
    runs: int = 0
    pruned: int = 0

    async def explore(self, run: RunOnce, *, most: int | None = None) -> bool:
        """Runs all orders; returns whether all were run, as `most` is their maximum number."""
        path: list[_Node] = []
        while True:
            depth = 0

            def choose(options: Mapping[int, Step]) -> int | None:
                nonlocal depth
                if depth == len(path):
                    path.append(self._node(path, options))
                node = path[depth]
                assert set(node.options) == set(options), f"not deterministic: {node.options} then {options}"
                if node.chosen < 0:
                    awake = [it for it in options if it not in node.asleep]
                    if not awake:
                        return None
                    # The same client goes on, so that an order changes clients as rarely as possible.
                    last = path[depth - 1].chosen if depth else -1
                    node.chosen = last if last in awake else awake[0]
                    node.to_try.add(node.chosen)
                depth += 1
                return node.chosen

            if await run(choose):
                self.runs += 1
            else:
                self.pruned += 1
            self._find_races(path)
            while path:
                node = path[-1]
                if node.chosen >= 0:
                    node.tried.add(node.chosen)
                left = node.to_try - node.tried - node.asleep
                if left:
                    node.chosen = min(left)
                    break
                path.pop()
            if not path:
                return True
            if most is not None and self.runs >= most:
                return False

    def _node(self, path: list[_Node], options: Mapping[int, Step]) -> _Node:
        if not path:
            return _Node(options, set())
        above = path[-1]
        step = above.options[above.chosen]
        before = above.asleep | above.tried
        asleep = {
            it for it in before if it in options and it in above.options and not self.depends(above.options[it], step)
        }
        return _Node(options, asleep)

    def _find_races(self, path: list[_Node]) -> None:
        steps = [(node.chosen, node.options[node.chosen]) for node in path if node.chosen >= 0]
        for later, (client, step) in enumerate(steps):
            for earlier in range(later - 1, -1, -1):
                other, before = steps[earlier]
                if other != client and self.depends(before, step):
                    node = path[earlier]
                    node.to_try |= {client} if client in node.options else set(node.options)
                    break


def by_chance(random: Random) -> Choose:
    """Returns choices by chance, which prefer to go on with one client."""
    last = -1

    def choose(options: Mapping[int, Step]) -> int:
        nonlocal last
        if last not in options or random.random() < 0.4:
            last = random.choice(sorted(options))
        return last

    return choose


def by_list(clients: list[int]) -> Choose:
    """Returns choices from a list; after its end, or where a client does not wait, the first one that does."""
    left = iter(clients)

    def choose(options: Mapping[int, Step]) -> int:
        chosen = next(left, None)
        return min(options) if chosen is None or chosen not in options else chosen

    return choose
