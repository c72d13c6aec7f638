"""Histories of what many processes did to one table, and whether one order of single steps explains them.

The search is that of Wing and Gong with Lowe's "just in time" order: events are gone through by time, and what is
known is the set of all configurations that are possible at that moment. A configuration is the state of the table, and
how far each operation under way has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from tests.consistency.operations import APPENDS, CREATES, OVERWRITES, Answer, Operation, Rows


class Event(NamedTuple):
    """An operation of a task, with the times of the machine's monotonic clock at which it began and ended."""

    task: str
    operation: Operation
    answer: Answer
    begun: float
    ended: float

    def __str__(self) -> str:
        return f"{self.begun * 1e3:10.2f} to {self.ended * 1e3:10.2f} ms {self.task}: {self.operation} -> {self.answer}"


class State(NamedTuple):
    """A name in a catalog, and the place that belongs to it."""

    registered: bool = False
    data: Rows | None = None
    """The rows at its place; None where nothing was written."""


@dataclass(frozen=True)
class Rules:
    """What differs between catalogs."""

    homes: bool
    """Whether a name has one place, so that data which a deregister left there is in the way of a new table."""
    adopts: bool
    """Whether a declare takes over data that lies at the name's place; else it is refused."""
    journals: bool = True
    """Whether a drop takes the table away first and its data later; if not, the data may go first."""
    once: bool = True
    """Whether the catalog tells one of several that remove a table at the same moment from the others."""
    excuses: str = ""
    """A regular expression for messages of the server that tell of races within itself; nothing for none."""


@dataclass(frozen=True)
class Step:
    """A change of the state that is made at once, or a look at it."""

    take: Callable[[State], State | None]
    """Gives the state after the step; None where the step cannot be taken in that state."""
    looks: bool = False
    """Whether it never changes the state."""


Program = tuple[Step, ...]
"""Steps that an operation takes one after another; other operations may take theirs in between."""

NOT_FOUND, EXISTS = "TableNotFoundError", ("TableAlreadyExistsError", "DataThereError")

EXPECTED = frozenset({NOT_FOUND, *EXISTS, "ConcurrentModificationError"})
"""Errors that a race may give to whoever comes second."""


def _look(condition: Callable[[State], bool]) -> Step:
    return Step(lambda state: state if condition(state) else None, looks=True)


def _change(condition: Callable[[State], bool], change: Callable[[State], State]) -> Step:
    return Step(lambda state: change(state) if condition(state) else None)


_IS_REGISTERED = _look(lambda it: it.registered)
_IS_FREE = _look(lambda it: not it.registered)
_IS_TAKEN = _look(lambda it: it.registered or it.data is not None)
_HAS_ROWS = _look(lambda it: it.data is not None)
_HAS_NO_ROWS = _look(lambda it: not it.registered or it.data is None)
_DECLARE = _change(lambda it: not it.registered and it.data is None, lambda it: State(True))
_LOOKED = _look(lambda it: it.registered or it.data is None)
_TAKE_BACK = _change(lambda it: it.registered and it.data is None, lambda it: State())
_UNREGISTER = _change(lambda it: it.registered, lambda it: State(False, it.data))
_DELETE = _change(lambda it: not it.registered, lambda it: State())
_EMPTY = _change(lambda it: it.registered, lambda it: State(True))
_DROP = _change(lambda it: it.registered, lambda it: State())
_REGISTER = _change(lambda it: not it.registered, lambda it: State(True, it.data))


def _has(rows: Rows) -> Step:
    return _look(lambda it: it.registered and it.data == rows)


def _write_first(rows: Rows) -> Step:
    # A table that somebody has dropped meanwhile stays dropped.
    return _change(lambda it: it.data is None, lambda it: State(True, rows) if it.registered else it)


def _write(rows: Rows) -> Step:
    return _change(lambda it: True, lambda it: State(True, rows) if it.registered else it)


def _withdraw(rows: Rows) -> Step:
    """Removes what was written to a table that somebody has dropped or deregistered, if nobody has added to it.

    Who registers its place before it is gone may see it for a moment, and has an empty table then.
    """
    return _change(
        lambda it: it.data == rows or not rows <= (it.data or frozenset()),
        lambda it: State(it.registered) if it.data == rows else it,
    )


def _leave_first(rows: Rows) -> Step:
    """Writes a first version to a place that may be no table's any more, and stays there."""
    return _change(lambda it: it.data is None, lambda it: State(it.registered, rows))


def _set(rows: Rows) -> Step:
    return _change(lambda it: it.registered, lambda it: State(True, rows))


def _add(rows: Rows) -> Step:
    return _change(lambda it: it.registered, lambda it: State(True, (it.data or frozenset()) | rows))


