"""A catalog for the JVM connector, served from the prefetch."""
