"""Maintenance of many tables: a plan for each, compaction by an engine, indexes, clean-up, and a report."""
