"""Twenty defects that programs of this kind have: none is ours.

Those of its Responses path are tested in the form that exists here: the question and the kept calls
after an overflow of the chat path, and the bound on a turn's recoveries.
"""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from chatapp.llm.errors import ErrorKind, from_body
from chatapp.models import Message
from chatapp.turns.service import TurnFailedError
from compaction.engine.parameters import Profile
from compaction.engine.profile import ProfileError, build
from compaction.engine.strategies.bisect import BisectSummary
from compaction.engine.strategies.halving import cut_to_tokens
from compaction.engine.types import SummaryAnswer
from compaction.models import CompactionRun, SessionSummary, SessionSummaryMessage
from tests.compaction.support import NEVER, compact, say, sent, state, stored, texts
from tests.factories import SessionFactory, call, profile, result, store, talk
from tests.facts import code
from tests.fakes.summarizers import Refusing, WordCounter, plain

pytestmark = pytest.mark.django_db
OVERFLOW = {"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}}


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def test_d01_forcing_a_compaction_bypasses_the_trigger_and_not_the_input(session, model_server):
    assert compact(session).status == "succeeded"
    asked = model_server.of("summary")[0].text
    assert all(code(n) in asked for n in range(1, 6))
    assert "lorem " * 29 in asked


def test_d02_nothing_is_covered_that_the_summariser_did_not_see(owner, model_server, queued):
    # The input is ten times the token limit, which the reference would have cut it to.
    profile(message_limit=0, max_context_tokens=200, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(40, marker=1))
    say(session)
    seen = "".join(one.text for one in model_server.summarising())
    covered = Message.objects.filter(kind="message", position__lte=state(session).cursor)
    assert covered.count() > 70
    for row in covered:
        assert row.content.strip() in seen
    linked = set(SessionSummaryMessage.objects.values_list("message_id", flat=True))
    assert linked == {row.pk for row in covered}


def test_d03_the_newest_summaries_are_sent(session):
    for marker in (20, 30):
        compact(session)
        store(session, talk(3, marker=marker))
    compact(session)
    newest = SessionSummary.objects.order_by("-covers_through")[0]
    assert SessionSummary.objects.count() == 3
    assert newest.summary_text in texts(sent(session), "system")[-1]


def test_d04_a_history_limit_keeps_the_newest_messages_from_a_turns_start(
    owner, model_server, queued
):
    profile(**NEVER, keep_last_n=36, history_limit=20)
    session = SessionFactory(owner=owner, wires=talk(24))
    compact(session)
    request = [m for m in sent(session) if m["role"] != "system"]
    assert len(request) == 20
    assert request[0]["role"] == "user"
    assert request[-1]["content"].startswith("answer 23")


def test_d04_without_a_limit_nothing_behind_the_cursor_is_left_out(owner, model_server, queued):
    profile(**NEVER, keep_last_n=36)
    session = SessionFactory(owner=owner, wires=talk(24))
    compact(session)
    assert len(sent(session)) == 1 + 36


def test_d05_a_summarisers_answers_are_never_stored_as_messages(session, model_server):
    model_server.script = [
        {"when": {"purpose": "summary", "est_tokens_gt": 400}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "an answer of the summariser"}},
    ]
    compact(session)
    assert len(model_server.summarising()) > 2
    rows = Message.objects.filter(content__contains="an answer of the summariser")
    assert not rows.exists()


