"""How large the next request is before and after a compaction: all of it, by our own count.

Prompt, tools, rules, pinned messages, summaries in the frames that they are sent in, the question
of a turn that is summarised in part, and the messages behind the cursor. Nothing is put together
for it: the sums are stored. What a limit leaves out of a request, and what is cut from its tool
results, counts as if it were sent, before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from chatapp.models import Branch, Message, Session
from chatapp.selectors import rows_from
from chatapp.transcript import set_request_tokens
from compaction.branches.carriers import carried_tokens, frame_tokens, sent_form
from compaction.branches.planning import least_tokens
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.branches.tail import knows_question_behind
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.protocols import SentSummary
from compaction.engine.strategies.acceptance import does_not_shrink
from compaction.engine.types import Item, Outcome, SummaryFailed
from compaction.errors import NoGainError
from compaction.models import CompactionRun, SessionSummary
from compaction.selectors import anchor_before
from compaction.summaries.columns import Sizes, sent_text_of

_MESSAGES = Message.objects.filter(kind=Message.Kind.MESSAGE)
# Runs for which messages would fall out of the request otherwise.
_PRESSING = frozenset({Reason.HARD_LIMIT, Reason.ARCHIVE})
_ENDS_A_TURN = Q(role=Message.Role.USER) | Q(role=Message.Role.ASSISTANT, tool_calls__isnull=True)


def sizes_of(snapshot: BranchSnapshot, outcome: Outcome) -> Sizes:
    """Return the sizes of the next request without and with an outcome as its newest summary."""
    last = outcome.items[-1].position
    text = snapshot.model.counter.count(sent_text_of(outcome))
    before = request_before(snapshot, passed=outcome.passed)
    # Pinned messages are sent verbatim although they were summarised, too; rules were not read.
    pinned = (pin for pin in snapshot.pins_behind if pin.position <= last)
    pins = [pin.tokens for pin in pinned if pin.role != Message.Role.SYSTEM]
    # With the question of a turn that is summarised in part.
    question = _question_behind(snapshot, outcome.items[-1])
    again = sum(pins) + question
    staying = _staying(snapshot, outcome)
    new = SentSummary(text=outcome.text, abridged=outcome.abridged)
    forms = list(map(sent_form, staying))
    old = sum(row.summary_tokens for row in staying)
    beside = old + carried_tokens(snapshot.profile, snapshot.model, forms)
    whole = old + text + carried_tokens(snapshot.profile, snapshot.model, [*forms, new])
    passed = sum(item.tokens for item in outcome.passed)
    sent = snapshot.sent_summary_tokens
    more = snapshot.front_with([*forms, new]) - snapshot.front_with(snapshot.sent_forms)
    more += len(pins) + bool(question) - len(outcome.passed)
    frames = snapshot.model.message_frame_tokens * more
    return Sizes(
        before=before,
        after=snapshot.counted_tokens - sent + whole - passed + again + frames,
        summary=text,
        sent=whole - beside,
        passed=passed,
        again=again,
        replaced=max(0, sent - beside),
        frames=frames,
    )


def request_before(snapshot: BranchSnapshot, *, passed: Sequence[Item] = ()) -> int:
    """Return the size of the next request as things stand; `passed` are read behind its cursor."""
    # Where a question follows, the turn that went on behind the cursor is over.
    is_over = any(item.is_question for item in passed)
    question = 0 if is_over else _question_tokens(snapshot, snapshot.state.cursor)
    frame = snapshot.model.message_frame_tokens if question else 0
    return snapshot.counted_tokens + question + frame


def note_request_size(session: Session) -> None:
    """Have lists show what the session's next request takes now.

    For what no run has measured: a switch, a summary that was taken back, an older version.
    """
    snapshot = snapshot_of(session)
    set_request_tokens(snapshot.branch.pk, request_before(snapshot))


def sizes_of_version(snapshot: BranchSnapshot, outcome: Outcome, *, old: SessionSummary) -> Sizes:
    """Return the sizes that the old version's compaction would have had with the new text."""
    text = snapshot.model.counter.count(sent_text_of(outcome))
    # A hook may have named another size than the one that its run measured.
    measured = old.run.tokens_before if old.from_hook and old.run else old.tokens_before
    new = SentSummary(text=outcome.text, abridged=outcome.abridged)
    carried = [
        carried_tokens(snapshot.profile, snapshot.model, [one]) for one in (new, sent_form(old))
    ]
    return Sizes(
        before=measured or 0,
        after=old.tokens_after - old.summary_tokens - carried[1] + carried[0] + text,
        summary=text,
        sent=carried[0] + text,
        passed=sum(item.tokens for item in outcome.passed),
    )


