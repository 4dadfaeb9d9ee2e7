"""A run's page: the tree of its calls, and what a run without a result means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from chatapp import formatting
from chatapp.admin.toolkit import html
from compaction.admin.run_tree import Node, arrange, draw
from compaction.engine.policy.reasons import RunCode
from compaction.models import CompactionRun, CompactionStep
from compaction.profiles import find_profile
from compaction.vocabulary import EXPLANATIONS
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, talk
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

pytestmark = pytest.mark.django_db

OVERFLOW = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "no"}}}
HOSTILE = '</title></svg><script>alert("x")</script>\u202e'


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def shape(nodes: list[Node]) -> list[tuple]:
    """(order or None, level, order of the parent's step, orders that were joined)."""
    found = []
    for node in nodes:
        above = node.parent.step.order if node.parent and node.parent.step else None
        joined = tuple(step.order for step in node.joins)
        found.append((node.step.order if node.step else None, node.level, above, joined))
    return found


def steps_of(run: CompactionRun) -> list[CompactionStep]:
    return list(run.steps.order_by("order"))


@pytest.fixture
def halved(owner, use_models, queued):
    """Sixteen messages of which a call takes four at most: seven calls of parts, three merges.

    Texts are 'lorem' thirty times: about 50 tokens a message by characters over four.
    """
    refuse = {"when": {"purpose": "summary", "est_tokens_gt": 550}, "reply": {"error": OVERFLOW}}
    with ModelServer([refuse, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        profile(**NEVER, keep_last_n=0, bisect_min_messages=2, planned_split=False)
        session = SessionFactory(owner=owner, wires=talk(8, marker=1))
        yield compact(session)


def test_the_tree_of_a_halved_run_is_drawn_as_it_was_called(halved):
    assert (halved.status, halved.error) == ("succeeded", "")
    assert [(s.order, s.kind, s.outcome, s.depth) for s in steps_of(halved)] == [
        (1, "chunk", "overflow", 0),
        (2, "chunk", "overflow", 1),
        (3, "chunk", "ok", 2),
        (4, "chunk", "ok", 2),
        (5, "merge", "ok", 2),
        (6, "chunk", "overflow", 1),
        (7, "chunk", "ok", 2),
        (8, "chunk", "ok", 2),
        (9, "merge", "ok", 2),
        (10, "merge", "ok", 1),
    ]
    assert shape(arrange(steps_of(halved))) == [
        (1, 0, None, ()),
        (2, 1, 1, ()),
        (3, 2, 2, ()),
        (4, 2, 2, ()),
        (5, 2, 2, (3, 4)),
        (6, 1, 1, ()),
        (7, 2, 6, ()),
        (8, 2, 6, ()),
        (9, 2, 6, (7, 8)),
        (10, 1, 1, (5, 9)),
    ]


def test_the_joined_outputs_are_what_the_merge_was_given(halved):
    by_order = {step.order: step for step in steps_of(halved)}
    merged = [one for one in arrange(steps_of(halved)) if one.step and one.step.kind == "merge"]
    assert merged
    for node in merged:
        assert [by_order[s.order].output for s in node.joins] == node.step.texts


def test_the_page_draws_a_row_a_call_that_leads_to_its_step(admin_client, halved):
    page = admin_client.get(page_of(halved)).text
    drawing = re.search(r'<svg[^>]*class="run-tree".*?</svg>', page, re.S)[0]
    assert drawing.count("<a ") == 10
    for step in steps_of(halved):
        assert f'href="{page_of(step)}"' in drawing
    assert 'aria-label="The 10 steps of the run as a tree"' in drawing
    assert drawing.count("node is-ok") == 7
    assert drawing.count("node is-overflow") == 3
    assert drawing.count("bar is-joined") == 3
    assert "3. chunk · ok" in drawing
    assert "1 – 16 (16)" in drawing
    assert "5 – 8 (4)" in drawing
    assert "joins 5 + 9" in drawing
    assert "Step 1, chunk, too large: messages 1 to 16 (16), " in drawing
    assert 'class="run-tree-frame" tabindex="0"' in page


def test_the_bars_show_which_part_of_the_messages_a_call_read(halved):
    steps = list(halved.steps.select_related("first_message", "last_message").order_by("order"))
    drawing = draw(arrange(steps))
    bars = re.findall(r'<rect class="bar is-\w+" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing)
    left = float(bars[0][0])
    places = [(float(x) - left, float(width)) for x, width in bars]
    # 190 points for sixteen messages: a half is 95, a quarter 47.5.
    assert places[0] == (0, 190)
    assert places[1] == (0, 95)
    assert places[2:5] == [(0, 47.5), (47.5, 47.5), (0, 95)]
    assert places[5] == (95, 95)
    assert places[9] == (0, 190)


def a_run(owner, **fields) -> CompactionRun:
    session = SessionFactory(owner=owner, wires=talk(2))
    words = {"trigger": "proactive", "reason": "token_limit", "mode": "background"}
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), **(words | fields)
    )


def a_step(run, order, kind, outcome, depth, parent=None, **fields) -> CompactionStep:
    return CompactionStep.objects.create(
        run=run, order=order, kind=kind, outcome=outcome, depth=depth, parent=parent, **fields
    )


def test_parts_halved_without_a_call_are_put_back_in(owner):
    run = a_run(owner)
    for order, kind, depth in (
        (1, "chunk", 2), (2, "chunk", 2), (3, "merge", 2),
        (4, "chunk", 2), (5, "chunk", 2), (6, "merge", 2), (7, "merge", 1),
    ):  # fmt: skip
        a_step(run, order, kind, "ok", depth)
    assert shape(arrange(steps_of(run))) == [
        (None, 0, None, ()),
        (None, 1, None, ()),
        (1, 2, None, ()),
        (2, 2, None, ()),
        (3, 2, None, (1, 2)),
        (None, 1, None, ()),
        (4, 2, None, ()),
        (5, 2, None, ()),
        (6, 2, None, (4, 5)),
        (7, 1, None, (3, 6)),
    ]


def test_a_planned_split_of_the_services_is_drawn_with_its_unasked_part(owner, use_models, queued):
    with ModelServer() as server:
        use_models(server.models(CONTEXT_WINDOW=2200, MAX_OUTPUT=512))
        profile(**NEVER, keep_last_n=0, bisect_min_messages=2, planned_split=True)
        run = compact(SessionFactory(owner=owner, wires=talk(20, words=30)))
    assert (run.status, run.error) == ("succeeded", "")
    nodes = arrange(steps_of(run))
    assert shape(nodes) == [
        (None, 0, None, ()),
        (1, 1, None, ()),
        (2, 1, None, ()),
        (3, 1, None, (1, 2)),
    ]
    assert (nodes[0].first, nodes[0].last) == (1_000_000, 40_000_000)
    assert "halved, not asked" in draw(nodes)


def test_a_text_shortened_without_a_call_hangs_below_the_refusal(owner):
    run = a_run(owner)
    refused = a_step(run, 1, "chunk", "overflow", 0, error="too large")
    cut = a_step(run, 2, "chunk", "truncated", 0, refused, error="The answer was cut off.")
    forced = a_step(run, 3, "chunk", "truncated", 0, cut)
    assert shape(arrange([refused, cut, forced])) == [
        (1, 0, None, ()),
        (2, 1, 1, ()),
        (3, 2, 2, ()),
    ]
    drawing = draw(arrange([refused, cut, forced]))
    assert "2. chunk · cut off" in drawing
    assert "3. chunk · shortened" in drawing
    assert drawing.count("node is-forced") == 1


def test_a_merge_that_was_refused_is_joined_by_force(owner):
    run = a_run(owner)
    top = a_step(run, 1, "chunk", "overflow", 0)
    a_step(run, 2, "chunk", "ok", 1, top)
    a_step(run, 3, "chunk", "ok", 1, top)
    refused = a_step(run, 4, "merge", "overflow", 1, top, error="too large")
    a_step(run, 5, "merge", "truncated", 1, refused)
    assert shape(arrange(steps_of(run)))[3:] == [(4, 1, 1, (2, 3)), (5, 2, 4, (2, 3))]


@pytest.mark.parametrize("count", [1, 7, 31, 200])
def test_trees_of_every_size_are_drawn_whole(admin_client, owner, count):
    run = a_run(owner)
    for order in range(1, count + 1):
        a_step(run, order, "chunk", "overflow", min(order - 1, 6))
    page = admin_client.get(page_of(run)).text
    assert page.count('<rect class="hit"') - page.count("halved, not asked") == count
    assert "are drawn" not in page


def test_a_run_of_1000_calls_draws_200_and_says_so(admin_client, owner):
    run = a_run(owner)
    CompactionStep.objects.bulk_create(
        CompactionStep(run=run, kind="chunk", order=n, outcome="ok") for n in range(1, 1001)
    )
    page = admin_client.get(page_of(run)).text
    assert "The first 200 of 1,000 steps are drawn" in page
    assert page.count('<rect class="hit"') == 200
    assert "run-tree-frame is-long" in page
    assert (
        f"{reverse('admin:compaction_compactionstep_changelist')}?run__id__exact={run.pk}" in page
    )


def test_the_queries_of_a_runs_page_do_not_grow_with_its_calls(admin_client, owner):
    counts = []
    for calls in (2, 60):
        run = a_run(owner)
        first, last = run.branch.messages.order_by("position")[:2]
        for order in range(1, calls + 1):
            a_step(run, order, "chunk", "ok", 1, first_message=first, last_message=last, model="m")
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(page_of(run)).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 11


def test_hostile_text_is_text_in_the_drawing_and_the_panel(admin_client, owner):
    run = a_run(owner, status="failed", error_code="internal_error", error=HOSTILE + "x" * 5000)
    a_step(run, 1, "<b>chunk", "error", 0, model=HOSTILE, error=HOSTILE)
    page = admin_client.get(page_of(run)).text
    assert "<script>alert" not in page
    assert "</title></svg><script>" not in page
    assert "&lt;/svg&gt;&lt;script&gt;" in page
    assert "&lt;b&gt;chunk" in page
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


# --- what a run without a result means ------------------------------------------------------------


def test_every_code_of_the_services_and_the_engine_has_words():
    root = Path(settings.BASE_DIR) / "compaction"
    rooms = ("branches", "engine", "limits", "recovery", "runs", "summaries")
    texts = [module.read_text() for room in rooms for module in (root / room).rglob("*.py")]
    used = {
        RunCode[name].value for text in texts for name in re.findall(r"RunCode\.([A-Z_]+)", text)
    }
    assert used == {
        "summariser_error", "bad_answer", "too_many_calls", "nothing_to_do", "not_smaller",
        "lost_race", "out_of_time", "interrupted", "unknown_model", "internal_error",
        "busy", "not_due", "not_active", "cancelled", "deleted",
        "stopped", "over_budget", "breaker_open", "strategy_error", "inline_limit",
        "hook_cancelled", "no_gain", "held_by_person",
    }  # fmt: skip
    assert used == set(RunCode) == set(EXPLANATIONS)


def test_a_failed_run_says_what_happened_what_it_means_and_what_to_do(
    admin_client, owner, use_models, queued
):
    refusal = {"status": 401, "body": {"error": {"message": "Incorrect API key provided"}}}
    with ModelServer([{"when": {"purpose": "summary"}, "reply": {"error": refusal}}]) as server:
        use_models(server.models())
        profile(**NEVER, keep_last_n=0)
        run = compact(SessionFactory(owner=owner, wires=talk(4)))
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    page = admin_client.get(page_of(run)).text
    assert "The summariser could not answer" in page
    for title in ("What happened", "What it means", "What to do"):
        assert f"<dt>{title}</dt>" in page
    panel = page[page.index("What happened") : page.index("Steps as a tree")]
    assert escape(run.error) in panel
    assert page.count(">Run again</button>") == 1
    assert page_of(run.profile) in panel
    assert reverse("admin:compaction_compactionstate_change", args=[run.branch_id]) in panel
    assert 'name="action" value="retry"' in panel
    assert "csrfmiddlewaretoken" in panel


@pytest.mark.parametrize(
    ("status", "code", "title", "retries"),
    [
        ("skipped", "not_due", "It was no longer due", False),
        ("skipped", "busy", "The branch was busy", True),
        ("cancelled", "cancelled", "Somebody cancelled it", True),
        ("failed", "a_plugins_code", "The run failed", True),
        ("skipped", "", "The run was skipped", True),
    ],
)
def test_skipped_cancelled_and_unknown_ends_have_words_too(
    admin_client, owner, status, code, title, retries
):
    run = a_run(owner, status=status, error_code=code, error="A sentence.")
    page = admin_client.get(page_of(run)).text
    assert f"<h2>{title}</h2>" in page
    panel = page[page.index('class="explained') : page.index("</ul>", page.index("explained-ways"))]
    assert "A sentence." in panel
    assert ("Run again" in panel) is retries


@pytest.mark.parametrize("status", ["queued", "running", "succeeded"])
def test_a_run_that_works_or_succeeded_explains_nothing(admin_client, owner, status):
    assert 'class="explained' not in admin_client.get(page_of(a_run(owner, status=status))).text


def test_who_may_not_start_runs_is_not_offered_to(client, owner, django_user_model):
    staff = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_compactionrun"))
    client.force_login(staff)
    page = client.get(page_of(a_run(owner, status="failed", error_code="bad_answer"))).text
    assert "The answer was no summary" in page
    assert "Run again" not in page


def test_a_run_without_a_result_tells_what_its_steps_came_to(admin_client, owner):
    run = a_run(owner, status="failed", error_code="bad_answer", model_calls=2)
    for order, depth in ((1, 0), (2, 3)):
        CompactionStep.objects.create(
            run=run, order=order, depth=depth, kind="chunk", outcome="error", duration_ms=45,
            input_tokens=6778, output_tokens=1000, cost=0.75,
        )  # fmt: skip
    page = admin_client.get(page_of(run)).text
    # No column of the run's own is written before there is a result.
    assert (run.input_tokens, run.output_tokens, run.cost) == (0, 0, 0.0)
    for shown in ("13,556", "2,000", "1.5000", "45 ms"):
        assert f'<div class="readonly">{shown}</div>' in page or f"<td>{shown}</td>" in page, shown
    for absent in ("Chunk count", "Truncated:", "Ratio:", "Keep last n"):
        assert absent not in page
    assert '<div class="readonly">as the profile says</div>' in page


def test_a_merge_has_read_two_texts_and_no_messages(admin_client, halved):
    page = admin_client.get(page_of(halved)).text
    assert page.count("<td>2 texts</td>") == 3


@pytest.mark.parametrize(("steps", "stops"), [(50, True), (51, False)])
def test_the_rows_of_a_large_tree_are_no_stops_of_the_tab_key(owner, steps, stops):
    run = a_run(owner)
    rows = [CompactionStep(run=run, kind="chunk", order=n, outcome="ok") for n in range(steps)]
    CompactionStep.objects.bulk_create(rows)
    assert draw(arrange(steps_of(run))).count('tabindex="-1"') == (0 if stops else 51)


@pytest.mark.parametrize(
    ("span", "shown"), [(2.44, "2.4 s"), (0.1, "0.1 s"), (0.0449, "45 ms"), (0.0, "< 1 ms")]
)
def test_short_spans_are_told_in_milliseconds(span, shown):
    assert formatting.duration(span) == shown


@pytest.mark.parametrize(
    ("cost", "shown"),
    [(0.0, "—"), (1234.5, "1,234.5000"), (0.0123, "0.0123"), (0.00002, "< 0.0001")],
)
def test_money_has_one_format(cost, shown):
    assert formatting.money(cost) == shown


def test_the_worker_is_told_by_the_end_of_its_id(admin_client, halved):
    """The whole stood there, as nowhere else on the desk."""
    page = admin_client.get(page_of(halved)).text
    assert halved.worker is not None
    assert html.short_id(halved.worker) in page
