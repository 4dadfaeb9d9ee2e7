"""Budgets of a benchmark: it stores in a minute what an owner stores in days.

The budget is asked for all the same.
"""

PLENTY = 10**9
PLENTIFUL = {
    "SESSION_CALLS_PER_HOUR": PLENTY,
    "SESSION_TOKENS_PER_HOUR": PLENTY,
    "OWNER_CALLS_PER_HOUR": PLENTY,
    "OWNER_TOKENS_PER_HOUR": PLENTY,
}
