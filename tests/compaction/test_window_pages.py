"""What operators see of a sliding window: what waits, in how many runs, how old, who works."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from chatapp import transcript
from chatapp.models import POSITION_STEP, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.admin.profile_values import inherited_values, label_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary, WorkerHeartbeat
from compaction.profiles import save_profile
from tests.compaction.session_page import ATTACK, page_of, plain
from tests.factories import SessionFactory, profile

pytestmark = pytest.mark.django_db

NOTHING_ELSE = {"prepare_ratio": 0.0}


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    save_profile(name="window", base="sliding_window", parameters=NOTHING_ELSE, make_default=True)
    return SessionFactory(owner=owner)


def grow(session: Session, count: int) -> None:
    transcript.append(
        session.branch,
        [
            NewMessage(wire={"role": ("user", "assistant")[n % 2], "content": f"text {n}"})
            for n in range(count)
        ],
    )


def put(session: Session, place: int = 0, **columns) -> CompactionState:
    """Say that the first `place` messages are summarised."""
    covered = {"cursor": place * POSITION_STEP, "covered_messages": place}
    state, _ = CompactionState.objects.update_or_create(
        branch=session.branch, defaults=covered | columns
    )
    return state


def age(session: Session, seconds: int) -> None:
    """Make every message so old."""
    then = timezone.now() - timedelta(seconds=seconds)
    Message.objects.filter(session=session).update(created_at=then)


def state_page(session: Session) -> str:
    return reverse("admin:compaction_compactionstate_change", args=[session.branch.pk])


def lines(page: str) -> dict[str, str]:
    """Return {name: words} of the state's panel."""
    panel = re.search(r'<dl class="state">.*?</dl>', page, re.DOTALL).group()
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", panel, re.DOTALL)
    return {plain(name): plain(words) for name, words in found}


def triggers(page: str) -> dict[str, str]:
    """Return {rule: numbers} of the panel's table."""
    table = re.search(r'<table class="state-triggers">.*?</table>', page, re.DOTALL).group()
    rows = re.findall(r'<th scope="row">(.*?)</th><td>.*?</td><td>(.*?)</td>', table, re.DOTALL)
    return {plain(name): plain(words) for name, words in rows}


# --- what waits -----------------------------------------------------------------------------------


def test_a_long_backlog_is_told_in_runs_with_a_bar_of_what_is_done(session, admin_client):
    """The preset: a tail of 40, and at most 60 messages a run."""
    grow(session, 1000)
    put(session, 540)
    page = admin_client.get(page_of(session)).text
    found = lines(page)
    assert found["Waiting beyond the tail"] == "420 messages wait; about 7 runs of 60."
    assert found["Summarised of what left the tail"] == "540 of 960 messages"
    # 540 of 960: 56.2 of 100.
    assert re.search(r'aria-label="540 of 960 messages">.*?share-part" width="56.2"', page)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (30, "No message: the newest 40 stay verbatim."),
        (41, "1 message waits; one run takes all."),
        (52, "12 messages wait; one run takes all."),
    ],
)
def test_a_short_backlog_is_told_too(session, admin_client, messages, words):
    grow(session, messages)
    assert lines(admin_client.get(page_of(session)).text)["Waiting beyond the tail"] == words


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        (2, "240 messages wait; about 4 runs of 60."),
        (
            3,
            "240 messages wait; about 8 runs of 30, fewer at once because 3 runs failed in a row "
            "(from 3 on).",
        ),
        (
            6,
            "240 messages wait; about 60 runs of 4; the next one is stored unsummarised, because "
            "runs keep failing.",
        ),
    ],
)
def test_after_failures_it_tells_what_the_next_run_does(session, admin_client, failures, words):
    grow(session, 280)
    put(session, failures=failures)
    assert lines(admin_client.get(page_of(session)).text)["Waiting beyond the tail"] == words


def test_a_profile_without_a_window_has_no_such_line(session, admin_client):
    profile("plain", message_limit=40)
    grow(session, 100)
    assert "Waiting beyond the tail" not in lines(admin_client.get(page_of(session)).text)


# --- triggers and times ---------------------------------------------------------------------------


def test_the_maximum_age_is_told_as_a_time(session, admin_client):
    grow(session, 45)
    age(session, 250)
    found = triggers(admin_client.get(page_of(session)).text)
    assert found["Messages beyond the tail"] == "5 of 12; 7 to go"
    assert found["Messages beyond the tail, at the latest"] == "5 of 30; 25 to go"
    assert (
        found["Maximum age of a message beyond the tail"] == "waited 4 min of 15 min; 10 min to go"
    )


def test_a_maximum_age_that_does_not_count_yet_says_when_it_does(session, admin_client):
    grow(session, 42)
    age(session, 5000)
    found = triggers(admin_client.get(page_of(session)).text)
    assert found["Maximum age of a message beyond the tail"] == (
        "15 min; counts when 4 messages wait, now 2 wait"
    )


def test_it_says_when_it_is_looked_at_again_although_nothing_is_said(session, admin_client):
    grow(session, 45)
    put(session, next_check_at=timezone.now() + timedelta(minutes=10))
    said = lines(admin_client.get(page_of(session)).text)["Looked at again"]
    assert said.startswith("At ")
    assert said.endswith(", also if nothing is said.")
    put(session, next_check_at=timezone.now() - timedelta(minutes=1))
    said = lines(admin_client.get(page_of(session)).text)["Looked at again"]
    assert said == "Now: with the next sweep, once a minute."