def programs(it: Operation, answer: Answer, rules: Rules, *, again: bool = False) -> list[Program]:
    """Every way in which an operation may have come to its answer; `again` with those that are rare."""
    if answer.error not in EXPECTED and not answer.ok:
        done = programs(it, Answer(), rules, again=again)
        return [program[:steps] for program in done for steps in range(len(program) + 1)]
    if answer.stays:
        leave = _leave_first(frozenset(it.rows))
        left = [*programs(it, Answer(), rules, again=again), (leave,)]
        left += [(_DECLARE, leave)] if it.kind in CREATES | OVERWRITES else []
        return left + (_refused(it, answer.error or "") if answer.is_unknown else [])
    if answer.error is not None:
        refused = _refused(it, answer.error)
        # What it had declared somebody may have removed, and then it begins again.
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
            # A place that was looked at while it was in use may be given up with its data before it is declared.
            return [(_REGISTER,)] if rules.adopts else [(_LOOKED, _REGISTER)]
        case kind if kind in CREATES:
            return [(_DECLARE, _write_first(rows))]
        case kind if kind in OVERWRITES:
            # Others may have removed what it had declared, and then it begins again, up to three times.
            anew = [((_DECLARE, _IS_FREE) * times + (_DECLARE, _write(rows))) for times in (1, 2, 3)] if again else []
            return [(_set(rows),), (_DECLARE, _write(rows)), *anew]
        case kind if kind in APPENDS:
            return [(_add(rows),)]
        case "drop":
            late = [] if rules.journals else [(_EMPTY, _TAKE_BACK)]
            # Without a place of its own, a name has no data once its registration is gone.
            removed = (_UNREGISTER, _DELETE) if rules.homes else (_DROP,)
            return [removed, *late, *also]
        case "deregister":
            return [(_UNREGISTER if rules.homes else _DROP,), *also]
        case "register":
            return [(_REGISTER,)]
    raise AssertionError(it.kind)


def _refused(it: Operation, error: str) -> list[Program]:
    creates = it.kind in CREATES | OVERWRITES
    if error == NOT_FOUND:
        if it.kind == "read":
            return [(_HAS_NO_ROWS,)]
        # What it had declared somebody else may have dropped; and as with declare, data may be there by then.
        return [(_IS_FREE,), (_LOOKED, _REGISTER, _IS_FREE)] if creates else [(_IS_FREE,)]
    if error in EXISTS:
        # It may have declared the table whose first version somebody else wrote, or which others removed and declared.
        mine = (_LOOKED, _REGISTER)
        return [(_IS_TAKEN,), (*mine, _HAS_ROWS), (*mine, _IS_FREE, _IS_TAKEN)] if creates else [(_IS_TAKEN,)]
    rows = frozenset(it.rows)
    if it.kind in APPENDS:
        return [(), (_add(rows), _withdraw(rows)), (_leave_first(rows), _withdraw(rows))]
    if not creates:
        # A drop that leaves the rest to others has removed the registration.
        return [(), (_UNREGISTER,), (_DROP,)] if it.kind == "drop" else [()]
    gone: list[Program] = [(_DECLARE, _IS_FREE), (_DECLARE, _leave_first(rows), _withdraw(rows))]
    gone += [(_set(rows), _withdraw(rows))] if it.kind in OVERWRITES else []
    return [(), (_DECLARE, _TAKE_BACK), *gone]


_NO_FILE = "No such file or directory|Directory not empty|Not found: |Table version not found"
"""What pylance says of files that were deleted while it read or wrote them."""

Pending = frozenset[tuple[int, Program]]
"""Operations under way, with the steps that each has still to take."""

Configuration = tuple[State, Pending]

MOST = 50_000
"""How many configurations are gone through for one event, before the history counts as too tangled to tell."""


class TooTangled(Exception):
    """So much happened at once that the search was given up."""


def check(events: Iterable[Event], rules: Rules, start: State = State()) -> Event | None:  # noqa: B008  # it is frozen
    """Returns the first event, by the time it ended, that nothing explains; None where there is an order."""
    history = list(events)
    wrong = _unexplained(history, rules, start, again=False)
    if wrong is not None:
        with suppress(TooTangled):
            wrong = _unexplained(history, rules, start, again=True)
    return wrong


def _unexplained(events: Sequence[Event], rules: Rules, start: State, *, again: bool) -> Event | None:
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
            ways = programs(event.operation, event.answer, rules, again=again)
            possible = {_looked(state, pending | {(number, way)}) for state, pending in possible for way in ways}
    return None


def _with_end(possible: set[Configuration], number: int) -> set[Configuration]:
    """The configurations that are possible once an operation has ended."""
    seen, waiting, done = set(possible), list(possible), set()
    while waiting:
        state, pending = waiting.pop()
        if (number, ()) in pending:
            # Other steps may be taken later.
            done.add((state, pending - {(number, ())}))
            continue
        for operation, steps in pending:
            if steps and (after := steps[0].take(state)) is not None:
                next = _looked(after, pending - {(operation, steps)} | {(operation, steps[1:])})
                if next not in seen:
                    seen.add(next)
                    waiting.append(next)
        if len(seen) > MOST:
            raise TooTangled(f"more than {MOST:,} configurations")
    return done


def _looked(state: State, pending: Pending) -> Configuration:
    """The configuration once every look that succeeds was taken: it changes nothing, so the sooner the better."""
    while True:
        ready = {it for it in pending if it[1] and it[1][0].looks and it[1][0].take(state) is not None}
        if not ready:
            return state, pending
        pending = pending - ready | {(operation, steps[1:]) for operation, steps in ready}


def stray(events: Sequence[Event], rules: Rules) -> list[str]:
    """What is wrong with single answers: errors no race explains, and places of other names."""
    wrong = []
    for event in events:
        it, answer = event.operation, event.answer
        if not answer.ok and not _is_explained(event, events, rules):
            wrong.append(f"unexpected: {event}")
        own = rf"[/$]{it.name[-1]}(-[0-9a-f]{{8}})?(\.lance)?$"
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
        # Whoever takes a declaration back removes empty folders, one of which a writer may just have made. What was
        # refused so has written nothing, and the history shows whether it has.
        return True
    beside = {it.operation.kind for it in events if it.begun < event.ended and event.begun < it.ended}
    if "drop" not in beside:
        return False
    # Where the data may go first, the table is still registered when its files are missed.
    return error == "GoneWhileRead" or (not rules.journals and bool(re.search(_NO_FILE, event.answer.message)))
