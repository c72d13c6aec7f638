"""A test kit of the Lance Namespace spec, for any `lance_namespace.LanceNamespace` and any server of the REST protocol.

It knows the spec alone: no module of it imports another part of this package. `pip install
'lance-ns-async[conformance]'`, then `lance-ns conformance`, or `run` in Python, or `pytest -p
lance_ns_async.conformance.plugin --pyargs lance_ns_async.conformance`.
"""

from lance_ns_async.conformance.plugin import Check, Report, Result
from lance_ns_async.conformance.run import FEATURES, run
from lance_ns_async.conformance.targets import Target, class_target, server_target

__all__ = ["FEATURES", "Check", "Report", "Result", "Target", "class_target", "run", "server_target"]
