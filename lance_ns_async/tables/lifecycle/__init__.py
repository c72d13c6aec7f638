"""The life of a table: its creation, its commits, its replacement and its drop."""
