"""SQL that clients of a gateway may use: functions, and literals, so that no text builds values of unlimited size.

The texts are valid in the sense of `lance_ns_async.tables.sql_bounds`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final, NoReturn

from lance_ns_async.tables.sql_bounds import OPERATORS, TOKEN, Texts, is_call, reject

MAX_PATTERN: Final = 16_384
"""Maximum bytes of one literal in a text with patterns.

A compiled pattern takes 700 times as much memory.
"""

MAX_BUILT: Final = 4096
"""Maximum bytes of literals in texts that build new values; each literal is repeated for each row."""

MAX_BUILDING: Final = 256
"""Maximum tokens in texts that build new values; each row may be repeated that many times."""

MAX_MULTIPLIED: Final = 256
"""Maximum bytes of literals next to a function that may insert them for each character of each row."""

MAX_FUNCTIONS: Final = 256
"""Maximum calls of functions."""

MAX_PATTERNS: Final = 16
"""Maximum regular expressions; each may take 10 MB when compiled."""

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

_PATTERNS = frozenset({"regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"})
_LITERALS = frozenset({"true", "false", "null", "from", "for", "placing"})
"""Words in arguments that are no columns."""


def check(texts: Texts, functions: Set[str]) -> None:
    """Checks the functions and the literals of the SQL texts of a request.

    Args:
        texts: Texts that were checked already for callers in this process.
        functions: The names of the allowed functions, in lower case.

    Raises:
        InvalidInputError: A text calls another function, or could build values that are far larger than the rows.
    """
    total = _Total(functions)
    for name, sql in texts:
        _Text(name, total, is_value=name in texts.values).check(sql)


@dataclass(slots=True)
class _Total:
    """The totals of all SQL texts of a request so far."""

    allowed: Set[str]
    functions: int = 0
    patterns: int = 0
    built_bytes: int = 0
    building: int = 0
    multiplying: int = 0


@dataclass(slots=True)
class _Group:
    """An open bracket, or the whole text."""

    name: str = ""
    """The function whose arguments are in the bracket; `[` for a list or an index."""
    argument_of: str = ""
    """The multiplying function of which the bracket is in an argument after the first."""
    commas: int = 0
    columns: int = 0

    @property
    def literals_of(self) -> str:
        """The function that requires literals at the current position; "" if there is none."""
        return self.argument_of or (self.name if self.name in MULTIPLYING and self.commas else "")


class _Text:
    """One SQL text during the check."""

    def __init__(self, name: str, total: _Total, *, is_value: bool) -> None:
        self._name = name
        self._total = total
        self._is_value = is_value
        self._tokens = 0
        self._literals = 0
        """Bytes of all literals."""
        self._longest = 0
        """Bytes of the longest literal."""
        self._matches = False
        """Whether the text contains LIKE or a regular expression."""
        self._builds = False
        self._multiplies = ""
        self._groups = [_Group()]
        self._word = ""
        """The word or quoted name before the current token, ignoring white space; `)` after a bracket."""

    def check(self, sql: str) -> None:
        """Checks the text."""
        for match in TOKEN.finditer(sql):
            kind, token = match.lastgroup, match.group()
            if kind == "space":
                self._tokens += len(token) // 2
            else:
                self._tokens += 1
                self._check_token(token, kind, match.start())
        self._check_values()

    def _reject(self, problem: str, remedy: str) -> NoReturn:
        reject(self._name, problem, remedy)

    def _check_token(self, token: str, kind: str | None, start: int) -> None:
        before, self._word = self._word, ""
        match kind:
            case "comment":
                self._reject("comments are not allowed", "remove the comment")
            case "string" | "number":
                length = len(token.encode("utf-8", "surrogatepass"))
                self._literals += length
                self._longest = max(self._longest, length)
            case "word" | "quoted":
                self._word = token.lower() if kind == "word" else token
                self._check_word(self._word)
            case "open":
                self._open(token, before)
            case "close":
                self._close()
            case "comma":
                self._groups[-1].commas += 1
            case "operator":
                self._builds |= token == "||"
            case _:
                self._reject(
                    f"{token!r} at character {start + 1} is not valid in Lance's SQL",
                    "write strings as '...' and column names as `...`",
                )

    def _check_word(self, word: str) -> None:
        if word in ("like", "ilike", "similar"):
            self._matches = True
        elif word not in ("and", "or") and word not in OPERATORS:
            self._groups[-1].columns += 1
            self._check_argument(word)

    def _check_argument(self, word: str) -> None:
        """Rejects arguments that could make a value as long as the product of the lengths of two columns."""
        if (function := self._groups[-1].literals_of) and word not in _LITERALS:
            self._reject(
                f"{word} is not the first argument of {function}", "use literals for all arguments but the first"
            )

    def _open(self, bracket: str, word: str) -> None:
        call = is_call(word, bracket)
        if call and word not in _SYNTAX:
            self._check_function(word)
        name = word if call else bracket.strip("(")
        self._groups.append(_Group(name, self._groups[-1].literals_of))

    def _close(self) -> None:
        inner = self._groups.pop()
        # A list of literals is one value for all rows.
        joins = inner.name in BUILDING or (inner.name == "[" and inner.commas > 0)
        self._builds |= joins and inner.columns > 0
        self._groups[-1].columns += inner.columns
        # A bracketed expression can be indexed.
        self._word = ")"

    def _check_function(self, name: str) -> None:
        total = self._total
        if name not in total.allowed:
            self._reject(
                f"function {name.strip('`').strip(chr(34))!r} is not allowed",
                "compute it in the client, or ask the operator of the server to allow it",
            )
        self._check_argument(name)
        total.functions += 1
        if total.functions > MAX_FUNCTIONS:
            self._reject(f"it calls functions more than {MAX_FUNCTIONS} times", "split it into several requests")
        if name in _PATTERNS:
            self._matches = True
            total.patterns += 1
            if total.patterns > MAX_PATTERNS:
                self._reject(f"it has more than {MAX_PATTERNS} regular expressions", "join them as 'a|b'")
        if name in MULTIPLYING:
            if self._multiplies:
                self._reject(f"it calls both {self._multiplies} and {name}", "call only one of them in one text")
            self._multiplies = name

    def _check_values(self) -> None:
        """Raises InvalidInputError if the text could build values far larger than the rows."""
        total = self._total
        if self._matches and self._longest > MAX_PATTERN:
            self._reject(f"with a pattern, a literal may have at most {MAX_PATTERN} bytes", "use shorter literals")
        if self._multiplies:
            total.multiplying += 1
            if self._builds or total.multiplying > 4:
                self._reject(f"it calls {self._multiplies} with functions that join values", "use separate requests")
            if self._literals > MAX_MULTIPLIED:
                self._reject(
                    f"with {self._multiplies}, literals may have at most {MAX_MULTIPLIED} bytes",
                    "use shorter literals",
                )
        # A single column is not a new value.
        if not self._builds and not (self._is_value and (self._literals or self._tokens > 1)):
            return
        total.built_bytes += self._literals
        total.building += self._tokens
        if total.built_bytes > MAX_BUILT:
            self._reject(
                f"values built for each row have literals of more than {MAX_BUILT} bytes",
                "compute the values in the client, and send the rows",
            )
        if total.building > MAX_BUILDING * (4 if self._is_value else 1):
            self._reject(
                f"values are built of more than {MAX_BUILDING} words, literals, operators and commas",
                "split it into several requests",
            )
