"""The layout of all pages, the parts that pages share, and the pages without content of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Formatter
from typing import LiteralString
from urllib.parse import urlencode

from lance_ns_async.errors import shortened
from lance_ns_async.masked import mask

_MAX_PROPERTY = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    title: str
    body: Markup
    status: int = 200
    below: Sequence[str] = ()  # The namespace that the page's search form searches.
    search_text: str = ""


def document(page: Page, form_token: str | None) -> str:
    """Returns the whole document, with a search form and a sign-out form for a browser that is signed in."""
    tools = None
    if form_token is not None:
        tools = html(
            '<a href="/ui/sql">SQL</a>'
            '<form class="search" action="/ui/search" role="search"><input type="hidden" name="below" value="{}">'
            '<label class="hidden" for="q">Part of a name, below {}</label>'
            '<input id="q" type="search" name="q" value="{}" placeholder="{}" required maxlength="200">'
            '<button>Search</button></form><form action="/ui/sign-out" method="post">'
            '<input type="hidden" name="form_token" value="{}"><button class="quiet">Sign out</button></form>',
            encode_pairs(("id", part) for part in page.below),
            visible(page.below[-1]) if page.below else "the root",
            page.search_text,
            f"Search in {visible(shortened(page.below[-1], 20))}" if page.below else "Search all names",
            form_token,
        )
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        'content="light dark"><title>{title} - Lance explorer</title><link rel="stylesheet" href="{style}">'
        '<link rel="icon" href="data:,"><script src="{script}" defer></script></head>'
        '<body><a class="skip" href="#main">Skip to the content</a>'
        '<header><a class="brand" href="/ui">Lance explorer</a>{tools}</header>'
        '<main id="main" tabindex="-1">{body}</main></body></html>',
        title=visible(page.title),
        style=address("style.css"),
        script=address("script.js"),
        tools=tools,
        body=page.body,
    )


def sign_in_page(form_token: str, next: str, *, status: int = 401, message: str | None = None) -> Page:
    """Returns the form that asks for the gateway's token; `message` says why an attempt failed."""
    described = Markup(' aria-invalid="true" aria-describedby="problem"') if message else None
    body = html(
        '<section class="card sign-in"><h1>Sign in</h1>{}<form action="/ui/sign-in" method="post">'
        '<input type="hidden" name="form_token" value="{}"><input type="hidden" name="next" value="{}">'
        '<label for="token">Token of the gateway</label><input id="token" type="password" name="token" required '
        'autofocus autocomplete="current-password"{}><button>Sign in</button></form>'
        '<p class="note"><code>lance-ns token add</code> makes tokens; that of the owner is printed or set at '
        "the start of the server.</p></section>",
        html('<p class="error" role="alert" id="problem">{}</p>', message) if message else None,
        form_token,
        next,
        described,
    )
    return Page("Sign in", body, status)


def continue_page(path: str) -> Page:
    """Returns a page with a link to a path of the explorer."""
    return Page("Continue", html('<h1>Continue</h1><p><a href="{}">Continue to the page</a></p>', path))


def error_page(status: int, title: str, message: str, below: Sequence[str] = ()) -> Page:
    """Returns a page that consists of an error."""
    body = html('<h1>{}</h1><p class="error" role="alert">{}</p>', title, visible(message))
    return Page(title, html('{}<p><a href="/ui">All namespaces</a></p>', body), status, below)


def properties(properties: Mapping[str, str]) -> Markup:
    """Returns a table of properties, in which values that may be secrets are hidden."""
    rows = [(name(key), visible(shortened(value, _MAX_PROPERTY))) for key, value in mask(properties).items()]
    return table("Properties", ("Property", "Value"), rows)


def note(text: str | None) -> Markup:
    """Returns a paragraph in a quiet color; nothing for None."""
    return Markup() if text is None else html('<p class="note">{}</p>', text)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], above: str | None = None) -> Markup:
    """Returns a table whose first column contains the headings of the rows, with a note above it."""
    body = [
        html('<tr><th scope="row">{}</th>{}</tr>', first, [html("<td>{}</td>", it) for it in rest])
        for first, *rest in rows
    ]
    if not body:
        return html("{}{}", note(above), note("None."))
    return html(
        '{}<div class="scroll" tabindex="0" role="region" aria-label="{}"><table><caption class="hidden">{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
        note(above),
        caption,
        caption,
        [html('<th scope="col">{}</th>', it) for it in head],
        body,
    )


def key_of(title: str) -> str:
    """Returns the fragment of the address that leads to the section with this title."""
    return title.lower().replace(" ", "-")


def section(title: str, content: Markup) -> Markup:
    """Returns a section with a heading."""
    return html('<section class="card"><h2 id="{}">{}</h2>{}</section>', key_of(title), title, content)


def breadcrumbs(id: Sequence[str], current: str | None = None) -> Markup:
    """Returns links to a namespace and all above it, followed by the name of the page itself."""
    items = [html('<li><a href="/ui">All namespaces</a></li>')]
    items += [
        html('<li><a href="{}">{}</a></li>', link("namespace", id[: i + 1]), name(part)) for i, part in enumerate(id)
    ]
    if current is not None:
        items.append(html('<li aria-current="page">{}</li>', name(current)))
    return html('<nav class="trail" aria-label="Path"><ol>{}</ol></nav>', items)


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


_CONTENT_TYPES = {"style.css": "text/css", "script.js": "text/javascript"}
ASSETS: Mapping[str, Asset] = {name: Asset.load(name, kind) for name, kind in _CONTENT_TYPES.items()}
"""The static files by name."""


def address(name: str) -> str:
    """Returns the address of a static file, which differs for each content."""
    return f"/ui/static/{name}?v={ASSETS[name].digest}"


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
