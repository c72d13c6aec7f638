"""`python -m lance_ns_async.cli` is `lance-ns`."""

from lance_ns_async.cli import main

main()
