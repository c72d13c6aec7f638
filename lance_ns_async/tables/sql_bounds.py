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

from lance_ns_async.tables.bounds import Bounds, current

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

MAX_PATTERN: Final = 16_384
"""Maximum bytes of one literal in a text with patterns, if functions are bounded.

A compiled pattern takes 700 times as much memory.
"""

MAX_BUILT: Final = 4096
"""Maximum bytes of literals in texts that build new values; each literal is repeated for each row."""

MAX_BUILDING: Final = 256
"""Maximum tokens in texts that build new values; each row may be repeated that many times."""

MAX_MULTIPLIED: Final = 256
"""Maximum bytes of literals next to a function that may insert them for each character of each row."""

MAX_FUNCTIONS: Final = 256
"""Maximum calls of functions, if functions are bounded."""

MAX_PATTERNS: Final = 16
"""Maximum regular expressions, if functions are bounded; each may take 10 MB when compiled."""

SMALL: Final = 16_384
"""Characters that are checked in about 5 ms; longer texts should be checked in a thread."""

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

_OPERATORS = frozenset({"is", "in", "like", "ilike", "similar", "between", "not", "collate", "at", "escape", "div"})
_ESCAPING = frozenset({"e", "n", "b", "r", "u", "q", "nq", "br", "rb"})
_SYNTAX = frozenset({"and", "or", "in", "not", "like", "ilike", "between", "is", "any", "all", "interval"})
"""Words before brackets that are not functions."""

READING: Final = frozenset(
    """
    abs acos acosh array_any_value array_contains array_dims array_distance array_distinct array_element array_empty
    array_except array_extract array_has array_has_all array_has_any array_indexof array_intersect array_length
    array_max array_min array_ndims array_overlap array_pop_back array_pop_front array_position array_positions
    array_remove array_remove_all array_remove_n array_reverse array_slice array_sort arrow_typeof ascii asin asinh
    atan atan2 atanh bit_length btrim cardinality cast cbrt ceil ceiling char_length character_length chr contains
    contains_tokens cos cosh cot current_date current_time current_timestamp date date_bin date_part date_trunc
    datepart datetrunc degrees digest element_at empty ends_with exp extract find_in_set flatten floor from_unixtime
    gcd get_field initcap instr isnan iszero json_array_contains json_array_length json_exists json_extract json_get
    json_get_bool json_get_float json_get_int json_get_string lcm left length list_any_value list_contains list_dims
    list_distance list_distinct list_element list_empty list_except list_extract list_has list_has_all list_has_any
    list_indexof list_intersect list_length list_max list_ndims list_pop_back list_pop_front list_position
    list_positions list_remove list_remove_all list_remove_n list_reverse list_slice list_sort ln log log10 log2 lower
    ltrim make_date make_time map_extract map_keys map_values md5 mod nanvl now nullif octet_length pi position pow
    power radians random regexp_count regexp_instr regexp_like regexp_match reverse right round rtrim sha224 sha256
    sha384 sha512 signum sin sinh split_part sqrt st_area st_contains st_covers st_crosses st_disjoint st_distance
    st_equals st_intersects st_length st_overlaps st_touches st_within st_x st_y starts_with strpos substr
    substr_index substring substring_index tan tanh time timestamp to_date to_hex to_local_time to_timestamp
    to_timestamp_micros to_timestamp_millis to_timestamp_nanos to_timestamp_seconds to_unixtime today translate trim
    trunc try_cast upper uuid
    decimal numeric varchar char float double
    """.split()
)
"""Functions, and types with a length, that are fast and whose values are not longer than their arguments."""

BUILDING: Final = frozenset(
    """
    array array_append array_cat array_concat array_prepend array_push_back array_push_front array_union coalesce
    concat concat_ws greatest ifnull least list_append list_cat list_concat list_prepend list_push_back
    list_push_front list_union make_array make_list named_struct nvl nvl2 row string_to_array string_to_list struct
    """.split()
)
"""Functions whose values are as long as all their arguments together."""

MULTIPLYING: Final = frozenset(
    """
    array_join array_to_string date_format encode decode list_join list_to_string overlay regexp_replace replace to_char
    """.split()
)
"""Functions whose values may be longer than their arguments, by a factor up to the length of their literals."""

