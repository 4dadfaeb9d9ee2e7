"""Servers count a few per cent more than we do: what fills the window is still answered."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys

import pytest

from chatapp.context.assembly import LARGE_MARGIN_SHARE, Account
from chatapp.incidents import Kind
from chatapp.models import Incident
from compaction.models import CompactionRun
from tests import facts
from tests.compaction.support import NEVER, say
from tests.factories import SessionFactory, profile
from tests.fakes.model_server import ModelServer, estimate

WINDOW = 4000


class ExactingServer(ModelServer):
    """Counts `factor` times characters / 4, and takes no token more than its window."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.refused = 0

    def answer(self, body, headers):
        call, _ = super().answer(body, headers)
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        if math.ceil(self.factor * estimate(call.messages)) + room <= WINDOW:
            return call, {"text": "ok"}
        self.refused += 1
        error = {"code": "context_length_exceeded", "message": "too many tokens"}
        return call, {"error": {"status": 400, "body": {"error": error}}}


@pytest.mark.parametrize(
    ("used", "share", "expected"),
    [
        # 6 % of 7,000 and 16 are 436 of the 1,000 that are left.
        (7000, 0.06, 564),
        (7000, LARGE_MARGIN_SHARE, 500),
        # Half of what is left stays at least.
        (7900, 0.06, 50),
        (8100, 0.06, -100),
    ],
)
def test_some_of_the_room_stays_free(used, share, expected):
    assert Account(kept=used, window=8000).answer_room(share=share) == expected


def test_many_short_messages_leave_room_for_their_frames():
    # A thousand messages of one token and 4 of a frame; 6 % of 5,000 and 16 are 316.
    account = Account(kept=1000, frames=4000, window=16_000)
    assert account.answer_room() == 11_000 - 316


def asked(owner, use_models, factor: float, tokens: int) -> tuple[ExactingServer, str]:
    """Ask a question of so many tokens, by our count, at a server with a count of its own."""
    profile(**NEVER)
    with ExactingServer(factor) as server:
        models = server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=2000)
        use_models(models, TOKEN_COUNTER="chars4")
        answer = say(SessionFactory(owner=owner), "go " * (tokens * 4 // 3)).answer
    return server, answer.content


@pytest.mark.django_db
def test_a_server_that_counts_a_little_more_refuses_nothing(owner, use_models, queued):
    chance = random.Random(f"{facts.seed()} margin")
    for _ in range(5):
        factor, tokens = chance.uniform(1.03, 1.06), chance.randint(2000, 3300)
        server, answer = asked(owner, use_models, factor, tokens)
        assert (answer, server.refused) == ("ok", 0), (factor, tokens)
    assert not CompactionRun.objects.exists()


@pytest.mark.django_db
def test_after_a_refusal_a_shorter_answer_is_asked_for_before_anything_is_compacted(
    owner, use_models, queued
):
    server, answer = asked(owner, use_models, 1.1, 3000)
    assert (answer, server.refused) == ("ok", 1)
    assert not CompactionRun.objects.exists()
    note = Incident.objects.get(kind=Kind.CHANGE)
    assert note.code == "output_lowered"
    assert "the server counts more" in note.text


@pytest.mark.parametrize(("window", "least"), [(512, 32), (8_000, 500), (200_000, 1024), (0, 0)])
def test_an_answer_has_a_sixteenth_of_the_window_or_what_is_worth_asking_for(window, least):
    assert Account(kept=10, window=window).least_answer == least


def filled(tokens: int) -> list[dict]:
    """Return twenty messages of together so many tokens by characters / 4, frames included."""
    chars = 4 * (tokens // 20 - 4)
    texts = [f"Crate {number} is in hall {number % 7}. " * chars for number in range(20)]
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text[:chars]} for n, text in enumerate(texts)]


@pytest.mark.django_db
def test_a_full_window_makes_room_rather_than_an_answer_of_a_few_words(owner, use_models, queued):
    """A rule that watches the window would have compacted before; here only the refusal does."""
    profile(**NEVER, keep_last_n=2, summariser="extractive")
    with ExactingServer(1.0) as server:
        models = server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=2000)
        use_models(models, TOKEN_COUNTER="chars4")
        session = SessionFactory(owner=owner, wires=filled(WINDOW - 150))
        assert say(session, "And now?").answer.content == "ok"
    asked = [call.body["max_tokens"] for call in server.calls if call.purpose == "chat"]
    assert min(asked) >= WINDOW // 16
    assert server.refused == 1
    assert CompactionRun.objects.get().trigger == "overflow_retry"
    assert not Incident.objects.filter(code="output_lowered").exists()


def test_the_process_of_a_server_imports_the_clients_library_ahead():
    """The first turn waited for it; commands and checks go on without."""
    code = (
        "import sys, threading\n"
        "import chatapp.asgi\n"
        "[one.join() for one in threading.enumerate() if one.name == 'load-openai']\n"
        "print('openai' in sys.modules)\n"
    )
    environment = os.environ | {
        "OPENAI_API_KEY": "test",
        "OPENAI_MODEL": "gpt-4o-mini",
        "DJANGO_SETTINGS_MODULE": "chatapp.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "True"
