"""The doctor: what can be wrong in stored sessions, how it is found, how it is repaired.

A module a theme: places, sums, cursors, summaries, placeholders, leases, runs, pairs, records.
Many sessions are screened together first (screening.py); every check of one is a bounded number of
queries a branch and reads no message's text, unless tokens are counted again on request; every
repair goes through the code that writes such rows otherwise.
"""
