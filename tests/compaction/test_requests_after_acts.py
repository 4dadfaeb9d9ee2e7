"""Each answer's request is rebuilt, whatever people did since and whatever tools had in results:
versions activated and edited, restores, late rules, pictures in JSON, positions renumbered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatapp.models import Message, Session
from chatapp.transcript.writing import renumber
from chatapp.turns.rebuilding import rebuild
from compaction.errors import CompactionError
from compaction.models import SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.activating import Newer, activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.restore import restore_summary
from tests import facts
from tests.compaction.test_requests_rebuilt import (
    WINDOW,
    Conversation,
    script,
    settings_of,
    tool,
)
from tests.factories import SessionFactory, call, profile, result, store, user

pytestmark = pytest.mark.django_db
TURNS = 40
DATA = "iVBORw0KGgoAAAAN" * 200
PICTURE = json.dumps({"ok": True, "picture": f"data:image/png;base64,{DATA}"})


@dataclass(kw_only=True)
class WithActs(Conversation):
    """A conversation in which people do what they may do with summaries, and rules come late."""

    to_do: list[Callable[[int], None]] = field(default_factory=list)

    def something_happens(self, number: int) -> None:
        super().something_happens(number)
        if self.dice.random() < 0.6:
            act = self._next_act()
            try:
                act(number)
                self.did[act.__name__] += 1
            except CompactionError:
                self.did["refused"] += 1

    def _next_act(self) -> Callable[[int], None]:
        """Each act comes once before one comes again, so that few turns see all of them."""
        if not self.to_do:
            acts = [self.rule, self.picture, self.edit, self.activate, self.restore, self.again]
            self.to_do = self.dice.sample(acts, len(acts))
        return self.to_do.pop()

    def rule(self, number: int) -> None:
        """A rule at the place where the next cut may fall."""
        store(self._now(), [{"role": "system", "content": f"Rule {number} from now on."}])

    def picture(self, number: int) -> None:
        key = f"p{number}"
        store(self._now(), [user("snap"), call("camera", key, PICTURE), result(key, PICTURE)])
        store(self._now(), [{"role": "assistant", "content": f"There, {number}."}])

    def edit(self, number: int) -> None:
        edit_summary(self._summary("active"), text=f"Own words {number}.", author=None)

    def activate(self, number: int) -> None:
        chosen = self.dice.choice(list(Newer)[1:])
        activate_version(self._summary("superseded", "restored"), newer=chosen)

    def restore(self, number: int) -> None:
        restore_summary(self._summary("active"), cascade=True)

    def again(self, number: int) -> None:
        self.server.script = script(number)
        resummarize(self._summary("active"), replace_edited=True)

    def _now(self) -> Session:
        return Session.objects.get(pk=self.session.pk)

    def _summary(self, *statuses: str) -> SessionSummary:
        rows = list(SessionSummary.objects.filter(session=self.session, status__in=statuses))
        if not rows:
            raise CompactionError("There is none.")
        return self.dice.choice(rows)


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=300), TOKEN_COUNTER="chars4")
    return model_server


def is_rebuilt(pk: Any, body: dict[str, Any]) -> bool:
    found = rebuild(Message.objects.get(pk=pk))
    return json.dumps(found.body, sort_keys=True) == json.dumps(body, sort_keys=True)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_every_request_is_rebuilt_whatever_people_did_since(owner, server, queued, api):
    profile(**settings_of(restore_hold="window"))
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=[tool("read")], api=api)
    dice = random.Random(f"{facts.seed()} acts {api}")
    conversation = WithActs(session=session, server=server, dice=dice)
    for number in range(TURNS):
        conversation.turn(number)
        conversation.something_happens(number)
    assert len(conversation.sent) > TURNS * 0.8
    assert [pk for pk, body in conversation.sent.items() if not is_rebuilt(pk, body)] == []
    renumber(Session.objects.get(pk=session.pk))
    assert [pk for pk, body in conversation.sent.items() if not is_rebuilt(pk, body)] == []
    assert conversation.did["rule"]
    assert conversation.did["picture"]
    assert conversation.did["activate"] + conversation.did["edit"] + conversation.did["again"]
