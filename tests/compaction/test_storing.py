"""What is written with a summary, and what keeps it from being written."""

from __future__ import annotations

import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from chatapp.selectors import path_messages
from compaction.branches.leases import ensure_state
from compaction.engine.parameters import Profile
from compaction.engine.types import Outcome
from compaction.models import CompactionState, SessionSummary
from compaction.runs.resummarize import VERSION, resummarize
from compaction.summaries import columns, storing
from compaction.summaries.summarizer import ModelSummarizer
from tests.compaction.support import NEVER, compact, state, stored
from tests.engine.test_outcomes import outcome as outcome_over
from tests.factories import SessionFactory, profile, talk
from tests.fakes.summarizers import plain

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def summary(session) -> SessionSummary:
    compact(session)
    return SessionSummary.objects.get()


def outcome(**changes) -> Outcome:
    return outcome_over(plain(3), **changes)


@pytest.fixture
def order(monkeypatch) -> list[str]:
    """The names of what took a lock, in order."""
    taken: list[str] = []
    for name in ("lock_branches", "claim_state"):
        real = getattr(storing, name)

        def noted(*args, name=name, real=real, **options):
            taken.append(name)
            return real(*args, **options)

        monkeypatch.setattr(storing, name, noted)
    return taken


def test_branches_are_locked_before_states_so_that_two_workers_never_wait_for_each_other(
    summary, order
):
    resummarize(summary)
    assert order == ["lock_branches", "claim_state"]


def test_a_first_version_locks_in_the_same_order(session, order):
    compact(session)
    assert order == ["lock_branches", "claim_state"]


@pytest.mark.parametrize("change", [{"lease_owner": uuid.uuid4()}, {"cursor": 5}])
def test_a_new_version_whose_branch_changed_hands_meanwhile_is_not_stored(
    summary, monkeypatch, change
):
    real = ModelSummarizer.summarize

    def meanwhile(self, request):
        CompactionState.objects.update(**change)
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    run = resummarize(summary)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert SessionSummary.objects.get() == summary
    summary.refresh_from_db()
    assert summary.status == "active"


def test_a_new_version_of_a_summary_that_was_replaced_meanwhile_is_not_stored(summary, monkeypatch):
    real = ModelSummarizer.summarize

    def meanwhile(self, request):
        SessionSummary.objects.update(status="superseded")
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    assert resummarize(summary).error_code == "lost_race"
    assert SessionSummary.objects.count() == 1


def test_a_draft_ends_with_what_it_continues(summary):
    draft = SessionSummary.objects.get()
    draft.pk, draft.status = uuid.uuid4(), "draft"
    draft.save(force_insert=True)
    resummarize(summary)
    statuses = SessionSummary.objects.in_bulk([draft.pk, summary.pk])
    assert {row.status for row in statuses.values()} == {"superseded"}


def test_a_summary_clears_the_failures_before_it_and_has_the_branch_looked_at(session, settings):
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": 90}
    branch = ensure_state(session.branch)
    later = timezone.now() + timedelta(hours=1)
    CompactionState.objects.filter(pk=branch.pk).update(failures=3, backoff_until=later)
    last = stored(session)[9]
    passed = path_messages(session.branch, after=0, through=last.position)
    changes = storing.moved_cursor(passed, last, messages=10)
    CompactionState.objects.filter(pk=branch.pk).update(**changes)
    now = state(session)
    assert (now.failures, now.backoff_until) == (0, None)
    assert (now.cursor, now.covered_messages) == (last.position, 10)
    assert now.covered_tokens == last.tokens_through
    assert now.covered_chars == last.chars_through
    assert now.next_check_at < later


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_digest", "digest_after", "failures", "left"),
    [
        # One more failure leads to the next fallback digest.
        (True, 3, 5, {"failures": 2}),
        (True, 3, 1, {"failures": 1}),
        (True, 0, 5, {}),
        (False, 3, 5, {}),
    ],
)
def test_failures_count_on_after_a_fallback_digest(is_digest, digest_after, failures, left):
    snapshot = SimpleNamespace(
        profile=Profile(digest_after_failures=digest_after),
        state=SimpleNamespace(failures=failures),
    )
    assert storing._failures_left(snapshot, outcome(is_digest=is_digest)) == left


