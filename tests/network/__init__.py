"""Tests of catalogs behind a proxy that injects faults of the network."""
