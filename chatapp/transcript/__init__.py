"""The only code that writes messages: create, append, insert between, fork, replay, pin,
delete.

Every write is one short transaction whose cost does not grow with the session. Tokens and
characters are counted once, before the transaction; their sums along the path are kept by
increments under the branch's row lock (sums.py), so two writers never get one position.
"""

from chatapp.transcript.branches import (
    Replay,
    SwitchRefusedError,
    activate,
    branch_replayed,
    create_session,
    delete_session,
    delete_unused,
    fork,
    fork_before,
    point_placeholder,
    replay,
    set_label,
    switch,
)
from chatapp.transcript.many import NewSession, prepare_sessions
from chatapp.transcript.repair import activate_main_line, recount_tokens, repair_sums
from chatapp.transcript.request_size import (
    lessen_request,
    resized_by,
    set_request_tokens,
    tell_of_tree,
)
from chatapp.transcript.session_tree import Place, SessionTree
from chatapp.transcript.writing import (
    Gap,
    append,
    gap_of,
    insert_between,
    lock_branches,
    lock_some_branches,
    message_inserted,
    positions_changed,
    renumber,
    set_pinned,
    with_gap,
)

__all__ = [
    "Gap",
    "NewSession",
    "Place",
    "Replay",
    "SessionTree",
    "SwitchRefusedError",
    "activate",
    "activate_main_line",
    "append",
    "branch_replayed",
    "create_session",
    "delete_session",
    "delete_unused",
    "fork",
    "fork_before",
    "gap_of",
    "insert_between",
    "lessen_request",
    "lock_branches",
    "lock_some_branches",
    "message_inserted",
    "point_placeholder",
    "positions_changed",
    "prepare_sessions",
    "recount_tokens",
    "renumber",
    "repair_sums",
    "replay",
    "resized_by",
    "set_label",
    "set_pinned",
    "set_request_tokens",
    "switch",
    "tell_of_tree",
    "with_gap",
]
