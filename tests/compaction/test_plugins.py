"""Plug-ins of a third party: used everywhere by their names, and never able to break a turn.

The plug-ins of toy_plugins.py are registered through the COMPACTION setting alone: no existing file
knows them.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.urls import reverse

from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.timeline import read_timeline
from chatapp.context.backend import context_backend
from chatapp.incidents import Kind
from chatapp.models import Incident, Message, Session
from compaction.branches.planning import cut_of, input_of
from compaction.branches.snapshot import snapshot_of
from compaction.checks import check_plugins, check_profiles
from compaction.convert import read_items
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.strategies.prompts import DATA_RULE, MARK_RULE
from compaction.models import CompactionProfile, CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.resummarize import resummarize, summaries_to_redo
from compaction.runs.scheduling import check_branch
from compaction.summaries.drafts import has_draft
from compaction.summaries.restore import restore_summary
from compaction.tasks import run_compaction
from tests.compaction import toy_plugins as toys
from tests.compaction.session_page import page_of as session_page
from tests.compaction.session_page import plain
from tests.compaction.support import NEVER, compact, say, sent, state, stored, texts
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import CODE_PATTERN, code
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parent.parent.parent
TOYS = {"strategy": "minutes", "cut": "whole_turns", "rendering": "briefing"}
SCRIPT = [
    {
        "when": {"contains": toys.PARAGRAPH_PROMPT},
        "reply": {"echo_markers": CODE_PATTERN, "prefix": "It was said: "},
    },
    {
        "when": {"contains": toys.FAIR_COPY_PROMPT},
        "reply": {"echo_markers": CODE_PATTERN, "prefix": "MINUTES "},
    },
    {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
]
MARKERS = (
    f"{code(1)} {code(2)} {code(3)} {code(4)} {code(5)} {code(6)} {code(7)} {code(8)} {code(9)}"
)


def with_rule(prompt: str, *, of_messages: bool = True) -> str:
    """An instruction as it is sent: what the fences mean is said behind it."""
    return f"{prompt}\n\n{DATA_RULE}{MARK_RULE if of_messages else ''}"


@pytest.fixture
def plug_in(settings, queued):
    """Put plug-ins beside those of the toy module: plug_in(STRATEGIES={"mine": "path.Mine"})."""

    def register(**added: dict[str, str]) -> None:
        both = {key: paths | added.get(key, {}) for key, paths in toys.SETTING.items()}
        settings.COMPACTION = settings.COMPACTION | both

    register()
    return register


@pytest.fixture
def toy(plug_in, model_server, owner):
    """A profile with the toys, and a session of twenty messages: two turns of it are kept."""
    model_server.script = SCRIPT
    profile(**NEVER, **TOYS)
    return SessionFactory(owner=owner, title="A meeting", wires=talk(10, marker=1))


@pytest.fixture
def made(toy) -> CompactionRun:
    """The run by hand that wrote the minutes of the session."""
    run = compact(toy)
    assert (run.status, run.error) == ("succeeded", "")
    return run


def use(name: str, kind: str, thing: Any, plug_in, **parameters: Any) -> None:
    """Register one plug-in as `name` and make a profile that uses it."""
    plug_in(**{kind: {name: f"{toys.HERE}.{thing.__name__}"}})
    own = {"STRATEGIES": "strategy", "CUTS": "cut", "RENDERINGS": "rendering"}
    named = {own[kind]: name} if kind in own else {}
    profile(**NEVER | {"keep_last_n": 4} | named | parameters)


def asked(model_server) -> list[list[dict[str, Any]]]:
    """Return the messages of every request so far, all of them acceptable to a strict server."""
    requests = [one.messages for one in model_server.calls]
    assert [faults(messages) for messages in requests] == [[] for _ in requests]
    return requests


def summary_of(run: CompactionRun) -> SessionSummary:
    return SessionSummary.objects.get(run=run)


def ran(command: str, *arguments: str) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def admin_page(row: Any) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


# --- a turn ---------------------------------------------------------------------------------------


def test_a_whole_turn_uses_trigger_strategy_cut_and_rendering(toy, api, model_server):
    address = reverse("turn", args=[toy.pk])
    answer = api.post(address, {"content": "And now?"}, format="json")
    assert answer.status_code == 200, answer.data
    run = CompactionRun.objects.get()
    assert (run.status, run.reason, run.mode, run.error) == ("succeeded", "wordy", "inline", "")
    final = asked(model_server)[-1]
    # Twenty messages and a question: the question and the turn before it are kept whole.
    assert [message["role"] for message in final] == ["user", "assistant"] * 2 + ["user"]
    assert final[0]["content"] == f"For your information:\nMINUTES {MARKERS}"
    assert final[1]["content"] == toys.Briefing.acknowledgement
    assert final[2]["content"].startswith(f"{code(10)} ")
    assert final[4]["content"] == "And now?"


def test_the_next_turn_starts_as_the_one_before(toy, model_server):
    say(toy, "first")
    before = asked(model_server)[-1]
    say(toy, "second")
    assert asked(model_server)[-1][: len(before)] == before


def test_whoever_watches_the_turn_is_told_the_triggers_reason(toy):
    told: list[tuple[str, dict[str, Any]]] = []
    context_backend.prepare(toy, emit=lambda name, payload: told.append((name, payload)))
    assert [(name, payload["phase"], payload["reason"]) for name, payload in told] == [
        ("compaction", "started", "wordy"),
        ("compaction", "finished", "wordy"),
    ]


# --- a run in the background ----------------------------------------------------------------------


def test_a_background_run_stores_what_the_outcome_says(toy, model_server, queued):
    run = check_branch(toy)
    assert (run.status, run.reason, run.mode) == ("queued", "wordy", "background")
    assert run_compaction(str(run.pk)) == "succeeded"
    summary = summary_of(run)
    assert summary.summary_text == f"MINUTES {MARKERS.rpartition(' ')[0]}"
    assert summary.message_count == 16
    assert (summary.prompt_version, summary.summary_prompt) == ("minutes-3", toys.FAIR_COPY_PROMPT)
    assert summary.metadata["algorithm"] == "minutes_v3"
    assert summary.metadata["points"] == [8, 8]
    assert summary.metadata["chair"] == "nobody"
    assert summary.files_read == ["agenda.txt"]
    assert summary.files_modified == ["minutes/2026-11-28.md"]
    asked(model_server)


def test_its_steps_are_a_tree_of_its_own_kinds(made):
    rows = list(made.steps.order_by("order"))
    assert [row.kind for row in rows] == [
        toys.AGENDA, toys.PARAGRAPH, toys.PARAGRAPH, toys.FAIR_COPY,
    ]  # fmt: skip
    assert [row.parent_id for row in rows] == [None, *[rows[0].pk] * 3]
    paragraph, fair_copy = (
        with_rule(toys.PARAGRAPH_PROMPT),
        with_rule(toys.FAIR_COPY_PROMPT, of_messages=False),
    )
    assert [row.prompt for row in rows] == ["", paragraph, paragraph, fair_copy]
    run = CompactionRun.objects.get(pk=made.pk)
    assert run.model_calls == 3


def test_a_strategy_that_asks_nobody_needs_no_model(toy, model_server):
    profile(**NEVER, strategy="telegram", cut="whole_turns")
    run = compact(toy)
    assert (run.status, run.model_calls, run.spent_tokens) == ("succeeded", 0, 0)
    summary = summary_of(run)
    assert summary.summary_text.startswith(
        f"{code(1)} question 0 STOP answer 0 ipsum STOP {code(2)}"
    )
    assert (summary.model, summary.temperature, summary.prompt_version) == ("telegram", None, "")
    assert summary.metadata["algorithm"] == "telegram"
    assert not summary.is_digest
    assert model_server.calls == []


def test_calls_that_a_strategy_does_not_report_are_steps_all_the_same(toy, plug_in, model_server):
    use("silent", "STRATEGIES", toys.Silent, plug_in)
    run = compact(toy)
    assert (run.status, run.model_calls) == ("succeeded", 3)
    assert run.spent_tokens > 0
    assert [row.kind for row in run.steps.order_by("order")] == [
        toys.PARAGRAPH, toys.PARAGRAPH, toys.FAIR_COPY,
    ]  # fmt: skip


def test_the_second_summary_continues_the_first(made, toy, model_server):
    model_server.calls.clear()
    store(toy, talk(4, marker=100))
    compact(toy)
    second = SessionSummary.objects.order_by("created_at").last()
    assert second.previous == summary_of(made)
    assert code(1) in second.summary_text
    assert code(100) in second.summary_text
    asked(model_server)


def test_the_example_of_the_documentation_works(toy, plug_in, monkeypatch):
    page = (ROOT / "docs" / "CONTRIBUTING.md").read_text()
    section = page.partition("## Add a strategy\n")[2].partition("\n## ")[0]
    module = ModuleType("example_of_the_documentation")
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    plug_in(STRATEGIES={"headlines": f"{module.__name__}.Headlines"})
    profile(**NEVER, strategy="headlines", cut="whole_turns")
    run = compact(toy)
    assert (run.status, run.error) == ("succeeded", "")
    assert summary_of(run).summary_text.startswith(f"{code(1)} question 0 lorem")


OVERFLOW = {
    "when": {"contains": "question 4 lorem lorem lorem lorem", "api": "chat"},
    "reply": {"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}},
}


@pytest.mark.parametrize("strategy", ["minutes", "telegram", "bad"])
def test_a_refused_request_is_recovered_with_it(toy, plug_in, model_server, strategy):
    """Whoever summarises, or fails at it: the turn gets its answer."""
    plug_in(STRATEGIES={"bad": f"{toys.HERE}.Raising"}, TRIGGERS={"wordy": f"{toys.HERE}.Failing"})
    model_server.script = [*SCRIPT[:2], OVERFLOW, SCRIPT[2]]
    profile(**NEVER, **TOYS | {"strategy": strategy})
    say(toy, "And now?")
    assert stored(toy)[-1].content == "ok"
    run = CompactionRun.objects.order_by("created_at").first()
    assert run.trigger == "overflow_retry"
    assert run.status == ("failed" if strategy == "bad" else "succeeded")
    asked(model_server)


# --- previews -------------------------------------------------------------------------------------


def test_the_preview_says_what_would_be_done_and_what_is_sent(toy, api, made):
    branch = api.get(reverse("context", args=[toy.pk])).json()["facts"]["branch"]
    # Four messages are not enough for the toy's trigger.
    assert [rule["reason"] for rule in branch["triggers"]] == []
    assert texts(sent(toy))[0] == f"For your information:\nMINUTES {MARKERS.rpartition(' ')[0]}"
    assert faults([*sent(toy), user("And now?")]) == []


def test_the_state_names_the_rule_and_how_far_it_is(toy, api):
    found = api.get(reverse("compaction", args=[toy.pk])).data
    assert found["due"] == "wordy"
    (rule,) = [rule for rule in found["triggers"] if rule["reason"] == "wordy"]
    assert (rule["limit"], rule["left"]) == (20, 0)
    assert rule["now"] > 20


def test_a_dry_run_is_the_strategys_estimate(toy, api, model_server):
    found = api.post(reverse("compact", args=[toy.pk]), {"dry_run": True}, format="json").data
    assert (found["messages"], found["keep"], found["calls"]) == (16, 4, 3)
    assert found["reason"] == "wordy"
    assert model_server.calls == []


def test_runs_and_steps_over_the_api_have_its_words(made, api):
    found = api.get(reverse("run-detail", args=[made.pk])).data
    assert found["steps"][0]["kind"] == toys.AGENDA
    found = api.get(reverse("summary-detail", args=[summary_of(made).pk])).data
    assert found["metadata"]["chair"] == "nobody"
    assert found["files_read"] == ["agenda.txt"]
    steps = api.get(reverse("summary-steps", args=[summary_of(made).pk])).data
    assert len(steps) == 4


# --- again, and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["minutes", "telegram"])
def test_a_summary_is_made_again_once(toy, strategy):
    profile(**NEVER, **TOYS | {"strategy": strategy})
    first = summary_of(compact(toy))
    run = resummarize(first)
    assert (run.status, run.error) == ("succeeded", "")
    second = summary_of(run)
    assert second.supersedes == first
    assert second.summary_text == first.summary_text
    assert summaries_to_redo(toy) == []


def test_a_new_version_of_the_strategy_outdates_its_summaries(toy, monkeypatch):
    resummarize(summary_of(compact(toy)))
    monkeypatch.setattr(toys.Minutes, "version", "minutes-4")
    assert len(summaries_to_redo(toy)) == 1


def test_a_summary_is_made_again_by_another_strategy(made, toy):
    profile(**NEVER, cut="whole_turns", strategy="telegram")
    run = resummarize(summary_of(made))
    assert run.status == "succeeded"
    assert " STOP " in summary_of(run).summary_text


def test_restoring_sends_every_message_again(made, toy):
    restore_summary(summary_of(made))
    assert state(toy).cursor == 0
    assert [row["content"] for row in sent(toy)] == [
        row.content
        for row in Message.objects.filter(session=toy, kind="message").order_by("position")
    ]


def test_a_draft_ahead_of_need_is_published_when_a_rule_asks(
    toy, use_models, model_server, monkeypatch
):
    use_models(model_server.models(CONTEXT_WINDOW=1400, MAX_OUTPUT=100))
    ahead = {"prepare_ratio": 0.5, "publish_when_needed": True, "minimum_batch": 1}
    profile(**NEVER, **TOYS, **ahead)
    with monkeypatch.context() as patch:
        patch.setattr(toys.Wordy, "least_messages", 1000)
        run = check_branch(toy)
        assert (run.reason, run_compaction(str(run.pk))) == ("ahead", "succeeded")
        assert has_draft(snapshot_of(toy))
        assert state(toy).cursor == 0
    model_server.calls.clear()
    say(toy, "And now?")
    (only,) = asked(model_server)
    assert only[0]["content"].startswith(f"For your information:\nMINUTES {code(1)}")
    assert SessionSummary.objects.get(run=run).status == "active"


# --- pages, commands, export ----------------------------------------------------------------------


def test_every_page_of_it_opens(made, toy, admin_client):
    summary = summary_of(made)
    again = summary_of(resummarize(summary))
    rows = [made, *made.steps.all(), summary, again, toy, made.profile]
    for address in [*map(admin_page, rows), session_page(toy, at=1)]:
        response = admin_client.get(address)
        assert response.status_code == 200, address
    for name, args in (
        ("chatapp_session_timeline", [toy.pk]),
        ("chatapp_session_request", [toy.pk]),
        ("compaction_sessionsummary_compare", [summary.pk, again.pk]),
        ("compaction_compactionrun_changelist", []),
        ("compaction_sessionsummary_changelist", []),
        ("compaction_compactionstep_changelist", []),
        ("compaction_compactionprofile_changelist", []),
        ("chatapp_session_changelist", []),
        ("index", []),
    ):
        assert admin_client.get(reverse(f"admin:{name}", args=args)).status_code == 200, name


def test_the_runs_page_draws_its_tree(toy, admin_client):
    run = check_branch(toy)
    run_compaction(str(run.pk))
    page = admin_client.get(admin_page(run)).text
    assert "wordy" in plain(page)
    tree = re.search(r'<svg[^>]*class="run-tree.*?</svg>', page, re.DOTALL).group()
    assert tree.count("<title>Step ") >= 4
    assert "fair copy" in tree


def test_a_steps_page_shows_what_it_was_asked(made, admin_client):
    step = made.steps.filter(kind=toys.PARAGRAPH).first()
    page = plain(admin_client.get(admin_page(step)).text)
    assert toys.PARAGRAPH_PROMPT in page
    given = admin_client.get(reverse("admin:compaction_compactionstep_input", args=[step.pk]))
    text = b"".join(given.streaming_content).decode() if given.streaming else given.text
    assert text.startswith(toys.PARAGRAPH_PROMPT)
    assert f"{code(1)} question 0" in text


def test_a_step_that_read_texts_shows_them_all(made, admin_client):
    step = made.steps.get(kind=toys.FAIR_COPY)
    page = plain(admin_client.get(admin_page(step)).text)
    assert f"Text 1 It was said: {code(1)}" in page
    assert f"Text 2 It was said: {code(5)}" in page
    assert "cannot be found any more" not in page


def test_the_page_of_the_next_request_knows_the_summarys_messages(made, toy, admin_client):
    page = plain(admin_client.get(reverse("admin:chatapp_session_request", args=[toy.pk])).text)
    assert f"Text of summary {str(summary_of(made).pk)[-8:]}" in page


def test_runs_are_filtered_by_a_plug_ins_reason(toy, admin_client):
    run_compaction(str(check_branch(toy).pk))
    address = reverse("admin:compaction_compactionrun_changelist")
    for reason, count in (("wordy", 1), ("manual", 0)):
        response = admin_client.get(address, {"reason": reason})
        assert len(response.context["cl"].result_list) == count
    assert "?reason=wordy" in admin_client.get(address).text


def test_the_summarys_page_shows_its_files(made, admin_client):
    page = plain(admin_client.get(admin_page(summary_of(made))).text)
    assert "agenda.txt" in page
    assert "minutes/2026-11-28.md" in page
    assert "minutes-3" in page


def test_the_timeline_names_the_reason(toy):
    say(toy, "And now?")
    told = " ".join(str(entry) for entry in read_timeline(toy, timeline_sources()).entries)
    assert "wordy" in told


def test_the_report_counts_its_runs_by_their_reason(toy):
    run_compaction(str(check_branch(toy).pk))
    (reason,) = json.loads(ran("compaction_report", "--json"))["reasons"]
    assert (reason["reason"], reason["succeeded"]) == ("wordy", 1)
    assert "wordy" in ran("compaction_report", "--by", "model")


def test_the_doctor_finds_nothing_wrong_with_it(made):
    resummarize(summary_of(made))
    assert ran("doctor", "--json") == ""


def test_the_conversation_is_shown_with_its_summary(toy, made):
    assert f"MINUTES {code(1)}" in ran("show_session", str(toy.pk), "--no-pager")


def test_the_command_says_what_making_it_again_would_take(toy, made):
    told = ran("resummarize", "--session", str(toy.pk), "--dry-run", "--json")
    assert json.loads(told.splitlines()[0])["calls"] == 3


def test_the_export_is_whole(made, toy, api):
    response = api.get(reverse("export", args=[toy.pk]))
    text = b"".join(response.streaming_content).decode() if response.streaming else response.text
    assert all(mark in text for mark in MARKERS.split())


# --- profiles -------------------------------------------------------------------------------------


def test_the_profiles_page_offers_the_names(made, admin_client):
    page = admin_client.get(admin_page(made.profile)).text
    for name in ("minutes", "telegram", "whole_turns", "briefing"):
        assert f'value="{name}"' in page, name


@pytest.mark.parametrize(
    ("parameter", "known"),
    [
        ("strategy", "bisect, iterative, digest, minutes, telegram"),
        ("cut", "last_n, recent_tokens, checkpoint, tail_size, tail_chars, whole_turns"),
        ("rendering", "system, merged_system, user_tags, node, briefing"),
    ],
)
def test_a_wrong_name_is_refused_with_those_that_are_known(plug_in, db, parameter, known):
    with pytest.raises(ValidationError) as refused:
        save_profile(name="wrong", parameters={parameter: "witchcraft"})
    assert f"Must be one of {known}." in str(refused.value)


def test_the_form_refuses_a_wrong_name_in_the_same_words(plug_in, db, admin_client):
    address = reverse("admin:compaction_compactionprofile_validate_new")
    sent_form = {"name": "wrong", "base": "bisect", "strategy": "witchcraft"}
    told = json.dumps(admin_client.post(address, sent_form).json())
    assert "Must be one of bisect, iterative, digest, minutes, telegram." in told


def test_the_sliding_window_needs_a_cut_that_counts_messages(plug_in, db):
    with pytest.raises(ValidationError, match="Must be tail_size or last_n"):
        save_profile(name="wrong", base="sliding_window", parameters={"cut": "whole_turns"})


BROKEN = [
    ("STRATEGIES", "no.such.module.Strategy", "ModuleNotFoundError"),
    ("STRATEGIES", f"{toys.HERE}.Nobody", "has no attribute 'Nobody'"),
    ("STRATEGIES", "nodots", "cannot be loaded"),
    ("STRATEGIES", f"{toys.HERE}.WithoutRun", "has no run()"),
    ("CUTS", f"{toys.HERE}.HERE", "is not callable"),
    ("TRIGGERS", f"{toys.HERE}.Telegram", "has no is_due(), distance(), reason, mode"),
    ("TRIGGERS", f"{toys.HERE}.Someday", "has the mode 'someday'; known: inline, background"),
    ("RENDERINGS", f"{toys.HERE}.Wordy", "has no messages(), merges_system"),
]


@pytest.mark.parametrize(("kind", "path", "why"), BROKEN)
def test_e008_a_plug_in_that_cannot_be_used_is_named(plug_in, kind, path, why):
    assert check_plugins() == []
    plug_in(**{kind: {"mine": path}})
    (found,) = check_plugins()
    assert found.id == "compaction.E008"
    assert f"COMPACTION['{kind}']" in found.msg
    assert "'mine'" in found.msg
    assert why in found.msg


@pytest.mark.parametrize(("kind", "path", "why"), BROKEN)
def test_a_broken_plug_in_costs_no_turn(toy, api, model_server, plug_in, kind, path, why):
    plug_in(**{kind: {"minutes": path, "whole_turns": path, "briefing": path, "wordy": path}})
    response = api.post(reverse("turn", args=[toy.pk]), {"content": "So?"}, format="json")
    assert response.status_code == 200
    asked(model_server)


@pytest.fixture
def removed(made, toy, settings) -> Session:
    """A session whose profile names plug-ins that are gone."""
    settings.COMPACTION = settings.COMPACTION | {key: {} for key in toys.SETTING}
    return toy


def test_after_a_plug_in_was_removed_turns_go_on_and_say_so_once(removed, model_server):
    model_server.calls.clear()
    say(removed, "And now?")
    say(removed, "And then?")
    first, _ = asked(model_server)
    assert first[0]["role"] == "system"
    assert f"MINUTES {code(1)}" in first[0]["content"]
    (incident,) = Incident.objects.filter(session=removed)
    assert (incident.kind, incident.code) == (Kind.WARNING, "profile_unusable")
    assert "strategy: Must be one of bisect, iterative, digest." in incident.text


def test_after_a_plug_in_was_removed_the_rest_of_the_profile_counts(removed):
    row = profile(**NEVER)
    CompactionProfile.objects.filter(pk=row.pk).update(
        parameters={"strategy": "minutes", "message_limit": 7, "keep_last_n": 3}
    )
    found = snapshot_of(removed)
    assert (found.profile.strategy, found.profile.message_limit) == ("bisect", 7)
    assert list(found.problems) == ["profile_unusable"]


def test_after_a_plug_in_was_removed_a_check_names_the_profile(removed):
    (found,) = check_profiles(databases=["default"])
    assert found.id == "compaction.E005"
    assert "strategy: Must be one of bisect, iterative, digest." in found.msg


def test_after_a_plug_in_was_removed_runs_use_the_preset(removed, model_server):
    run = compact(removed, keep_last_n=2)
    assert (run.status, run.error) == ("succeeded", "")
    assert summary_of(run).metadata["algorithm"] == "bisect_v1"


def test_after_a_plug_in_was_removed_pages_open(removed, made, admin_client, api):
    summary = summary_of(made)
    rows = [made, *made.steps.all(), summary, removed, made.profile]
    for address in map(admin_page, rows):
        assert admin_client.get(address).status_code == 200, address
    assert api.get(reverse("context", args=[removed.pk])).status_code == 200
    assert api.get(reverse("compaction", args=[removed.pk])).status_code == 200


# --- trying to break it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "error_code", "sentence"),
    [
        (toys.Raising, "strategy_error", "'bad' failed (ZeroDivisionError: no messages to divide"),
        (toys.Empty, "bad_answer", "The strategy 'bad' returned an empty text."),
        (toys.Longer, "no_gain", "messages would have"),
        (toys.Nothing, "strategy_error", "returned something else than an Outcome"),
        (toys.WithoutItems, "strategy_error", "read other messages than it was given"),
        (toys.NewestFirst, "strategy_error", "read other messages than it was given"),
        (toys.HalfAGroup, "strategy_error", "left out messages that belong together"),
        (toys.Unstorable, "strategy_error", "metadata that cannot be stored as JSON"),
        (toys.AsksAllTheSame, "strategy_error", "asked the summariser although it says"),
        (toys.PlansNothing, "strategy_error", "gave no plan (KeyError: 'plan')"),
        (toys.PlansOthers, "strategy_error", "does not divide the messages"),
    ],
)
def test_a_bad_strategy_is_a_failed_run_with_a_sentence(
    owner, plug_in, model_server, api, admin_client, strategy, error_code, sentence
):
    use("bad", "STRATEGIES", strategy, plug_in)
    wires = [user(f"{code(1)} " + "go " * 40), call("ls", "c1"), result("c1", "x " * 40)]
    session = SessionFactory(owner=owner, wires=[*wires, *talk(9, marker=2)])
    response = api.post(reverse("turn", args=[session.pk]), {"content": "So?"}, format="json")
    assert response.status_code == 200
    run = CompactionRun.objects.get()
    # What gains nothing is no failure.
    fails = error_code != "no_gain"
    assert (run.status, run.error_code) == ("failed" if fails else "skipped", error_code)
    assert sentence in run.error
    assert state(session).failures == fails
    assert state(session).cursor == 0
    (only,) = asked(model_server)
    assert len(only) == 22
    assert sentence in plain(admin_client.get(admin_page(run)).text)


def test_a_strategy_that_cannot_estimate_refuses_a_dry_run(toy, api, plug_in):
    use("bad", "STRATEGIES", toys.CannotEstimate, plug_in)
    response = api.post(reverse("compact", args=[toy.pk]), {"dry_run": True}, format="json")
    assert response.status_code == 409
    assert "cannot say what a run would take (ValueError: no idea)" in response.data["detail"]


def test_a_summariser_that_is_down_is_no_fault_of_the_strategy(toy, model_server):
    model_server.script = [
        {"when": {"contains": toys.PARAGRAPH_PROMPT}, "reply": {"error": {"status": 401}}}
    ]
    run = compact(toy)
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert [(row.kind, row.outcome) for row in run.steps.order_by("order")] == [
        (toys.AGENDA, "ok"), (toys.PARAGRAPH, "error"),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [toys.keep_nothing, toys.cut_behind_call, toys.cut_nowhere])
@pytest.mark.parametrize("end", [[], [user("open?")], [call("ls", "c9")]])
def test_no_cut_parts_a_group(owner, plug_in, model_server, cut, end):
    use("bad", "CUTS", cut, plug_in)
    group = [user("look"), call("ls", "c1"), result("c1", "found " * 30)]
    session = SessionFactory(owner=owner, wires=[*talk(5, marker=1), *group, *end])
    items = read_items(Message.objects.filter(session=session).order_by("position"))
    snapshot = snapshot_of(session)
    planned = cut_of(snapshot)
    older = list(input_of(snapshot, in_any_case=True))
    assert [*older, *planned.keep] == items
    assert len(older) in [0, *legal_cuts(items), len(items)]
    if end:
        assert planned.keep
    run = compact(session)
    failed = cut is toys.cut_nowhere
    assert (run.status, run.error_code) == (
        ("failed", "strategy_error") if failed else ("succeeded", "")
    )
    assert faults(sent(session), need_user=False) == []
    say(session, "And now?")
    asked(model_server)


@pytest.mark.parametrize("trigger", [toys.Failing, toys.Limitless])
def test_a_bad_trigger_is_left_out(toy, api, admin_client, plug_in, model_server, trigger):
    use("wordy", "TRIGGERS", trigger, plug_in)
    response = api.post(reverse("turn", args=[toy.pk]), {"content": "So?"}, format="json")
    assert response.status_code == 200
    assert api.get(reverse("compaction", args=[toy.pk])).status_code == 200
    assert admin_client.get(admin_page(toy)).status_code == 200
    asked(model_server)
    if trigger is toys.Failing:
        (incident,) = Incident.objects.filter(session=toy)
        assert (incident.kind, incident.code) == (Kind.WARNING, "trigger_failed")
        assert "'wordy' failed and was left out (RuntimeError: the scales" in incident.text


def test_a_bad_trigger_leaves_the_others_in_force(toy, plug_in):
    use("wordy", "TRIGGERS", toys.Failing, plug_in, message_limit=10)
    assert check_branch(toy).reason == "message_limit"


@pytest.mark.parametrize(
    ("rendering", "sentence"),
    [
        (toys.Mute, "returned no message"),
        (toys.AssistantFirst, "returned an assistant's message before any user's"),
        (toys.Calling, "returned something else than messages of a role and a content"),
        (toys.Stuttering, "failed (OSError: no paper)"),
    ],
)
def test_a_bad_rendering_costs_no_memory(
    made, toy, api, admin_client, plug_in, model_server, rendering, sentence
):
    use("briefing", "RENDERINGS", rendering, plug_in)
    model_server.calls.clear()
    response = api.post(reverse("turn", args=[toy.pk]), {"content": "So?"}, format="json")
    assert response.status_code == 200
    (only,) = asked(model_server)
    assert only[0]["role"] == "system"
    assert f"MINUTES {code(1)}" in only[0]["content"]
    (incident,) = Incident.objects.filter(session=toy)
    assert incident.code == "rendering_failed"
    assert f"The rendering 'briefing' {sentence}" in incident.text
    assert admin_client.get(admin_page(toy)).status_code == 200
    assert "rendering" in plain(admin_client.get(admin_page(incident)).text)


def test_where_a_strategy_keeps_failing_nothing_falls_out_of_the_window(
    owner, plug_in, model_server
):
    plug_in(STRATEGIES={"bad": f"{toys.HERE}.PlansNothing"})
    save_profile(
        name="window",
        base="sliding_window",
        parameters={"strategy": "bad", "prepare_ratio": 0.0},
        make_default=True,
    )
    session = SessionFactory(owner=owner, wires=talk(60, marker=1))
    say(session, "And now?")
    runs = CompactionRun.objects.exclude(status="queued").order_by("created_at")
    assert {run.error_code for run in runs} == {"strategy_error", ""}
    assert runs.last().status == "succeeded"
    assert SessionSummary.objects.filter(is_digest=True).exists()
    final = asked(model_server)[-1]
    assert code(1) in final[0]["content"]


# --- who knows a strategy by its name -------------------------------------------------------------

ROOMS = ("api", "branches", "doctor", "limits", "management", "monitoring", "recovery", "runs")
NAMES = {"bisect", "digest", "last_n", "recent_tokens", "tail_size"}
# The last way, which counts whatever a profile says.
KNOWN = {("runs/execution.py", "digest")}


def test_no_room_but_the_engine_knows_a_strategy_or_a_cut():
    found = set()
    for room in (*ROOMS, "summaries", "statistics"):
        for path in (ROOT / "compaction" / room).rglob("*.py"):
            place = str(path.relative_to(ROOT / "compaction"))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and node.value in NAMES:
                    found.add((place, node.value))
                if isinstance(node, ast.ImportFrom) and node.module:
                    module = node.module.rpartition(".")
                    if module[0] == "compaction.engine.strategies" and module[2] in NAMES:
                        found.add((place, module[2]))
    assert found == KNOWN