FUNCTIONS: Final = READING | BUILDING | MULTIPLYING
"""Functions that a remote caller may use. Others build large values (`repeat`, `lpad`, `range`) or are slow."""

_REWRITTEN = frozenset({"coalesce", "ifnull", "nvl", "nvl2"})
_PATTERNS = frozenset({"regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"})


@dataclass(slots=True)
class _Group:
    """An open bracket."""

    base: int
    """Number of operators around the bracket."""
    calls: int
    """Number of enclosing words before brackets, including its own."""
    depth: int = 0
    """Nesting depth of brackets and NOT, including this bracket."""
    rewritten: int = 0
    """Number of enclosing COALESCE and similar functions, including its own."""
    name: str = ""
    """The function whose arguments are in the bracket."""
    operators: int = 0
    """Number of operators in the current term."""
    between: int = 0
    """Nesting depth of BETWEEN in the current term."""
    ands: int = 0
    """Number of AND that belong to a BETWEEN."""
    deepest: int = 0
    """Maximum nesting depth of BETWEEN in any term."""
    commas: int = 0
    columns: int = 0


@dataclass(slots=True)
class _Count:
    """The totals of all SQL texts of a request so far."""

    bounds: Bounds
    bytes: int = 0
    tokens: int = 0
    terms: int = 0
    parsing: int = 0
    planning: int = 0
    functions: int = 0
    patterns: int = 0
    built_bytes: int = 0
    building: int = 0
    multiplying: int = 0


@dataclass(slots=True)
class _Text:
    """One SQL text during the check."""

    what: str
    sql: str
    is_value: bool
    total: _Count
    tokens: int = 0
    literals: int = 0
    longest: int = 0
    """Bytes of the longest literal."""
    matches: bool = False
    """Whether the text contains LIKE or a regular expression."""
    builds: bool = False
    multiplies: str = ""
    groups: list[_Group] = field(default_factory=list)

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        raise InvalidInputError(f"{self.what}: {problem}; {remedy}")


@dataclass(frozen=True, slots=True)
class Texts:
    """The SQL texts of one request, keyed by their names in messages; None for an omitted text."""

    conditions: Mapping[str, str | None] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """Texts that compute the values of columns."""

    def check(self) -> None:
        """Raises InvalidInputError for texts that would take Lance too much time or memory."""
        total = _Count(current())
        for texts, values in ((self.conditions, False), (self.values, True)):
            for what, sql in texts.items():
                if sql is not None:
                    _check(_Text(what, sql, values, total))

    @property
    def is_small(self) -> bool:
        """Whether the check takes only a few milliseconds."""
        return sum(len(sql or "") for texts in (self.conditions, self.values) for sql in texts.values()) <= SMALL


def tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and the text of each token, such as ("word", "id"); names in quotes are without them."""
    for token in _TOKEN.finditer(sql):
        kind, text = token.lastgroup or "other", token.group()
        yield kind, text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text


def _check(text: _Text) -> None:
    total, bounds = text.total, text.total.bounds
    total.bytes += len(text.sql.encode("utf-8", "surrogatepass"))
    if total.bytes > bounds.sql_bytes:
        text.refuse(f"the SQL has more than {bounds.sql_bytes} bytes", "split it into several requests")
    _scan(text)
    total.tokens += text.tokens
    if bounds.functions is not None:
        _check_built(text)


def _scan(text: _Text) -> None:
    """Counts the tokens and checks their nesting."""
    total, bounds, groups = text.total, text.total.bounds, text.groups
    strict = bounds.functions is not None
    budget = bounds.sql_tokens - total.tokens
    group = _Group(0, 0)
    groups.append(group)
    nots = 0
    word = ""
    """The word or quoted name before the current token, ignoring white space."""
    for token_match in _TOKEN.finditer(text.sql):
        kind, token = token_match.lastgroup, token_match.group()
        if kind in ("space", "comment"):
            # The parser reads each blank several times.
            text.tokens += len(token) // 2
            _check_tokens(text, budget)
            if kind == "comment" and strict:
                text.refuse("comments are not allowed", "remove the comment")
            continue
        text.tokens += 1
        total.parsing += 1 << group.calls
        total.planning += (1 << group.rewritten) - 1
        _check_tokens(text, budget)
        if total.parsing > MAX_PARSING:
            text.refuse(
                "too many values in brackets after functions and NOT",
                "write long lists outside NOT (...) and functions, e.g. x NOT IN (...)",
            )
        if total.planning > MAX_PLANNING:
            text.refuse("nested COALESCE and similar functions are too large", "write coalesce(a, b, c, ...)")
        if token.lower() == "not":
            nots += 1
        elif kind != "open":
            nots = 0
        if group.depth + nots > MAX_NESTED:
            within = f" within {group.depth} brackets and NOT" if group.depth else ""
            text.refuse(f"it has {nots} or more NOT in a row{within}", "remove pairs of NOT: they have no effect")
        match kind:
            case "string" | "number":
                length = len(token) if token.isascii() else len(token.encode("utf-8", "surrogatepass"))
                text.literals += length
                text.longest = max(text.longest, length)
                if kind == "string" and word and _is_prefix(text.sql, token_match.start()):
                    text.refuse(f"a string has the prefix {word}, as in {word}'...'", "remove the prefix")
                word = ""
            case "word" | "quoted":
                word = token.lower() if kind == "word" else token
                _word(text, group, word)
            case "open":
                group = _open(text, group, token, word)
                group.depth += nots
                nots = 0
                if group.depth > MAX_NESTED:
                    text.refuse(
                        f"brackets and NOT are nested more than {MAX_NESTED} levels deep",
                        "remove those without effect",
                    )
                word = ""
            case "close":
                inner = groups.pop()
                # A list of literals is one value for all rows.
                joins = inner.name in BUILDING or (inner.name == "[" and inner.commas > 0)
                text.builds |= joins and inner.columns > 0
                if not groups:
                    text.refuse(
                        f"the bracket that is closed at character {token_match.start() + 1} was not opened", "open it"
                    )
                group = groups[-1]
                group.deepest = max(group.deepest, inner.deepest)
                group.between = max(group.between, inner.deepest)
                group.columns += inner.columns
                # A bracketed expression can be indexed.
                word = ")"
            case "comma":
                group.operators = group.between = group.ands = 0
                group.commas += 1
                word = ""
            case "operator":
                text.builds |= token == "||"
                _operator(text, group)
                word = ""
            case "unclosed":
                text.refuse(f"{token} at character {token_match.start() + 1} is not closed", "close it")
            case _:
                if strict or token in "$?:":
                    text.refuse(
                        f"{token!r} at character {token_match.start() + 1} is not valid in Lance's SQL",
                        "write strings as '...' and column names as `...`",
                    )
                word = ""


def _check_tokens(text: _Text, budget: int) -> None:
    if text.tokens > budget:
        text.refuse(
            f"the SQL has more than {text.total.bounds.sql_tokens} words, literals, operators and commas",
            "split it into several requests, or write the values to a table and use merge_insert_into_table",
        )


def _is_prefix(sql: str, start: int) -> bool:
    """Returns whether a string at this position has a prefix that changes its content."""
    before = re.search(r"[^\W\d]\w*&?$", sql[max(0, start - 4) : start])
    return before is not None and before.group().lower().rstrip("&") in _ESCAPING


def _word(text: _Text, group: _Group, word: str) -> None:
    total = text.total
    match word:
        case "and" if group.ands:
            group.ands -= 1
        case "and" | "or":
            group.operators = group.between = group.ands = 0
            total.terms += 1
            if total.terms > total.bounds.sql_terms:
                text.refuse(
                    f"it has more than {total.bounds.sql_terms} AND and OR",
                    "write x = 1 OR x = 2 OR ... as x IN (1, 2, ...), or split it into several requests",
                )
        case "between":
            group.between += 1
            group.ands += 1
            group.deepest = max(group.deepest, group.between)
            if group.between > MAX_BETWEEN:
                text.refuse(f"BETWEEN is nested more than {MAX_BETWEEN} levels deep", "write x >= a AND x <= b")
            _operator(text, group)
        case _ if word in _OPERATORS:
            text.matches |= word in ("like", "ilike", "similar")
            _operator(text, group)
        case _:
            group.columns += 1
            if group.name in MULTIPLYING and group.commas:
                _check_argument(text, group, word)


def _operator(text: _Text, group: _Group) -> None:
    group.operators += 1
    if group.base + group.operators > MAX_OPERATORS:
        text.refuse(
            f"it has a term with more than {MAX_OPERATORS} operators",
            "use fewer values in one term, or write x = 1 OR x = 2 OR ... as x IN (1, 2, ...)",
        )


def _open(text: _Text, outer: _Group, bracket: str, word: str) -> _Group:
    total = text.total
    if len(text.groups) > MAX_DEPTH:
        text.refuse(f"brackets are nested more than {MAX_DEPTH} levels deep", "remove those without effect")
    is_call = bool(word) and word != ")" and word not in _BEFORE_BRACKETS and not (bracket == "[" and word != "array")
    calls = outer.calls + is_call
    if calls > MAX_CALLS:
        text.refuse(f"functions, NOT and the like are nested more than {MAX_CALLS} levels deep", "use fewer levels")
    if bracket == "[":
        _operator(text, outer)
    rewritten = outer.rewritten + (is_call and word in _REWRITTEN)
    name = word if is_call else "[" if bracket == "[" else ""
    group = _Group(outer.base + outer.operators + 1, calls, outer.depth + 1, rewritten, name)
    if group.base > MAX_OPERATORS:
        _operator(text, group)
    text.groups.append(group)
    if total.bounds.functions is None:
        return group
    if is_call and word not in _SYNTAX:
        _function(text, outer, word)
    return group


def _function(text: _Text, outer: _Group, name: str) -> None:
    """Checks a function call, if functions are bounded."""
    total = text.total
    assert total.bounds.functions is not None
    if name not in total.bounds.functions:
        text.refuse(
            f"function {name.strip('`').strip(chr(34))!r} is not allowed",
            "compute it in the client, or ask the operator of the server to allow it",
        )
    if outer.name in MULTIPLYING and outer.commas:
        _check_argument(text, outer, name)
    total.functions += 1
    if total.functions > MAX_FUNCTIONS:
        text.refuse(f"it calls functions more than {MAX_FUNCTIONS} times", "split it into several requests")
    if name in _PATTERNS:
        text.matches = True
        total.patterns += 1
        if total.patterns > MAX_PATTERNS:
            text.refuse(f"it has more than {MAX_PATTERNS} regular expressions", "join them as 'a|b'")
    if name in MULTIPLYING:
        if text.multiplies:
            text.refuse(f"it calls both {text.multiplies} and {name}", "call only one of them in one text")
        text.multiplies = name


def _check_argument(text: _Text, group: _Group, word: str) -> None:
    """Rejects arguments that could make a value as long as the product of the lengths of two columns."""
    if text.total.bounds.functions is not None and word not in ("true", "false", "null", "from", "for", "placing"):
        text.refuse(f"{word} is not the first argument of {group.name}", "use literals for all arguments but the first")


def _check_built(text: _Text) -> None:
    """Raises InvalidInputError if the text could build values far larger than the rows."""
    total = text.total
    if text.matches and text.longest > MAX_PATTERN:
        text.refuse(f"with a pattern, a literal may have at most {MAX_PATTERN} bytes", "use shorter literals")
    if text.multiplies:
        total.multiplying += 1
        if text.builds or total.multiplying > 4:
            text.refuse(f"it calls {text.multiplies} with functions that join values", "use separate requests")
        if text.literals > MAX_MULTIPLIED:
            text.refuse(
                f"with {text.multiplies}, literals may have at most {MAX_MULTIPLIED} bytes", "use shorter literals"
            )
    # A single column is not a new value.
    if not text.builds and not (text.is_value and (text.literals or text.tokens > 1)):
        return
    total.built_bytes += text.literals
    total.building += text.tokens
    if total.built_bytes > MAX_BUILT:
        text.refuse(
            f"values built for each row have literals of more than {MAX_BUILT} bytes",
            "compute the values in the client, and send the rows",
        )
    if total.building > MAX_BUILDING * (4 if text.is_value else 1):
        text.refuse(
            f"values are built of more than {MAX_BUILDING} words, literals, operators and commas",
            "split it into several requests",
        )
