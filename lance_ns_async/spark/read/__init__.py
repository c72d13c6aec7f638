"""Reads of resolved tables as one DataFrame."""