def test_the_last_message_summarised_is_an_index_and_a_sequence_id(session, admin_client):
    grow(session, 60)
    put(session, 12)
    found = lines(admin_client.get(page_of(session)).text)
    assert found["Last message summarised (last_consolidated)"] == (
        "index 12, sequence id 12.000000"
    )
    assert found["Asked again (pending_consolidation)"] == "no"


def test_a_draft_that_waits_is_told_and_led_to(session, admin_client):
    parameters = NOTHING_ELSE | {"publish_when_needed": True}
    save_profile(name="window", base="sliding_window", parameters=parameters, make_default=True)
    grow(session, 60)
    draft = SessionSummary.objects.create(
        session=session, branch=session.branch, status="draft", summary_text="S", trigger="x",
        reason="ahead", covers_from=1, covers_through=12 * POSITION_STEP,
    )  # fmt: skip
    page = admin_client.get(page_of(session)).text
    assert lines(page)["Draft"] == "A summary is ready and counts when a rule asks for it."
    link = reverse("admin:compaction_sessionsummary_change", args=[draft.pk])
    assert f'<dd><a href="{link}">A summary</a>' in page


# --- who works ------------------------------------------------------------------------------------


def held(session: Session, **worker) -> WorkerHeartbeat:
    """Have a worker hold the branch."""
    owner = uuid.uuid4()
    run = CompactionRun.objects.create(
        session=session, branch=session.branch, profile=snapshot_of(session).profile_row,
        status="running", worker=owner, trigger="proactive", reason="message_window",
        mode="background",
    )  # fmt: skip
    until = timezone.now() + timedelta(minutes=1)
    put(session, lease_owner=owner, lease_expires_at=until)
    told = {"id": uuid.uuid4(), "kind": "queue", "host": "alpha", "pid": 4711, "run": run}
    return WorkerHeartbeat.objects.create(**(told | worker))


def test_it_says_on_which_machine_the_branch_is_compacted(session, admin_client):
    worker = held(session)
    page = admin_client.get(page_of(session)).text
    said = lines(page)["Now (is_consolidating)"]
    assert said.startswith("A worker compacts it (a run, process 4711 on alpha); its lease ends ")
    assert reverse("admin:compaction_workerheartbeat_change", args=[worker.pk]) in page


def test_it_says_since_when_that_worker_is_silent(session, admin_client):
    held(session, beat_at=timezone.now() - timedelta(seconds=200))
    said = lines(admin_client.get(page_of(session)).text)["Now (is_consolidating)"]
    assert "(a run, process 4711 on alpha, silent since " in said


def test_a_hosts_name_is_escaped(session, admin_client):
    held(session, host=ATTACK[:100])
    assert "<script>alert(1)" not in admin_client.get(page_of(session)).text


# --- the state's own page and list ----------------------------------------------------------------


def test_the_states_page_has_the_same_panel(session, admin_client):
    grow(session, 280)
    put(session, 60)
    found = lines(admin_client.get(state_page(session)).text)
    assert found["Waiting beyond the tail"] == "180 messages wait; about 3 runs of 60."


def test_the_states_page_says_when_its_model_is_gone(session, admin_client):
    Session.objects.filter(pk=session.pk).update(model="gone")
    put(session)
    page = admin_client.get(state_page(session))
    assert page.status_code == 200
    assert "gone" in plain(page.text)


def test_the_list_of_states_tells_back_offs_and_how_far_each_is(session, admin_client):
    grow(session, 50)
    put(session, 10, failures=3, backoff_until=timezone.now() + timedelta(minutes=4))
    page = plain(admin_client.get(reverse("admin:compaction_compactionstate_changelist")).text)
    assert "Backs off until" in page
    assert "10 of 50 messages" in page


@pytest.mark.parametrize(
    ("activity", "column"), [("compacting", "lease_expires_at"), ("backing-off", "backoff_until")]
)
def test_states_are_filtered_by_what_they_do(session, owner, admin_client, activity, column):
    busy = SessionFactory(owner=owner)
    after_lease = timezone.now() + timedelta(minutes=1)
    put(session)
    put(busy, lease_owner=uuid.uuid4(), **{column: after_lease})
    address = reverse("admin:compaction_compactionstate_changelist")
    rows = admin_client.get(address, {"activity": activity}).context["cl"].result_list
    assert [row.pk for row in rows] == [busy.branch.pk]


# --- what the request leaves out ------------------------------------------------------------------


def test_what_the_context_size_hides_is_drawn_as_not_sent(session, admin_client):
    """The preset sends 75 messages: of 100 the last that begin with a question."""
    grow(session, 100)
    page = admin_client.get(page_of(session)).text
    assert "Not sent, because the profile has a context size: positions 1 – 26" in page
    assert "because the profile has a context size." in page


# --- the profile's form ---------------------------------------------------------------------------


def test_the_cooldown_is_called_maximum_age_beside_its_name(session, admin_client):
    row = snapshot_of(session).profile_row
    page = admin_client.get(
        reverse("admin:compaction_compactionprofile_change", args=[row.pk])
    ).text
    assert label_of("compression_cooldown_sec") == "Maximum age"
    assert re.search(r'for="id_compression_cooldown_sec">\s*Maximum age:', page)
    assert "<code>compression_cooldown_sec</code>" in page


def test_values_of_the_environment_are_told_for_the_window_too(settings, session):
    variables = {"COMPRESSION_WINDOW_SIZE": "20"}
    settings.COMPACTION = settings.COMPACTION | {"ENVIRONMENT": variables}
    found = inherited_values("sliding_window")["compression_window_size"]
    assert (found.value, found.variable) == (20, "COMPRESSION_WINDOW_SIZE")
