"""Summaries: their page, versions side by side, sources."""
