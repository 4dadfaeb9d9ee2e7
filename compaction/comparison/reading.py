"""A stored conversation as replays read it: sizes and texts in pages, of which a few are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Length

from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.models import Message, Session
from chatapp.selectors import path_messages, pinned_messages
from compaction.convert import read_items, with_thoughts
from compaction.engine.replay.conversation import ConversationSums, MessageSize
from compaction.engine.types import Item, TokenCounter

PAGE = 256
# So many pages stay in memory: what lies between a cursor and the newest message, mostly.
PAGES_KEPT = 12
# Texts whose tokens are remembered, and how long a short one is.
LINES_REMEMBERED, TEXTS_REMEMBERED, LONGEST_LINE = 8_192, 32, 400
_COLUMNS = (
    "position",
    "role",
    "tokens",
    "chars",
    "created_at",
    "kind",
    "pinned",
    "plain",
    "text_chars",
)


class RememberingCounter:
    """Counts as another counter does, and remembers texts: those of a summary come back each time.

    So many short texts, the lines of summaries, and a few long ones, which are whole summaries.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._line = lru_cache(maxsize=LINES_REMEMBERED)(counter.count)
        self._text = lru_cache(maxsize=TEXTS_REMEMBERED)(counter.count)

    def count(self, text: str) -> int:
        """Return 0 for the empty text and at least 1 for any other."""
        return self._line(text) if len(text) <= LONGEST_LINE else self._text(text)


class StoredConversation:
    """The active branch of a session, with its model and what that model's server taught."""

    def __init__(self, session: Session) -> None:
        self._session, self._branch = session, session.branch
        self.model: ModelConfig = with_learned_limits(get_model(session.model))
        self.counter = RememberingCounter(self.model.counter)
        self.sums = ConversationSums(self._sizes)
        texts = tools_tokens(self.model, session.tools)
        texts += text_tokens(self.model, session.system_prompt)
        self.has_prompt = bool(session.system_prompt)
        self.prompt_tokens = texts + self.model.request_frames(self.has_prompt)
        self._page = lru_cache(maxsize=PAGES_KEPT)(self._read_page)

    @property
    def metadata(self) -> Any:
        """What the session's metadata say of its client, which a profile may leave out."""
        return self._session.metadata

    def _sizes(self, after: int, through: int | None) -> Iterator[MessageSize]:
        """Yield the sizes of messages behind a position; no text leaves the database."""
        rows = path_messages(self._branch, after=after, through=through).annotate(
            text_chars=Length("content"),
            plain=ExpressionWrapper(Q(tool_calls__isnull=True), output_field=BooleanField()),
        )
        found = rows.values_list(*_COLUMNS).iterator()
        for position, role, tokens, chars, created_at, kind, pinned, plain, text_chars in found:
            yield MessageSize(
                position=position,
                role=role,
                tokens=tokens,
                chars=chars,
                text_chars=text_chars or 0,
                seconds=created_at.timestamp(),
                has_calls=not plain,
                is_note=kind == Message.Kind.NOTE,
                pinned=pinned,
            )

    def items(self, start: int, end: int) -> Sequence[Item]:
        """Return the messages from one number up to another, rules not counted."""
        found: list[Item] = []
        for number in range(start // PAGE, -(-end // PAGE)):
            first = number * PAGE
            page = self._page(number)
            found += page[max(0, start - first) : end - first]
        return found

    def _read_page(self, number: int) -> list[Item]:
        last = min((number + 1) * PAGE, len(self.sums)) - 1
        after = self.sums.message(number * PAGE).position - 1
        rows = path_messages(self._branch, after=after, through=self.sums.message(last).position)
        return [item for item in read_items(rows) if item.position not in self.sums.rules]

    def pages(self) -> Iterator[Sequence[Item]]:
        """Yield all messages, a page at a time."""
        for number in range(-(-len(self.sums) // PAGE)):
            yield self._page(number)

    def with_thoughts(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items with what models thought before they wrote them."""
        return with_thoughts(items)

    def fixed_texts(self) -> Sequence[str]:
        """Return the system prompt and the texts of the rules."""
        rules = pinned_messages(self._branch).filter(role=Message.Role.SYSTEM)
        texts = rules.values_list("content", flat=True)
        return [self._session.system_prompt, *(text or "" for text in texts)]
