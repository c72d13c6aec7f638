"""What clients do: short programs on the tables `a` and `b`, and what a client finds afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Rows = frozenset[int]


@dataclass(frozen=True)
class Action:
    """One operation of a program."""

    kind: str
    name: str = "a"
    to: str | None = None
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        rest = [f"rows {list(self.rows)}"] if self.rows else []
        return " ".join([self.kind, self.name, *([f"to {self.to}"] if self.to else []), *rest])


PROGRAMS: Mapping[str, Sequence[Action]] = {
    "declare": [Action("declare")],
    "create": [Action("create", rows=(10, 11))],
    "append": [Action("append", rows=(20,))],
    "merge": [Action("merge", rows=(25,))],
    "overwrite": [Action("overwrite", rows=(30,))],
    "replace": [Action("replace", rows=(40,))],
    "drop": [Action("drop")],
    "deregister": [Action("deregister")],
    "recreate": [Action("drop"), Action("create", rows=(50,))],
    "move": [Action("deregister"), Action("register", "b")],
    "move-and-create": [Action("deregister"), Action("register", "b"), Action("create", rows=(60,))],
    "reregister": [Action("reregister")],
    "rename": [Action("rename", to="b")],
    "rename-and-create": [Action("rename", to="b"), Action("create", rows=(70,))],
    "restore": [Action("restore")],
    "tag": [Action("tag")],
    "branch": [Action("branch")],
    "maintain": [Action("maintain")],
    "copy": [Action("copy")],
    "sync": [Action("sync")],
}
"""The programs by name; a name stands for the table `a`, unless the program names another one."""

UNDROPS: Mapping[str, Sequence[Action]] = {
    "lose": [Action("lose")],
    "lose-and-create": [Action("lose"), Action("create", rows=(90,))],
    "lose-and-undrop": [Action("lose"), Action("undrop")],
    "lose-and-purge": [Action("lose"), Action("purge")],
    "undrop": [Action("undrop")],
    "undrop-as-b": [Action("undrop", "b")],
    "drop": [Action("drop")],
    "create": [Action("create", rows=(10,))],
    "append": [Action("append", rows=(20,))],
    "move": [Action("deregister"), Action("register", "b")],
}
"""The programs with drops that can be taken back, whose retention ends at once, and those beside them."""

NEW = ("declare", "create", "append", "overwrite", "drop", "deregister")
"""The programs that clients also run if `a` does not exist."""

RENAMES = {"rename", "rename-and-create"}

COPIES = {"copy", "sync"}  # The programs that register the table of another catalog, without and with a replacement

IN_PARTITIONS: Mapping[str, Sequence[Action]] = {
    "write": [Action("write", rows=(20,))],
    "write-twice": [Action("write", rows=(30,)), Action("write", "b", rows=(31,))],
    "drop": [Action("drop-partition")],
    "drop-and-write": [Action("drop-partition"), Action("write", rows=(40,))],
    "divide": [Action("divide")],
}
"""The programs on the partitions `a` and `b` of a directory."""

FIRST, SECOND, OTHERS = frozenset({1}), frozenset({1, 2}), frozenset({80})
"""The rows of the two versions of `a` before the programs begin, and of the table in another catalog."""


@dataclass(frozen=True)
class Outcome:
    """The answer to an action."""

    error: str | None = None
    message: str = ""
    location: str | None = None

    @property
    def is_unknown(self) -> bool:
        """Returns whether the operation may have taken effect, in part or as a whole."""
        return self.error == "dead" or (
            self.error is not None
            and any(it in self.message for it in ("unknown", "may take effect", "no longer registered"))
        )

    def __str__(self) -> str:
        return f"ok, {self.location}" if self.error is None else f"{self.error}: {self.message}"


@dataclass(frozen=True)
class Event:
    """An action of a client, between two moments of a run."""

    client: int
    action: Action
    outcome: Outcome
    begun: int
    ended: int


@dataclass(frozen=True)
class Found:
    """What a client finds at a name or a location afterwards."""

    state: str  # `missing`, `declared`, `rows`, or an error
    location: str | None = None
    rows: Rows = frozenset()
    tag: Rows | str | None = None
    branch: Rows | str | None = None

    def __str__(self) -> str:
        more = "".join(f", {it} {getattr(self, it)}" for it in ("tag", "branch") if getattr(self, it) is not None)
        return f"{self.state} {sorted(self.rows) or ''} at {self.location}{more}"
