"""The doctor: what can be wrong in stored sessions, how it is found, how it is repaired.

A module a theme: sums, coverage, leases, pairs. Every check is a bounded number of queries a branch
and reads no message's text; every repair goes through the code that writes such rows otherwise.
"""
