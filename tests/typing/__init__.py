"""User code that `nox -s types` checks: code that must pass, and code that must not."""
