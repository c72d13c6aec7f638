"""The metastore's filter language: parameters and owner, compared or matched with Java's regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .errors import META, Thrown

Compared = Callable[[str, str], None]
"""Receives the operator and the parameter's key of each comparison. May raise an error."""

_PARAMETER = "hive_filter_field_params__"
_OWNER = "hive_filter_field_owner__"
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9_]+)|(?P<text>"[^"]*"|'[^']*')|(?P<sign><>|!=|[<>]=?|=|\(|\)))""", re.ASCII
)
_OPERATORS = {"=", "<>", "!=", "like"}


@dataclass(frozen=True, slots=True)
class Filtered:
    """The values of a table that a filter uses."""

    parameters: Mapping[str, str]
    owner: str | None


Condition = Callable[[Filtered], bool]


def condition(text: str, compared: Compared) -> Condition:
    """Returns the condition of a filter; an empty one is true for each table."""
    if not text:
        return lambda table: True
    keys: set[str] = set()

    def noted(operator: str, key: str) -> None:
        compared(operator, key)
        keys.add(key)

    holds = _Parser(text, noted).parsed()
    # Parameters are joined to tables: a table without any parameter of the filter does not match an `or` either.
    return lambda table: keys <= table.parameters.keys() and holds(table)


class _Parser:
    def __init__(self, text: str, compared: Compared) -> None:
        self._tokens = _tokens(text)
        self._compared = compared

    def parsed(self) -> Condition:
        result = self._either()
        if self._tokens:
            raise _unreadable()
        return result

    def _either(self) -> Condition:
        result = self._both()
        while self._next_is("or"):
            left, right = result, self._both()
            result = _or(left, right)
        return result

    def _both(self) -> Condition:
        result = self._single()
        while self._next_is("and"):
            left, right = result, self._single()
            result = _and(left, right)
        return result

    def _single(self) -> Condition:
        if self._next_is("("):
            result = self._either()
            if not self._next_is(")"):
                raise _unreadable()
            return result
        key, operator, value = self._take(), self._take().lower(), self._take()
        if operator not in _OPERATORS:
            raise _unreadable()
        expected = value[1:-1] if value[0] in "\"'" else value
        if key.startswith(_PARAMETER):
            name = key.removeprefix(_PARAMETER)
            self._compared(operator, name)
            return lambda table: _holds(operator, table.parameters[name], expected)
        if key == _OWNER:
            return lambda table: table.owner is not None and _holds(operator, table.owner, expected)
        raise Thrown(META, "Invalid key name in filter.  Use constants from org.apache.hadoop.hive.metastore.api")

    def _next_is(self, word: str) -> bool:
        if self._tokens and self._tokens[0].lower() == word:
            self._tokens.pop(0)
            return True
        return False

    def _take(self) -> str:
        if not self._tokens:
            raise _unreadable()
        return self._tokens.pop(0)


def _tokens(text: str) -> list[str]:
    result, at = [], 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _unreadable()
        result.append(token[token.lastgroup or 0])
        at = token.end()
    return result


def _and(left: Condition, right: Condition) -> Condition:
    return lambda table: left(table) and right(table)


def _or(left: Condition, right: Condition) -> Condition:
    return lambda table: left(table) or right(table)


def _holds(operator: str, held: str, expected: str) -> bool:
    match operator:
        case "=":
            return held == expected
        case "like":
            try:
                return re.fullmatch(expected, held) is not None
            except re.error:
                return False
        case _:
            return held != expected


def _unreadable() -> Thrown:
    return Thrown(META, "Error parsing partition filter; lexer error: null; exception NoViableAltException(-1@[])")
