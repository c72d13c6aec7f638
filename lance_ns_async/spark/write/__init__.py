"""Writing a DataFrame into a table."""
