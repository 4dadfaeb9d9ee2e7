"""Comparing profiles: stored conversations replayed under each of them; nothing is stored."""
