"""The sessions of the chaos: several owners, profiles that compact often."""

from __future__ import annotations

from django.contrib.auth import get_user_model

from chatapp.keys import create_key
from chatapp.transcript import create_session
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from tests.chaos.ledger import Book

OWNERS = 5
BISECT = {"message_limit": 14, "keep_last_n": 4, "cooldown_seconds": 0}
# Drafts that are made ahead of need and published when the limit is reached.
AHEAD = {
    "message_limit": 30,
    "keep_last_n": 6,
    "cooldown_seconds": 0,
    "prepare_ratio": 0.01,
    "publish_when_needed": True,
}
WINDOW = {
    "context_size": 24,
    "tail_keep_size": 8,
    "compression_window_size": 6,
    "compression_hard_limit": 12,
    "compression_cooldown_sec": 12,
}


def make_books(count: int) -> list[Book]:
    """Store the profiles and so many sessions; return an empty book for each.

    Every second session slides a window; of the others, half compact ahead of need.
    """
    save_profile(name="chaos", parameters=BISECT, make_default=True)
    save_profile(name="chaos-ahead", parameters=AHEAD)
    save_profile(name="chaos-window", base="sliding_window", parameters=WINDOW)
    profiles = ("", "chaos-window", "chaos-ahead", "chaos-window")
    owners = [
        get_user_model().objects.create_user(username=f"chaos{number}") for number in range(OWNERS)
    ]
    tokens = [create_key(owner=owner, name="chaos").secret for owner in owners]
    books = []
    for number in range(count):
        session = create_session(owner=owners[number % OWNERS], title=f"Chaos {number}")
        if name := profiles[number % len(profiles)]:
            assign_profile(session, name)
        token = tokens[number % OWNERS]
        books.append(Book(number=number, session_id=str(session.pk), token=token))
    return books
