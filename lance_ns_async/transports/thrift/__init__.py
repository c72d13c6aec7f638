"""Thrift over TCP."""
