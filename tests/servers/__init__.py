"""Real catalog servers that the suite installs and starts itself, with pip's Java if there is no other."""
