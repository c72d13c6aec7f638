"""Bounds of SQL texts, checked before Lance parses them.

Lance's parser backtracks at words before brackets: `NOT (NOT (...` takes twice as long with each pair, and does not end
in practice at 40 pairs. Its planner takes exponential time for nested BETWEEN and COALESCE. For some thousand operators
in a row it overflows the stack, which ends the process. Neither can be stopped from outside. The check works on tokens
without a grammar: strings, quoted names, numbers, words, operators, brackets and commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from lance_namespace.errors import InvalidInputError

MAX_DEPTH: Final = 40
"""Maximum nesting of brackets; Lance's own limit is slightly higher."""

MAX_NESTED: Final = 46
"""Maximum nesting of brackets and NOT. Lance's parser stops at this depth, and then reads NOT as a column."""

MAX_CALLS: Final = 10
"""Maximum nesting of words before brackets, such as functions and NOT. Each level doubles the time until an error."""

MAX_BETWEEN: Final = 2
"""Maximum nesting of BETWEEN; the planner duplicates the operand of each one."""

MAX_OPERATORS: Final = 100
"""Maximum operators, except AND and OR, in one term with its brackets. The planner is cubic and recurses for each."""

MAX_PARSING: Final = 1_000_000
"""Maximum tokens as the parser reads them: a token's count doubles for each enclosing bracket after a word."""

MAX_PLANNING: Final = 20_000
"""Maximum copies that the planner makes of tokens in COALESCE and similar functions. Each takes 50 µs."""

SMALL: Final = 1_024
"""Characters that are checked in less than 1 ms; longer texts should be checked in a thread."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<string>'[^']*(?:''[^']*)*')
  | (?P<quoted>`[^`]*(?:``[^`]*)*`|"[^"]*(?:""[^"]*)*")
  | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)
  | (?P<word>[^\W\d]\w*)
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<comma>,)
  | (?P<unclosed>['"`]|/\*)
  | (?P<operator>::|\|\||->>?|<=>|<>|[<>=!]=|<<|>>|[-+*/%<>=!&|^~.])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_BEFORE_BRACKETS = frozenset({"and", "or", "in"})
"""Words before a bracket that the parser reads in only one way, so that nothing is parsed twice."""

OPERATORS: Final = frozenset(
    {"is", "in", "like", "ilike", "similar", "between", "not", "collate", "at", "escape", "div"}
)
"""Words that are operators."""
_ESCAPING = frozenset({"e", "n", "b", "r", "u", "q", "nq", "br", "rb"})
_REWRITTEN = frozenset({"coalesce", "ifnull", "nvl", "nvl2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Maximum values for all SQL texts of a request together."""

    bytes: int = 4 << 20
    """Bytes in UTF-8."""
    tokens: int = 250_000
    """Words, literals, operators, brackets and commas."""
    terms: int = 10_000
    """`AND` and `OR`."""


LOCAL: Final = Bounds()
"""The bounds for callers in this process."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The SQL texts of one request, keyed by their names in messages; None for an omitted text."""

    conditions: Mapping[str, str | None] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """Texts that compute the values of columns."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Iterates over the names and the texts, without omitted ones."""
        for name, sql in (*self.conditions.items(), *self.values.items()):
            if sql is not None:
                yield name, sql

    def check(self) -> None:
        """Raises InvalidInputError for texts that would take Lance too much time, or overflow its stack."""
        SqlCheck().check(self)

    @property
    def is_small(self) -> bool:
        """Whether the check takes less than a millisecond."""
        return sum(len(sql) for _, sql in self) <= SMALL


def tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and the text of each token, such as ("word", "id"); names in quotes are without them."""
    for token in _TOKEN.finditer(sql):
        kind, text = token.lastgroup or "other", token.group()
        yield kind, text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text


def is_call(word: str, bracket: str) -> bool:
    """Returns whether a bracket after this word has the arguments of a function, NOT or the like.

    Args:
        word: The word before the bracket, in lower case; `)` after a bracket, and "" after another token.
        bracket: The bracket.
    """
    return word not in ("", ")", *_BEFORE_BRACKETS) and (bracket == "(" or word == "array")


@dataclass(slots=True)
class _Bracket:
    """An open bracket, or the whole text."""

    base: int = 0
    """Number of operators around the bracket."""
    calls: int = 0
    """Number of enclosing words before brackets, including its own."""
    depth: int = 0
    """Nesting depth of brackets and NOT, including this bracket."""
    rewritten: int = 0
    """Number of enclosing COALESCE and similar functions, including its own."""
    operators: int = 0
    """Number of operators in the current term."""
    between: int = 0
    """Nesting depth of BETWEEN in the current term."""
    ands: int = 0
    """Number of AND that belong to a BETWEEN."""
    deepest: int = 0
    """Maximum nesting depth of BETWEEN in any term."""


class SqlCheck:
    """The check of the SQL texts of one request; it counts the tokens of all of them."""

    def __init__(self, bounds: Bounds = LOCAL) -> None:
        self._bounds = bounds
        self._bytes = self._terms = self._parsing = self._planning = 0
        self.tokens: int = 0
        """Number of tokens of all texts so far."""

    def check(self, texts: Texts) -> None:
        """Raises InvalidInputError for texts that are not allowed."""
        for name, sql in texts:
            self.check_text(name, sql, is_value=name in texts.values)

    def check_text(self, name: str, sql: str, *, is_value: bool) -> None:
        """Checks one text; `is_value` says whether it computes the value of a column."""
        self._name, self._sql = name, sql
        self._bracket, self._outer_brackets = _Bracket(), list[_Bracket]()
        self._nots = 0
        self._bytes += len(sql.encode("utf-8", "surrogatepass"))
        if self._bytes > self._bounds.bytes:
            self.reject(f"the SQL has more than {self._bounds.bytes} bytes", "split it into several requests")
        before = ""
        for match in _TOKEN.finditer(sql):
            kind, token = match.lastgroup or "other", match.group()
            if kind == "space":
                # The parser reads each blank several times.
                self._count(len(token) // 2)
            elif kind == "comment":
                self._count(len(token) // 2)
                self.check_token(kind, token, before, match.start())
            else:
                self._count(1)
                self._check_costs()
                self._check_nots(token, kind)
                self.check_token(kind, token, before, match.start())
                match kind:
                    case "word":
                        before = token.lower()
                    case "quoted":
                        before = token
                    case "close":
                        # A bracketed expression can be indexed.
                        before = ")"
                    case _:
                        before = ""

    def check_token(self, kind: str, token: str, before: str, start: int) -> None:
        """Checks a token.

        Args:
            kind: The kind of the token.
            token: Its text.
            before: The word, in lower case, or the quoted name before it; `)` after a bracket, "" after another token.
            start: The position of its first character.
        """
        match kind:
            case "string" if before and _is_prefix(self._sql, start):
                self.reject(f"a string has the prefix {before}, as in {before}'...'", "remove the prefix")
            case "word":
                self._check_word(token.lower())
            case "open":
                self._open(token, before)
            case "close" if not self._outer_brackets:
                self.reject(f"the bracket that is closed at character {start + 1} was not opened", "open it")
            case "close":
                inner, self._bracket = self._bracket, self._outer_brackets.pop()
                self._bracket.deepest = max(self._bracket.deepest, inner.deepest)
                self._bracket.between = max(self._bracket.between, inner.deepest)
            case "comma":
                self._end_term()
            case "operator":
                self._check_operator()
            case "unclosed":
                self.reject(f"{token} at character {start + 1} is not closed", "close it")
            case "other" if token in "$?:":
                self.reject_character(token, start)

    def reject(self, problem: str, remedy: str) -> NoReturn:
        """Raises InvalidInputError for the current text."""
        raise InvalidInputError(f"{self._name}: {problem}; {remedy}")

    def reject_character(self, character: str, start: int) -> NoReturn:
        """Raises InvalidInputError for a character that is not valid at this position."""
        self.reject(
            f"{character!r} at character {start + 1} is not valid in Lance's SQL",
            "write strings as '...' and column names as `...`",
        )

    def _count(self, tokens: int) -> None:
        self.tokens += tokens
        if self.tokens > self._bounds.tokens:
            self.reject(
                f"the SQL has more than {self._bounds.tokens} words, literals, operators and commas",
                "split it into several requests, or write the values to a table and use merge_insert_into_table",
            )

    def _check_costs(self) -> None:
        """Checks how often the parser and the planner process the tokens in brackets."""
        self._parsing += 1 << self._bracket.calls
        self._planning += (1 << self._bracket.rewritten) - 1
        if self._parsing > MAX_PARSING:
            self.reject(
                "too many values in brackets after functions and NOT",
                "write long lists outside NOT (...) and functions, e.g. x NOT IN (...)",
            )
        if self._planning > MAX_PLANNING:
            self.reject("nested COALESCE and similar functions are too large", "write coalesce(a, b, c, ...)")

    def _check_nots(self, token: str, kind: str) -> None:
        if token.lower() == "not":
            self._nots += 1
        elif kind != "open":
            self._nots = 0
        depth = self._bracket.depth
        if depth + self._nots > MAX_NESTED:
            within = f" within {depth} brackets and NOT" if depth else ""
            self.reject(f"it has {self._nots} or more NOT in a row{within}", "remove pairs of NOT: they have no effect")

    def _check_word(self, word: str) -> None:
        bracket = self._bracket
        match word:
            case "and" if bracket.ands:
                bracket.ands -= 1
            case "and" | "or":
                self._end_term()
                self._terms += 1
                if self._terms > self._bounds.terms:
                    self.reject(
                        f"it has more than {self._bounds.terms} AND and OR",
                        "write x = 1 OR x = 2 OR ... as x IN (1, 2, ...), or split it into several requests",
                    )
            case "between":
                bracket.between += 1
                bracket.ands += 1
                bracket.deepest = max(bracket.deepest, bracket.between)
                if bracket.between > MAX_BETWEEN:
                    self.reject(f"BETWEEN is nested more than {MAX_BETWEEN} levels deep", "write x >= a AND x <= b")
                self._check_operator()
            case _ if word in OPERATORS:
                self._check_operator()

    def _end_term(self) -> None:
        self._bracket.operators = self._bracket.between = self._bracket.ands = 0

    def _check_operator(self) -> None:
        bracket = self._bracket
        bracket.operators += 1
        if bracket.base + bracket.operators > MAX_OPERATORS:
            self.reject(
                f"it has a term with more than {MAX_OPERATORS} operators",
                "use fewer values in one term, or write x = 1 OR x = 2 OR ... as x IN (1, 2, ...)",
            )

    def _open(self, bracket: str, word: str) -> None:
        outer, call = self._bracket, is_call(word, bracket)
        if len(self._outer_brackets) >= MAX_DEPTH:
            self.reject(f"brackets are nested more than {MAX_DEPTH} levels deep", "remove those without effect")
        calls = outer.calls + call
        if calls > MAX_CALLS:
            self.reject(f"functions, NOT and the like are nested more than {MAX_CALLS} levels deep", "use fewer levels")
        if bracket == "[":
            self._check_operator()
        self._outer_brackets.append(outer)
        self._bracket = _Bracket(
            base=outer.base + outer.operators + 1,
            calls=calls,
            depth=outer.depth + 1 + self._nots,
            rewritten=outer.rewritten + (call and word in _REWRITTEN),
        )
        self._nots = 0
        if self._bracket.base > MAX_OPERATORS:
            self._check_operator()
        if self._bracket.depth > MAX_NESTED:
            self.reject(
                f"brackets and NOT are nested more than {MAX_NESTED} levels deep", "remove those without effect"
            )


def _is_prefix(sql: str, start: int) -> bool:
    """Returns whether a string at this position has a prefix that changes its content."""
    before = re.search(r"[^\W\d]\w*&?$", sql[max(0, start - 4) : start])
    return before is not None and before.group().lower().rstrip("&") in _ESCAPING
