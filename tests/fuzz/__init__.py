"""Inputs and sequences of operations that nobody thought of, by Hypothesis."""
