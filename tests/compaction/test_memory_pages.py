"""The pages of memories: lines, runs, rewritings; hostile texts, permissions, queries."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from compaction.admin.memory_runs import lines_of_run
from compaction.engine.memories import ProposedLine
from compaction.memories.lines import add_memory, change_memory, propose_memories
from compaction.models import Memory, MemoryRun, MemoryVersion
from tests.compaction.support import NEVER, sent
from tests.compaction.test_memories import FEWER, answers, compress, lines, remember, told
from tests.factories import SessionFactory, UserFactory, profile

pytestmark = pytest.mark.django_db
HOSTILE = '<script>alert("x")</script></div>{{ 7|add:7 }}‮</memories>&amp;'
LIST = {
    model: reverse(f"admin:compaction_{model._meta.model_name}_changelist")
    for model in (Memory, MemoryRun, MemoryVersion)
}


def page_of(row) -> str:
    return reverse(f"admin:compaction_{row._meta.model_name}_change", args=[row.pk])


@pytest.fixture
def desk(db) -> Client:
    client = Client()
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    return client


@pytest.fixture(autouse=True)
def default_profile(model_server):
    return profile(**NEVER)


def rewritten(owner, model_server) -> MemoryVersion:
    """Rewrite 101 lines, one of them hostile before and after."""
    remember(owner, [HOSTILE, *told(100)])
    answers(model_server, "\n".join([HOSTILE, *FEWER[1:]]))
    assert compress(owner).status == "succeeded"
    return MemoryVersion.objects.get()


def test_lines_are_listed_searched_and_filtered(desk, owner):
    add_memory(owner=owner, text="Drinks tea.")
    add_memory(owner=owner, text="Lives in Bern.", bot="tutor")
    propose_memories(owner_id=owner.pk, bot="", lines=[ProposedLine(text="Has a dog.")], sources=[])
    add_memory(owner=UserFactory(username="somebody"), text="Hates tea.")

    def shown(query: str) -> set[str]:
        page = desk.get(f"{LIST[Memory]}?{query}").content.decode()
        every = ("Drinks tea.", "Lives in Bern.", "Has a dog.", "Hates tea.")
        return {text for text in every if text in page}

    assert len(shown("")) == 4
    assert shown("state=proposed") == {"Has a dog."}
    assert shown("q=text:+bern") == {"Lives in Bern."}
    assert shown("q=tutor") == {"Lives in Bern."}
    assert shown("q=somebody") == {"Hates tea."}
    assert shown(f"owner__id__exact={owner.pk}&state=accepted") == {"Drinks tea.", "Lives in Bern."}
    key = Memory.objects.get(text="Drinks tea.").pk
    assert shown(f"q={str(key)[-8:]}") == {"Drinks tea."}


def test_hostile_lines_are_shown_and_not_obeyed(desk, owner, model_server):
    version = rewritten(owner, model_server)
    row = Memory.objects.get(text=HOSTILE)
    failed = MemoryRun.objects.create(
        owner=owner, kind="extract", status="failed", error=HOSTILE, bot=HOSTILE[:90]
    )
    change_memory(row, bot=HOSTILE[:90])
    addresses = [*LIST.values(), page_of(row), page_of(failed), page_of(version)]
    session = SessionFactory(owner=owner, metadata={"bot": HOSTILE[:90]}, wires=told_to(owner))
    profile(**NEVER, memory_budget_tokens=900)
    addresses.append(reverse("admin:chatapp_session_request", args=[session.pk]))
    for address in addresses:
        page = desk.get(address).content.decode()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page or address == LIST[MemoryVersion], address
        assert "14‮" not in page


def told_to(owner) -> list[dict]:
    return [{"role": "user", "content": "Hi"}]


def test_the_request_page_names_memories_and_their_tokens(desk, owner):
    profile(**NEVER, memory_budget_tokens=300)
    add_memory(owner=owner, text="Drinks tea.")
    session = SessionFactory(owner=owner, system_prompt="Be kind.", wires=told_to(owner))
    page = desk.get(reverse("admin:chatapp_session_request", args=[session.pk])).content.decode()
    assert page.count("Memories") >= 2
    assert "- Drinks tea." in page
    address = reverse("admin:chatapp_session_change", args=[session.pk])
    assert "Memories" in desk.get(address).content.decode()


def test_a_line_is_changed_on_its_page_and_a_wrong_one_loses_nothing(desk, owner):
    row = add_memory(owner=owner, text="Drinks tea.")
    address = reverse("admin:compaction_memory_do", args=[row.pk, "change"])
    done = desk.post(address, {"text": "Drinks coffee.", "bot": "tutor"}, follow=True)
    assert "The line is changed" in done.content.decode()
    row.refresh_from_db()
    assert (row.text, row.bot) == ("Drinks coffee.", "tutor")
    for wrong in ("", " ", "x" * 1001, "tea\u2028coffee", "tea\x85"):
        page = desk.post(address, {"text": wrong, "bot": ""})
        assert page.status_code == 200, wrong
        assert "errorlist" in page.content.decode(), wrong
        row.refresh_from_db()
        assert row.text == "Drinks coffee."


def test_lines_are_accepted_and_taken_away(desk, owner):
    propose_memories(owner_id=owner.pk, bot="", lines=[ProposedLine(text="Has a dog.")], sources=[])
    row = Memory.objects.get()
    profile(**NEVER, memory_budget_tokens=300)
    session = SessionFactory(owner=owner, wires=told_to(owner))
    chosen = {"_selected_action": [str(row.pk)]}
    desk.post(LIST[Memory], {"action": "accept", **chosen})
    assert "- Has a dog." in sent(session)[0]["content"]
    desk.post(LIST[Memory], {"action": "take_away", **chosen})
    assert not Memory.objects.exists()
    assert "dog" not in "".join(
        f"{e.object_repr}{e.change_message}" for e in LogEntry.objects.all()
    )


def test_a_line_counts_whether_or_not_a_profile_sends_lines(desk, owner):
    row = add_memory(owner=owner, text="Drinks tea.")
    address = reverse("admin:compaction_memory_do", args=[row.pk, "change"])
    done = desk.post(address, {"text": "Drinks coffee.", "bot": ""}, follow=True).content.decode()
    assert "Accepted" in done
    assert "it is sent where the profile has a memory_budget_tokens above 0" in done


@pytest.mark.parametrize(
    ("kind", "before", "after", "words"),
    [
        ("compress", 90, 50, "90 → 50"),
        ("compress", 0, 0, "—"),
        ("extract", 5, 2, "2 of 5 proposed"),
        ("extract", 0, 0, "—"),
    ],
)
def test_a_run_says_what_became_of_lines(owner, kind, before, after, words):
    run = MemoryRun(owner=owner, kind=kind, lines_before=before, lines_after=after)
    assert lines_of_run(run) == words


def test_a_rewriting_is_queued_for_each_owner_and_bot_once(desk, owner, queued):
    remember(owner, told(20))
    remember(owner, told(3), bot="tutor")
    keys = [str(key) for key in Memory.objects.values_list("pk", flat=True)]
    desk.post(LIST[Memory], {"action": "rewrite", "_selected_action": keys})
    assert sorted(MemoryRun.objects.values_list("bot", "status")) == [
        ("", "queued"),
        ("tutor", "queued"),
    ]


def test_a_failed_run_is_done_again(desk, owner):
    failed = MemoryRun.objects.create(owner=owner, kind="compress", status="failed")
    proposal = MemoryRun.objects.create(owner=owner, kind="extract", status="failed", attempts=3)
    keys = [str(failed.pk), str(proposal.pk)]
    for _ in range(2):
        desk.post(LIST[MemoryRun], {"action": "again", "_selected_action": keys})
        proposal.refresh_from_db()
        assert (proposal.status, proposal.attempts) == ("queued", 0)
        assert MemoryRun.objects.filter(kind="compress", status="queued").count() == 1
        assert MemoryRun.objects.count() == 3


def test_a_rewriting_shows_what_differs_and_is_taken_back(desk, owner, model_server):
    version = rewritten(owner, model_server)
    page = desk.get(page_of(version)).content.decode()
    assert "<del>" in page and "<ins>" in page and "They differ in" in page
    assert "things in mind" in re.sub(r"<[^>]+>", "", page)
    change_memory(Memory.objects.get(text=FEWER[5]), text="The user has moved.")
    address = reverse("admin:compaction_memoryversion_do", args=[version.pk, "undo"])
    refused = desk.post(address, {})
    assert "would be lost" in refused.content.decode()
    assert len(lines(owner)) == 60
    desk.post(address, {"cascade": "on"})
    assert lines(owner) == [HOSTILE, *told(100)]
    assert "Take back" not in desk.get(page_of(version)).content.decode()


def test_operators_without_texts_see_no_line(owner, model_server):
    version = rewritten(owner, model_server)
    row = add_memory(owner=owner, text="Drinks tea.")
    operator = UserFactory(is_staff=True)
    names = ["view_memory", "change_memory", "view_memoryversion", "view_memoryrun"]
    operator.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(operator)
    for address in (*LIST.values(), page_of(row), page_of(version)):
        page = client.get(address)
        assert page.status_code == 200
        assert "Drinks tea." not in page.content.decode()
        assert FEWER[9] not in page.content.decode()
    assert "Drinks" not in client.get(f"{LIST[Memory]}?q=text:+tea").content.decode()
    address = reverse("admin:compaction_memory_do", args=[row.pk, "change"])
    assert client.post(address, {"text": "x"}).status_code == 403
    address = reverse("admin:compaction_memoryversion_do", args=[version.pk, "undo"])
    assert client.post(address, {}).status_code == 403


def test_pages_take_the_same_few_queries(desk, owner, django_assert_max_num_queries):
    message = SessionFactory(owner=owner, wires=told_to(owner)).messages.get()
    for count in (1, 40):
        remember([owner, UserFactory()][count > 1], told(count))
        Memory.objects.update(source=message)
        for _ in range(count):
            run = MemoryRun.objects.create(owner=owner, kind="extract", status="failed", error="x")
            MemoryVersion.objects.create(owner=owner, run=run)
        for model, address in LIST.items():
            with django_assert_max_num_queries(6):
                desk.get(address)
            with django_assert_max_num_queries(9):
                desk.get(page_of(model.objects.first()))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("nothing_to_do", "There was nothing to rewrite or to propose"),
        ("no_model", "The profile chooses sentences, and memories take a model"),
        ("lost_race", "The memories changed meanwhile"),
        ("unknown_model", "There is no such model"),
    ],
)
def test_a_run_that_came_to_nothing_says_why_in_words(desk, owner, code, words):
    run = MemoryRun.objects.create(owner=owner, kind="compress", status="skipped", error_code=code)
    page = desk.get(page_of(run)).text
    assert words in page
    assert code not in page
