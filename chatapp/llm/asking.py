"""Asking a model once, and again in another form where the server refused the form.

For calls that are no turn, such as summaries; a turn has more to change
(chatapp/turns/attempts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from chatapp.llm.adaptations import (
    DROP,
    Adaptation,
    adaptation_for,
    adapted,
    is_of_model,
    lower_output,
    output_of,
)
from chatapp.llm.errors import ErrorKind, ModelError, Reaction
from chatapp.llm.learned_limits import learn_adaptations, learn_from_error
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.wires import arguments_of

MAX_ADAPTATIONS = 7
"""Changes of one call at most: with the first request, eight."""

# What is answered with a changed request.
_CHANGED = frozenset({Reaction.ADAPT, Reaction.LOWER_OUTPUT})

# One conversation's tools may be what is wrong; others keep theirs.
_TOOLS = f"{DROP}tools"

OnChange = Callable[[Adaptation, ModelError], None]


def ignore_change(adaptation: Adaptation, error: ModelError) -> None:
    """Do nothing with a change: the default where nobody listens."""


def is_answered(refusal: ModelError, later: ModelError) -> bool:
    """Whether a refusal's parameter is gone, so that a later one tells of another fault.

    Of all other refusals the first says what is wrong: later ones are about the changed forms.
    """
    is_same = (refusal.param, refusal.detail) == (later.param, later.detail)
    return refusal.kind is ErrorKind.PARAMETER_REFUSED and not is_same


class Guesses:
    """The changes that answered refusals of unknown meaning, and what is remembered of them.

    What is changed is what such a refusal speaks of. Where the server says the same once more, that
    was not it, and the model's other conversations must not pay for it: without streams, a
    temperature or a system message for a month.
    """

    def __init__(self) -> None:
        self._newest: tuple[tuple[str, str], frozenset[str]] | None = None
        self._all: set[str] = set()
        self._in_vain: set[str] = set()

    def refused(self, error: ModelError) -> None:
        """Take in a refusal: of what the newest guess answered, or of something else."""
        if self._newest is not None and self._newest[0] == (error.param, error.detail):
            self._in_vain |= self._newest[1]
        self._newest = None

    def tried(self, error: ModelError, codes: Collection[str]) -> None:
        """Take in what is changed because of a refusal."""
        if error.kind is ErrorKind.REJECTED:
            self._newest = (error.param, error.detail), frozenset(codes)
            self._all |= self._newest[1]

    def of_model(self, codes: Collection[str]) -> set[str]:
        """Return the codes that every request to the model wants."""
        found = {code for code in codes if is_of_model(code)} - self._in_vain
        return found - {_TOOLS} if _TOOLS in self._all else found

    def of_conversation(self, codes: Collection[str]) -> set[str]:
        """Return the codes that this conversation alone wants."""
        in_vain = {code for code in self._in_vain if is_of_model(code)}
        return {code for code in codes if code not in in_vain} - self.of_model(codes)


def ask(
    model: ModelConfig,
    request: ModelRequest,
    on_change: OnChange = ignore_change,
    *,
    first_reply: Callable[[], Reply] | None = None,
) -> Reply:
    """Return the model's answer; change the request where the server refuses its form.

    The same request is never sent twice, and what helped is remembered for the model. `on_change`
    is told of every change. `first_reply` returns what came of the request where it was sent
    before, in the form that the model is known to want. Raises ModelError, the first one that no
    change answered.
    """
    sent = [adapted(request, model)]
    first: ModelError | None = None
    helped: list[Adaptation] = []
    guesses = Guesses()
    while True:
        try:
            was_sent = first_reply if len(sent) == 1 else None
            reply = was_sent() if was_sent else model.connect().complete(sent[-1])
        except ModelError as error:
            guesses.refused(error)
            first = error if first is None or is_answered(first, error) else first
            if error.reaction not in _CHANGED and error is not first:
                raise
            again = _changed(error, sent, model, helped) if len(sent) <= MAX_ADAPTATIONS else None
            if again is None:
                raise first from error
            guesses.tried(error, [helped[-1].code])
            on_change(helped[-1], error)
            sent.append(again)
        else:
            learn_adaptations(model, guesses.of_model([one.code for one in helped]))
            return reply


def _with_shorter_answer(
    error: ModelError, sent: list[ModelRequest], model: ModelConfig, helped: list[Adaptation]
) -> ModelRequest | None:
    learn_from_error(model, error, 0)
    change = lower_output(error, sent[-1].max_output or 0)
    if change is None:
        return None
    helped.append(change)
    return replace(sent[-1], max_output=output_of(change.code))


def _changed(
    error: ModelError, sent: list[ModelRequest], model: ModelConfig, helped: list[Adaptation]
) -> ModelRequest | None:
    """Return the next request, unlike all that were sent; its change is added to `helped`."""
    if error.reaction is Reaction.LOWER_OUTPUT:
        return _with_shorter_answer(error, sent, model, helped)
    if error.reaction is not Reaction.ADAPT:
        return None
    bodies = [arguments_of(model, one) for one in sent]
    codes = set(sent[-1].adaptations)
    while (change := adaptation_for(error, sent[-1], bodies[-1], codes)) is not None:
        codes.add(change.code)
        again = adapted(sent[-1], model, codes)
        helped.append(change)
        if again.api != sent[-1].api or arguments_of(model, again) not in bodies:
            return again
        helped.pop()
    return None
