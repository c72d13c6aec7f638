"""Searches of many tables at once."""
