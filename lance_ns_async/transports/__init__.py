"""Transports: one for each wire protocol."""

USER_AGENT = "lance-ns-async"
"""The User-Agent of every request over HTTP."""