def test_d06_links_go_by_id_whatever_else_stands_in_the_branch(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    rule = {"role": "system", "content": "RULE"}
    both = [*call("a", "x")["tool_calls"], *call("b", "y")["tool_calls"]]
    tools = [
        {**call("a", "x"), "tool_calls": both},
        result("x", "out " * 30),
        result("y", "out " * 30),
    ]
    session = SessionFactory(owner=owner, wires=[rule, *talk(2), *tools, *talk(2)])
    compact(session)
    store(session, talk(3))
    compact(session)
    first, second = SessionSummary.objects.order_by("covers_through")
    rows = [row for row in stored(session) if row.kind == "message"]
    linked = [
        set(summary.links.values_list("message_id", flat=True)) for summary in (first, second)
    ]
    assert linked[0] == {row.pk for row in rows[1:-8]}
    assert linked[1] == {row.pk for row in rows[-8:-2]}


def test_d07_what_came_before_the_question_is_summarised_not_dropped(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    say(session, "QUESTION")
    compact(session, keep_last_n=0)
    say(session, "QUESTION 2")
    request = model_server.of("chat")[-1].text
    assert all(code(n) in request for n in range(1, 7))


def test_d08_an_overflow_keeps_the_users_question_verbatim(session, model_server):
    model_server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    say(session, "THE QUESTION, VERBATIM")
    retried = model_server.of("chat")[1].messages
    assert retried[-1] == {"role": "user", "content": "THE QUESTION, VERBATIM"}


def test_d09_the_kept_tool_calls_keep_their_structure(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    calls = [*call("a", "x")["tool_calls"], *call("b", "y")["tool_calls"]]
    tools = [{**call("a", "x"), "tool_calls": calls}, result("x", "X"), result("y", "Y")]
    session = SessionFactory(owner=owner, wires=[*talk(6), *tools])
    compact(session)
    kept = sent(session)[-3:]
    assert [c["id"] for c in kept[0]["tool_calls"]] == ["x", "y"]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in kept[1:]] == [
        ("tool", "x", "X"),
        ("tool", "y", "Y"),
    ]


@pytest.mark.parametrize(
    ("text", "status", "overflow"),
    [
        ("context_length_exceeded", 400, True),
        ("This model's maximum context length is 128000 tokens", 400, True),
        ("This model's maximum context length is 128,000 tokens", 400, True),
        ("Token limit exceeded", 400, True),
        ("prompt is too long: 210000 tokens > 200000 maximum", 400, True),
        ("input token count (1200000) exceeds the maximum number of tokens", 400, True),
        ("Your request exceeded model token limit: 262144", 400, True),
        ("rate_limit_exceeded", 429, False),
        ("Rate limit exceeded: 30000 tokens per minute", 429, False),
        ("Rate limit exceeded: 30000 tokens per minute", 400, False),
    ],
)
def test_d10_one_predicate_knows_overflows_from_rate_limits(text, status, overflow):
    assert from_body({"error": {"message": text}}, status=status).is_overflow is overflow


def test_d10_a_code_alone_is_enough():
    body = {"error": {"code": "context_length_exceeded", "message": "Something else."}}
    assert from_body(body, status=400).kind is ErrorKind.CONTEXT_OVERFLOW


def test_d11_a_failing_summariser_does_not_fail_the_turn(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"error": {"status": 401, "body": {}}}},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    assert say(SessionFactory(owner=owner, wires=talk(6))).answer.content == "ok"


def test_d12_recovering_has_a_bound_even_if_it_always_succeeds(session, model_server, monkeypatch):
    from chatapp.context.backend import Recovery, context_backend

    context_backend.check()
    wrapped = vars(context_backend)["_wrapped"]
    store(session, [{"role": "user", "content": "?"}])
    again = wrapped.preview(session)
    monkeypatch.setattr(wrapped, "recover", lambda *args, **kwargs: Recovery(context=again))
    model_server.script = [{"when": {}, "reply": OVERFLOW}]
    with pytest.raises(TurnFailedError):
        say(session)
    assert len(model_server.calls) <= 10


def test_d12_one_compaction_and_one_retry_are_all(session, model_server):
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    with pytest.raises(TurnFailedError):
        say(session)
    assert [one.purpose for one in model_server.calls] == ["chat", "summary", "chat"]


def test_d13_chinese_text_is_cut_between_characters(owner, model_server, queued):
    class Bytes:
        def count(self, text: str) -> int:
            return len(text.encode())

    # 16 bytes hold five characters of three.
    assert cut_to_tokens("摘要" * 100, 16, Bytes()) == "摘要摘要摘"
    profile(**NEVER, keep_last_n=2, bisect_enabled=False, fallback="truncate")
    model_server.script = [{"when": {}, "reply": OVERFLOW}]
    wires = [{"role": "user", "content": "摘要和上下文，" * 400} for _ in range(4)]
    answers = [{"role": "assistant", "content": "好的。"}] * 4
    session = SessionFactory(
        owner=owner, wires=[m for p in zip(wires, answers, strict=True) for m in p]
    )
    run = compact(session)
    assert (run.status, run.truncated) == ("succeeded", True)
    assert "\ufffd" not in SessionSummary.objects.get().summary_text


def test_d14_a_kept_tail_over_the_limit_is_not_compacted_with_every_message(
    owner, model_server, queued
):
    profile(message_limit=0, max_context_tokens=300, keep_last_n=6, cooldown_seconds=60)
    session = SessionFactory(owner=owner, wires=talk(10, words=60))
    for _ in range(5):
        say(session, "and " * 60)
    assert SessionSummary.objects.count() == 1


@pytest.mark.parametrize("text", ["", "   ", None])
def test_d15_an_empty_summary_is_not_stored(session, model_server, text):
    model_server.script = [{"when": {}, "reply": {"text": text}}]
    assert compact(session).status == "failed"
    assert not SessionSummary.objects.exists()
    assert state(session).cursor == 0


def test_d16_an_overflow_stores_what_it_really_kept(session, model_server):
    model_server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    say(session)
    assert SessionSummary.objects.get().keep_last_n == 0
    assert Message.objects.get(kind="placeholder").metadata["keepLastN"] == 0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"message_limit": 10, "max_context_tokens": 0}, "message_limit"),
        ({"message_limit": 0, "max_context_tokens": 100}, "token_limit"),
    ],
)
def test_d17_the_reason_is_stored(owner, model_server, queued, limits, reason):
    profile(keep_last_n=2, **limits)
    say(SessionFactory(owner=owner, wires=talk(6)))
    assert SessionSummary.objects.get().reason == reason
    assert CompactionRun.objects.filter(status="succeeded").get().reason == reason


