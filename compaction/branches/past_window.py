"""A history that no request can hold, which is known by stored sums before it is read.

Its request is neither put together nor sent: the turn goes to the recovery at once, as if the
server had refused it. What the recovery looks at is bounded, too: the newest messages.
"""

from __future__ import annotations

from itertools import chain, repeat

from django.db.models import QuerySet

from chatapp.context.preview import PREVIEW_MESSAGES
from chatapp.models import Message
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import PAGES, newest_rows, show_part, show_question

# What one count takes for several windows fits into none by another.
WINDOWS = 4


def bounded(snapshot: BranchSnapshot) -> BranchSnapshot:
    """Return a snapshot whose contexts hold the newest messages alone where all cannot fit.

    Such a context says so (Context.not_shown), and its account has all of them.
    """
    if is_past_window(snapshot):
        show_part(snapshot, most=PREVIEW_MESSAGES)
        show_question(snapshot)
    return snapshot


def is_past_window(snapshot: BranchSnapshot) -> bool:
    """Whether messages alone are more than several windows, and something would be done about it.

    Results of tools do not count: they are cut when they are sent. Where nothing is compacted and
    nothing hidden, the server has the last word.
    """
    state, branch, model = snapshot.state, snapshot.branch, snapshot.model
    if not snapshot.recovers or snapshot.profile.sent_limit or model.context_window <= 0:
        return False
    most = WINDOWS * model.context_window / model.scale
    frames = model.message_frame_tokens * (branch.message_count - state.covered_messages)
    if branch.token_total - state.covered_tokens + frames <= most:
        return False
    return _said_tokens(snapshot, most) > most


def _said_tokens(snapshot: BranchSnapshot, most: float) -> int:
    """Return the tokens of the newest messages but tools' results, as soon as they pass `most`.

    That is with the frames of all of them: a result that is cut has its frame.
    """
    found, before = 0, None
    frame = snapshot.model.message_frame_tokens
    for size in chain(PAGES, repeat(PAGES[-1])):
        page = newest_rows(snapshot, _sizes, most=size, before=before)
        found += sum(tokens for _, role, tokens in page if role != Message.Role.TOOL)
        found += frame * len(page)
        if found > most or len(page) < size:
            break
        before = page[-1][0]
    return found


def _sizes(rows: QuerySet[Message]) -> list[tuple[int, str, int]]:
    return list(rows.values_list("position", "role", "tokens"))
