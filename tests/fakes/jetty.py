"""Requests that the Jetty server of a Java catalog itself rejects, and its error pages."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

from .faults import Answer, Received

_NO_STORE = {"Cache-Control": "must-revalidate,no-cache,no-store"}


class JettyError(Exception):
    """An error of Jetty, which does not reach the catalog's error handling."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_path(path: str, separator: str) -> None:
    """Raises an error for a raw path that Jetty considers ambiguous or suspicious, except for `separator`."""
    rest = path.replace(separator, "")
    for pattern, message in (
        (r"(?i)%2f", "Ambiguous URI path separator"),
        (r"%25", "Ambiguous URI path encoding"),
        (r"//", "Ambiguous URI empty segment"),
        (r"(?i)%[01][0-9a-f]|%7f|%5c", "Suspicious Path Character"),
    ):
        if re.search(pattern, rest):
            raise JettyError(400, message)
    if re.search(r"(?i)/(%2e){1,2}(/|$)", path):
        raise JettyError(400, "Ambiguous URI path segment")
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise JettyError(400, "Bad UTF-8 encoding") from None


def page(error: JettyError, request: Received) -> Answer:
    """Returns HTML, or JSON without an `error` for clients that request JSON; nothing for DELETE and PUT."""
    if request.method not in ("GET", "HEAD", "POST"):
        return Answer(error.status, b"", _NO_STORE)
    url = f"http://{request.headers['Host']}{request.path.partition('?')[0]}"
    if request.headers.get("Accept", "").startswith("application/json"):
        return Answer.of({"message": str(error), "url": url, "status": str(error.status)}, error.status)
    message = html.escape(str(error))
    text = (
        '<html>\n<head>\n<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>\n'
        f"<title>Error {error.status} {message}</title>\n</head>\n<body>\n"
        f"<h2>HTTP ERROR {error.status} {message}</h2>\n<table>\n<tr><th>URI:</th><td>{url}</td></tr>\n"
        f"<tr><th>STATUS:</th><td>{error.status}</td></tr>\n<tr><th>MESSAGE:</th><td>{message}</td></tr>\n</table>\n"
        '<hr/><a href="https://jetty.org/">Powered by Jetty:// 12.1.8</a><hr/>\n\n</body>\n</html>\n'
    )
    headers = {**_NO_STORE, "Content-Type": "text/html;charset=iso-8859-1"}
    return Answer(error.status, text.encode("latin-1", "replace"), headers)
