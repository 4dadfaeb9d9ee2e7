"""A dry run says from stored sums what reading every message says."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.branches.snapshot import snapshot_of
from compaction.convert import to_item
from compaction.engine.policy.reasons import Reason
from compaction.engine.profile import PRESETS
from compaction.engine.registry import STRATEGIES
from compaction.engine.types import SummaryJob
from compaction.models import SessionSummary
from compaction.profiles import save_profile
from compaction.runs.redo import Redo
from compaction.runs.redo_estimates import Estimate, estimate_redos
from compaction.runs.redo_sums import RedoSums, sums_of_redos
from compaction.runs.resummarize import resummarize, summaries_to_redo, to_redo
from compaction.runs.strategy import parts_turn
from compaction.selectors import continued_by
from compaction.summaries.summarising_models import summarising_model
from compaction.summaries.summarizer import input_limit, summarizer_for
from tests.compaction.support import NEVER, compact
from tests.compaction.test_tail_reads import reading
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


def read_in_full(summary: SessionSummary, snapshot) -> Estimate:
    """What all messages of a summary say: each one read, with its text."""
    items = [to_item(link.message) for link in summary.links.select_related("message")]
    items.sort(key=lambda item: item.position)
    previous = "\n\n".join(row.summary_text for row in continued_by(summary))
    profile = snapshot.summary_profile
    model = summarising_model(snapshot.session, profile)
    limit = summarizer_for(snapshot.session, profile).input_limit(profile.target_summary_tokens)
    job = SummaryJob(
        items=tuple(items),
        counter=model.counter,
        previous=previous,
        parts_turn=bool(items) and parts_turn(snapshot, items[-1].position),
    )
    found = STRATEGIES.get(profile.strategy).estimate(job, profile, limit)
    usage = {"prompt_tokens": found.input_tokens, "completion_tokens": found.output_tokens}
    return Estimate(
        messages=len(items),
        tokens=sum(item.tokens for item in items),
        calls=found.calls,
        cost=model.cost(usage),
    )


def call(number: int) -> list[dict]:
    """A question that a tool answers, at some length."""
    asked = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"What is in file {number}?"},
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "line of the file " * 40},
        {"role": "assistant", "content": "It is a list."},
    ]


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """Three summaries: of a rule and talk, of calls, of talk with a pinned message."""
    profile(**NEVER, keep_last_n=2)
    rules = [{"role": "system", "content": "Answer in verse."}]
    session = SessionFactory(owner=owner, wires=[*rules, *talk(6, marker=1)])
    compact(session)
    store(session, [wire for number in range(5) for wire in call(number)])
    compact(session)
    store(session, talk(6, marker=40))
    row = Message.objects.filter(session=session, role="user").order_by("-position")[3]
    transcript.set_pinned(row, True)
    compact(session)
    return session


def compared(session: Session, profile=None) -> list[Estimate]:
    snapshot = snapshot_of(session, profile=profile)
    chosen = summaries_to_redo(session, profile=profile, force=True)
    found = list(estimate_redos(chosen, snapshot))
    assert found == [read_in_full(one, snapshot) for one in chosen]
    assert walked(snapshot) == sums(found)
    return found


def walked(snapshot, *, force: bool = True, **wishes) -> tuple:
    """What a walk over numbers says, as of a very long branch."""
    wishes = {"replace_edited": False} | wishes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compaction.runs.redo_sums.COUNTED_TEXTS", 0)
        patch.setattr("compaction.runs.redo_sums.READ_AT_ONCE", 2)
        found = sums_of_redos(snapshot, to_redo(snapshot, force=force, **wishes))
    assert found is not None
    return (found.summaries, found.messages, found.tokens, found.calls, pytest.approx(found.cost))


def sums(found: list[Estimate]) -> tuple:
    whole = RedoSums.of(found)
    return (whole.summaries, whole.messages, whole.tokens, whole.calls, whole.cost)


@pytest.mark.parametrize("preset", PRESETS)
def test_it_says_what_the_full_reading_says(session, preset):
    row = save_profile(name="other", base=preset, parameters={})
    assert len(compared(session, row)) == 3


@pytest.mark.parametrize("preset", PRESETS)
def test_also_where_one_call_is_not_enough(session, preset, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=1_500))
    values = {"target_summary_tokens": 100, "bisect_min_messages": 2}
    row = save_profile(name="small", base=preset, parameters=values)
    compared(session, row)


def test_halving_is_counted_as_before(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=700))
    row = save_profile(name="small", base="bisect", parameters={"target_summary_tokens": 60})
    assert max(one.calls for one in compared(session, row)) > 1


def test_a_fork_goes_on_from_its_parents_summaries(session):
    rows = Message.objects.filter(session=session, kind="message").order_by("position")
    fork = transcript.fork(session, at=rows.last())
    transcript.activate(session, fork)
    store(session, talk(6, marker=60))
    compact(session)
    snapshot, chosen = snapshot_of(session), summaries_to_redo(session, force=True)
    found = list(estimate_redos(chosen, snapshot))
    assert found == [read_in_full(one, snapshot) for one in chosen]
    assert len(found) == 4
    # What a summary of a fork continues is not always the one before it.
    assert sums_of_redos(snapshot, to_redo(snapshot, force=True, replace_edited=True)) is None


def test_a_summary_that_lost_links_says_what_is_linked(session):
    summary = SessionSummary.objects.order_by("covers_through").first()
    summary.links.order_by("pk").first().delete()
    SessionSummary.objects.filter(pk=summary.pk).update(message_count=summary.message_count - 1)
    compared(session)


def test_stored_sizes_stand_in_for_many_texts(session, monkeypatch):
    monkeypatch.setattr("compaction.runs.redo_estimates.COUNTED_TEXTS", 0)
    compared(session)


PRICED = {"INPUT": 2.5, "OUTPUT": 10.0}


@pytest.mark.parametrize("preset", ["bisect", "checkpoint"])
def test_a_walk_prices_what_it_passes(session, preset, use_models, model_server):
    use_models(model_server.models(PRICES=PRICED, CONTEXT_WINDOW=1_500))
    row = save_profile(name="other", base=preset, parameters={"target_summary_tokens": 100})
    assert all(one.cost > 0 for one in compared(session, row))


def test_a_message_that_was_put_between_belongs_to_no_summary(session):
    first = SessionSummary.objects.order_by("covers_through").first()
    draft = NewMessage(wire={"role": "user", "content": "Meanwhile."})
    transcript.insert_between(session.branch, after=first.covers_through, draft=draft)
    compared(session)


def test_a_walk_leaves_out_what_was_made_again(session, model_server):
    first, second, third = SessionSummary.objects.order_by("covers_through")
    resummarize(first)
    SessionSummary.objects.filter(pk=third.pk).update(reason=Reason.EDITED)
    snapshot, chosen = snapshot_of(session), summaries_to_redo(session)
    assert chosen == [second]
    assert walked(snapshot, force=False) == sums(list(estimate_redos(chosen, snapshot)))
    every = list(estimate_redos(summaries_to_redo(session, replace_edited=True), snapshot))
    assert len(every) == 2
    assert walked(snapshot, force=False, replace_edited=True) == sums(every)


def test_fallback_digests_are_said_one_by_one(session, monkeypatch):
    newest = SessionSummary.objects.order_by("-covers_through").first()
    SessionSummary.objects.filter(pk=newest.pk).update(is_digest=True)
    monkeypatch.setattr("compaction.runs.redo_sums.COUNTED_TEXTS", 0)
    wanted = to_redo(snapshot_of(session), force=True, replace_edited=True)
    assert sums_of_redos(snapshot_of(session), wanted) is None


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("window", [600, 1_500, 100_000])
def test_a_limit_is_known_without_an_encoding(session, preset, window, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=window))
    row = save_profile(name="other", base=preset, parameters={})
    snapshot = snapshot_of(session, profile=row)
    values = snapshot.summary_profile
    model = summarising_model(session, values)
    asked = summarizer_for(session, values).input_limit(values.target_summary_tokens)
    assert input_limit(session, values, model) == asked


def test_a_long_branch_is_walked_by_as_many_statements(owner, model_server, queued, monkeypatch):
    """A summary more is a row of a few numbers more, and neither a text nor a statement."""
    monkeypatch.setattr("compaction.runs.redo_sums.COUNTED_TEXTS", 1)
    profile(**NEVER, keep_last_n=2)
    read = []
    for turns in (3, 9):
        session = SessionFactory(owner=owner, wires=talk(2, marker=1))
        for number in range(turns):
            store(session, talk(3, marker=100 * number))
            compact(session)
        with reading() as reads, CaptureQueriesContext(connection):
            result = Redo(dry_run=True).take(session.pk)
        assert (result.status, result.summaries) == ("planned", turns)
        read.append((reads.statements, reads.rows))
    assert read[0][0] == read[1][0]
    assert read[1][1] - read[0][1] == 6


def test_hardly_a_message_is_read(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    read = []
    for turns in (10, 40):
        session = SessionFactory(owner=owner, wires=talk(turns, marker=1))
        compact(session)
        store(session, talk(turns, marker=100))
        compact(session)
        with reading() as reads, CaptureQueriesContext(connection):
            result = Redo(dry_run=True).take(session.pk)
        assert (result.status, result.summaries) == ("planned", 2)
        assert result.messages == 4 * turns - 2
        read.append((reads.statements, reads.rows))
    assert read[0] == read[1]
