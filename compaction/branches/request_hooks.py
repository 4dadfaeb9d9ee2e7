"""What hooks make of a request after it was put together: other messages, or the same.

Only what is sent changes, never what is stored. An answer that a strict server would refuse, or
without the question that is waiting, is dropped: the request goes out as it was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from chatapp.context.assembly import Account, Context
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.tokens import count_message
from chatapp.messages.pairing import strict_with_sources
from chatapp.messages.wire import InvalidMessageError, WireMessage, fields_of
from chatapp.models import Session
from compaction.hooks import BEFORE_REQUEST, RequestFacts, ask_about_request, has_hooks

logger = logging.getLogger(__name__)
_ROLES = ("system", "user", "assistant", "tool")
_KEYS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
HOOK_FAILED = "hook_failed"
# In a context's facts: the hook whose messages are sent.
CHANGED_BY = "changed_by_hook"
# And by how many tokens hooks made the request larger; smaller where it is below 0.
TOKENS_BY_HOOKS = "tokens_by_hooks"


def with_hooks(
    session: Session, context: Context, *, on_fault: Callable[[str, str], None] | None = None
) -> Context:
    """Return the context as the hooks want it sent, its account counted again.

    `on_fault` hears the code and a sentence where a hook failed.
    """
    if not has_hooks(BEFORE_REQUEST):
        return context
    model = context.model or get_model(session.model)
    pending = _pending(context)
    keys = frozenset(key for message in context.messages for key in message) | _KEYS
    asked = ask_about_request(
        context.messages,
        RequestFacts(
            session=str(session.pk),
            branch=str(session.active_branch_id),
            model=session.model,
            tokens=context.account.used,
            window=context.account.window,
            reserve=context.account.reserve,
        ),
        accept=lambda answer: sendable_messages(answer, pending=pending, keys=keys),
    )
    for sentence in asked.faults:
        logger.warning("Session %s: %s", session.pk, sentence)
        if on_fault is not None:
            on_fault(HOOK_FAILED, sentence)
    if asked.answer is None or list(asked.answer) == list(context.messages):
        return context
    messages: list[WireMessage] = asked.answer
    account = _account(context, messages, model)
    told = {CHANGED_BY: asked.hook, TOKENS_BY_HOOKS: account.used - context.account.used}
    return replace(
        context,
        messages=tuple(messages),
        places=_places(context, messages),
        account=account,
        facts=context.facts | told,
    )


def before_hooks(context: Context) -> Context:
    """Return a context with the account that it had before hooks changed it.

    What a recovery puts together is measured against that: hooks see it afterwards.
    """
    added = int(context.facts.get(TOKENS_BY_HOOKS, 0))
    if not added:
        return context
    account = replace(context.account, kept=max(0, context.account.kept - added))
    return replace(context, account=account)


def sendable_messages(
    answer: Sequence[Any],
    *,
    pending: Sequence[WireMessage] = (),
    keys: frozenset[str] = _KEYS,
) -> list[WireMessage]:
    """Return messages as a strict server takes them.

    `keys` are those that a message may have. Raises ValueError with a sentence where that takes
    more than copying them: a call without its result, a result without its call, an id used twice,
    a blank message, a late system message; and where what waits for an answer is not among them.
    """
    for number, message in enumerate(answer):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {number} is no object.")
        if message.get("role") not in _ROLES or not set(message) <= keys:
            raise ValueError(f"message {number} has a role or a key that no server knows.")
        _must_be_json(number, message)
        try:
            fields_of(message, is_stored=True)
        except InvalidMessageError as error:
            raise ValueError(f"message {number}: {error}") from error
    given = [cast(WireMessage, dict(message)) for message in answer]
    strict = strict_with_sources(given)
    if [source for _, source in strict] != list(range(len(given))):
        raise ValueError(
            "a strict server would refuse the messages: one is blank, a tool call lacks its "
            "result, or a result does not follow its call."
        )
    for number, ((sent, _), one) in enumerate(zip(strict, given, strict=True)):
        if sent["role"] != one["role"] or _ids(sent) != _ids(one):
            raise ValueError(
                f"a strict server would refuse message {number}: a system message behind the "
                "front, a result without its call, or a call id that is empty or used twice."
            )
    if not any(message["role"] == "user" for message in given):
        raise ValueError("there is no user message.")
    if any(one not in given for one in pending):
        raise ValueError("the question that waits for its answer is not among them as it was.")
    return [message for message, _ in strict]


def _ids(message: WireMessage) -> list[Any]:
    return [call.get("id") for call in message.get("tool_calls") or ()]


def _must_be_json(number: int, message: Mapping[str, Any]) -> None:
    """Raise ValueError for what no server could be sent, and no text could hold."""
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, sort_keys=True)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"message {number} cannot be sent as JSON ({error}).") from error


def _pending(context: Context) -> list[WireMessage]:
    """Return the stored messages of a user that nobody has answered; none without known places."""
    found: list[WireMessage] = []
    for one, place in zip(reversed(context.messages), reversed(context.places), strict=False):
        if one["role"] == "assistant" and not one.get("tool_calls"):
            break
        if one["role"] == "user" and place:
            found.append(one)
    return found


def _places(context: Context, messages: Sequence[WireMessage]) -> tuple[str, ...]:
    """Return where each message stands in the conversation: those that are as they were, in order.

    What a hook wrote stands nowhere.
    """
    if not context.places:
        return ()
    found: list[str] = []
    start = 0
    for message in messages:
        following = range(start, len(context.messages))
        at = next((i for i in following if context.messages[i] == message), None)
        found.append("" if at is None else context.places[at])
        start = start if at is None else at + 1
    return tuple(found)


def _account(context: Context, messages: Sequence[WireMessage], model: ModelConfig) -> Account:
    """Return the account with what came and went: system messages apart from all others."""
    account = context.account
    old, new = list(context.messages), list(messages)
    gone, come = _besides(old, new), _besides(new, old)

    def change(is_system: bool) -> int:
        def total(of: Sequence[WireMessage]) -> int:
            chosen = (one for one in of if (one["role"] == "system") == is_system)
            return sum(count_message(one, model.counter) for one in chosen)

        return total(come) - total(gone)

    # What is gone may be more than was kept: then pins are among it.
    kept = account.kept + change(False)
    return replace(
        account,
        system=max(0, account.system + change(True)),
        pinned=max(0, account.pinned + min(0, kept)),
        kept=max(0, kept),
        frames=max(0, account.frames + model.message_frame_tokens * (len(new) - len(old))),
    )


def _besides(messages: Sequence[WireMessage], others: list[WireMessage]) -> list[WireMessage]:
    """Return the messages that are not among the others, as often as they are there."""
    left = list(others)
    found: list[WireMessage] = []
    for message in messages:
        if message in left:
            left.remove(message)
        else:
            found.append(message)
    return found
