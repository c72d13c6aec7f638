"""Templates that escape by default, and links to the pages of the explorer."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Formatter
from typing import LiteralString
from urllib.parse import urlencode


class Markup(str):
    """A text that is HTML already and is not escaped again."""

    __slots__ = ()


class _Template(Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        return escape_value(value)


_template = _Template()


def html(template: LiteralString, *values: object, **named: object) -> Markup:
    """Returns a template, whose `{}` fields are values that are escaped as `escape_value` does."""
    return Markup(_template.vformat(template, values, named))


def escape_value(value: object) -> Markup:
    """Returns a value as HTML: nothing for None, the joined items of a list or iterator, the escaped text of others."""
    match value:
        case None:
            return Markup()
        case Markup():
            return value
        case str():
            return Markup(escape(value))
        case Iterable():
            return Markup("".join(map(escape_value, value)))
        case _:
            return Markup(escape(str(value)))


def visible(text: str) -> str:
    """Returns the text with escapes in place of control characters, line ends and marks of the writing direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def name(text: str) -> Markup:
    """Returns a name for display; its writing direction does not affect the text around it."""
    return html("<bdi>{}</bdi>", visible(text) or "(empty)")


def link(page: str, id: Iterable[str] = (), **fields: str) -> str:
    """Returns the address of a page about a namespace or table, such as `/ui/table?id=a&id=b`."""
    pairs = [*(("id", part) for part in id), *fields.items()]
    return f"/ui/{page}?{encode_pairs(pairs)}" if pairs else f"/ui/{page}"


def encode_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns the pairs as a query string; characters that UTF-8 cannot encode become question marks."""
    return urlencode(list(pairs), errors="replace")
