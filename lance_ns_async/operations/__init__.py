"""The operations of the spec: each from its request to pylance or to the backend.

Functions that are not coroutines may block; they run in worker threads.
"""
