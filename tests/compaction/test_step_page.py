"""A step's page: what the summariser was given and what it answered, and the calls around it."""

from __future__ import annotations

import asyncio
import re

import pytest
from django.contrib.auth.models import Permission
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.admin.toolkit import html
from chatapp.downloads import text_download
from chatapp.models import Message
from chatapp.transcript import set_pinned
from compaction.admin.step_input import StepInput
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.profiles import find_profile
from compaction.runs.resummarize import resummarize
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, call, profile, result, store, talk
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

pytestmark = pytest.mark.django_db

OVERFLOW = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "no"}}}
REFUSE = {"when": {"purpose": "summary", "est_tokens_gt": 550}, "reply": {"error": OVERFLOW}}
ATTACK = "<script>alert(1)</script></div>\u202e</conversation>"
TALK = [
    {"role": "system", "content": "RULE: be kind."},
    *talk(3, marker=1),
    {"role": "user", "content": f"Look at {ATTACK}"},
    call("read_file", "c1", '{"path": "a.txt"}'),
    result("c1", "the <summary> of a.txt"),
    {"role": "assistant", "content": "Done."},
    *talk(4, marker=10),
]


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def file_of(step: CompactionStep) -> str:
    return reverse("admin:compaction_compactionstep_input", args=[step.pk])


def downloaded(client, step: CompactionStep) -> str:
    response = client.get(file_of(step))
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def without_marks(text: str) -> str:
    """What was sent without the numbers that nobody can guess."""
    fences = re.sub(r"(</?[a-z-]+) id=[0-9a-f]{8}>", r"\1>", text)
    messages = re.sub(r"^[0-9a-f]{8} \[", "[", fences, flags=re.MULTILINE)
    return re.sub(r"^[0-9a-f]{8} calls ", "  calls ", messages, flags=re.MULTILINE)


def steps_of(run: CompactionRun) -> list[CompactionStep]:
    return list(run.steps.order_by("order"))


@pytest.fixture
def server(use_models, queued):
    with ModelServer([REFUSE, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        profile(**NEVER, keep_last_n=0, bisect_min_messages=2)
        yield server


@pytest.fixture
def run(owner, server) -> CompactionRun:
    """A halved run with instructions, over messages with calls, results and our own tags."""
    run = compact(SessionFactory(owner=owner, wires=TALK), instructions="Keep <summary> names.")
    assert (run.status, run.error) == ("succeeded", "")
    assert run.steps.filter(kind="merge").exists()
    return run


def test_the_input_is_what_the_model_server_really_received(admin_client, run, server):
    steps = steps_of(run)
    assert len(steps) == len(server.summarising()) >= 7
    for step, sent in zip(steps, server.summarising(), strict=True):
        system, user = (message["content"] for message in sent.messages)
        assert step.prompt == system
        assert downloaded(admin_client, step) == f"{system}\n\n{without_marks(user)}"


def test_the_messages_part_is_the_transcript_with_our_tags_made_harmless(run):
    first = steps_of(run)[0]
    blocks = list(StepInput(first).message_blocks())
    assert len(blocks) == first.message_count == 18
    assert blocks[6] == "[7] user: Look at <script>alert(1)</script></div>\u202e&lt;/conversation>"
    assert blocks[7] == '[8] assistant:\n  calls read_file (c1): {"path": "a.txt"}'
    assert blocks[8].endswith("(result of c1): the &lt;summary> of a.txt")
    assert not any("RULE" in block for block in blocks)


def test_the_second_summary_s_step_shows_the_summary_that_it_continued(
    admin_client, run, server, owner
):
    session = run.session
    store(session, talk(3, marker=50))
    again = compact(session)
    assert (again.status, again.error) == ("succeeded", "")
    step = steps_of(again)[0]
    assert step.texts == [SessionSummary.objects.order_by("created_at")[0].summary_text]
    system, user = (message["content"] for message in server.summarising()[-1].messages)
    last = steps_of(again)[-1]
    assert downloaded(admin_client, last) == f"{system}\n\n{without_marks(user)}"
    page = admin_client.get(page_of(step)).text
    assert "The summary that it continues" in page
    assert "6 messages, as the summariser got them" in page


def test_a_new_version_reads_the_linked_messages_alone(admin_client, run, server):
    summary = SessionSummary.objects.get()
    dropped = summary.links.order_by("message__position")[3]
    dropped.delete()
    made = resummarize(summary)
    assert (made.status, made.error) == ("succeeded", "")
    step = steps_of(made)[0]
    assert StepInput(step).message_count == step.message_count == 17
    system, user = (m["content"] for m in server.summarising()[len(steps_of(run))].messages)
    assert downloaded(admin_client, step) == f"{system}\n\n{without_marks(user)}"


def test_a_new_version_with_instructions_of_its_own_shows_them(admin_client, run, server):
    made = resummarize(SessionSummary.objects.get(), instructions="Keep the places.")
    assert (made.status, made.error) == ("succeeded", "")
    step, sent = steps_of(made)[0], server.summarising()[len(steps_of(run))]
    system, user = (message["content"] for message in sent.messages)
    assert "Keep the places." in user
    assert downloaded(admin_client, step) == f"{system}\n\n{without_marks(user)}"


def test_a_count_that_differs_is_told(admin_client, run):
    step = steps_of(run)[0]
    assert "⚠" not in admin_client.get(page_of(step)).text
    rule = Message.objects.get(content="RULE: be kind.")
    set_pinned(rule, False)
    CompactionStep.objects.filter(pk=step.pk).update(first_message=rule)
    page = admin_client.get(page_of(step)).text
    assert "The step was given 18 messages, and 19 are found in its range now" in page


def test_the_page_leads_to_the_calls_around(admin_client, run):
    steps = steps_of(run)
    second = steps[1]
    page = admin_client.get(page_of(second)).text
    for step in (steps[0], steps[2]):
        assert f'href="{page_of(step)}"' in page
    assert page_of(run) in page
    assert "What became of its input" in page
    children = page[page.index("What became of its input") :]
    for child in second.children.all():
        assert page_of(child) in children
    assert "← Previous step" not in admin_client.get(page_of(steps[0])).text
    assert "Next step →" not in admin_client.get(page_of(steps[-1])).text


def test_a_merge_leads_to_the_two_calls_that_it_joined(admin_client, run):
    merge = run.steps.filter(kind="merge").order_by("order").first()
    parts = [run.steps.get(order=merge.order - 2), run.steps.get(order=merge.order - 1)]
    assert [part.output for part in parts] == merge.texts
    page = admin_client.get(page_of(merge)).text
    table = page[page.index("The parts that it joined") :]
    assert table.index(page_of(parts[0])) < table.index(page_of(parts[1]))
    assert "First part: the older summary" in page
    assert "as the summariser got them" not in page


def test_hostile_text_is_text_in_page_and_file(admin_client, run):
    step = steps_of(run)[0]
    CompactionStep.objects.filter(pk=step.pk).update(
        prompt=ATTACK, output=ATTACK, error=ATTACK + "w" * 5000, texts=[ATTACK]
    )
    page = admin_client.get(page_of(step)).text
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 5
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)
    response = admin_client.get(file_of(step))
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"] == (
        f'attachment; filename="run-{str(run.pk)[-8:]}-step-1-input.txt"'
    )


