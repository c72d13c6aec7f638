"""Transports: one for each wire protocol."""
