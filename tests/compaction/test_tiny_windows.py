"""Windows of 512 to 2,048 tokens: a server that takes no token more, and no turn that fails."""

from __future__ import annotations

import random

import pytest

from compaction.engine.profile import PRESETS
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.worker import execute_run
from tests import facts
from tests.compaction.support import say
from tests.factories import SessionFactory
from tests.fakes.model_server import Call, ModelServer, estimate

pytestmark = pytest.mark.django_db
# Where a profile waits for the server to refuse, more turns fill the window for certain.
TURNS, TURNS_UNTIL_REFUSED = 12, 24
WORDS = [
    "harbour",
    "ledger",
    "invoice",
    "tram",
    "lantern",
    "depot",
    "cobalt",
    "gravel",
    "orchard",
    "ticket",
    "4471",
    "PX-19",
    "Tuesday",
    "08:40",
    "Okafor",
    "archive",
    "gasket",
    "ferry",
    "quota",
    "mortar",
    "/srv/app/log.txt",
    "3.5",
    "valve",
]


def words(chance: random.Random, tokens: int) -> str:
    """Return a sentence of about so many tokens."""
    text = " ".join(chance.choice(WORDS) for _ in range(max(1, tokens)))
    return f"{text[: tokens * 4].strip().capitalize()}."


class StrictServer(ModelServer):
    """Refuses what does not fit beside the answer; writes as much as it is allowed to, or less."""

    def __init__(self, window: int, chance: random.Random) -> None:
        super().__init__()
        self.window, self.chance = window, chance

    def answer(self, body, headers):
        call, _ = super().answer(body, headers)
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        if estimate(call.messages) + room > self.window:
            message = f"This model's maximum context length is {self.window} tokens."
            error = {"code": "context_length_exceeded", "message": message}
            return call, {"error": {"status": 400, "body": {"error": error}}}
        return call, {"text": words(self.chance, self._length(call, room))}

    def _length(self, call: Call, room: int) -> int:
        most = room or self.window // 4
        if call.purpose == "chat":
            return self.chance.randint(2, max(2, min(most, self.window // 16)))
        return self.chance.randint(most // 4, most)


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("window", [512, 1024, 2048])
@pytest.mark.parametrize("counter", ["chars4", "auto"])
def test_no_turn_fails_and_summaries_leave_half_of_what_is_usable(
    owner, use_models, queued, preset, window, counter
):
    """The server counts as we do, or in a way of its own."""
    chance = random.Random(f"{facts.seed()} {preset} {window} {counter}")
    own = {"ledger": PRESETS[preset].ledger, "cooldown_seconds": 0}
    save_profile(name="tiny", base=preset, parameters=own, make_default=True)
    with StrictServer(window, chance) as server:
        answer = chance.choice((window // 4, window))
        models = server.models(CONTEXT_WINDOW=window, MAX_OUTPUT=answer)
        use_models(models, TOKEN_COUNTER=counter)
        session = SessionFactory(owner=owner)
        rules = PRESETS[preset]
        is_watched = rules.window_trigger or rules.precheck_margin
        for _ in range(TURNS if is_watched else TURNS_UNTIL_REFUSED):
            # A turn that fails raises.
            say(session, words(chance, chance.randint(2, window // 6)))
            if chance.random() < 0.5:
                for run in CompactionRun.objects.filter(status="queued"):
                    execute_run(run.pk)
    reserve = max(answer, PRESETS[preset].reserve_tokens)
    usable = window - min(reserve, window // 2)
    sizes = [one.summary_tokens for one in SessionSummary.objects.all()]
    session.branch.refresh_from_db()
    assert sizes or session.branch.token_total <= usable
    assert max(sizes, default=0) <= usable / 2
