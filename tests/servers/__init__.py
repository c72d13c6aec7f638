"""Real catalog servers that the suite installs and starts by itself, on pip's Java if there is no other."""
