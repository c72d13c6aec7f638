"""Writes of a DataFrame into a table."""