def test_a_digest_follows_the_newest_row_and_a_summary_the_one_it_continues():
    snapshot = SimpleNamespace(newest=["a", "b"], continued=["c", "d"])
    assert storing.previous_of(snapshot, outcome(is_digest=True)) == "b"
    assert storing.previous_of(snapshot, outcome()) == "d"
    assert storing.previous_of(SimpleNamespace(continued=[]), outcome()) is None


def test_a_text_without_a_model_names_its_writer_as_far_as_the_column_goes(session):
    run = SimpleNamespace(keep_last_n=None)
    made = Profile(keep_last_n=7, cut="last_n")
    snapshot = SimpleNamespace(profile=made, summary_profile=made, session=session)
    found = storing.asked_columns(snapshot, run, outcome(writer="w" * 101))
    assert found == {"model": "w" * 100, "keep_last_n": 7}


def test_the_version_of_a_prompt_is_stored_as_far_as_the_column_goes(session):
    run = SimpleNamespace(keep_last_n=4)
    snapshot = SimpleNamespace(profile=Profile(), summary_profile=Profile(), session=session)
    found = storing.asked_columns(snapshot, run, outcome(prompt="Write.", prompt_version="v" * 41))
    assert (found["prompt_version"], found["summary_prompt"]) == ("v" * 40, "Write.")
    assert found["keep_last_n"] == 4


@pytest.mark.parametrize(
    ("asked", "changes", "kept"),
    [
        (None, {"cut": "last_n", "keep_last_n": 7}, 7),
        (None, {"cut": "tail_size", "tail_keep_size": 9, "keep_last_n": 7}, 9),
        # The cut counts tokens: the setting.
        (None, {"cut": "recent_tokens", "keep_last_n": 7}, 7),
        (0, {"cut": "last_n", "keep_last_n": 7}, 0),
    ],
)
def test_how_many_were_to_be_kept_is_stored(asked, changes, kept):
    assert columns._kept_by_count(Profile(**changes), SimpleNamespace(keep_last_n=asked)) == kept


def test_the_version_of_a_strategy_comes_before_that_of_its_prompts(summary):
    def version(**columns):
        SessionSummary.objects.filter(pk=summary.pk).update(**columns)
        return SessionSummary.objects.annotate(made_by=VERSION).get(pk=summary.pk).made_by

    assert version(metadata={"strategy_version": "s2"}, prompt_version="p1") == "s2"
    assert version(metadata={"strategy_version": ""}) == version(metadata={}) == "p1"


def test_the_ratio_in_the_metadata_has_four_places():
    made = outcome(input_tokens=3, output_tokens=1, metadata={"leaf_count": 2})
    sizes = storing.Sizes(before=9, after=8, summary=1, sent=2)
    found = storing.metadata_of(SimpleNamespace(trigger="manual"), made, sizes)
    # What it costs as it is sent, of what it was made from.
    assert (found["compression_ratio"], found["leaf_count"]) == (0.6667, 2)


def test_a_new_version_covers_what_the_old_one_did():
    ends = storing.Ends(
        first=SimpleNamespace(position=10, created_at=1),
        last=SimpleNamespace(position=20, created_at=2),
        gap=None,
    )
    own, old = storing._covered(ends, None), SimpleNamespace(covers_from=5, covers_through=25)
    assert (own["covers_from"], own["covers_through"]) == (10, 20)
    again = storing._covered(ends, old)
    assert (again["covers_from"], again["covers_through"]) == (5, 25)
    assert (again["first_message_created_at"], again["last_message_created_at"]) == (1, 2)
