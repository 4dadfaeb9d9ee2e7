"""How large a session's next request is, as lists show it: a number that is kept with each write.

The transcript counts prompt, tools and messages. A context backend that sends less says so: when
something became smaller (`lessen_request`), and when it has looked (`set_request_tokens`). Each
answer sets the number anew (chatapp.titles.told_by).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import F

from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.models import Branch, Session
from chatapp.selectors import model_of, path_messages
from chatapp.titles import less_by, opening_of

OPENING_MESSAGES = 50
"""Among so many the first question is looked for, which names a session without a title."""


def prompt_tokens(session: Session) -> int:
    """Return the tokens of a request without messages; 0 where the session's model is not known.

    That is prompt, tools and frames. The texts are counted once for each distinct one.
    """
    try:
        model = get_model(session.model)
    except UnknownModelError:
        return 0
    texts = text_tokens(model, session.system_prompt) + tools_tokens(model, session.tools)
    return texts + model.request_frames(bool(session.system_prompt))


def whole_request(session: Session, branch: Branch) -> int:
    """Return the size of a request that sends all of a branch, by its stored sums."""
    frames = model_of(session).message_frame_tokens * branch.message_count
    return prompt_tokens(session) + branch.token_total + frames


def set_request_tokens(branch_id: UUID, tokens: int) -> None:
    """Note the size of the next request of the session that goes on in this branch.

    Of a branch that no session is on, nothing is noted: it is looked at when one switches to it.
    """
    Session.objects.filter(active_branch=branch_id).update(request_tokens=tokens)


def tell_of_tree(session: Session) -> None:
    """Note the size and the title of a session whose branches were stored all at once."""
    branch = Branch.objects.get(
        pk__in=Session.objects.filter(pk=session.pk).values("active_branch")
    )
    told: dict[str, Any] = {"request_tokens": whole_request(session, branch)}
    if not session.title:
        # A few at a time: nearly always the first is the question, and each may be long.
        opening = path_messages(branch)[:OPENING_MESSAGES].iterator(chunk_size=4)
        session.title = told["title"] = opening_of(opening)
    Session.objects.filter(pk=session.pk).update(**told)


def lessen_request(branch_id: UUID, saved: int) -> None:
    """Note that the next request became smaller by so many tokens."""
    Session.objects.filter(active_branch=branch_id).update(request_tokens=less_by(saved))


def resized_by(session: Session, changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes of a session's columns together with what they do to its next request.

    Only another prompt or other tools change it; messages are counted once, whatever the model.
    """
    if not {"system_prompt", "tools"} & changes.keys():
        return changes
    asked = ("model", "system_prompt", "tools")
    after = Session(**{name: changes.get(name, getattr(session, name)) for name in asked})
    grown = prompt_tokens(after) - prompt_tokens(session)
    return changes | {"request_tokens": F("request_tokens") + grown}
