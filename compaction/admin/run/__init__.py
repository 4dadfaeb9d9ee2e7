"""Runs and steps: the tree of calls, what went in, why it ended."""
