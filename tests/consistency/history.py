"""Histories of the operations of many processes on one table, and the search for an order of single steps. The
algorithm is that of Wing and Gong, with Lowe's "just in time" order: events are processed in the order of time, with
the set of all configurations that are possible at that moment. A configuration is the state of the table, and the
progress of each operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tests.consistency.model import APPENDS, CREATES, OVERWRITES, Answer, Operation, Rows


class Event(NamedTuple):
    """An operation of a task, with its beginning and end by the machine's monotonic clock."""

    task: str
    operation: Operation
    answer: Answer
    begun: float
    ended: float

    def __str__(self) -> str:
        return f"{self.begun * 1e3:10.2f} to {self.ended * 1e3:10.2f} ms {self.task}: {self.operation} -> {self.answer}"


class State(NamedTuple):
    """A name in a catalog. Each registration has a new location, which no later one has."""

    registered: bool = False
    data: Rows | None = None  # The rows at the location; None if nothing was written
    left: Rows | None = None
    """The rows at the location of the last deregistered table, which a late replacement registers again."""


@dataclass(frozen=True)
class Rules:
    """The differences between catalogs."""

    journals: bool = True
    """Whether a drop removes the registration first and the data later; otherwise the data may be removed first."""
    once: bool = True  # Whether the catalog reports a removal as successful to only one of several concurrent clients
    compares: bool = True
    """Whether the catalog replaces a registration only if it is still the one that the client has read."""
    excuses: str = ""  # A regular expression for messages of the server about its own races; empty for none


@dataclass(frozen=True)
class Step:
    """An atomic change of the state, or an atomic read."""

    take: Callable[[State], State | None]
    """Returns the state after the step; None if the step is impossible in that state."""
    looks: bool = False  # Whether it never changes the state


Program = tuple[Step, ...]  # The steps of an operation in order; steps of other operations may occur in between
NOT_FOUND, EXISTS = "TableNotFoundError", ("TableAlreadyExistsError", "DataThereError")
EXPECTED = frozenset({NOT_FOUND, *EXISTS, "ConcurrentModificationError"})
"""Errors that a race may cause for the later operation."""


def _look(condition: Callable[[State], bool]) -> Step:
    return Step(lambda state: state if condition(state) else None, looks=True)


def _change(condition: Callable[[State], bool], change: Callable[[State], State]) -> Step:
    return Step(lambda state: change(state) if condition(state) else None)


_IS_REGISTERED = _look(lambda it: it.registered)
_IS_FREE = _look(lambda it: not it.registered)
_HAS_ROWS = _look(lambda it: it.data is not None)
_HAS_NO_ROWS = _look(lambda it: not it.registered or it.data is None)
_DECLARE = _change(lambda it: not it.registered, lambda it: it._replace(registered=True, data=None))
_TAKE_BACK = _change(lambda it: it.registered and it.data is None, lambda it: it._replace(registered=False))
_LEAVE = _change(lambda it: it.registered, lambda it: State(left=it.data))
_REGISTER_LEFT = _change(lambda it: it.registered, lambda it: it._replace(data=it.left))
_EMPTY = _change(lambda it: it.registered, lambda it: it._replace(data=None))
_DROP = _change(lambda it: it.registered, lambda it: it._replace(registered=False, data=None))


def _has(rows: Rows) -> Step:
    return _look(lambda it: it.registered and it.data == rows)


def _write_first(rows: Rows) -> Step:
    # A table that was dropped meanwhile stays dropped.
    return _change(lambda it: it.data is None, lambda it: it._replace(data=rows) if it.registered else it)


def _write(rows: Rows) -> Step:
    return _change(lambda it: True, lambda it: it._replace(data=rows) if it.registered else it)


def _set(rows: Rows) -> Step:
    return _change(lambda it: it.registered, lambda it: it._replace(data=rows))


def _add(rows: Rows) -> Step:
    return _change(lambda it: it.registered, lambda it: it._replace(data=(it.data or frozenset()) | rows))


class Search(IntEnum):
    """The sequences of steps that are considered."""

    USUAL = 0
    """Of an error, only that in which the operation changed nothing. These suffice for most orders, and are few."""
    ALL = 1
    RARE = 2  # Also those in which an operation started again


def programs(it: Operation, answer: Answer, rules: Rules, search: Search = Search.ALL) -> list[Program]:
    """Returns the sequences of steps that lead to a response."""
    again = search is Search.RARE
    if answer.error not in EXPECTED and not answer.ok:
        done = programs(it, Answer(), rules, search)
        return [program[:steps] for program in done for steps in range(len(program) + 1)]
    if answer.error is not None:
        refused = _refused(it, answer.error) + _late(it, rules)
        if search is Search.USUAL:
            return refused[:1]
        # Its declaration may have been removed; then it starts again.
        if again and it.kind in OVERWRITES:
            refused += [(_DECLARE, _IS_FREE, *program) for program in refused]
        return refused
    rows = frozenset(it.rows)
    also: list[Program] = [] if rules.once else [(_IS_REGISTERED, _IS_FREE)]
    match it.kind:
        case "describe":
            return [(_IS_REGISTERED,)]
        case "read":
            return [(_has(frozenset(answer.rows or ())),)]
        case "declare":
            return [(_DECLARE,)]
        case kind if kind in CREATES:
            return [(_DECLARE, _write_first(rows))]
        case kind if kind in OVERWRITES:
            # Its declaration may have been removed; then it starts again, up to three times.
            anew = [((_DECLARE, _IS_FREE) * times + (_DECLARE, _write(rows))) for times in (1, 2, 3)] if again else []
            late = [(*program, _set(rows)) for program in _late(it, rules)]
            return [(_set(rows),), (_DECLARE, _write(rows)), *late, *anew]
        case kind if kind in APPENDS:
            return [(_add(rows),)]
        case "drop":
            late = [] if rules.journals else [(_EMPTY, _TAKE_BACK)]
            return [(_DROP,), *late, *also]
        case "deregister":
            return [(_DROP if rules.compares else _LEAVE,), *also]
    raise AssertionError(it.kind)


