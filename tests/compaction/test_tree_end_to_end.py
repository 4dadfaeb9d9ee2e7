"""An owner and an operator at the same tree: a question asked anew, and the way back."""

from __future__ import annotations

import pytest
from django.urls import reverse

from chatapp.models import Branch, Message, Session
from compaction.doctor.examine import examine
from compaction.models import CompactionRun, SessionSummary
from compaction.tasks import run_compaction
from tests.factories import call, profile, result, talk, user
from tests.facts import code
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(api, model_server, queued) -> Session:
    """Four turns, one of them with a tool, posted as a frontend posts them."""
    profile("tree", message_limit=0, max_context_tokens=0, branch_summary="ask")
    made = api.post(reverse("session-list"), {"title": "A trip"}, format="json")
    found = Session.objects.get(pk=made.data["id"])
    wires = [
        *talk(3, marker=1),
        user("Read the plan"),
        call("read", "c1", '{"path": "plan.md"}'),
        result("c1", "The plan: go to Rome"),
        {"role": "assistant", "content": "Rome it is."},
    ]
    address = reverse("message-list", args=[found.pk])
    stored = api.post(address, {"messages": wires}, format="json")
    assert stored.status_code == 201, stored.data
    return found


def test_a_question_is_asked_anew_and_the_way_back_takes_along_what_was_learnt(
    session, api, admin_client, model_server, queued
):
    first = session.branch
    second = Message.objects.filter(session=session, role="user").order_by("position")[1]

    # The owner asks an earlier question anew.
    turns = reverse("turn", args=[session.pk])
    answer = api.post(
        turns, {"content": f"{code(900)} By train, then?", "edits": str(second.pk)}, format="json"
    )
    assert answer.status_code == 200, answer.data
    session.refresh_from_db()
    anew = session.branch
    assert (anew.parent, anew.pk != first.pk) == (first, True)
    branches = api.get(reverse("branch-list", args=[session.pk])).data["results"]
    assert [(one["kind"], one["is_active"]) for one in branches] == [
        ("root", False),
        ("fork", True),
    ]

    # The operator sees both lines and goes back, with a summary.
    tree = reverse("admin:chatapp_session_tree", args=[session.pk])
    page = admin_client.get(f"{tree}?branch={first.pk}")
    assert page.status_code == 200
    assert "Summarise the branch that is left" in page.text
    asked = {"summarize": "on", "instructions": "Mind the train.", "label": "by car"}
    address = f"/admin/chatapp/branch/{first.pk}/do/switch/?to=tree"
    told = admin_client.post(address, asked, follow=True)
    assert "A worker summarises the branch that is left" in told.text
    session.refresh_from_db()
    assert session.branch == anew
    run = CompactionRun.objects.get(trigger="branch")
    run_compaction(str(run.pk))

    run.refresh_from_db()
    assert (run.status, run.error) == ("succeeded", "")
    session.refresh_from_db()
    assert (session.branch, Branch.objects.get(pk=first.pk).label) == (first, "by car")
    summary = SessionSummary.objects.get(kind="branch")
    assert code(900) in summary.summary_text
    assert "Mind the train." in str(model_server.calls[-1].messages)
    note = Message.objects.get(kind="note")
    assert note.branch == first

    # Tree, note and run can be looked at.
    for address in (
        tree,
        reverse("admin:compaction_compactionrun_change", args=[run.pk]),
        reverse("admin:compaction_sessionsummary_change", args=[summary.pk]),
        reverse("admin:chatapp_message_change", args=[note.pk]),
        reverse("admin:chatapp_session_change", args=[session.pk]),
    ):
        assert admin_client.get(address).status_code == 200, address
    assert "by car" in admin_client.get(tree).text
    step = run.steps.get()
    shown = admin_client.get(reverse("admin:compaction_compactionstep_change", args=[step.pk]))
    assert "By train, then?" in shown.text

    # The conversation goes on, and knows.
    answer = api.post(turns, {"content": "So what now?"}, format="json")
    assert answer.status_code == 200, answer.data
    request = model_server.calls[-1].messages
    assert faults(request) == []
    assert any(code(900) in str(message["content"]) for message in request)
    assert "By train, then?" not in str(request)
    assert request[-1]["content"] == "So what now?"
    assert not examine(session.pk)
    nodes = api.get(reverse("tree", args=[session.pk])).data["results"]
    assert sum(one["branch_summaries"] for one in nodes) == 1
