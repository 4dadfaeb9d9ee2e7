"""Writes: verbs that views, admin, tasks and commands call."""