def must_be_worth_it(snapshot: BranchSnapshot, run: CompactionRun, items: Sequence[Item]) -> None:
    """Raise NoGainError for messages that are too little for a summary, before anybody is asked."""
    least, tokens = least_tokens(snapshot, run.reason), sum(item.tokens for item in items)
    # A batch that failures have made small leads out of them.
    if tokens >= least or _is_made_small(snapshot):
        return
    raise NoGainError(
        f"{_these(len(items))} {tokens:,} tokens, too few to be worth a summary: what frames one "
        f"has half of {least:,}.",
        before=request_before(snapshot),
    )


def must_shrink(
    snapshot: BranchSnapshot, run: CompactionRun, outcome: Outcome, sizes: Sizes
) -> None:
    """Raise NoGainError where the next request would not be smaller, or the text is no smaller than
    what it was made of. Where messages would fall out of the request, that is a SummaryFailed: the
    next attempt is another one.

    What leads out of failures, a fallback digest and a batch that failures have made small, may
    bring a frame, and a question that is sent again, that are larger than what it saves, and so may
    what a person wants whatever it saves. An imported summary knows nothing of its request. Files
    that are sent behind a text are no part of it.
    """
    text = snapshot.model.counter.count(outcome.text)
    is_longer = bool(does_not_shrink(outcome.input_tokens, text))
    profile = snapshot.profile
    spared = 0
    if outcome.is_digest or _is_made_small(snapshot) or run.reason == Reason.FORCED:
        question = _question_behind(snapshot, outcome.items[-1])
        carriers = snapshot.front_with([SentSummary(text=outcome.text)]) - snapshot.front_with([])
        spared = frame_tokens(profile, snapshot.model) + question
        spared += snapshot.model.message_frame_tokens * (carriers + bool(question))
    if not is_longer and not (sizes.before and sizes.after - spared >= sizes.before):
        return
    sentence = no_gain_sentence(len(outcome.passed), sizes)
    if run.reason in _PRESSING:
        raise SummaryFailed(RunCode.NOT_SMALLER, sentence)
    raise NoGainError(sentence, before=sizes.before, after=sizes.after)


def _is_made_small(snapshot: BranchSnapshot) -> bool:
    """Whether failures make the batches of runs small."""
    return 0 < snapshot.profile.smaller_after_failures <= snapshot.state.failures


def no_gain_sentence(messages: int, sizes: Sizes) -> str:
    """Return in words why a summary of so many messages saves nothing: what each thing has."""
    of = "this message" if messages == 1 else f"these {messages:,} messages"
    has = "message has" if messages == 1 else "messages have"
    said = f"The summary of {of} would have {sizes.sent:,} tokens, the {has} {sizes.passed:,}"
    if sizes.again:
        said += f", of which {sizes.again:,} are sent all the same"
    if sizes.replaced:
        said += f"; what it takes the place of has {sizes.replaced:,}"
    if sizes.frames > 0:
        said += f"; roles and marks of the request's messages take {sizes.frames:,} more"
    return f"{said}."


def _these(messages: int) -> str:
    return "This message has" if messages == 1 else f"These {messages:,} messages have"


def _staying(snapshot: BranchSnapshot, outcome: Outcome) -> list[SessionSummary]:
    """Return the summaries that are sent beside the new one."""
    staying = [row for row in snapshot.summaries if not row.is_digest]
    if outcome.is_digest:
        return staying
    # The new one takes the oldest one's place, and the fallback digest's, if it has taken that in.
    others = 0 if outcome.holds_earlier else snapshot.profile.summary_limit - 1
    staying = staying[-others:] if others else []
    beside = snapshot.digest
    if beside is not None and beside not in snapshot.continued:
        staying.append(beside)
    return staying


def _question_behind(snapshot: BranchSnapshot, last: Item) -> int:
    """Return the same for the position of a message that is known: an answer ends its turn."""
    is_over = last.role == Message.Role.ASSISTANT and not (last.tool_calls or last.is_note)
    return 0 if is_over else _question_tokens(snapshot, last.position)


def _question_tokens(snapshot: BranchSnapshot, cursor: int) -> int:
    """Return the tokens of the question that is sent although it stands before a cursor, or 0.

    That is the one of a turn that goes on behind the cursor, where no newer question stands
    (context_builder.kept_of). Looked for once a snapshot, and not at all where the run has read a
    newer question.
    """
    if knows_question_behind(snapshot, cursor):
        return 0
    key = f"question:{cursor}"
    found: int | None = snapshot.derived.get(key)
    if found is None:
        found = snapshot.derived[key] = _looked_for_question(snapshot.branch, cursor)
    return found


def _looked_for_question(branch: Branch, cursor: int) -> int:
    question = anchor_before(branch, cursor) if cursor else None
    if question is None or question.pinned:
        return 0
    next_ends = _MESSAGES.filter(_ENDS_A_TURN).only("pk")
    is_over = bool(rows_from(branch, next_ends, start=cursor + 1, most=1))
    return 0 if is_over else question.tokens
