"""Pages as templates and values, the filters that the templates use, and the pages without content of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.rights import Principal
from lance_ns_async.masked import mask
from lance_ns_async.model import Id
from lance_ns_async.rendering import counted, size_text

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape
except ModuleNotFoundError as _error:
    needs = "the web pages of a gateway need: pip install 'lance-ns-async[ui]'"
    raise ModuleNotFoundError(needs, name=_error.name) from _error

_MAX_PROPERTY = 1_000
_DASH = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Page:
    """A template and the values that it shows."""

    title: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    below: Sequence[str] = ()  # The namespace that the page's search form searches.
    search_text: str = ""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at a page of a catalog."""

    principal: Principal
    catalog: str
    form_token: str


def document(page: Page, viewer: Viewer | None) -> str:
    """Returns the whole document; a browser that is signed in gets the tree, the search form and the sign-out form."""
    below = encode_pairs(("id", part) for part in page.below)
    values = {"page": page, "viewer": viewer, "address": address, "below": below, "link": link, "pairs": pairs}
    return _templates().get_template(page.template).render(values, **page.values)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("lance_ns_async.gateway.explorer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.filters |= {
        "counted": counted,
        "iso_time": lambda value: time(datetime.fromisoformat(value)),
        "name": name,
        "number": number,
        "shortened": shortened,
        "size": lambda value: _DASH if value is None else size_text(value),
        "time": time,
        "visible": visible,
    }
    environment.tests["failed"] = lambda value: isinstance(value, FailedPart)
    return environment


@dataclass(frozen=True, slots=True)
class FailedPart:
    """The text of an error that takes the place of a part of a page."""

    text: str
    error: BaseException
    is_quiet: bool = False  # A part that the catalog or the table does not have.


def sign_in_page(
    form_token: str, next: str, provider: str | None, *, status: int = 401, message: str | None = None
) -> Page:
    """Returns the form that asks for a token, and the link to a provider; `message` says why an attempt failed."""
    values = {"form_token": form_token, "next": next, "provider": provider, "message": message}
    return Page("Sign in", "sign_in.html", values, status)


def continue_page(path: str) -> Page:
    """Returns a page with a link to a path of the explorer."""
    return Page("Continue", "continue.html", {"path": path})


def error_page(status: int, title: str, message: str, near: Id | None = None) -> Page:
    """Returns a page that consists of an error; `near` is the id that an unknown one probably means."""
    return Page(title, "error.html", {"message": message, "near": near}, status)


def shown_properties(properties: Mapping[str, str] | None) -> Mapping[str, str]:
    """Returns properties for display: values that may be secrets are hidden, and long ones are cut."""
    return {key: shortened(value, _MAX_PROPERTY) for key, value in mask(properties or {}).items()}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file."""

    content: bytes
    content_type: str
    digest: str  # Identifies the content.

    @classmethod
    def load(cls, name: str, content_type: str) -> Asset:
        """Returns a file of the folder `static`."""
        content = (files(__package__) / "static" / name).read_bytes()
        return cls(content, content_type, sha256(content).hexdigest()[:16])


_CONTENT_TYPES = {"style.css": "text/css", "script.js": "text/javascript", "logo.svg": "image/svg+xml"}
ASSETS: Mapping[str, Asset] = {name: Asset.load(name, kind) for name, kind in _CONTENT_TYPES.items()}
"""The static files by name."""


def address(name: str) -> str:
    """Returns the address of a static file, which differs for each content."""
    return f"/ui/static/{name}?v={ASSETS[name].digest}"


def visible(text: str) -> str:
    """Returns the text with escapes in place of control characters, line ends and marks of the writing direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def name(text: str) -> Markup:
    """Returns a name for display; its writing direction does not affect the text around it."""
    return Markup("<bdi>{}</bdi>").format(visible(text) or "(empty)")


def number(value: int | float | None) -> str:
    """Returns a number with separators; a dash for None."""
    return _DASH if value is None else f"{value:,}"


def time(value: datetime | int | None) -> Markup:
    """Returns a time, or milliseconds since 1970, in UTC; a dash for None, and the number if it is no time."""
    if isinstance(value, int):
        try:
            value = datetime.fromtimestamp(value / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return escape(number(value))  # type: ignore[arg-type]
    if value is None:
        return escape(_DASH)
    text = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(value.isoformat(), text)


def link(page: str, id: Iterable[str] = (), **fields: object) -> str:
    """Returns the address of a page, such as `/ui/table?id=a&id=b`."""
    query = encode_pairs(pairs(id, **fields))
    return f"/ui/{page}?{query}" if query else f"/ui/{page}"


def pairs(id: Iterable[str] = (), **fields: object) -> Sequence[tuple[str, str]]:
    """Returns the fields of an address or of a form; those that are None, False or empty are left out."""
    result = [("id", part) for part in id]
    for key, value in fields.items():
        values = value if isinstance(value, list | tuple) else [value]
        result += [(key, str(it)) for it in values if it or (it == 0 and it is not False)]
    return result


def encode_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns the pairs as a query string; characters that UTF-8 cannot encode become question marks."""
    return urlencode(list(pairs), errors="replace")
