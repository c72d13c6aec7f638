"""The embedded directory catalog."""
