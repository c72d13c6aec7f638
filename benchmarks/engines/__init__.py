"""Reads of many tables at once by query engines."""