def _late(it: Operation, rules: Rules) -> list[Program]:
    """Returns the steps of a replacement that reads one registration and replaces the next one of that name."""
    return [] if rules.compares or it.kind != "replace" else [(_IS_REGISTERED, _REGISTER_LEFT)]


def _refused(it: Operation, error: str) -> list[Program]:
    creates = it.kind in CREATES | OVERWRITES
    if error == NOT_FOUND:
        if it.kind == "read":
            return [(_HAS_NO_ROWS,)]
        # Its declaration may have been dropped.
        return [(_IS_FREE,), (_DECLARE, _IS_FREE)] if creates else [(_IS_FREE,)]
    if error in EXISTS:
        # It may have declared the table whose first version another client wrote, or that others removed and declared.
        mine = (_DECLARE, _HAS_ROWS), (_DECLARE, _IS_FREE, _IS_REGISTERED)
        return [(_IS_REGISTERED,), *mine] if creates else [(_IS_REGISTERED,)]
    # Its declaration stays if another client has written to it.
    made = [(_DECLARE, _TAKE_BACK), (_DECLARE, _IS_FREE), (_DECLARE, _HAS_ROWS)]
    return [(), *made] if creates else [()]


_NO_FILE = "No such file or directory|Directory not empty|Not found: |Table version not found"
"""Messages of pylance about files that were deleted while it read or wrote them."""

Pending = frozenset[tuple[int, Program]]  # Operations in progress, with the remaining steps of each
Configuration = tuple[State, Pending]
MOST = 50_000  # Maximum number of configurations for one event; beyond it, the search is abandoned


class TooTangled(Exception):
    """There were too many concurrent operations for the search."""


def check(events: Iterable[Event], rules: Rules, start: State = State()) -> Event | None:  # noqa: B008  # it is frozen
    """Returns the first event, by its end, that no order explains; None if there is an order."""
    history = list(events)
    if _unexplained(history, rules, start, Search.USUAL) is None:
        return None
    wrong = _unexplained(history, rules, start, Search.ALL)
    if wrong is not None:
        with suppress(TooTangled):
            wrong = _unexplained(history, rules, start, Search.RARE)
    return wrong


def _unexplained(events: Sequence[Event], rules: Rules, start: State, search: Search) -> Event | None:
    history = sorted(events, key=lambda it: it.ended)
    moments = [(it.begun, 0, number) for number, it in enumerate(history)]
    moments += [(it.ended, 1, number) for number, it in enumerate(history)]
    possible: set[Configuration] = {(start, frozenset())}
    for _, ends, number in sorted(moments):
        event = history[number]
        if ends:
            possible = _with_end(possible, number)
            if not possible:
                return event
        else:
            ways = programs(event.operation, event.answer, rules, search)
            possible = {_looked(state, pending | {(number, way)}) for state, pending in possible for way in ways}
    return None


def _with_end(possible: set[Configuration], number: int) -> set[Configuration]:
    visited, waiting, done = set(possible), list(possible), set()
    while waiting:
        state, pending = waiting.pop()
        if (number, ()) in pending:
            # Other steps may be taken later.
            done.add((state, pending - {(number, ())}))
            continue
        for operation, steps in pending:
            if steps and (after := steps[0].take(state)) is not None:
                next = _looked(after, pending - {(operation, steps)} | {(operation, steps[1:])})
                if next not in visited:
                    visited.add(next)
                    waiting.append(next)
        if len(visited) > MOST:
            raise TooTangled(f"more than {MOST:,} configurations")
    return done


def _looked(state: State, pending: Pending) -> Configuration:
    """Returns the configuration after all possible reads, which change nothing and can therefore be taken early."""
    while True:
        ready = {it for it in pending if it[1] and it[1][0].looks and it[1][0].take(state) is not None}
        if not ready:
            return state, pending
        pending = pending - ready | {(operation, steps[1:]) for operation, steps in ready}


def stray(events: Sequence[Event], rules: Rules) -> list[str]:
    """Returns the problems of single responses: errors that no race explains, and locations of other names."""
    wrong = []
    for event in events:
        it, answer = event.operation, event.answer
        if not answer.ok and not _is_explained(event, events, rules):
            wrong.append(f"unexpected: {event}")
        own = rf"[/$]{it.name[-1]}(-[0-9a-f]{{12}})?(\.lance)?$"
        if answer.location is not None and not re.search(own, answer.location):
            wrong.append(f"the place of another name: {event}")
    return wrong


def _is_explained(event: Event, events: Sequence[Event], rules: Rules) -> bool:
    error = event.answer.error
    if error in EXPECTED or event.answer.is_unknown:
        return True
    if rules.excuses and re.search(rules.excuses, event.answer.message):
        return True
    if error == "InternalError" and "No such file or directory" in event.answer.message:
        # A client that takes a declaration back removes empty folders, which another writer may just have created. The
        # writer has then written nothing, and the history shows whether it has.
        return True
    if "drop" not in {it.operation.kind for it in events if it.begun < event.ended and event.begun < it.ended}:
        return False
    # If the data may be removed first, the table is still registered while its files are missing.
    return error == "GoneWhileRead" or (not rules.journals and bool(re.search(_NO_FILE, event.answer.message)))