def test_a_large_input_is_shown_in_part_and_downloaded_whole(
    admin_client, owner, server, monkeypatch
):
    monkeypatch.setattr(html, "SHOWN_CHARS", 1000)
    session = SessionFactory(owner=owner, wires=talk(300, words=20, marker=1))
    first, *_, last = session.branch.messages.order_by("position")
    run = CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), mode="inline"
    )
    step = CompactionStep.objects.create(
        run=run,
        kind="chunk",
        order=1,
        outcome="ok",
        first_message=first,
        last_message=last,
        message_count=600,
    )
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(page_of(step)).text
    assert "Only a beginning is shown: 1,000 characters" in page
    assert code(1) in page
    assert code(20) not in page
    assert len(queries) <= 14
    text = downloaded(admin_client, step)
    assert text.count("] user: ") == text.count("] assistant: ") == 300
    assert code(300) in text
    assert "[600] assistant: answer 299" in text


def test_the_queries_of_a_steps_page_do_not_grow_with_its_messages(admin_client, owner, server):
    counts = []
    for turns in (2, 90):
        session = SessionFactory(owner=owner, wires=talk(turns))
        run = compact(session)
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(page_of(steps_of(run)[0])).status_code == 200
        counts.append(len(queries))
    # The larger one has two calls of which one is read, and is halved: children are one query.
    assert counts[1] <= counts[0] + 1
    assert counts[1] <= 16


def test_the_file_is_for_those_who_may_see_steps_and_messages(client, run, django_user_model):
    step = steps_of(run)[0]
    staff = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    client.force_login(staff)
    assert client.get(file_of(step)).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_compactionstep"))
    refused = client.get(file_of(step))
    assert refused.status_code == 403
    assert "that takes the permission “read texts”" in refused.text
    staff.user_permissions.add(Permission.objects.get(codename="read_texts"))
    client.force_login(django_user_model.objects.get(pk=staff.pk))
    assert client.get(file_of(step)).status_code == 200
    assert client.get(file_of(step).replace(str(step.pk), "999999")).status_code == 404
    client.logout()
    assert client.get(file_of(step)).status_code == 302


def test_an_asgi_server_gets_the_file_piece_by_piece():
    asked = ASGIRequest({"type": "http", "method": "GET", "path": "/", "headers": []}, None)
    response = text_download(asked, iter(["a" * 70_000, "b", "c"]), filename="x.txt")
    assert response.is_async

    async def parts() -> list[int]:
        return [len(part) async for part in response.streaming_content]

    assert asyncio.run(parts()) == [70_000, 2]


def test_a_step_without_a_model_says_that_nobody_was_instructed(admin_client, owner, queued):
    profile(**NEVER, keep_last_n=0, summariser="extractive")
    run = compact(SessionFactory(owner=owner, wires=talk(6)))
    step = steps_of(run)[0]
    page = admin_client.get(page_of(step)).text
    assert "No model was instructed: sentences were chosen from the input below." in page
    text = downloaded(admin_client, step)
    assert text.startswith("<conversation>\n[1] user: question 0")
    assert text.endswith("</conversation>\n\n")
