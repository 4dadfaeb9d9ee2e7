"""What a cut tool result said in whole: beside its row, or in the branch that a replay repeats."""

from __future__ import annotations

from typing import Any

from chatapp.models import Message, MessageOriginal
from chatapp.wire import CUT_FROM, REPLAY_OF, content_of


def whole_content(message: Message) -> Any:
    """Return the content as it came in: a text, null or a list of parts.

    What was not cut costs no query; a row that was cut costs one or two for each time it was.
    """
    current = message
    while CUT_FROM in current.metadata:
        original = MessageOriginal.objects.filter(message=current).first()
        if original is not None:
            return content_of(Message(content=original.content, parts=original.parts))
        repeated = Message.objects.filter(pk=current.metadata.get(REPLAY_OF)).first()
        if repeated is None:
            break
        current = repeated
    return content_of(current)
