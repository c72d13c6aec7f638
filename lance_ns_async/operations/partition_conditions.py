"""Conditions on partitions, read as Lance reads them.

Only the syntax whose reading is certain is read: comparisons, IS NULL, IN, BETWEEN, NOT, AND and OR, with names and
literals. Other values, such as functions, are parts of the condition without a meaning. Any other syntax, such as names
in double quotes, CASE or IS DISTINCT FROM, may bind otherwise in Lance, and then the whole condition has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lance_ns_async.storage.sql_bounds import tokens

_COMPARISONS = {"=": "eq", "<>": "neq", "!=": "neq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_ARITHMETIC = frozenset("+ - * / % || .".split())
_NO_NAMES = frozenset("and or not is in between like ilike case when then else end distinct interval".split())
_FUNCTIONS = frozenset("null current_date current_time current_timestamp localtime localtimestamp".split())
"""Words that have a value without brackets, and are no names."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a condition."""

    kind: str
    """`and`, `or`, `not`, `eq` and other comparisons, `null`, `in`, `between`; `name`, `quoted` (a name in backticks),
    `boolean`, `number`, `text`, `date`, `timestamp`; or `unknown`."""
    parts: Sequence[Node] = ()
    text: str = ""
    """The name, or the value of a literal."""


UNKNOWN: Final = Node("unknown")
"""A part without a meaning."""


class _UnreadableError(Exception):
    """The condition has other syntax than this module reads."""


def read_condition(where: str) -> Node:
    """Returns the meaning of a condition that Lance accepts; `UNKNOWN` if it has other syntax than is read here."""
    try:
        return _Reader(where).whole()
    except _UnreadableError:
        return UNKNOWN


class _Reader:
    def __init__(self, where: str) -> None:
        parts = list(tokens(where))
        # Lance takes a text in double quotes as a string in some places, and as a name in others.
        if where.count('"') > sum(text.count('"') for kind, text in parts if kind == "string"):
            raise _UnreadableError
        if any(kind == "space" and text.strip(" \t\r\n") for kind, text in parts):
            raise _UnreadableError
        self._rest = [(kind, text) for kind, text in reversed(parts) if kind != "space"]

    def whole(self) -> Node:
        node = self._any()
        if self._rest:
            raise _UnreadableError
        return node

    def _take(self, kind: str, *texts: str) -> str | None:
        """Returns the text of the next token, in lower case, and skips it, if it is one of these; else None."""
        if self._rest and self._rest[-1][0] == kind and (not texts or self._rest[-1][1].lower() in texts):
            return self._rest.pop()[1].lower()
        return None

    def _expect(self, kind: str, *texts: str) -> None:
        if self._take(kind, *texts) is None:
            raise _UnreadableError

    def _any(self) -> Node:
        parts = [self._all()]
        while self._take("word", "or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Node("or", parts)

    def _all(self) -> Node:
        parts = [self._term()]
        while self._take("word", "and"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else Node("and", parts)

    def _term(self) -> Node:
        is_negative = False
        while self._take("word", "not"):
            is_negative = not is_negative
        node = left = self._value()
        while (right := self._predicate(left)) is not None:
            # Whichever of two operators in a row binds first, both end before the next AND or OR.
            node = right if left is node else UNKNOWN
            left = UNKNOWN
        return Node("not", [node]) if is_negative else node

    def _predicate(self, left: Node) -> Node | None:
        """Returns the operator after a value, with its other operands; None if there is none."""
        if operator := self._take("operator", *_COMPARISONS):
            return Node(_COMPARISONS[operator], (left, self._value()))
        if self._take("word", "is"):
            is_negative = self._take("word", "not")
            if self._take("word", "true", "false"):
                return UNKNOWN
            self._expect("word", "null")
            node = Node("null", [left])
        else:
            is_negative = self._take("word", "not")
            match self._take("word", "in", "between", "like", "ilike"):
                case "in":
                    self._expect("open", "(")
                    values = [left, self._value()]
                    while self._take("comma"):
                        values.append(self._value())
                    self._expect("close", ")")
                    node = Node("in", values)
                case "between":
                    low = self._value()
                    self._expect("word", "and")
                    node = Node("between", (left, low, self._value()))
                case None:
                    if is_negative:
                        raise _UnreadableError
                    return None
                case _:
                    self._value()
                    node = UNKNOWN
        return Node("not", [node]) if is_negative else node

    def _value(self) -> Node:
        node = self._operand()
        while self._take("operator", *_ARITHMETIC):
            self._operand()
            node = UNKNOWN
        return node

    def _operand(self) -> Node:
        if self._take("operator", "-"):
            number = self._operand()
            is_positive = number.kind == "number" and not number.text.startswith("-")
            return Node("number", text="-" + number.text) if is_positive else UNKNOWN
        if self._take("open", "("):
            node = self._any()
            self._expect("close", ")")
            return node
        kind, text = self._rest.pop() if self._rest else ("end", "")
        match kind:
            case "number":
                return Node("number", text=text) if text.isdecimal() else UNKNOWN
            case "string":
                return Node("text", text=text[1:-1].replace("''", "'"))
            case "quoted":
                return Node("quoted", text=text)
            case "word" if text.lower() not in _NO_NAMES:
                return self._word(text)
        raise _UnreadableError

    def _word(self, text: str) -> Node:
        word = text.lower()
        if word in ("true", "false"):
            return Node("boolean", text=word)
        if word in ("date", "timestamp") and self._rest and self._rest[-1][0] == "string":
            return Node(word, text=self._operand().text)
        if self._take("open", "("):
            depth = 1
            while depth:
                if not self._rest:
                    raise _UnreadableError
                depth += {"open": 1, "close": -1}.get(self._rest.pop()[0], 0)
            return UNKNOWN
        return UNKNOWN if word in _FUNCTIONS else Node("name", text=text)
