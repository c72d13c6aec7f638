"""Entry point of `python -m lance_ns_async.cli`, which is the same as `lance-ns`."""

from lance_ns_async.cli import main

main()
