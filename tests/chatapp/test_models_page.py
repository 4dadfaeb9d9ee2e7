"""The page of the models: what it shows, and the button that asks a model's server."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from chatapp.admin import models_page
from chatapp.llm import probing
from chatapp.models import LearnedLimits
from chatapp.pools import Pool, pool_of
from tests.factories import UserFactory
from tests.fakes.model_server import ModelServer
from tests.fakes.silent_server import SilentServer
from tests.field.field_server import FieldServer

pytestmark = pytest.mark.django_db

PAGE = "/admin/chatapp/learnedlimits/models/"
KEY = "sk-very-secret-key-41"
ATTACK = "<script>alert(1)</script>"
TEMPERATURE = {
    "check": "temperature",
    "message": "Unsupported value: 'temperature' does not support 0.2 with this model.",
    "param": "temperature",
}
REFUSED = {"error": {"status": 401, "body": {"error": {"message": f"Bad key {KEY} {ATTACK}"}}}}


def entry(url: str, **changes) -> dict:
    fields = {
        "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
        "NAME": "scripted",
        "CONTEXT_WINDOW": 32_000,
        "MAX_OUTPUT": 512,
        "API_KEY": KEY,
        "BASE_URL": url,
    }
    return fields | changes


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def rows(page: str) -> list[list[str]]:
    """Return the cells of the table of results."""
    table = re.search(r'<section class="[^"]*models-asked.*?</table>', page, re.DOTALL)[0]
    found = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in found]
    return [[words(cell) for cell in row] for row in cells]


def operator(*codenames: str) -> Client:
    user = UserFactory(username="operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def ask(client: Client, alias: str = "default"):
    return client.post(PAGE, {"alias": alias})


def test_it_lists_the_models_with_where_they_are_and_no_secret(admin_client, use_models):
    address = f"https://somebody:{KEY}@models.example/v1"
    use_models({"default": entry(address), "other": entry("", NAME="gpt-4o")})
    page = admin_client.get(PAGE).text
    assert "https://models.example/v1" in page
    assert "OpenAI" in page
    assert KEY not in page
    assert page.count("Ask the server</button>") == 2


def test_it_shows_what_came_of_each_question(admin_client, use_models):
    with FieldServer([TEMPERATURE]) as server:
        use_models({"default": entry(server.url, PRICES={"INPUT": 100.0, "OUTPUT": 0.0})})
        page = ask(admin_client).text
    head, *found = rows(page)
    assert head == [
        "Asked for", "Answered", "Seconds", "Tokens", "Cost", "What had to be changed",
    ]  # fmt: skip
    assert [row[0] for row in found] == [each.title for each in probing.QUESTIONS]
    assert {row[1] for row in found} == {"yes"}
    assert found[0][5] == "nothing"
    assert found[1][5] == "The server takes no parameter temperature; it was left out."
    # The server reports 500 and 5 tokens an answer, none of a stream; a million cost 100.
    assert [row[3:5] for row in found] == [["505", "0.0500"]] * 5 + [["—", "—"]]
    assert "6 of 6 questions answered; 2,525 tokens, 0.250000 by the prices that are set" in page
    assert "The parameter temperature is left out." in page


def test_what_is_learned_holds_for_later_requests_and_stands_in_the_list(admin_client, use_models):
    with FieldServer([TEMPERATURE]) as server:
        use_models({"default": entry(server.url)})
        ask(admin_client)
        asked = len(server.requests)
        page = ask(admin_client).text
    assert asked == 7
    assert len(server.requests) == asked + 6
    assert rows(page)[2][5] == "nothing more than is known"
    assert "Nothing new." in page
    assert "The parameter temperature is left out." in page


def test_a_refusal_is_told_in_the_servers_words_without_the_key(admin_client, use_models):
    with ModelServer([{"when": {}, "reply": REFUSED}]) as server:
        use_models({"default": entry(server.url)})
        page = ask(admin_client).text
    assert {row[1] for row in rows(page)[1:]} == {"no"}
    assert "0 of 6 questions answered" in page
    assert "Bad key [key] &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert KEY not in page
    assert ATTACK not in page


def test_a_silent_server_takes_no_longer_than_the_page_may(admin_client, use_models, monkeypatch):
    monkeypatch.setattr(models_page, "QUESTION_SECONDS", 1.2)
    monkeypatch.setattr(models_page, "PAGE_SECONDS", 2.4)
    with SilentServer() as server:
        use_models({"default": entry(f"http://127.0.0.1:{server.port}/v1")})
        page = ask(admin_client).text
    answers = [row[1] for row in rows(page)[1:]]
    assert answers[0] == "no"
    assert answers[2:] == ["not asked"] * 4
    assert "It was not asked: the questions before it took all the time." in page
    took = float(re.search(r"It took ([\d.]+) seconds", page)[1])
    assert took < 4


def test_who_asked_and_what_came_of_it_stands_in_the_history(admin_client, use_models):
    with FieldServer([TEMPERATURE]) as server:
        use_models({"default": entry(server.url)})
        ask(admin_client)
    limits = LearnedLimits.objects.get()
    history = reverse("admin:chatapp_learnedlimits_history", args=[limits.pk])
    page = words(admin_client.get(history).text)
    assert "admin Asked the server of default: 6 of 6 questions answered; 2,525 tokens" in page


def test_a_server_that_taught_nothing_stands_on_the_front_page(admin_client, use_models):
    with FieldServer([]) as server:
        use_models({"default": entry(server.url)})
        ask(admin_client)
    noted = LogEntry.objects.get()
    assert noted.object_id is None
    assert not LearnedLimits.objects.exists()
    assert noted.object_repr in admin_client.get("/admin/").text


def test_asking_takes_the_permission_to_start_runs(use_models):
    with FieldServer([]) as server:
        use_models({"default": entry(server.url)})
        looker = operator("view_learnedlimits")
        page = looker.get(PAGE)
        assert page.status_code == 200
        assert "Ask the server</button>" not in page.text
        assert "Asking takes the permission to start runs." in page.text
        assert ask(looker).status_code == 403
        assert server.requests == []


def test_the_page_takes_the_permission_to_see_learned_limits(use_models):
    with FieldServer([]) as server:
        use_models({"default": entry(server.url)})
        runner = operator("add_compactionrun")
        assert runner.get(PAGE).status_code == 403
        assert ask(runner).status_code == 403
        assert server.requests == []


def test_who_may_do_both_asks(use_models):
    with FieldServer([]) as server:
        use_models({"default": entry(server.url)})
        page = ask(operator("view_learnedlimits", "add_compactionrun"))
        assert "6 of 6 questions answered" in page.text
        assert len(server.requests) == 6


def test_a_model_that_is_not_there_is_told(admin_client):
    page = ask(admin_client, ATTACK)
    assert page.status_code == 200
    assert "No model is called" in page.text
    assert ATTACK not in page.text


def test_it_is_a_post_with_a_token_against_forgery(admin_user, use_models):
    with FieldServer([]) as server:
        use_models({"default": entry(server.url)})
        client = Client(enforce_csrf_checks=True)
        client.force_login(admin_user)
        assert ask(client).status_code == 403
        client.get(PAGE, {"alias": "default"})
        assert server.requests == []


def test_its_requests_wait_in_the_threads_for_slow_ones():
    assert pool_of(PAGE) is Pool.SLOW
    assert pool_of("/admin/chatapp/learnedlimits/") is Pool.QUICK


def test_the_list_of_learned_limits_leads_to_it(admin_client):
    assert f'href="{PAGE}"' in admin_client.get("/admin/chatapp/learnedlimits/").text
