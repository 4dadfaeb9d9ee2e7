"""What a summary knows and where its lines come from: stored, copied, and read through the API."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from chatapp import transcript
from chatapp.models import Message
from compaction.convert import read_items
from compaction.engine.fidelity.measure import QUALITY_VERSION, LostFact, Quality
from compaction.engine.provenance import Origin, SourcedLine, SourcePiece, Unit, UnitKind
from compaction.engine.types import Outcome, Step
from compaction.models import (
    CompactionStep,
    SessionSummary,
    SummaryLine,
    SummaryQuality,
    SummaryUnits,
)
from compaction.statistics.hindsight import note_hindsight, note_waiting
from compaction.summaries.fidelity import kept_before, named_before, store_fidelity
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, user

pytestmark = pytest.mark.django_db

TEXT = "# Facts\nThe port is 8421.\nNobody said this.\nAll of it."


def answer(text: str) -> dict:
    return {"role": "assistant", "content": text}


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    wires = [
        user("Hi 😀. The port is 8421, the host is db-7."), answer("Noted."),
        user("And now?"), answer("Nothing."),
        user("Go on."), answer("Yes."),
    ]  # fmt: skip
    return SessionFactory(owner=owner, wires=wires)


@pytest.fixture
def summary(session) -> SessionSummary:
    compact(session, reason="forced")
    found = SessionSummary.objects.get()
    SessionSummary.objects.filter(pk=found.pk).update(summary_text=TEXT)
    for rows in (SummaryLine, SummaryQuality, SummaryUnits):
        rows.objects.all().delete()
    found.refresh_from_db()
    return found


@pytest.fixture
def stranger() -> APIClient:
    client = APIClient()
    client.force_authenticate(UserFactory())
    return client


def quality_with(**changes) -> Quality:
    values = {
        "version": QUALITY_VERSION, "score": 71.5, "yardstick": 60.0,
        "entities": {"identifier": (1, 2)}, "user_entities": (6.0, 12.0),
        "all_entities": (6.0, 12.0), "user_identifiers": (1, 2), "words": 0.5, "user_words": 0.5,
        "rules": (0, 0), "unsupported": ("X-9",), "unsupported_share": 0.1, "repeated": 0.0,
        "language_matches": True, "language": "en", "compression": 0.2, "carried": (0, 0),
        "carried_lost": (), "cumulative": 0.6, "named_weight": 12.0, "lost": (),
        "facts": (("8421", True, 3.0), ("db-7", False, 6.0)),
    }  # fmt: skip
    return Quality(**values | changes)


def items_of(summary) -> list:
    rows = Message.objects.filter(summary_links__summary=summary).order_by("position")
    return read_items(rows)


def bare_outcome(summary, **changes) -> Outcome:
    values = {
        "text": TEXT, "items": tuple(items_of(summary)), "chunk_count": 1, "max_depth": 0,
        "truncated": False, "input_tokens": 100, "output_tokens": 10,
    }  # fmt: skip
    return Outcome(**values | changes)


def outcome_of(summary, **changes) -> Outcome:
    """Return an outcome as a strategy makes it: ids of messages as the database gives them."""
    items = items_of(summary)
    first = items[0]
    start = first.text.index("The port")
    end = first.text.index(",")
    port = TEXT.index("The port"), TEXT.index("\nNobody")
    nobody = TEXT.index("Nobody"), TEXT.index("\nAll")
    whole = TEXT.index("All"), len(TEXT)
    values = {
        "units": (
            Unit(
                text="The port is 8421", kind=UnitKind.FACT, speaker="", position=first.position,
                message=first.id, start=start, end=end, entities=("8421",), worth=1.5, note="n",
            ),
            Unit(text="An old one", kind=UnitKind.RULE, speaker="tool", position=3),
        ),
        "lines": (
            SourcedLine(
                start=port[0], end=port[1], origin=Origin.EXACT,
                sources=(SourcePiece(message=first.id, start=start, end=end),),
            ),
            SourcedLine(start=nobody[0], end=nobody[1], origin=Origin.NONE),
            SourcedLine(
                start=whole[0], end=whole[1], origin=Origin.CITED,
                sources=(
                    SourcePiece(message=first.id), SourcePiece(message=items[1].id, start=0, end=5)
                ),
            ),
        ),
        "quality": quality_with(
            lost=(
                LostFact(
                    text="db-7", kind="identifier", speaker="user", message=first.id,
                    start=36, end=40, context="the host is db-7.", weight=6.0,
                ),
            )
        ),
    }  # fmt: skip
    return bare_outcome(summary, **values | changes)


@pytest.fixture
def measured(summary) -> SessionSummary:
    store_fidelity(summary, outcome_of(summary))
    return summary


# --- storing --------------------------------------------------------------------------------------


def test_units_come_back_as_they_were_kept(measured):
    assert kept_before([measured]).units == outcome_of(measured).units


def test_a_unit_comes_back_with_the_id_that_reading_gives(measured):
    assert kept_before([measured]).units[0].message == items_of(measured)[0].id


def test_units_stand_where_their_messages_stand_now(session, measured):
    first = Message.objects.get(pk=items_of(measured)[0].id)
    Message.objects.filter(pk=first.pk).update(position=first.position + 5)
    assert kept_before([measured]).units[0].position == first.position + 5


def test_a_unit_of_a_message_that_is_gone_keeps_its_text_and_place(measured):
    row = SummaryUnits.objects.get()
    row.units[0][4] = str(uuid4())
    row.save()
    unit = kept_before([measured]).units[0]
    assert (unit.text, unit.message, unit.end) == ("The port is 8421", None, 0)


@pytest.mark.parametrize("has_summary", [True, False])
def test_what_was_made_before_keeps_nothing(summary, has_summary):
    row = summary if has_summary else None
    kept = kept_before([row] if row else [])
    assert (kept.units, kept.named_weight, named_before(row)) == ((), 0.0, 0.0)


def test_what_was_named_is_counted_on(measured):
    assert named_before(measured) == 12.0


def test_a_pass_that_was_not_measured_passes_on_what_was_named_before(measured):
    later = SessionSummary.objects.get()
    later.pk, later.covers_through, later.previous = uuid4(), later.covers_through + 1, measured
    later.save(force_insert=True)
    store_fidelity(later, outcome_of(measured, quality=None))
    assert named_before(later) == 12.0
    assert not SummaryQuality.objects.filter(pk=later.pk).exists()


def test_an_outcome_without_units_lines_and_quality_writes_nothing(summary):
    store_fidelity(summary, outcome_of(summary, units=(), lines=(), quality=None))
    assert not SummaryUnits.objects.exists()
    assert not SummaryLine.objects.exists()


def test_a_source_in_another_session_is_none(summary):
    foreign = SessionFactory(wires=[user("Secret.")]).branch.messages.get()
    line = SourcedLine(
        start=0, end=7, origin=Origin.CITED, sources=(SourcePiece(message=foreign.pk),)
    )
    store_fidelity(summary, outcome_of(summary, lines=(line,)))
    row = SummaryLine.objects.get()
    assert (row.message_id, row.origin) == (None, "none")


def test_refused_texts_are_counted(summary):
    steps = tuple(
        Step(key=key, parent=None, kind="chunk", depth=0, order=key, outcome=outcome)
        for key, outcome in enumerate(["ok", "rejected", "rejected"], start=1)
    )
    store_fidelity(summary, outcome_of(summary, steps=steps))
    assert SummaryQuality.objects.get().rejected == 2


def test_storing_takes_a_fixed_number_of_queries(summary):
    outcome = outcome_of(summary)
    many = outcome_of(summary, lines=outcome.lines * 20, units=outcome.units * 20)
    with CaptureQueriesContext(connection) as few:
        store_fidelity(summary, outcome)
    SummaryUnits.objects.all().delete()
    SummaryQuality.objects.all().delete()
    with CaptureQueriesContext(connection) as more:
        store_fidelity(summary, many)
    assert len(few) == len(more) <= 6


# --- replays --------------------------------------------------------------------------------------


@pytest.fixture
def replayed(owner, model_server, queued):
    """A summary over a call and its result, and its copy in a branch with a shorter result."""
    profile(**NEVER, keep_last_n=2)
    wires = [
        user("List the files."), call("ls", "c1"), result("c1", "x" * 500 + " main.py"),
        answer("One."), user("And now?"), answer("Nothing."),
    ]  # fmt: skip
    session = SessionFactory(owner=owner, wires=wires)
    compact(session, reason="forced")
    old = SessionSummary.objects.get()
    for rows in (SummaryLine, SummaryQuality, SummaryUnits):
        rows.objects.all().delete()
    _asked, called, output, _ = Message.objects.filter(summary_links__summary=old).order_by(
        "position"
    )
    pieces = [(called, 0, 0), (output, 501, 508)]
    lines = [
        SourcedLine(
            start=0, end=4, origin=Origin.EXACT,
            sources=(SourcePiece(message=row.pk, start=start, end=end),),
        )
        for row, start, end in pieces
    ]  # fmt: skip
    lost = LostFact(
        text="main.py", kind="path", speaker="tool", message=called.pk, start=0, end=0,
        context="", weight=2.0,
    )  # fmt: skip
    unit = Unit(
        text="main.py", kind=UnitKind.ACTION, speaker="tool", position=output.position,
        message=output.pk, start=501, end=508,
    )  # fmt: skip
    quality = quality_with(lost=(lost,))
    store_fidelity(old, bare_outcome(old, lines=tuple(lines), units=(unit,), quality=quality))
    done = transcript.replay(session, contents={output.pk: "x…"})
    new = SessionSummary.objects.get(branch=done.new)
    return old, new, done.ids, called, output


def test_a_replay_copies_lines_units_and_quality(replayed):
    old, new, *_ = replayed
    assert new.lines.count() == old.lines.count() == 2
    assert new.quality.score == old.quality.score
    assert [unit.text for unit in kept_before([new]).units] == ["main.py"]


def test_lines_of_a_copy_lead_to_the_replayed_messages(replayed):
    _, new, ids, called, _ = replayed
    assert new.lines.get(number=1).message_id == ids.get(called.pk, called.pk)
    assert new.quality.lost[0]["message"] == str(ids.get(called.pk, called.pk))


def test_a_piece_of_a_shortened_result_stays_one_of_the_older_message(replayed):
    _, new, ids, _, output = replayed
    assert output.pk in ids
    assert new.lines.get(number=2).message_id == output.pk


# --- quality/ -------------------------------------------------------------------------------------


def url_of(summary, name: str) -> str:
    return f"/api/v1/summaries/{summary.pk}/{name}/"


def test_quality_has_score_figures_and_lost_facts(api, measured):
    body = api.get(url_of(measured, "quality")).json()
    assert (body["score"], body["cumulative"], body["unsupported_count"]) == (71.5, 0.6, 1)
    assert body["figures"]["entities"] == {"identifier": [1, 2]}
    (lost,) = body["lost"]
    assert (lost["key"], lost["kind"], lost["start"]) == ("db-7", "identifier", 36)
    assert lost["message"] == str(Message.objects.order_by("position")[0].pk)


def test_a_verdict_is_stored_with_who_and_when(api, owner, measured):
    body = {"verdict": "bad", "note": "The host is missing."}
    answered = api.patch(url_of(measured, "quality"), body, format="json")
    assert answered.status_code == 200
    assert answered.json()["verdict_note"] == "The host is missing."
    row = SummaryQuality.objects.get()
    assert (row.verdict, row.verdict_by, row.verdict_at is None) == ("bad", owner, False)


def test_a_verdict_can_be_taken_back(api, measured):
    api.patch(url_of(measured, "quality"), {"verdict": "good", "note": "Fine."}, format="json")
    api.patch(url_of(measured, "quality"), {"verdict": ""}, format="json")
    row = SummaryQuality.objects.get()
    assert (row.verdict, row.verdict_note, row.verdict_by) == ("", "", None)


def test_an_ignored_fact_is_not_among_the_lost_ones(api, measured):
    body = api.patch(url_of(measured, "quality"), {"ignored": ["db-7"]}, format="json").json()
    assert (body["lost"], body["ignored"]) == ([], ["db-7"])


def test_the_list_of_ignored_facts_takes_the_place_of_the_one_before(api, measured):
    api.patch(url_of(measured, "quality"), {"ignored": ["db-7", "x"]}, format="json")
    body = api.patch(url_of(measured, "quality"), {"ignored": ["x"]}, format="json").json()
    assert ([fact["key"] for fact in body["lost"]], body["ignored"]) == (["db-7"], ["x"])


def test_a_key_is_kept_as_it_is(api, measured):
    for key in (" db-7", "\x1e\x85"):
        body = api.patch(url_of(measured, "quality"), {"ignored": [key]}, format="json").json()
        assert body["ignored"] == [key]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"verdict": "fine"}, "verdict"),
        ({"note": "Alone."}, "note"),
        ({"ignored": "db-7"}, "ignored"),
        ({"ignored": ["db-7", 7]}, "ignored"),
        ({"ignored": [""]}, "ignored"),
    ],
)
def test_quality_refuses_what_it_cannot_use(api, measured, body, field):
    answered = api.patch(url_of(measured, "quality"), body, format="json")
    assert answered.status_code == 400
    assert field in answered.json()["errors"]


def test_quality_that_was_not_measured_is_missing(api, summary):
    answered = api.get(url_of(summary, "quality"))
    assert answered.status_code == 404
    assert "not measured" in answered.json()["detail"]


@pytest.mark.parametrize("name", ["quality", "lines"])
def test_a_summary_of_somebody_else_is_missing(stranger, measured, name):
    assert stranger.get(url_of(measured, name)).status_code == 404


def test_nobody_judges_a_summary_of_somebody_else(stranger, measured):
    answered = stranger.patch(url_of(measured, "quality"), {"verdict": "bad"}, format="json")
    assert answered.status_code == 404
    assert SummaryQuality.objects.get().verdict == ""


def test_quality_takes_one_query(api, measured, django_assert_num_queries):
    with django_assert_num_queries(1):
        api.get(url_of(measured, "quality"))


# --- lines/ ---------------------------------------------------------------------------------------


def test_lines_come_with_the_words_they_come_from(api, measured):
    first, second, third = api.get(url_of(measured, "lines")).json()["results"]
    assert (first["number"], first["origin"], first["text"]) == (1, "exact", "The port is 8421.")
    (source,) = first["sources"]
    assert (source["role"], source["sequence_id"]) == ("user", "1.000000")
    # Offsets are code points: 😀 is one.
    assert (source["start"], source["text"]) == (6, "The port is 8421")
    assert (second["origin"], second["sources"]) == ("none", [])
    assert [source["text"] for source in third["sources"]] == ["", "Noted"]


def test_lines_come_in_pages(api, measured):
    page = api.get(url_of(measured, "lines"), {"page_size": 2}).json()
    assert [line["number"] for line in page["results"]] == [1, 2]
    rest = api.get(page["next"]).json()
    assert [line["number"] for line in rest["results"]] == [3]
    assert rest["next"] is None


def test_a_summary_without_stored_lines_has_none(api, summary):
    assert api.get(url_of(summary, "lines")).json()["results"] == []


def test_lines_take_three_queries(api, measured, django_assert_num_queries):
    with django_assert_num_queries(3):
        api.get(url_of(measured, "lines"))


# --- fate/ ----------------------------------------------------------------------------------------


def fate(api, message) -> dict:
    return api.get(f"/api/v1/messages/{message.pk}/fate/").json()


def message_at(session, place: int) -> Message:
    return session.branch.messages.filter(kind="message").order_by("position")[place]


def test_a_message_knows_the_lines_it_went_into(api, session, measured):
    body = fate(api, message_at(session, 0))
    assert body["fate"] == "in_lines"
    (row,) = body["summaries"]
    assert (row["summary"], row["status"], row["lines"]) == (str(measured.pk), "active", [1, 3])


def test_a_message_that_was_read_may_stand_in_no_line(api, session, measured):
    body = fate(api, message_at(session, 2))
    assert (body["fate"], body["summaries"][0]["lines"]) == ("in_no_line", [])


def test_a_message_of_the_tail_is_not_covered(api, session, measured):
    body = fate(api, message_at(session, 5))
    assert (body["fate"], body["summaries"]) == ("not_covered", [])


def test_nobody_knows_the_fate_where_lines_were_not_stored(api, session, summary):
    assert fate(api, message_at(session, 0))["fate"] == "unknown"


def test_a_summary_that_was_taken_back_does_not_count(api, session, measured):
    SessionSummary.objects.update(status="restored")
    assert fate(api, message_at(session, 0))["fate"] == "not_covered"


def test_the_active_summary_says_what_the_fate_is(api, session, measured):
    SessionSummary.objects.update(status="superseded")
    newer = SessionSummary.objects.get()
    newer.pk, newer.status = uuid4(), "active"
    newer.save(force_insert=True)
    newer.links.create(message=message_at(session, 0))
    SummaryLine.objects.create(summary=newer, number=1, start=0, end=7, origin="none")
    body = fate(api, message_at(session, 0))
    assert body["fate"] == "in_no_line"
    assert {row["status"]: row["lines"] for row in body["summaries"]} == {
        "active": [], "superseded": [1, 3],
    }  # fmt: skip


def test_the_fate_of_a_message_of_somebody_else_is_missing(stranger, session, measured):
    path = f"/api/v1/messages/{message_at(session, 0).pk}/fate/"
    assert stranger.get(path).status_code == 404


def test_a_fate_takes_three_queries(api, session, measured, django_assert_num_queries):
    path = f"/api/v1/messages/{message_at(session, 0).pk}/fate/"
    with django_assert_num_queries(3):
        api.get(path)


# --- hindsight ------------------------------------------------------------------------------------


def stored_behind(summary: SessionSummary) -> int:
    return Message.objects.filter(
        branch=summary.branch, kind="message", position__gt=summary.covers_through
    ).count()


def hindsight(session, turns: int) -> tuple:
    note_hindsight(session.branch, turns=turns)
    row = SummaryQuality.objects.get()
    return row.hindsight, row.hindsight_facts, row.hindsight_at is not None


def test_hindsight_waits_for_its_turns(session, measured):
    store(session, [user("Is it port 8421?")])
    assert hindsight(session, 3) == (None, 0, False)


def test_hindsight_is_the_share_of_the_named_facts_that_were_known(session, measured):
    store(session, [user("Is it port 8421 of db-7?"), answer("Yes."), user("Thanks.")])
    assert hindsight(session, 2) == (0.5, 2, True)


def test_what_is_named_behind_the_turns_does_not_count(session, measured):
    store(session, [user("Is it port 8421?"), answer("Yes."), user("And db-7?")])
    assert hindsight(session, 1) == (1.0, 1, True)


def test_turns_that_name_no_old_fact_leave_hindsight_empty(session, measured):
    store(session, [user("Thanks."), answer("Welcome."), user("Bye.")])
    assert hindsight(session, 2) == (None, 0, True)


def test_hindsight_is_taken_once(session, measured, django_assert_num_queries):
    store(session, [user("Is it port 8421?"), answer("Yes."), user("Bye.")])
    assert note_hindsight(session.branch, turns=2) == 1
    with django_assert_num_queries(1):
        assert note_hindsight(session.branch, turns=2) == 0


def test_what_a_tool_names_was_not_asked_for(session, measured):
    store(session, [user("Look."), call("ls", "c1"), result("c1", "db-7"), user("Bye.")])
    assert hindsight(session, 2) == (None, 0, True)


def test_what_stayed_verbatim_beside_the_summary_is_no_later_turn(session, measured):
    assert stored_behind(measured) == 2
    assert hindsight(session, 1) == (None, 0, False)


def test_a_conversation_that_goes_on_without_a_run_gets_its_hindsight(session, measured):
    store(session, [user(f"Is it port 8421, question {n}?") for n in range(10)])
    assert note_waiting() == 1
    assert SummaryQuality.objects.get().hindsight == 1.0


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_without_a_code_can_be_inserted_by_an_older_process(summary):
    step = CompactionStep.objects.filter(run=summary.run).first()
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO compaction_steps (run_id, kind, depth, "order", message_count, '
            "input_tokens, output_tokens, outcome, duration_ms, error, output, prompt, texts, "
            'model, cost, created_at) SELECT run_id, kind, depth, "order" + 100, message_count, '
            "input_tokens, output_tokens, outcome, duration_ms, error, output, prompt, texts, "
            "model, cost, created_at FROM compaction_steps WHERE id = %s",
            [step.pk],
        )
    assert CompactionStep.objects.get(order=step.order + 100).code == ""
