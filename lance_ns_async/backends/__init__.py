"""Backends: one folder for each catalog, and what they share."""
