"""The request of a turn: what a model is sent for a context, and what its answer tells of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chatapp.context.assembly import Context
from chatapp.incidents import Kind, note
from chatapp.llm.adaptations import adapted
from chatapp.llm.errors import TRUNCATED_SHARE, exceeds_window, truncates_silently
from chatapp.llm.learned_limits import (
    forget_window,
    learn_from_usage,
    still_known,
    with_learned_limits,
)
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.tokens import plausible
from chatapp.llm.wires import arguments_of, outgoing_of
from chatapp.messages.outgoing import TEXTS_ONLY
from chatapp.messages.vendor import KeptFields, kept_fields, prefix_digest, server_of
from chatapp.messages.wire import DOUBTED_USAGE, NEW_PART_ONLY
from chatapp.models import Message, Session
from chatapp.part_store import PartReader
from chatapp.selectors import rows_before

if TYPE_CHECKING:
    from chatapp.context.assembly import Account


def model_of(session: Session) -> ModelConfig:
    """Return the session's model with what its server taught.

    Raises UnknownModelError for a model that is gone.
    """
    return with_learned_limits(get_model(session.model))


def request_of(
    session: Session, context: Context, model: ModelConfig, **details: Any
) -> ModelRequest:
    """Return the request of a session's turn, its parts whole.

    `details` are fields of ModelRequest.
    """
    account = context.account
    room = account.answer_room()
    request = ModelRequest(
        messages=PartReader(session.pk).messages(context.messages),
        places=context.places,
        tools=session.tools,
        # More room than the window has left would be refused although the request fits; so little
        # that no answer fits may be refused.
        max_output=min(model.max_output, max(room, account.least_answer))
        if room > 0
        else model.max_output,
        api=session.api,
        plain_text=session.plain_text,
        adaptations=still_known(session.adaptations),
        **details,
    )
    return adapted(continued(request, session, model, context), model)


def body_of(session: Session, context: Context) -> dict[str, Any]:
    """Return the JSON body of a turn's request that is not streamed: model, messages, tools."""
    model = context.model or model_of(session)
    return arguments_of(model, request_of(session, context, model))


def sent_whole(session: Session, context: Context, wire: str) -> dict[str, Any]:
    """Return the messages of the next request, or its items over the Responses API, none left out.

    The key is the body's own: `messages` or `input`. A continuation sends the newest of them only.
    """
    model = context.model or model_of(session)
    request = request_of(session, context, model)
    whole = replace(request, api=wire, previous_response_id="", messages_on_server=0)
    body = arguments_of(model, whole)
    return {key: body[key] for key in ("messages", "input") if key in body}


def as_sent(session: Session, context: Context) -> Context:
    """Return the context with its messages in the form in which they go out, and their places."""
    model = context.model or model_of(session)
    sent = outgoing_of(model, request_of(session, context, model))
    known = dict(enumerate(context.places))
    return replace(
        context,
        messages=tuple(message for message, _ in sent),
        places=tuple("" if source is None else known.get(source, "") for _, source in sent),
    )


# In `metadata` of an answer: {"count": messages sent, "digest": of them, "model": who answered}.
SENT = "sent"
# Among these: its server went on from no earlier answer, so all messages were sent.
WHOLE = "whole"


def supports_continuation(session: Session, model: ModelConfig) -> bool:
    """Whether the session's server keeps answers and may be asked to go on from one."""
    return session.api == Session.Api.RESPONSES and model.keeps_responses and not session.stateless


def continued(
    request: ModelRequest, session: Session, model: ModelConfig, context: Context
) -> ModelRequest:
    """Return the request as a continuation of the last answer, where that sends the same."""
    if not supports_continuation(session, model):
        return request
    kept = replace(request, stores=True)
    answer = _last_answer(session)
    sent = answer.metadata.get(SENT) if answer is not None and answer.response_id else None
    if answer is None or not isinstance(sent, dict) or sent.get("model") != _name_of(model):
        return kept
    count = sent["count"]
    places = context.places[count : count + 1]
    follows = len(context.messages) > count + 1 and places == (answer.place,)
    if not follows or digest_of(request.messages[:count]) != sent["digest"]:
        return kept
    return replace(
        kept,
        previous_response_id=answer.response_id,
        messages_on_server=count + 1,
        continues_whole=bool(sent.get(WHOLE)),
    )


def _last_answer(session: Session) -> Message | None:
    """Return the newest assistant message of the path."""
    answers = Message.objects.filter(role=Message.Role.ASSISTANT, kind=Message.Kind.MESSAGE)
    return next(iter(rows_before(session.branch, answers, most=1)), None)


def sent_by(request: ModelRequest, model: ModelConfig, *, whole: bool) -> dict[str, Any]:
    """Return what the answer's row remembers of its request.

    `whole`: all of it had to be sent, because the server did not go on from its last answer.
    """
    found: dict[str, Any] = {
        "count": len(request.messages),
        "digest": digest_of(request.messages),
        "model": _name_of(model),
    }
    return found | {WHOLE: True} if whole else found


