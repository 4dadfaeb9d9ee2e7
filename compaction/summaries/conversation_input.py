"""What a summariser is sent where it reads the conversation itself, and not a transcript.

That is the request of the chat, to the byte: prompt, tools and messages as far as they are to be
summarised. The instruction is one more message at its end, so that a server that has cached the
chat's prompt reads only that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chatapp.context.assembly import tools_tokens
from chatapp.llm.learned_limits import still_known
from chatapp.messages.wire import WireMessage
from chatapp.part_store import PartReader
from compaction.branches.context_builder import kept_of, sendable
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.strategies.prompts import conversation_instruction
from compaction.engine.types import Item, SummaryRequest

CONVERSATION = "conversation"
"""The profile's word for it (summariser_input)."""
_KINDS = ("chunk", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationInput:
    """The chat's own request up to the last message that is summarised.

    `fields` are what else the chat's requests say (chatapp.llm.requests.ModelRequest). `alias`
    names the only model that has cached it.
    """

    messages: tuple[WireMessage, ...]
    fields: dict[str, Any]
    alias: str
    first: int
    last: int
    tokens_of_tools: int
    hides_secrets: bool

    @classmethod
    def of(cls, snapshot: BranchSnapshot, items: Sequence[Item]) -> ConversationInput | None:
        """Return what a summary of the items is asked with; the tail is not in it.

        None where the chat's requests leave some of the items out (context_size, history_limit):
        they would count as summarised, and nobody would have read them.
        """
        session, last = snapshot.session, items[-1].position
        kept = kept_of(snapshot)[1]
        if not {item.position for item in items} <= {row.position for row in kept}:
            return None
        context = sendable(snapshot)
        behind = {row.place for row in kept if row.position > last}
        places = list(context.places)
        end = next((n for n, place in enumerate(places) if place in behind), len(places))
        return cls(
            messages=PartReader(session.pk).messages(context.messages[:end]),
            fields={
                "places": places[:end],
                "tools": session.tools,
                "api": session.api,
                "plain_text": session.plain_text,
                "adaptations": still_known(session.adaptations),
                "forbids_tools": True,
            },
            alias=session.model,
            first=items[0].position,
            last=last,
            tokens_of_tools=tools_tokens(snapshot.model, session.tools),
            hides_secrets=snapshot.profile.redact_secrets,
        )

    def serves(self, request: SummaryRequest) -> bool:
        """Whether it holds just what a request asks to be summarised.

        Halves, merges and beginnings of turns are asked for with a transcript.
        """
        items = request.items
        return (
            request.kind in _KINDS
            and bool(items)
            and (items[0].position, items[-1].position) == (self.first, self.last)
        )

    def with_instruction(self, request: SummaryRequest) -> list[WireMessage]:
        """Return the messages of the call."""
        said: WireMessage = {"role": "user", "content": conversation_instruction(request)}
        return [*self.messages, said]
