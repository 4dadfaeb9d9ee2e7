"""The admin on large tables."""

from __future__ import annotations

import re
import uuid

import pytest
from django.contrib import admin
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.models import SessionSummary, SessionSummaryMessage
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
LISTS = [Session, Message, SessionSummary, SessionSummaryMessage]
LONG = re.compile(
    r'"(messages|session_summaries)"\."'
    r'(content|summary|reasoning|summary_text|summary_prompt|abridged|instructions)"'
)


def fill(sessions, messages, summaries, links):
    """Rows of that many sessions; messages, summaries and links are shared out evenly."""
    owner = UserFactory()
    made = [Session(owner=owner, title=f"Session {n}") for n in range(sessions)]
    Session.objects.bulk_create(made)
    branches = [Branch(session=session, message_count=9, token_total=99) for session in made]
    Branch.objects.bulk_create(branches)
    for session, branch in zip(made, branches, strict=True):
        session.active_branch = branch
    Session.objects.bulk_update(made, ["active_branch"], batch_size=500)
    rows = [
        Message(
            session=made[n % sessions],
            branch=branches[n % sessions],
            position=(n // sessions + 1) * POSITION_STEP,
            role="user" if n // sessions % 2 == 0 else "assistant",
            content=f"LONGTEXT message {n} " + "lorem " * 30,
            tokens=30,
        )
        for n in range(messages)
    ]
    Message.objects.bulk_create(rows, batch_size=1000)
    texts = [
        SessionSummary(
            session=made[n % sessions],
            branch=branches[n % sessions],
            summary_text=f"LONGTEXT summary {n} " + "ipsum " * 100,
            summary_prompt="LONGTEXT prompt " + "dolor " * 100,
            status="superseded" if n // sessions else "active",
            trigger=("manual", "proactive", "overflow_retry")[n % 3],
            reason="manual",
            truncated=n % 5 == 0,
            compression_ratio=(n % 100) / 100,
            covers_from=POSITION_STEP,
            covers_through=(n // sessions + 1) * POSITION_STEP,
            first_message=rows[n % len(rows)],
            last_message=rows[n % len(rows)],
        )
        for n in range(summaries)
    ]
    SessionSummary.objects.bulk_create(texts, batch_size=500)
    SessionSummaryMessage.objects.bulk_create(
        [
            SessionSummaryMessage(
                summary=texts[n % len(texts)], message=rows[n // len(texts) % len(rows)]
            )
            for n in range(links)
        ],
        batch_size=1000,
    )
    return made, rows, texts


@pytest.fixture
def boss(client):
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    return client


def changelist(model):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def opened(client, model, query=None):
    """The list's SQL and its page."""
    if not admin.site.is_registered(model):
        pytest.fail(f"The admin does not show {model.__name__}.")
    with CaptureQueriesContext(connection) as asked:
        page = client.get(changelist(model), query or {})
    assert page.status_code == 200, page.headers
    return [entry["sql"] for entry in asked], page.content.decode()


def selected(sql):
    """What stands between SELECT and FROM, without what the database shortens."""
    if not sql.lstrip().upper().startswith("SELECT"):
        return ""
    columns = re.split(r"\bFROM\b", sql, maxsplit=1)[0]
    shortened = r"\b(?:SUBSTR|SUBSTRING|LEFT)\((?:[^()]|\([^()]*\))*\)"
    return re.sub(shortened, "", columns, flags=re.IGNORECASE)


def check_lists(case, sqls):
    """The case's two rules, and no unfiltered COUNT(*) on messages, for one list's SQL."""
    for entry in case.raw["checks"]:
        assert entry["target"] == "admin"
        if entry["rule"] == "max_queries":
            assert len(sqls) <= entry["value"] == 12, sqls
        else:
            assert entry["rule"] == "no_full_text_columns"
            for sql in sqls:
                assert not LONG.search(selected(sql)), sql
    for sql in sqls:
        if re.search(r"\bCOUNT\(", sql, re.IGNORECASE) and '"messages"' in sql:
            assert "WHERE" in sql, sql


@pytest.fixture
def large(cases):
    case = cases("B50")
    rows = case.settings["rows"]
    assert rows == {"sessions": 500, "messages": 20000, "summaries": 2000}
    return case, fill(rows["sessions"], rows["messages"], rows["summaries"], 4000)


def test_b50_lists_of_big_tables_open_with_few_queries(large, boss):
    case, _ = large
    assert case.raw["action"]["type"] == "admin_lists"
    for model in LISTS:
        sqls, page = opened(boss, model)
        check_lists(case, sqls)
        assert "<table" in page


def test_b50_the_number_of_queries_does_not_grow_with_the_rows(cases, boss):
    case = cases("B50")
    fill(10, 10, 10, 10)
    for model in LISTS:
        opened(boss, model)
    few = {model: opened(boss, model)[0] for model in LISTS}
    fill(1000, 1000, 1000, 1000)
    for model in LISTS:
        many, _ = opened(boss, model)
        assert len(few[model]) == len(many), model
        check_lists(case, many)


QUERIES = [
    {"p": "2"},
    {"q": "Session 1"},
    {"q": str(uuid.UUID(int=5))[:8]},
    {"o": "1"},
]


def test_b50_pages_searches_and_orders_keep_the_rules(cases, boss):
    case = cases("B50")
    fill(150, 300, 300, 300)
    for model in LISTS:
        for query in QUERIES:
            check_lists(case, opened(boss, model, query)[0])


def filters(page):
    """{title: [queries of its choices]} of a list's filters, read from the page."""
    found = {}
    for title, block in re.findall(
        r"<summary>\s*By ([^<]+?)\s*</summary>(.*?)</details>", page, re.DOTALL
    ):
        found[title.lower()] = re.findall(r'<a href="\?([^"]*)"', block)
    return found


def test_b50_summaries_are_filtered_by_ratio_truncated_and_trigger(cases, boss):
    case = cases("B50")
    _, _, texts = fill(100, 100, 100, 100)
    _, page = opened(boss, SessionSummary)
    offered = filters(page)
    asked = 0
    columns = {
        "compression ratio": "compression_ratio",
        "truncated": "truncated",
        "started by": "trigger",
    }
    for title, column in columns.items():
        choices = next(queries for name, queries in offered.items() if title in name)
        narrowed = [query.replace("&amp;", "&") for query in choices if query]
        assert len(narrowed) >= 2, title
        for query in narrowed:
            pairs = dict(pair.split("=", 1) for pair in query.split("&"))
            sqls, _ = opened(boss, SessionSummary, pairs)
            check_lists(case, sqls)
            rows = next(sql for sql in reversed(sqls) if '"compression_ratio"' in selected(sql))
            where = rows.split(" WHERE ", 1)[1]
            assert f'"session_summaries"."{column}"' in where, where
            # A real column is compared, nothing inside the JSON of the metadata.
            assert '"metadata"' not in where
            asked += 1
    assert asked >= 6
    for column in columns.values():
        SessionSummary._meta.get_field(column)
    _, few = opened(boss, SessionSummary, {"truncated__exact": "1"})
    truncated = {str(text.pk) for text in texts if text.truncated}
    shown = set(re.findall(r"/sessionsummary/([0-9a-f-]{36})/change/", few))
    assert shown <= truncated
    assert shown


def test_b50_a_summary_with_5000_messages_opens_without_5000_options(boss, cases):
    cases("B50")
    _, rows, texts = fill(1, 5000, 1, 0)
    SessionSummaryMessage.objects.bulk_create(
        [SessionSummaryMessage(summary=texts[0], message=row) for row in rows], batch_size=1000
    )
    url = reverse("admin:compaction_sessionsummary_change", args=[texts[0].pk])
    with CaptureQueriesContext(connection) as asked:
        page = boss.get(url)
    assert page.status_code == 200
    text = page.content.decode()
    assert text.count("<option") < 100
    assert text.count("LONGTEXT message") < 200
    assert len(page.content) < 500_000
    assert len(asked) <= 30
    for entry in asked:
        if "session_summary_messages" in entry["sql"] and "COUNT(" not in entry["sql"]:
            assert "LIMIT" in entry["sql"]


def test_b50_a_session_with_5000_messages_opens_too(boss, cases):
    cases("B50")
    made, rows, _ = fill(1, 5000, 10, 10)
    for model, row in ((Session, made[0]), (Message, rows[0])):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        with CaptureQueriesContext(connection) as asked:
            page = boss.get(reverse(name, args=[row.pk]))
        assert page.status_code == 200
        assert page.content.decode().count("<option") < 100
        assert len(page.content) < 500_000
        assert len(asked) <= 40
