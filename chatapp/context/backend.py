"""What is sent: the contract of a context backend, and the backend that sends everything.

CHATAPP["CONTEXT"] names the backend ({"BACKEND": dotted path, "OPTIONS": {…}}). What passes here is
wire messages and frozen accounts, and rows of this app alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.core.checks import CheckMessage
from django.core.signals import setting_changed
from django.utils.functional import LazyObject, empty
from django.utils.module_loading import import_string

from chatapp.conf import backend_path, chatapp_settings
from chatapp.context.assembly import Context, HistoryPart, assemble, showing_part
from chatapp.context.preview import PREVIEW_MESSAGES, shown_part
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import get_model
from chatapp.messages.wire import WireMessage, texts_of, with_texts
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages

logger = logging.getLogger(__name__)

# emit(name, payload): news for whoever watches the turn; a backend's own names pass unchanged.
Emit = Callable[[str, dict[str, Any]], None]


# A wish of a switch: a question is asked anew, in a branch that was just made for it.
EDITS = "edits"


def silent(name: str, payload: dict[str, Any]) -> None:
    """Tell nobody: the default listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The answer to an overflow: `context` to try again with, or a sentence for the user.

    `memory` is the backend's own: it comes back with the next overflow of the same turn.
    """

    context: Context | None = None
    error: str = ""
    memory: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended: with a stored answer, and the context it was given; or with an error.

    `answer` is None where nothing was stored; what a broken-off answer had brought is stored with
    an error. `is_stopped` says that a person broke it off. `sent` is when the last request went
    out, by time.monotonic(); None where none did.
    """

    answer: Message | None
    context: Context
    error: str = ""
    is_stopped: bool = False
    sent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What came of a switch: `branch` is the one that was asked for.

    `is_done`: the session goes on there now. What a backend did for it is told in `run` and
    `summary`, in its own words; `run` is one that is still to end where `waits`.
    """

    branch: Branch
    is_done: bool = True
    waits: bool = False
    run: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None


class BaseContextBackend:
    """The seam: every method has a working default, so that the chat runs with none of it."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def prepare(self, session: Session, *, emit: Emit = silent) -> Context:
        """Return what the next request sends; what the user said is already stored."""
        return self.preview(session)

    def preview(self, session: Session) -> Context:
        """Return what a request would send as things stand; changes nothing."""
        return _whole(session, list(path_messages(session.branch)))

    def preview_part(
        self, session: Session, *, most: int = PREVIEW_MESSAGES, oldest: int = 0
    ) -> Context:
        """Return the same for a page: of a long request the newest messages, and how much more.

        At most `most` messages of the history are in it, besides the `oldest` ones; `not_shown`
        tells of the others, which the account counts. Where a backend says nothing else, all of
        what it previews is shown.
        """
        return self.preview(session)

    def recover(
        self,
        session: Session,
        error: ModelError,
        previous: Recovery | None,
        *,
        refused: Context,
        emit: Emit = silent,
    ) -> Recovery:
        """Answer a context overflow: a smaller Context to try, or a readable sentence.

        `previous` is what it returned last in this turn, `refused` the Context that was too large.
        """
        if error.kind is not ErrorKind.CONTEXT_OVERFLOW:
            return Recovery(error=error.sentence)
        return Recovery(
            error=f"The conversation is larger than the model's context window "
            f"({get_model(session.model).context_window:,} tokens). "
            "Start a new session, or use a model with a larger window."
        )

    def to_store(self, message: WireMessage) -> WireMessage:
        """Return a tool's message as it is to be stored; what it loses is kept beside it."""
        return message

    def shorten(self, message: WireMessage, limit: int) -> WireMessage:
        """Return a tool's message with at most `limit` characters of text, and a word about it."""
        texts = texts_of(message.get("content"))
        content = with_texts(message.get("content"), [text[:limit] for text in texts])
        return {**message, "content": content}

    def message_stored(self, session: Session, message: Message) -> None:
        """Hear of a message that was stored outside a turn; after the commit."""

    def sessions_imported(self, sessions: Sequence[Session]) -> None:
        """Hear of sessions that a file made or added to; after the commit."""
        for session in sessions:
            rows = Message.objects.filter(branch=session.branch).order_by("-position")
            newest = rows.first()
            if newest is not None:
                newest.branch = session.branch
                notify(self.message_stored, session, newest)

    def pin_warning(self, session: Session) -> str:
        """Return a sentence where pinned messages take more room than is meant for them; or none.

        Asked when somebody pins: what is pinned goes out all the same.
        """
        return ""

    def turn_finished(self, session: Session, outcome: TurnOutcome) -> None:
        """Hear how a turn ended; after the commit."""

    def switch(
        self,
        session: Session,
        branch: Branch,
        wishes: Mapping[str, Any],
        *,
        activate: Callable[[], Branch],
    ) -> Switched | None:
        """Make another branch the active one: call `activate`, which returns the one that was.

        A backend may do more before or after it, as `wishes` ask, and may refuse with
        chatapp.transcript.SwitchRefusedError; then nothing changes. The API's wishes are
        `summarize`, `instructions`, `replace_instructions`, `label`, `wait` and others as they
        came; `activate` names the branch as `label` says. None tells of a switch and no more.
        """
        activate()
        return Switched(branch=branch)

    def offers_branch_summary(self, session: Session) -> bool:
        """Whether people are asked, at a switch, if the branch that they leave shall be summarised.

        Then `switch` knows the wish `summarize`.
        """
        return False

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the backend's options."""
        return []


def _whole(session: Session, rows: Sequence[Message]) -> Context:
    """Return the request that sends all these messages."""
    return assemble(
        session,
        HistoryPart(
            system=[row for row in rows if row.is_pinned_system],
            kept=[row for row in rows if not row.is_pinned_system],
        ),
    )


class FullHistoryBackend(BaseContextBackend):
    """Sends everything that was stored."""

    def preview_part(
        self, session: Session, *, most: int = PREVIEW_MESSAGES, oldest: int = 0
    ) -> Context:
        """Return the newest messages, and the `oldest` ones, of what is sent."""
        part = shown_part(session.branch, most=most, oldest=oldest)
        if part is None:
            return self.preview(session)
        return showing_part(_whole(session, part.rows), part.not_shown)


class _ContextBackend(LazyObject):  # type: ignore[type-arg]  # generic in the stubs only
    def _setup(self) -> None:
        setting = chatapp_settings.context
        backend = import_string(backend_path(setting["BACKEND"]))
        self._wrapped = backend(**setting.get("OPTIONS", {}))

    def forget(self) -> None:
        """Make the backend anew at the next use."""
        self._wrapped = empty


_lazy_backend = _ContextBackend()
# To a caller it is the backend that the setting names.
context_backend = cast(BaseContextBackend, _lazy_backend)


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "CHATAPP":
        _lazy_backend.forget()


def warning_of_pins(session: Session) -> str:
    """Return the backend's word on pinned messages. A failure is logged: the pin is stored."""
    try:
        return context_backend.pin_warning(session)
    except Exception:
        logger.exception("The context backend could not say what pinned messages take.")
        return ""


def notify(listener: Callable[..., object], *payload: Any) -> None:
    """Call a listener of the backend. A failure is logged: what it hears of has happened."""
    try:
        listener(*payload)
    except Exception:
        logger.exception("The context backend could not take in what was stored.")


setting_changed.connect(_reload, dispatch_uid="chatapp.context.backend")
