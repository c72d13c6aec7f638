"""Servers of the Lance REST Namespace protocol."""