def test_d18_one_message_is_no_part():
    with pytest.raises(ProfileError):
        build(Profile(), {"bisect_min_messages": 1})


def test_d18_three_messages_of_which_one_fits_do_not_blow_up():
    # The reference needs 34 calls for this.
    summarizer = Refusing(most=1)
    BisectSummary(
        profile=Profile(bisect_min_messages=2, fallback="truncate"),
        summarizer=summarizer,
        counter=WordCounter(),
    ).run(plain(3))
    assert summarizer.sizes == [3, 1, 2, 2]


def test_d19_a_failed_link_takes_the_summary_and_the_placeholder_with_it(session, monkeypatch):
    def refuse(*args, **kwargs):
        raise IntegrityError("refused")

    monkeypatch.setattr("compaction.summaries.storing.link_sources", refuse)
    assert compact(session).status == "failed"
    assert not SessionSummary.objects.exists()
    assert not Message.objects.filter(kind="placeholder").exists()


def test_d19_a_link_is_unique(session):
    compact(session)
    link = SessionSummaryMessage.objects.first()
    with pytest.raises(IntegrityError), transaction.atomic():
        SessionSummaryMessage.objects.create(summary=link.summary, message=link.message)


def test_d20_unequal_halves_are_merged_in_their_order():
    class Naming(Refusing):
        def summarize(self, request):
            super().summarize(request)
            return SummaryAnswer(
                text=" ".join(map(str, [i.id for i in request.items] or request.texts))
            )

    summarizer = Naming(most=3)
    outcome = BisectSummary(
        profile=Profile(bisect_min_messages=2), summarizer=summarizer, counter=WordCounter()
    ).run(plain(11))
    assert outcome.text == "1 2 3 4 5 6 7 8 9 10 11"
