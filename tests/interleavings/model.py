"""What answers and final states have an explanation: atomic steps of the operations, in some order that fits the times.

A table is a name that leads to a place, and each declaration makes a new place. An operation that succeeded has taken
all its steps between its beginning and its end. One that failed has taken none that lasts, unless its error says that
the outcome is unknown, or its client has died: then any number of its steps may have been taken.

The removal of a name takes the registration that is there at that moment. A drop deletes rows only at the place that it
removed the name from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.interleavings.programs import FIRST, OTHERS, SECOND, Event, Found, Rows


class Data(NamedTuple):
    """The rows at a place: those of the latest and of the first version, and what was made of the first one."""

    rows: Rows
    first: Rows
    tagged: bool = False
    branched: bool = False


class State(NamedTuple):
    """The names with their places, and the data of places where something was written."""

    names: tuple[tuple[str, str], ...]
    data: tuple[tuple[str, Data], ...]

    def place(self, name: str) -> str | None:
        return dict(self.names).get(name)

    def at(self, place: str) -> Data | None:
        return dict(self.data).get(place)

    def lead(self, name: str, place: str | None) -> State:
        """Returns the state in which a name leads to another place, or nowhere."""
        others = {key: value for key, value in self.names if key != name}
        return self._replace(names=tuple(sorted({**others, **({name: place} if place else {})}.items())))

    def write(self, place: str, data: Data | None) -> State:
        others = {key: value for key, value in self.data if key != place}
        return self._replace(data=tuple(sorted({**others, **({place: data} if data else {})}.items())))


class Rules(NamedTuple):
    """What a catalog can do."""

    compares: bool  # Whether it removes a registration only if it is the expected one
    replaces: bool  # Whether it replaces a registration in one step


class Seen(NamedTuple):
    """A state, and the place that an operation has looked up."""

    state: State
    place: str | None


Take = Callable[[Seen], Iterable[Seen]]  # Returns what is possible after a step; nothing if the step is impossible now

Steps = tuple[Take, ...]

NOT_FOUND, EXISTS = {"TableNotFoundError"}, {"TableAlreadyExistsError", "DataThereError"}

EXPECTED = {
    *(*NOT_FOUND, *EXISTS, "ConcurrentModificationError"),
    *("TableVersionNotFoundError", "TableTagAlreadyExistsError", "TableBranchAlreadyExistsError"),
}
"""Errors that another client may cause; any other one is a violation, unless its outcome is unknown."""

EXCUSED = re.compile(
    r"its location .* is that of table|its file .* does not exist"
    r"|cannot change a registered table|Location is already taken|files at its location .* also belong to"
)
"""Messages of further errors that others may cause: by a registration, by a drop, or by a removal of old versions."""


def state_before(location: str | None, copied: str | None) -> State:
    """Returns the state before the programs: `a`, and a table in another catalog, at these locations if they exist."""
    state = State((), ())
    if location is not None:
        state = state.lead("a", location).write(location, Data(SECOND, FIRST))
    return state if copied is None else state.write(copied, Data(OTHERS, OTHERS))


def _look(name: str) -> Take:
    return lambda it: [Seen(it.state, place)] if (place := it.state.place(name)) else []


def _is_free(name: str) -> Take:
    return lambda it: [it] if it.state.place(name) is None else []


def _lacks_rows(name: str) -> Take:
    def take(it: Seen) -> Iterable[Seen]:
        place = it.state.place(name)
        return [it] if place is None or it.state.at(place) is None else []

    return take


def _lead(name: str, place: str) -> Take:
    return lambda it: [Seen(it.state.lead(name, place), place)] if it.state.place(name) is None else []


def _leads_to(name: str, place: str) -> Take:
    return lambda it: [it] if it.state.place(name) == place else []


def _leads_elsewhere(name: str) -> Take:
    return lambda it: [it] if it.state.place(name) not in (None, it.place) else []


def _lead_anew(name: str, place: str) -> Take:
    return lambda it: [Seen(it.state.lead(name, place), place)]


def _is_shared(it: Seen) -> Iterable[Seen]:
    """Returns the step of a drop that is refused, because another name leads to the place, too."""
    return [it] if [place for _, place in it.state.names].count(it.place or "") > 1 else []


def _lead_back(name: str, place: str) -> Take:
    """Returns the step of a replacement to the place that it saw; what replaced this place meanwhile is replaced."""

    def take(it: Seen) -> Iterable[Seen]:
        if any(there == place for other, there in it.state.names if other != name):
            return []
        return [Seen(it.state.lead(name, place), place)]

    return take


def _take_back(name: str) -> Take:
    return lambda it: [Seen(it.state.lead(name, None), it.place)] if it.state.place(name) == it.place else []


def _write(change: Callable[[Data | None], Data | None]) -> Take:
    def take(it: Seen) -> Iterable[Seen]:
        assert it.place is not None
        new = change(it.state.at(it.place))
        return [] if new is None else [Seen(it.state.write(it.place, new), it.place)]

    return take


def _remove(name: str, places: Mapping[str, str], location: str | None, *, drops: bool, rules: Rules) -> Take:
    def take(it: Seen) -> Iterable[Seen]:
        place = it.state.place(name)
        if place is None:
            return []
        if location is not None and places.get(place, location) != location:
            # Only a catalog that compares removes just what it answers; the others answer what was there before.
            if rules.compares or it.place is None or places.get(it.place, location) != location:
                return []
        state = it.state.lead(name, None)
        kept = [Seen(state, place)]
        # A catalog that does not compare may remove what replaced the place that the drop saw; the drop deletes that.
        is_other = place != it.place and rules.compares
        # Rows are also those of other names that lead there.
        if not drops or it.place is None or is_other or any(there == it.place for _, there in state.names):
            return kept
        return [Seen(state.write(it.place, None), place), *kept]

    return take


def _erase(place: str) -> Take:
    def take(it: Seen) -> Iterable[Seen]:
        return [] if any(there == place for _, there in it.state.names) else [Seen(it.state.write(place, None), place)]

    return take


def _rename(name: str, to: str) -> Take:
    def take(it: Seen) -> Iterable[Seen]:
        place = it.state.place(name)
        if place is None or it.state.place(to) is not None:
            return []
        return [Seen(it.state.lead(name, None).lead(to, place), place)]

    return take


def _steps(number: int, event: Event, places: Mapping[str, str], rules: Rules) -> list[Steps]:
    """Returns the steps of a successful operation, in the ways in which it can go. `number` is that of the event, by
    which the place of a new table is named; `places` are the locations as far as known."""
    it, new = event.action, _new(number, places)
    rows = frozenset(it.rows)
    add = _write(lambda old: Data(rows, rows) if old is None else old._replace(rows=old.rows | rows))
    put = _write(lambda old: Data(rows, rows) if old is None else old._replace(rows=rows))
    first = _write(lambda old: Data(rows, rows) if old is None else None)
    match it.kind:
        case "declare":
            return [(_lead(it.name, new),)]
        case "create":
            return [(_lead(it.name, new), first)]
        case "append" | "merge":
            return [(_look(it.name), add)]
        case "overwrite" | "replace":
            back: list[Steps] = [(_lead_back(it.name, new), put)] if it.kind == "replace" else []
            return [(_look(it.name), put), (_lead(it.name, new), put), *back]
        case "lose":
            return [(_look(it.name), _remove(it.name, places, None, drops=False, rules=rules))]
        case "undrop":
            return [(_lead(it.name, event.outcome.location or new),)]
        case "purge":
            return [(_erase(event.outcome.location or new),), ()]
        case "drop" | "deregister":
            location = event.outcome.location if it.kind == "deregister" else None
            return [(_look(it.name), _remove(it.name, places, location, drops=it.kind == "drop", rules=rules))]
        case "register":
            return [(_lead(it.name, event.outcome.location or new),)]
        case "copy":
            place = event.outcome.location or new
            return [(_lead(it.name, place),), (_leads_to(it.name, place),)]
        case "reregister":
            return [(_lead_anew(it.name, event.outcome.location or new),)]
        case "sync":
            place = event.outcome.location or new
            removal = _remove(it.name, places, None, drops=False, rules=rules)
            in_two = [] if rules.replaces else [(removal, _lead(it.name, place))]
            return [(_lead_anew(it.name, place),), *in_two]
        case "rename":
            assert it.to is not None
            return [(_rename(it.name, it.to),)]
        case "restore":
            return [(_look(it.name), _write(lambda old: old and old._replace(rows=old.first)))]
        case "tag":
            return [(_look(it.name), _write(lambda old: old and old._replace(tagged=True)))]
        case "branch":
            return [(_look(it.name), _write(lambda old: old and old._replace(branched=True)))]
        case "maintain":
            return [()]
    raise AssertionError(it.kind)


def _new(number: int, places: Mapping[str, str]) -> str:
    return places.get(f"place {number}", f"place {number}")


def ways(number: int, event: Event, places: Mapping[str, str], rules: Rules) -> list[Steps]:
    it, outcome = event.action, event.outcome
    done = _steps(number, event, places, rules)
    if outcome.error is None and it.kind not in ("overwrite", "replace"):
        return done
    if it.kind == "maintain":
        return [()]
    makes = it.kind in ("declare", "create", "overwrite", "replace", "append", "merge")
    # Others may have used the place of a declaration that was in vain, and have answered with it.
    first_places = dict.fromkeys([f"first place of {number}", *places.values()])
    declared = [_lead(it.name, place) for place in first_places]
    withdrawn: list[Steps] = [(step, then(it.name)) for step in declared for then in (_take_back, _is_free) if makes]
    if outcome.error is None:
        # Its declaration may have been removed; then it begins again.
        return done + [(step, _is_free(it.name), *steps) for step in declared for steps in done]
    if outcome.is_unknown:
        return [steps[:length] for steps in done for length in range(len(steps) + 1)] + withdrawn
    if it.kind == "undrop" and outcome.error in (*NOT_FOUND, *EXISTS):
        return [()]
    if outcome.error in NOT_FOUND:
        reads = it.kind in ("append", "merge", "restore", "tag", "branch")
        # A removal says so, too, if the name leads to another table than the one that it saw.
        replaced: list[Steps] = [(_look(it.name), _leads_elsewhere(it.name))] if "replaced" in outcome.message else []
        return [(_lacks_rows(it.name) if reads else _is_free(it.name),), *withdrawn, *replaced]
    if it.kind == "drop" and "also belong to" in outcome.message:
        return [(_look(it.name), _is_shared)]
    if outcome.error in EXISTS:
        return [(_look(it.to or it.name),), *((step, _look(it.name)) for step in declared)]
    return [(), *withdrawn, *((step, _look(it.name)) for step in declared)]


def check(
    events: Sequence[Event],
    location: str | None,
    start: State,
    names: Mapping[str, Found],
    left: Mapping[str, Found],
    rules: Rules,
) -> str | None:
    """Returns why a run has no explanation; None if it has one. `location` is that of `a` before, `names` is what a
    client found at the names afterwards, and `left` what it found at locations of answers to which no name leads."""
    for event in events:
        outcome = event.outcome
        if outcome.error is None or outcome.error in EXPECTED or outcome.is_unknown:
            continue
        if not EXCUSED.search(outcome.message):
            return f"unexpected error of client {event.client}: {event.action}: {outcome}"
    places = {location: location} if location else {}
    for number, event in enumerate(events):
        if event.outcome.location:
            places[event.outcome.location] = event.outcome.location
            places[f"place {number}"] = event.outcome.location
    choices = [ways(number, event, places, rules) for number, event in enumerate(events)]
    visited: set[object] = set()

    def search(state: State, progress: tuple[tuple[int, int, str | None] | None, ...]) -> bool:
        """Takes any step that is possible; an item of the progress is the way, the next step, and the place seen."""
        if (state, progress) in visited:
            return False
        visited.add((state, progress))
        over = [it is not None and it[1] == len(choices[n][it[0]]) for n, it in enumerate(progress)]
        if all(over):
            return _fits(state, places, names, left)
        for n, it in enumerate(progress):
            if over[n]:
                continue
            # It begins after the end of all operations that ended before.
            starts = [] if it is None else [it]
            if it is None:
                if any(not over[m] and events[m].ended <= events[n].begun for m in range(len(events)) if m != n):
                    continue
                starts = [(way, 0, None) for way in range(len(choices[n]))]
            for way, step, place in starts:
                steps = choices[n][way]
                if not steps:
                    if search(state, (*progress[:n], (way, 0, None), *progress[n + 1 :])):
                        return True
                    continue
                for after in steps[step](Seen(state, place)):
                    if search(after.state, (*progress[:n], (way, step + 1, after.place), *progress[n + 1 :])):
                        return True
        return False

    if search(start, (None,) * len(events)):
        return None
    return "no order of the operations explains the answers and what is there"


def _fits(state: State, places: Mapping[str, str], names: Mapping[str, Found], left: Mapping[str, Found]) -> bool:
    return all(_is(state, places, state.place(name), found) for name, found in names.items()) and all(
        found.state == "rows" and _is_data(data, found)
        for place, found in left.items()
        if (data := state.at(place)) is not None
    )


def _is(state: State, places: Mapping[str, str], place: str | None, found: Found) -> bool:
    if place is None:
        return found.state == "missing"
    if found.location is None or places.get(place, found.location) != found.location:
        return False
    data = state.at(place)
    if data is None:
        return found.state == "declared"
    return found.state == "rows" and _is_data(data, found)


def _is_data(data: Data, found: Found) -> bool:
    tag = data.first if data.tagged else None
    branch = data.first if data.branched else None
    return (found.rows, found.tag, found.branch) == (data.rows, tag, branch)
