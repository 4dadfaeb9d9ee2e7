"""The recovery of a turn as a drawing, as a table and in words, on the run's page."""

from __future__ import annotations

import html
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.models import Branch, Session
from compaction import vocabulary
from compaction.admin.recovery import end_words, recoveries_of, refusal_words, title_of
from compaction.admin.recovery_drawing import draw
from compaction.models import RecoveryStep
from tests.compaction.recoveries import recovery_of, recovery_step_of, run_of
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

HOSTILE = '</title></svg><script>alert("x")</script>\u202e'


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def shown_recovery_of(session, *recovery_steps: dict):
    recovery = recovery_of(session, *recovery_steps)
    return recoveries_of(session, [recovery])[recovery]


def texts_in(drawing: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", drawing)]


def bars_in(drawing: str, name: str) -> list[float]:
    """Return the widths of the bars of a class, from the top down."""
    found = re.findall(rf'<rect class="{name}[^"]*" width="([\d.]+)"', drawing)
    return [float(width) for width in found]


def limits_in(drawing: str) -> set[float]:
    return {
        float(x) for x in re.findall(r'<line x1="([\d.]+)"[^>]*class="recovery-limit"', drawing)
    }


@pytest.fixture
def session(owner, model_server, use_models, queued) -> Session:
    """A model whose window is 8,000 tokens, as far as the settings know."""
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500))
    return SessionFactory(owner=owner)


@pytest.fixture
def branch(session) -> Branch:
    return Branch.objects.create(session=session, kind="replay", replaces=session.branch)


# --- the drawing ----------------------------------------------------------------------------------


def test_the_rungs_are_drawn_in_their_order_with_what_came_of_them(session):
    climb = shown_recovery_of(
        session,
        {"action": "compact", "outcome": "no_help", "tokens_before": 9000, "tokens_after": 9000},
        {"action": "truncate", "tokens_before": 9000, "tokens_after": 8500, "results_cut": 2,
         "characters_cut": 81234},
        {"action": "halve", "tokens_before": 8500, "tokens_after": 3000, "groups": 10},
    )  # fmt: skip
    assert texts_in(draw(climb)) == [
        "Window: 8,000 tokens",
        "1. Compaction · no help", "", "9,000",
        "2. Tool results cut · smaller", "2 results, 81,234 characters less", "9,000 → 8,500",
        "3. Fewer messages sent · smaller", "the newest 10 groups sent", "8,500 → 3,000",
        "Went through with 3,000 tokens",
    ]  # fmt: skip


def test_bars_are_as_long_as_the_tokens(session):
    drawing = draw(
        shown_recovery_of(
            session,
            {"tokens_before": 10000, "tokens_after": 5000},
            {"tokens_before": 5000, "tokens_after": 2500},
        )
    )
    before, after = bars_in(drawing, "recovery-before"), bars_in(drawing, "recovery-after")
    whole = before[0]
    assert before == [whole, whole / 2]
    assert after == [whole / 2, whole / 4]


def test_the_limit_that_the_server_named_counts_before_the_window(session):
    one = {"tokens_before": 10000, "tokens_after": 4000}
    drawing = draw(shown_recovery_of(session, one | {"allowed": 5000}))
    assert texts_in(drawing)[0] == "Allowed: 5,000 tokens"
    (whole,) = bars_in(drawing, "recovery-before")
    left = float(re.search(r'<rect class="recovery-before"[^>]* x="([\d.]+)"', drawing)[1])
    assert limits_in(drawing) == {left + whole / 2}


def test_a_limit_of_messages_is_no_limit_of_tokens(session):
    climb = shown_recovery_of(
        session, {"error_kind": "too_many_messages", "allowed": 100, "observed": 131}
    )
    assert (climb.limit, climb.is_named) == (8000, False)
    assert refusal_words(climb.last) == (
        "More messages than the server takes (messages: 131 counted, 100 allowed)"
    )


def test_a_limit_far_beyond_the_request_is_told_and_not_drawn(session):
    drawing = draw(shown_recovery_of(session, {"tokens_before": 900, "tokens_after": 400}))
    assert texts_in(drawing)[0] == "Window: 8,000 tokens"
    assert limits_in(drawing) == set()
    assert max(bars_in(drawing, "recovery-before")) > 300


def test_a_model_that_is_gone_leaves_the_limit_unknown(session):
    session.model = "gone"
    climb = shown_recovery_of(session, {})
    assert climb.limit is None
    assert texts_in(draw(climb))[0] == "Tokens of the request"


