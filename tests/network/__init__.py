"""Catalogs behind a proxy that misbehaves in every way we know: no wrong answer, no hang, bounded memory."""
