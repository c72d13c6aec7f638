"""Packages that accept a Lance namespace, used with ours."""
