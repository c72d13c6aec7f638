"""The backend for the embedded directory catalog."""
