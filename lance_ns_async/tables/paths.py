"""Lance field paths: names with dots between them, in backticks where a name has a dot or a backtick itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

_NAME = r"`(?:[^`]|``)*`|[^.`]+"
_PATH = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")


def split(path: str) -> tuple[str, ...]:
    """The names on a path, from the outermost in."""
    if not _PATH.fullmatch(path):
        raise InvalidInputError(f"field path {path!r}: it is none; write e.g. a, a.b or a.`b.c`")
    return tuple(map(_unquoted, re.findall(_NAME, path)))


def joined(names: Iterable[str]) -> str:
    """The one way to write a path."""
    return ".".join(_quoted(name) if set(name) & {".", "`"} else name for name in names)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
