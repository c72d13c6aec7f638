"""Benchmarks of the bulk calls, against a stub catalog in its own process."""
