"""The pages of breakers and workers: what operators see of many processes, and the one action."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from compaction.models import CompactionRun, ModelBreaker, WorkerHeartbeat
from compaction.profiles import find_profile
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"


def list_of(model, query: str = "") -> str:
    address = reverse(f"admin:compaction_{model._meta.model_name}_changelist")
    return f"{address}?q={query}" if query else address


def page_of(row) -> str:
    return reverse(f"admin:compaction_{type(row)._meta.model_name}_change", args=[row.pk])


def rows_in(response) -> list:
    return list(response.context["cl"].result_list)


def cell(page: str, name: str) -> list[str]:
    """Return what stands in a column of a list, without markup."""
    found = re.findall(rf'<t[dh] class="field-{name}[^"]*">(.*?)</t[dh]>', page)
    return [re.sub(r"<[^>]+>", "", text) for text in found]


def badges(page: str) -> list[tuple[str, str]]:
    return re.findall(r'<span class="badge badge-(\w+)">([^<]+)</span>', page)


def a_breaker(model: str = "gpt", **columns) -> ModelBreaker:
    return ModelBreaker.objects.create(model=model, **columns)


def an_open_one(model: str = "gpt", *, seconds: int = 60, **columns) -> ModelBreaker:
    now = timezone.now()
    times = {"opened_at": now, "retry_at": now + timedelta(seconds=seconds)}
    return a_breaker(model, failures=5, last_error="503: overloaded", **(times | columns))


def a_worker(*, silent_for: int = 0, **columns) -> WorkerHeartbeat:
    base = {"id": uuid.uuid4(), "kind": "queue", "host": "alpha", "pid": 4711}
    beat_at = timezone.now() - timedelta(seconds=silent_for)
    return WorkerHeartbeat.objects.create(beat_at=beat_at, **(base | columns))


def a_run(owner) -> CompactionRun:
    session = SessionFactory(owner=owner)
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), status="running",
        trigger="proactive", reason="window", mode="background",
    )  # fmt: skip


def close_on(client, *rows, **more):
    chosen = {"action": "close_breaker", "_selected_action": [row.pk for row in rows]}
    return client.post(list_of(ModelBreaker), chosen | {"index": "0"} | more, follow=True)


def told(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


@pytest.fixture
def looker(client, django_user_model):
    """Log in somebody who may look at breakers; looker("change_modelbreaker") may do more."""

    def log_in(*further: str):
        user = django_user_model.objects.create_user("looker", is_staff=True)
        names = ("view_modelbreaker", *further)
        user.user_permissions.add(*Permission.objects.filter(codename__in=names))
        client.force_login(user)
        return client

    return log_in


# --- breakers -------------------------------------------------------------------------------------


def test_every_state_of_a_breaker_has_a_badge(admin_client):
    a_breaker("a")
    an_open_one("b")
    an_open_one("c", probe=uuid.uuid4())
    page = admin_client.get(list_of(ModelBreaker)).text
    assert badges(page) == [("good", "Closed"), ("bad", "Open"), ("busy", "Trying again")]


def test_the_list_of_breakers_tells_failures_times_and_the_last_error(admin_client):
    an_open_one("gpt")
    a_breaker("zeta")
    page = admin_client.get(list_of(ModelBreaker)).text
    assert cell(page, "model") == ["gpt", "zeta"]
    assert cell(page, "failures_shown") == ["5", "0"]
    assert cell(page, "error_start") == ["503: overloaded", "—"]
    assert cell(page, "opened_at_shown")[1] == cell(page, "retry_at_shown")[1] == "—"
    assert "—" not in (cell(page, "opened_at_shown")[0], cell(page, "retry_at_shown")[0])


def test_a_breaker_whose_time_has_come_tries_with_the_next_call(admin_client):
    an_open_one(seconds=-10)
    page = admin_client.get(list_of(ModelBreaker)).text
    assert cell(page, "retry_at_shown") == ["With the next call"]


def test_the_list_shows_the_beginning_of_a_long_error_and_the_page_all_of_it(admin_client):
    breaker = a_breaker(last_error="e" * 400)
    assert "e" * 61 not in admin_client.get(list_of(ModelBreaker)).text
    assert "e" * 400 in admin_client.get(page_of(breaker)).text


@pytest.mark.parametrize(
    ("columns", "meaning"),
    [
        ({}, "Calls go out."),
        ({"opened_at": True}, "No call goes out until it tries again"),
        ({"opened_at": True, "probe": uuid.UUID(int=1)}, "One call is out."),
    ],
    ids=["closed", "open", "probing"],
)
def test_the_page_of_a_breaker_says_what_its_state_means(admin_client, columns, meaning):
    columns = {name: timezone.now() if value is True else value for name, value in columns.items()}
    assert meaning in admin_client.get(page_of(a_breaker(**columns))).text


def test_breakers_are_found_by_a_part_of_the_name(admin_client):
    a_breaker("small-4")
    large = a_breaker("large-4")
    assert rows_in(admin_client.get(list_of(ModelBreaker, "arge"))) == [large]


def test_hostile_text_of_a_model_server_is_text(admin_client):
    breaker = a_breaker(last_error=ATTACK)
    for address in (list_of(ModelBreaker), page_of(breaker)):
        page = admin_client.get(address).text
        assert ATTACK not in page
        assert "&lt;script&gt;alert(1)" in page


def test_an_operator_closes_open_breakers(admin_client):
    first, second = an_open_one("a"), an_open_one("b", probe=uuid.uuid4())
    response = close_on(admin_client, first, second)
    assert ModelBreaker.objects.filter(opened_at=None, failures=0, probe=None).count() == 2
    assert "The breaker of a is closed: its calls go out again." in told(response)


def test_closing_is_remembered_with_who_did_it(admin_client, admin_user):
    close_on(admin_client, an_open_one("a"))
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (admin_user, "a")


def test_closing_a_closed_breaker_says_that_it_is(admin_client):
    response = close_on(admin_client, a_breaker("a", failures=2))
    assert "The breaker of a is closed already; its calls go out." in told(response)
    assert not LogEntry.objects.exists()


def test_the_page_of_an_open_breaker_has_the_button_and_comes_back(admin_client):
    breaker = an_open_one()
    assert 'value="close_breaker"' in admin_client.get(page_of(breaker)).text
    response = close_on(admin_client, breaker, from_page="1")
    assert response.request["PATH_INFO"] == page_of(breaker)
    assert 'value="close_breaker"' not in admin_client.get(page_of(breaker)).text


def test_who_may_only_look_is_not_offered_to_close(looker):
    breaker, client = an_open_one(), looker()
    for address in (list_of(ModelBreaker), page_of(breaker)):
        page = client.get(address)
        assert page.status_code == 200
        assert "Close the breaker" not in page.text
    close_on(client, breaker)
    breaker.refresh_from_db()
    assert breaker.state == "open"


def test_who_may_change_breakers_closes_them(looker):
    breaker = an_open_one()
    close_on(looker("change_modelbreaker"), breaker)
    breaker.refresh_from_db()
    assert breaker.state == "closed"


# --- workers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent_for", "badge"),
    [(0, ("good", "Alive")), (170, ("good", "Alive")), (190, ("bad", "Silent"))],
    ids=["now", "170 s", "190 s"],
)
def test_a_worker_with_a_run_is_silent_after_180_seconds(admin_client, owner, silent_for, badge):
    a_worker(silent_for=silent_for, run=a_run(owner))
    assert badges(admin_client.get(list_of(WorkerHeartbeat)).text) == [badge]


def test_an_idle_worker_that_tells_nothing_is_no_fault(admin_client):
    """Only the process that sweeps tells that it lives while nothing is to do."""
    worker = a_worker(silent_for=4000)
    assert cell(admin_client.get(list_of(WorkerHeartbeat)).text, "status_shown") == ["Quiet"]
    assert "It has nothing to do, or it ended" in admin_client.get(page_of(worker)).text


def test_silent_workers_and_open_breakers_are_filtered(admin_client, owner):
    run = a_run(owner)
    silent = a_worker(silent_for=200, run=run)
    a_worker(silent_for=100, run=run)
    a_worker(silent_for=200)
    a_breaker("closed one")
    opened = an_open_one()
    for row, value in ((silent, "silent"), (opened, "open")):
        address = f"{list_of(type(row))}?state={value}"
        assert rows_in(admin_client.get(address)) == [row]


def test_the_list_of_workers_tells_kind_host_and_process(admin_client):
    a_worker(kind="web", host="beta", pid=99, silent_for=5)
    a_worker()
    page = admin_client.get(list_of(WorkerHeartbeat)).text
    assert cell(page, "kind") == ["Queue", "Web"]
    assert cell(page, "host_start") == ["alpha", "beta"]
    assert cell(page, "pid") == ["4711", "99"]


def test_the_list_shortens_a_long_host_and_the_page_has_all_of_it(admin_client):
    worker = a_worker(host="h" * 100)
    page = admin_client.get(list_of(WorkerHeartbeat)).text
    assert cell(page, "host_start") == ["h" * 39 + "…"]
    assert "h" * 100 in admin_client.get(page_of(worker)).text


def test_a_worker_leads_to_what_it_works_on(admin_client, owner):
    run = a_run(owner)
    worker = a_worker(run=run)
    link = reverse("admin:compaction_compactionrun_change", args=[run.pk])
    for address in (list_of(WorkerHeartbeat), page_of(worker)):
        assert f'href="{link}"' in admin_client.get(address).text


def test_an_idle_worker_works_on_nothing(admin_client):
    worker = a_worker()
    assert cell(admin_client.get(list_of(WorkerHeartbeat)).text, "works_on") == ["—"]
    assert admin_client.get(page_of(worker)).status_code == 200


def test_workers_are_found_by_host_by_id_and_by_run(admin_client, owner):
    a_worker(host="beta")
    wanted = a_worker(host="gamma", run=a_run(owner))
    for query in ("amm", str(wanted.pk)[:12], str(wanted.run_id)[:12]):
        assert rows_in(admin_client.get(list_of(WorkerHeartbeat, query))) == [wanted]


def test_workers_are_filtered_by_their_kind(admin_client):
    a_worker(kind="web")
    wanted = a_worker(kind="command")
    address = f"{list_of(WorkerHeartbeat)}?kind__exact=command"
    assert rows_in(admin_client.get(address)) == [wanted]


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [ModelBreaker, WorkerHeartbeat])
@pytest.mark.parametrize("query", ["not-an-id", "%25", "12345678", "f" * 80])
def test_searching_for_anything_never_fails(admin_client, model, query):
    an_open_one()
    a_worker()
    assert admin_client.get(list_of(model, query)).status_code == 200


@pytest.mark.parametrize("make", [an_open_one, a_worker])
def test_nothing_is_added_changed_or_deleted_here(admin_client, make):
    row = make()
    name = f"admin:compaction_{type(row)._meta.model_name}"
    assert admin_client.get(reverse(f"{name}_add")).status_code == 403
    assert admin_client.post(page_of(row), {}).status_code == 403
    assert admin_client.post(reverse(f"{name}_delete", args=[row.pk]), {}).status_code == 403
    assert "delete_selected" not in admin_client.get(list_of(type(row))).text


def test_the_lists_cost_the_same_for_2_and_for_40_rows(admin_client, owner):
    run, counts = a_run(owner), {ModelBreaker: [], WorkerHeartbeat: []}
    for rows in (2, 38):
        for _ in range(rows):
            an_open_one(f"model {uuid.uuid4()}")
            a_worker(run=run)
        for model, found in counts.items():
            with CaptureQueriesContext(connection) as queries:
                assert admin_client.get(list_of(model)).status_code == 200
            assert not [q for q in queries if "COUNT(" in q["sql"]]
            found.append(len(queries))
    # The operator's login, the page's rows, and looking ahead.
    assert counts == {ModelBreaker: [4, 4], WorkerHeartbeat: [4, 4]}
