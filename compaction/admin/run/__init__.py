"""Runs and steps: the tree of steps, what went in, why it ended."""
