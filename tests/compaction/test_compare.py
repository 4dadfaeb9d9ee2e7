"""Two summaries side by side: the word diff and its bounds, the figures, who may see them."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from difflib import SequenceMatcher

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from chatapp.admin.toolkit import html
from compaction.admin.summary_compare import MOST_STEPS, differences_of, marked, words_of
from compaction.models import SessionSummary
from tests.factories import SessionFactory

ATTACK = '<script>alert("x")</script>\u202e'


def stretches(old: str, new: str) -> list[tuple[str, str]]:
    """(old, new) of what differs."""
    return [(c.old, c.new) for c in differences_of(old, new).changes if not c.is_equal]


def test_words_are_compared_and_what_is_equal_is_left_alone():
    assert stretches("The tent has two poles.", "The tent has three poles.") == [("two ", "three ")]


def test_added_and_removed_lines_are_whole():
    assert stretches("a\nb\nc\n", "a\nc\nd\n") == [("b\n", ""), ("", "d\n")]


def test_chinese_and_japanese_are_compared_letter_by_letter():
    assert words_of("温室 ok さん") == ["温", "室 ", "ok ", "さ", "ん"]
    assert stretches("温室灌溉项目讨论", "温室照明项目讨论") == [("灌溉", "照明")]


def test_equal_texts_do_not_differ():
    assert stretches("same", "same") == []


@given(st.text(alphabet="ab .\n温<", max_size=60), st.text(alphabet="ab .\n温<", max_size=60))
def test_the_stretches_give_both_texts_back(old, new):
    changes = differences_of(old, new).changes
    assert "".join(change.old for change in changes) == old
    assert "".join(change.new for change in changes) == new
    assert all((change.old == change.new) == change.is_equal for change in changes)


def long_texts() -> list[tuple[str, str]]:
    """Pairs of 20 000 words: edited here and there, altogether different, one word again."""
    chance = random.Random(7)
    words = [f"w{int(chance.paretovariate(0.5)) % 5000}" for _ in range(20_000)]
    edited = ["edited" if n % 20 == 0 else word for n, word in enumerate(words)]
    others = chance.sample(words, len(words))

    def in_sentences(chosen: list[str]) -> str:
        ends = (". " if n % 12 == 11 else "\n" if n % 50 == 49 else " " for n in range(20_000))
        return "".join(map("".join, zip(chosen, ends, strict=True)))

    return [
        (in_sentences(words), in_sentences(edited)),
        (in_sentences(words), in_sentences(others)),
        (" ".join(words), " ".join(others)),
        ("a " * 20_000, "a " * 19_999),
    ]


@pytest.mark.parametrize("number", range(4))
def test_of_two_texts_of_20000_words_only_the_first_pair_is_compared_to_the_end(number):
    old, new = long_texts()[number]
    found = differences_of(old, new)
    assert "".join(change.old for change in found.changes) == old
    assert found.is_coarse is (number > 0)


def test_marks_are_signs_too_and_texts_are_escaped():
    changes = differences_of("keep <b>old</b> end", "keep <i>new</i> end").changes
    old, new = marked(changes, is_old=True), marked(changes, is_old=False)
    assert "<b>" not in old
    assert "<i>" not in new
    assert '<del><span class="diff-sign">−</span>b</del>' in old
    assert '<ins><span class="diff-sign">+</span>i</ins>' in new
    assert "<ins>" not in old
    assert "<del>" not in new


# --- the page -------------------------------------------------------------------------------------


def a_summary(session, text: str, *, age: int = 0, **fields) -> SessionSummary:
    words = {"trigger": "manual", "reason": "manual", "covers_from": 1, "covers_through": 2}
    moment = timezone.now() - timedelta(minutes=age)
    return SessionSummary.objects.create(
        session=session,
        branch=session.branch,
        summary_text=text,
        created_at=moment,
        **(words | {"status": "superseded"} | fields),
    )


def address(first, second) -> str:
    return reverse("admin:compaction_sessionsummary_compare", args=[first.pk, second.pk])


@pytest.fixture
def pair(owner, db) -> tuple[SessionSummary, SessionSummary]:
    session = SessionFactory(owner=owner, title=ATTACK)
    old = a_summary(
        session, "Two poles.", age=9, model="small", summary_tokens=3, cost=0.5, temperature=0.2
    )
    new = a_summary(
        session,
        "Three poles.",
        model="large",
        summary_tokens=4,
        cost=0.5,
        temperature=0.2,
        instructions=ATTACK,
        supersedes=old,
    )
    return old, new


def test_the_older_one_stands_left_whatever_the_address_says(admin_client, pair):
    old, new = pair
    for url in (address(old, new), address(new, old)):
        page = admin_client.get(url).text
        left, right = page.split('aria-label="Newer"')
        assert '<del><span class="diff-sign">−</span>Two</del> poles.' in left
        assert '<ins><span class="diff-sign">+</span>Three</ins> poles.' in right
        assert "They differ in 1 place: − is only in the older text" in page


def test_the_table_holds_what_differs_and_names_what_does_not(admin_client, pair):
    page = admin_client.get(address(*pair)).text
    table = page[page.index("What else differs") :]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", table)]
    assert ["Tokens of the text", "3", "4"] in rows
    assert ["Model", "small", "large"] in rows
    assert "Instructions" in [row[0] for row in rows if row]
    same = re.search(r"The same in both: ([^<]*)\.", table)[1].split(", ")
    assert {"Cost", "Temperature", "Prompt version", "Profile"} <= set(same)


def test_hostile_text_is_text(admin_client, pair):
    SessionSummary.objects.update(model=ATTACK, prompt_version="<i>")
    SessionSummary.objects.filter(pk=pair[0].pk).update(summary_text=ATTACK + " x" + "w" * 5000)
    SessionSummary.objects.filter(pk=pair[1].pk).update(summary_text="</ins></div>" + ATTACK)
    page = admin_client.get(address(*pair)).text
    assert "<script>alert" not in page
    assert "&lt;/" in page
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_two_sessions_summaries_are_not_compared(admin_client, pair, owner):
    other = a_summary(SessionFactory(owner=owner), "Else.")
    assert admin_client.get(address(pair[0], other)).status_code == 404
    assert admin_client.get(address(pair[0], pair[0])).status_code == 404
    missing = address(*pair).replace(str(pair[1].pk), "00000000-0000-0000-0000-000000000000")
    assert admin_client.get(missing).status_code == 404


def test_it_is_for_those_who_may_see_summaries(client, pair, django_user_model):
    staff = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    client.force_login(staff)
    assert client.get(address(*pair)).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_sessionsummary"))
    client.force_login(django_user_model.objects.get(pk=staff.pk))
    assert client.get(address(*pair)).status_code == 200


def test_very_long_texts_are_compared_at_their_beginning(admin_client, pair, monkeypatch):
    monkeypatch.setattr(html, "SHOWN_CHARS", 5)
    page = admin_client.get(address(*pair)).text
    assert "Only the first 5 characters of each are compared." in page
    assert "poles" not in page


def test_the_queries_of_the_page_are_few(admin_client, pair):
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(address(*pair))
    assert len(queries) <= 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" ".join(f"a{n} x{n}" for n in range(4000)), " ".join(f"a{n} y{n}" for n in range(4000))),
        ("😀🏳️‍🌈𝒳 " * 300, "😀𝒳 " * 300),
        ("漢字" * 20_000, "漢字語" * 15_000),
        ("no no no no. " * 2400, "no no, no no. " * 2400),
    ],
)
def test_the_work_on_texts_that_differ_everywhere_is_bounded(old, new, monkeypatch):
    spent = []
    search = SequenceMatcher.find_longest_match

    def counted(self, a_from, a_to, b_from, b_to):
        spent.append(sum(len(self.b2j.get(self.a[at], ())) for at in range(a_from, a_to)))
        return search(self, a_from, a_to, b_from, b_to)

    monkeypatch.setattr(SequenceMatcher, "find_longest_match", counted)
    found = differences_of(old, new)
    assert sum(spent) <= 3 * MOST_STEPS
    assert "".join(change.old for change in found.changes) == old
    assert "".join(change.new for change in found.changes) == new
