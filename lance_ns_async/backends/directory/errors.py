"""The error table of directories."""

from lance_ns_async.backends.directory.transport import LANCE_ERRORS

ERRORS = LANCE_ERRORS
"""pylance's errors; the backend adds no codes of its own."""
