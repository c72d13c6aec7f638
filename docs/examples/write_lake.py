"""Write the small lake that the other examples read."""

import pyarrow as pa

from lance_ns_async import Namespace

with Namespace.connect("dir", {"root": "lake"}) as ns:
    ns.create_namespace({"id": ["sales"], "mode": "exist_ok"})
    for day in range(3):
        rows = pa.table({"id": [1, 2], "amount": [9.5, float(day)]})
        ns.write(f"sales.day{day}", rows, mode="overwrite")