def _name_of(model: ModelConfig) -> str:
    """Return what tells one server's model from others: only it knows its answers."""
    return server_of(model.name, model.base_url)


def digest_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what tells one list of messages from another."""
    text = json.dumps(list(messages), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def take_in(
    session: Session,
    reply: Reply,
    *,
    model: ModelConfig,
    request: ModelRequest,
    account: Account,
) -> dict[str, Any]:
    """Learn from the usage that came with an answer, and warn of what it gives away.

    Returns what the answer's row remembers of it in its metadata.
    """
    reported = plausible((reply.usage or {}).get("prompt_tokens"))
    # A report of many times what was sent was not counted: nothing is learnt from it.
    if reported is None:
        return {}
    if reported > MOST_TIMES_COUNTED * max(account.used, SMALLEST_COUNT):
        return {DOUBTED_USAGE: True}
    # As few say as little of the next request, however they came about.
    told = {DOUBTED_USAGE: True} if reported * MOST_TIMES_COUNTED < account.used else {}
    forget_window(model, reported)
    if truncates_silently(reported, account.used):
        if _is_of_new_part(session, reply, reported):
            return told | {NEW_PART_ONLY: True}
        _warn_of_truncation(session, reported, account.used)
    elif not _holds_parts(request):
        learn_from_usage(model, reported, account.used)
    configured = get_model(model.alias).context_window
    if exceeds_window(reply, configured):
        _warn_of_window(session, reported, configured)
    return told


# No tokenizer makes so many times our count of a text; images may, beside little text.
MOST_TIMES_COUNTED = 10
SMALLEST_COUNT = 10_000
# How many earlier answers are looked at to tell what a low report means.
EARLIER_ANSWERS = 10
# Windows differ from each other by more, reports of one full window by less.
SAME_SHARE = 0.02
SMALLEST_REPORTED_WINDOW = 1000


def _is_of_new_part(session: Session, reply: Reply, reported: int) -> bool:
    """Whether a low report is of what was read anew, because a cache had the rest.

    The same model counted far more before, for a conversation that has grown since. One that
    leaves out what does not fit reports its window, again and again.
    """
    answers = Message.objects.filter(role=Message.Role.ASSISTANT, kind=Message.Kind.MESSAGE)
    rows = rows_before(session.branch, answers, most=EARLIER_ANSWERS)
    same = [row for row in rows if row.metadata.get("model", "") == reply.model]
    counts = [plausible((row.usage or {}).get("prompt_tokens")) or 0 for row in same]
    if _repeats(reported, counts):
        return False
    told_before = any(row.metadata.get(NEW_PART_ONLY) for row in same)
    return told_before or reported < TRUNCATED_SHARE * max(counts, default=0)


def _repeats(reported: int, counts: Sequence[int]) -> bool:
    """Whether the last reports were the same, and as large as windows are."""
    last = counts[-2:]
    return (
        len(last) == 2
        and reported >= SMALLEST_REPORTED_WINDOW
        and all(abs(count - reported) <= SAME_SHARE * reported for count in last)
    )


def kept_of(reply: Reply, request: ModelRequest, model: ModelConfig) -> KeptFields | None:
    """Return what is stored of an answer for its server alone, or None where there is nothing."""
    if not reply.has_own_fields:
        return None
    server = server_of(model.name, model.base_url)
    plain = {TEXTS_ONLY} if request.plain_text else frozenset()
    codes = model.adaptations | request.adaptations | plain
    return kept_fields(
        reply.fields,
        reply.about,
        thoughts_in=reply.thoughts_in if reply.tool_calls else "",
        server=server,
        prefix=prefix_digest(request.messages, request.tools, server, codes),
    )


def _holds_parts(request: ModelRequest) -> bool:
    """Whether there may be images, whose tokens every server counts in its own way."""
    return any(isinstance(message.get("content"), list) for message in request.messages)


def _warn_of_truncation(session: Session, reported: int, counted: int) -> None:
    note(
        session,
        Kind.WARNING,
        "truncated_silently",
        f"The server reports {reported:,} tokens for a request of about {counted:,}: it seems to "
        "leave the beginning out without saying so. Set its real window (OPENAI_CONTEXT_WINDOW), "
        "or raise the server's own (Ollama: num_ctx).",
        reported=reported,
        counted=counted,
    )


def _warn_of_window(session: Session, reported: int, window: int) -> None:
    note(
        session,
        Kind.WARNING,
        "window_exceeded",
        f"The server reports {reported:,} tokens, more than the window of {window:,} that is set "
        "for it, and answered all the same. Correct OPENAI_CONTEXT_WINDOW.",
        reported=reported,
        window=window,
    )
