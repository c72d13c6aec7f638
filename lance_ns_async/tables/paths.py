"""Lance field paths: names separated by dots; names with a dot or a backtick are quoted in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

_NAME = r"`(?:[^`]|``)*`|[^.`]+"
_PATH = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")


def split(path: str) -> tuple[str, ...]:
    """Returns the names in a path, outermost first. Raises InvalidInputError if it is not a field path."""
    if not _PATH.fullmatch(path):
        raise InvalidInputError(f"field path {path!r}: it is none; write e.g. a, a.b or a.`b.c`")
    return tuple(map(_unquoted, re.findall(_NAME, path)))


def joined(names: Iterable[str]) -> str:
    """Returns the path of these names in its canonical spelling."""
    return ".".join(_quoted(name) if set(name) & {".", "`"} else name for name in names)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
