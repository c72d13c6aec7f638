"""Benchmarks of the bulk calls, with a stub catalog in a separate process."""
