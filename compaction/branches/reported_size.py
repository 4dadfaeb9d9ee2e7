"""How large the next request is by what the server reported, and our count of what follows.

A report is of one answer: its prompt and itself. It says nothing of a request that a compaction or
a restored summary has changed since, of another model's tokens, or of an answer that was broken
off. Cached tokens are a part of the prompt's and are never added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from chatapp.compiled import compiled_read
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.registry import ModelConfig
from chatapp.llm.tokens import context_tokens
from chatapp.messages.wire import ASKED_MODEL, DOUBTED_USAGE, NEW_PART_ONLY, REQUEST_MARK
from chatapp.models import POSITION_STEP, Branch, Message
from chatapp.selectors import GROUP_REACH, is_own, placeholders, rows_before

# So many answers are looked at, where the newest ones were broken off or have no report.
MOST_ANSWERS = 8
_COLUMNS = (
    "branch", "position", "usage", "finish_reason", "metadata", "tokens_through", "created_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSize:
    """The size of the next request: what an answer's server counted, and what came behind it.

    `message` is that answer. `following` are the counted tokens of what was stored since, as the
    model counts them.
    """

    message: UUID
    reported: int
    following: int

    @property
    def tokens(self) -> int:
        """The tokens of the whole request."""
        return self.reported + self.following


def reported_size(
    branch: Branch,
    model: ModelConfig,
    *,
    cursor: int,
    since: datetime | None,
    mark: Callable[[], str],
) -> ReportedSize | None:
    """Return the size by the newest report that holds behind the cursor; None where none does.

    `mark` tells what requests are made of now (Context.mark): a report of one that was made of
    something else says nothing, whenever its answer came. Of answers without a mark, imported ones,
    those count that came after `since`, when the branch was compacted or restored last. The path's
    sums give what follows: no text is read, and no more however long or deeply forked the
    conversation is.
    """
    after = _newest_placeholder(branch) if cursor and since is None else 0
    for answer in _newest_answers(branch, cursor=max(cursor, after)):
        told = answer.metadata.get(REQUEST_MARK)
        if told is None and since is not None and answer.created_at <= since:
            return None
        if told is not None and told != mark():
            continue
        tokens = context_tokens(answer.usage)
        if tokens and _is_finished(answer) and _is_of(answer, model):
            following = size_of_rest(branch.token_total, answer.tokens_through, model.scale)
            return ReportedSize(message=answer.pk, reported=tokens, following=following)
    return None


def size_of_rest(total: int, through: int, scale: float) -> int:
    """Return the tokens behind an answer, as the model counts them, by the path's sums."""
    return math.ceil(scale * max(0, total - through))


def _newest_answers(branch: Branch, *, cursor: int) -> Iterator[Message]:
    """Yield the newest answers behind a position, the newest first: mostly one is enough."""
    after = max(cursor, branch.head_position - GROUP_REACH * POSITION_STEP - 1)
    newest = _answers_before(branch, None, after=after, most=1)
    yield from newest
    if newest:
        yield from _answers_before(branch, newest[0].position, after=after, most=MOST_ANSWERS)


def _answers_before(branch: Branch, end: int | None, *, after: int, most: int) -> list[Message]:
    """Return the newest answers between two positions, the newest first."""
    if is_own(branch, after):
        return _own_answers(branch=branch.pk, after=after, before=end, most=most)
    rows = _answers(Message.objects.all())
    return rows_before(branch, rows, start=after + 1, end=end, most=most)[::-1]


def _answers(rows: QuerySet[Message]) -> QuerySet[Message]:
    answers = rows.filter(role=Message.Role.ASSISTANT, kind=Message.Kind.MESSAGE)
    return answers.only(*_COLUMNS)


@compiled_read
def _own_answers(*, branch: UUID, after: int, before: int | None) -> QuerySet[Message]:
    rows = _answers(Message.objects.filter(branch=branch, position__gt=after))
    rows = rows if before is None else rows.filter(position__lt=before)
    return rows.order_by("-position")


def _newest_placeholder(branch: Branch) -> int:
    """Return where the newest placeholder stands: of an imported compaction only that is known."""
    newest = placeholders(branch).order_by("-position").values_list("position", flat=True)
    return newest.first() or 0


def _is_finished(answer: Message) -> bool:
    """Whether the answer came to an end, and what its server told can be all of its prompt."""
    is_broken = end_of(answer.finish_reason) is AnswerEnd.BROKEN
    is_wrong = any(answer.metadata.get(key) for key in (NEW_PART_ONLY, DOUBTED_USAGE))
    return not (is_broken or is_wrong)


def _is_of(answer: Message, model: ModelConfig) -> bool:
    """Whether the model answered that the session has now; one that nobody named may have."""
    asked = answer.metadata.get(ASKED_MODEL) or answer.metadata.get("model")
    return not asked or asked == model.name