def test_rungs_lead_to_their_runs_and_branches(session, branch):
    run = run_of(session)
    drawing = draw(
        shown_recovery_of(
            session, {"action": "compact", "run": run}, {"action": "truncate", "replay": branch}
        )
    )
    assert re.findall(r'<a href="([^"]+)"', drawing) == [page_of(run), page_of(branch)]


def test_a_ladder_with_only_its_end_is_drawn(session):
    climb = shown_recovery_of(
        session, {"action": "give_up", "outcome": "no_help", "tokens_before": 0}
    )
    assert texts_in(draw(climb)) == ["Window: 8,000 tokens", "Gave up"]
    assert title_of(climb) == "Request larger than the context window: gave up"


def test_a_request_without_tokens_is_drawn(session):
    assert bars_in(
        draw(shown_recovery_of(session, {"tokens_before": 0, "tokens_after": 0})), "recovery-after"
    )


# --- how it ended ---------------------------------------------------------------------------------


def test_a_ladder_that_gave_up_says_what_the_user_was_told(session):
    climb = shown_recovery_of(
        session,
        {"outcome": "smaller"},
        {"action": "give_up", "outcome": "no_help", "text": "Sorry."},
    )
    assert end_words(climb) == "Sorry."
    assert title_of(climb) == "Request larger than the context window: gave up after 1 step"
    assert texts_in(draw(climb))[-1] == "Gave up"


def test_a_ladder_whose_last_rung_helped_went_through(session):
    climb = shown_recovery_of(session, {"tokens_after": 8000}, {"tokens_after": 4321})
    assert "with 4,321 tokens" in end_words(climb)
    assert title_of(climb).endswith("went through after 2 steps")


def test_a_ladder_that_stops_on_the_way_does_not_claim_an_end(session):
    climb = shown_recovery_of(session, {"outcome": "failed"})
    assert end_words(climb).startswith("The end is not known")
    assert title_of(climb) == "Request larger than the context window: 1 step"


def test_every_move_and_every_outcome_has_words():
    assert (
        set(vocabulary.ACTIONS)
        == set(vocabulary.ACTION_MEANINGS)
        == set(RecoveryStep.Action.values)
    )
    assert set(vocabulary.RECOVERY_OUTCOMES) == set(RecoveryStep.Outcome.values)


# --- the run's page -------------------------------------------------------------------------------


def test_the_page_of_a_run_shows_the_whole_ladder_it_was_a_rung_of(admin_client, session):
    run, other = run_of(session), run_of(session)
    recovery_of(session, {"action": "compact", "run": run}, {"action": "compact", "run": other}, {})
    recovery_step_of(session, 50)
    page = admin_client.get(page_of(run)).text
    assert len(re.findall(r'<svg[^>]*class="recovery"', page)) == 1
    drawing = re.search(r'<svg[^>]*class="recovery".*?</svg>', page, re.DOTALL)[0]
    assert [text[:2] for text in texts_in(drawing) if "·" in text] == ["1.", "2.", "3."]
    table = re.search(r'<details class="recovery-table">.*?</details>', page, re.DOTALL)[0]
    assert table.count('<th scope="row">') == 3
    assert "9,000 → 4,000" in table


def test_a_run_that_came_by_itself_has_no_ladder(admin_client, session):
    page = admin_client.get(page_of(run_of(session))).text
    assert "Ladder of the turn" not in page


def test_the_page_costs_the_same_for_1_and_for_12_rungs(admin_client, session):
    counts = []
    for count in (0, 1, 12):
        run = run_of(session)
        recovery_of(session, *[{"action": "compact", "run": run if n == 0 else run_of(session)}
                             for n in range(count)])  # fmt: skip
        admin_client.get(page_of(run))
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(page_of(run)).status_code == 200
        assert len([q for q in queries if ' FROM "recovery_steps"' in q["sql"]]) == 1
        counts.append(len(queries))
    assert counts[0] == counts[1] == counts[2]


def test_what_a_server_said_is_escaped(admin_client, session):
    run = run_of(session)
    recovery_of(
        session,
        {"action": "compact", "run": run, "error": HOSTILE, "error_kind": HOSTILE[:40],
         "text": HOSTILE, "outcome": "failed"},
        {"action": "give_up", "outcome": "no_help", "text": HOSTILE, "error": HOSTILE},
    )  # fmt: skip
    page = admin_client.get(page_of(run)).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_each_thing_that_the_server_said_stands_there_once(admin_client, session):
    run = run_of(session)
    first = {"run": run, "action": "compact", "error": "No. One."}
    recovery_of(session, first, {"error": "No. One."}, {"error": "No. Two."})
    page = admin_client.get(page_of(run)).text
    assert (page.count("No. One."), page.count("No. Two.")) == (1, 1)
