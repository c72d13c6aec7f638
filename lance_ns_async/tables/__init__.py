"""Operations on located tables: implemented with pylance, and the same for every catalog.

Functions that are not coroutines may block; they run in worker threads.
"""
