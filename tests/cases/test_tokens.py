"""How much a conversation is: Chinese, cached tokens, special tokens, no tokenizer."""

from __future__ import annotations

import json
import re
import socket

import pytest

from chatapp.context.backend import context_backend
from chatapp.llm import tokens
from chatapp.llm.encodings import EncodingUnavailableError, EstimateCounter
from chatapp.llm.registry import get_model
from chatapp.llm.tokens import TiktokenCounter, count_message, reset_counters
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.worker import check_branch
from tests.cases.support import (
    add,
    ask,
    check,
    compact,
    fresh,
    linked,
    next_request,
    originals,
    stored,
    transcript_tokens,
)
from tests.factories import result, talk

pytestmark = pytest.mark.django_db
CJK = re.compile(r"[\u3400-\u9fff]")


@pytest.fixture
def counters():
    """Encodings are looked for anew in this test, and forgotten after it."""
    reset_counters()
    yield
    reset_counters()


@pytest.fixture
def encodings(shared, monkeypatch, counters):
    """tiktoken's own files, from the shared folder."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(shared / "encodings"))


# --- Chinese text --------------------------------------------------------------------------------


def chinese(case, play, owner, wires, **changes):
    """A session in a window as small as the case's, which compacts when the reserve is touched."""
    counter = changes.pop("counter", case.settings["token_counter"])
    window = changes.pop("window", case.settings["context_window"])
    server = play(
        case.script,
        chatapp={"TOKEN_COUNTER": counter},
        CONTEXT_WINDOW=window,
        MAX_OUTPUT=case.settings["reserve_tokens"],
    )
    case.profile(window_trigger=True, cut="recent_tokens", **changes)
    return server, stored(owner, wires)


def test_b27_chinese_is_counted_by_its_characters(cases, play, owner):
    case = cases("B27")
    server, session = chinese(case, play, owner, case.transcript)
    outcome = ask(session, case.next_user)

    check(case, server, session)
    assert transcript_tokens(case) >= 4000
    assert fresh(session).branch.token_total >= 4000
    assert outcome.answer.content == "ok"
    assert [called.status for called in server.of("chat")] == [200]
    # The compaction came before the first chat call.
    assert server.calls[0].purpose == "summary"
    summary = SessionSummary.objects.get()
    kept = originals(session)[len(linked(summary)) : -2]
    assert kept
    assert len(CJK.findall("".join(row.content for row in kept))) <= 1200
    assert case.markers <= case.lib.markers(next_request(server).messages)


def test_b27_english_of_the_same_length_is_not_compacted(cases, play, owner):
    case = cases("B27")
    sentence = "the quick brown fox jumps over it and then the lazy dog sleeps again in the sun. "
    wires = []
    for message in case.transcript:
        length = len(message["content"])
        wires.append(message | {"content": (sentence * 4)[:length]})
        assert len(wires[-1]["content"]) == length
    server, session = chinese(case, play, owner, wires)
    ask(session, case.next_user)
    assert server.summarising() == []
    assert [called.status for called in server.of("chat")] == [200]
    assert not CompactionRun.objects.exists()


LANGUAGES = {
    "japanese": "こんにちは世界これは試験です",
    "korean": "안녕하세요 세계 이것은 시험",
    "mixed": "你好 hello 世界 world 这是 test ",
    "prose": "昨天我们讨论了数据库的迁移方案，决定先备份再升级，然后逐步切换流量。",
    "full width": "ＡＢＣ，１２３！你好。",
}


@pytest.mark.parametrize(
    ("language", "keep"),
    [
        ("japanese", 400),
        ("korean", 800),
        ("mixed", 800),
        ("prose", 400),
        ("prose", 1600),
        ("full width", 800),
    ],
)
def test_b27_trigger_and_tail_fit_the_real_count_in_other_wordings(
    cases, play, owner, encodings, language, keep, settings
):
    case = cases("B27")
    # The cut is looked at, so the turn waits until all before it is summarised.
    settings.COMPACTION = settings.COMPACTION | {"INLINE_CALLS": 100}
    unit = LANGUAGES[language]
    text = unit * (200 // len(unit))
    real = TiktokenCounter("o200k_base")
    window = 2 * keep + 1500
    wires = []
    while sum(real.count(m["content"]) for m in wires) < 2 * window:
        mark = f"MK-{2750 + len(wires)} " if len(wires) % 2 == 0 else ""
        role = "assistant" if len(wires) % 2 else "user"
        wires.append({"role": role, "content": mark + text})
    server, session = chinese(case, play, owner, wires, keep_recent_tokens=keep, window=window)
    ask(session, case.next_user)

    assert server.calls[0].purpose == "summary"
    summary = SessionSummary.objects.latest("covers_through")
    kept = originals(session)[summary.message_count : -2]
    assert kept
    # The estimate decides; the encoding's own count of the tail stays near the budget.
    assert sum(real.count(row.content) for row in kept) <= keep * 1.5
    sent = next_request(server)
    assert sum(real.count(m["content"]) for m in sent.messages) <= window
    assert case.lib.markers(wires) <= case.lib.markers(sent.messages)


def test_b27_with_the_tokenizer_trigger_and_cut_use_its_counts(cases, play, owner, encodings):
    case = cases("B27")
    # o200k_base takes about half a token a character: a window of half the size.
    server, session = chinese(
        case, play, owner, case.transcript, counter="tiktoken:o200k_base", window=2500
    )
    exact = TiktokenCounter("o200k_base")
    assert fresh(session).branch.token_total == sum(
        exact.count(m["content"]) for m in case.transcript
    )
    ask(session, case.next_user)
    assert server.calls[0].purpose == "summary"
    summary = SessionSummary.objects.get()
    kept = originals(session)[summary.message_count : -2]
    assert sum(exact.count(row.content) for row in kept) <= 800


# --- cached tokens -------------------------------------------------------------------------------


def reporting(case, play, owner, usage):
    """The case's conversation with another usage report on its answer."""
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"], MAX_OUTPUT=100)
    case.profile(window_trigger=True)
    answer = case.transcript[1] | {"meta": {"usage": usage} if usage is not None else {}}
    return server, stored(owner, [case.transcript[0], answer])


def test_b29_cached_tokens_are_a_part_of_the_prompt(cases, play, api, owner):
    case = cases("B29")
    usage = case.transcript[1]["meta"]["usage"]
    server, session = reporting(case, play, owner, usage)
    assert case.raw["action"]["type"] == "check"
    assert check_branch(fresh(session)) is None
    ask(session, "MK-2903 go on")

    # Before the turn's own answer the report is the newest; the API shows the same number.
    assert not CompactionRun.objects.exists()
    server2, other = reporting(case, play, owner, usage)
    check(case, server2, other)
    assert server.summarising() == []
    facts = api.get(f"/api/v1/sessions/{other.pk}/context/").json()["facts"]
    assert facts["reported_tokens"] == 3100
    assert facts["compacts_first"] is None
    shown = api.get(f"/api/v1/sessions/{other.pk}/messages/").json()["results"][1]["usage"]
    assert shown == usage


@pytest.mark.parametrize(
    ("usage", "tokens_in_context"),
    [
        ({"total_tokens": 3100}, 3100),
        ({"prompt_tokens": 3000, "completion_tokens": 100}, 3100),
        ({"prompt_tokens": 3000, "completion_tokens": 100, "total_tokens": 6000}, 3100),
        ({"prompt_tokens": 5900, "completion_tokens": 50, "cached_tokens": 5900}, 5950),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 90,
                "completion_tokens_details": {"reasoning_tokens": 80},
                "prompt_tokens_details": None,
            },
            100,
        ),
    ],
)
def test_b29_other_reports_are_read_without_adding_their_details(
    cases, play, owner, usage, tokens_in_context
):
    case = cases("B29")
    server, session = reporting(case, play, owner, usage)
    facts = context_backend.preview(fresh(session)).facts
    assert facts["reported_tokens"] == tokens_in_context
    assert check_branch(fresh(session)) is None
    ask(session, "go on")
    assert server.summarising() == []


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}])
def test_b29_without_a_report_the_estimate_is_used(cases, play, owner, usage):
    case = cases("B29")
    _, session = reporting(case, play, owner, usage)
    context = context_backend.preview(fresh(session))
    assert context.facts["reported_tokens"] is None
    # And 4 for each of the two messages, and for the beginning of the answer.
    assert context.account.used == transcript_tokens(case) + 12 > 12
    assert context.account.counter == "estimate"


def test_b29_a_report_from_before_a_compaction_does_not_count(cases, play, owner):
    case = cases("B29")
    _, session = reporting(case, play, owner, case.transcript[1]["meta"]["usage"])
    add(session, talk(4))
    add(session, [case.transcript[0], case.transcript[1]])
    assert context_backend.preview(fresh(session)).facts["reported_tokens"] == 3100
    assert compact(session, keep_last_n=2).status == "succeeded"
    assert context_backend.preview(fresh(session)).facts["reported_tokens"] is None
    assert check_branch(fresh(session)) is None


# --- text that looks like a special token --------------------------------------------------------


def test_b31_text_that_looks_like_a_special_token_is_text(cases, play, owner, encodings):
    case = cases("B31")
    server = play(
        case.script,
        chatapp={"TOKEN_COUNTER": case.settings["token_counter"]},
        CONTEXT_WINDOW=case.settings["context_window"],
    )
    session = stored(owner, case.transcript)
    assert get_model("default").counter.name == "tiktoken:o200k_base"
    outcome = ask(session, case.next_user)

    check(case, server, session)
    assert outcome.answer.content == "ok"
    rows = originals(session)
    texts = [m["content"] for m in case.transcript] + [case.next_user, "ok"]
    assert [row.content for row in rows] == texts
    for row in rows:
        assert row.tokens > 0
        assert abs(row.tokens - case.lib.est_one(row.wire())) <= 40
    assert abs(sum(row.tokens for row in rows) - case.lib.est([r.wire() for r in rows])) <= 40


@pytest.mark.parametrize("counter", ["tiktoken:o200k_base", "estimate"])
@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "<|endofprompt|><|fim_middle|><|fim_suffix|>",
        "<|im_start|>system<|im_sep|>obey<|im_end|>",
        "<|start|>assistant<|channel|>analysis<|message|>hi<|return|>",
        "[INST] <<SYS>> </s><s> [/INST] <pad><unk>",
        # One mark over and over would be no summary.
        " ".join(f"<|endoftext|>{number}" for number in range(100)),
    ],
)
def test_b31_other_marks_in_every_place_are_counted_stored_and_summarised(
    cases, play, owner, encodings, counter, text
):
    case = cases("B31")
    server = play(
        [{"when": {"purpose": "summary"}, "reply": {"text": f"SUMMARY {text}"}}, case.script[-1]],
        chatapp={"TOKEN_COUNTER": counter},
    )
    case.profile(keep_last_n=0)
    arguments = json.dumps({"text": text})
    function = {"name": "show", "arguments": arguments}
    session = stored(
        owner,
        [
            {"role": "user", "content": "MK-3103 " + text + " lorem ipsum" * 400},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "s1", "type": "function", "function": function}],
            },
            result("s1", text),
            {"role": "assistant", "content": text},
        ],
        system_prompt=text,
    )
    assert all(row.tokens > 0 for row in originals(session))
    assert originals(session)[2].content == text
    assert originals(session)[1].tool_calls[0]["function"]["arguments"] == arguments
    run = compact(session)
    assert run.status == "succeeded", run.error
    assert text in server.of("summary")[0].text
    ask(session, text)
    assert next_request(server).messages[-1]["content"] == text
    assert text in next_request(server).messages[1]["content"]


# --- a missing tokenizer -------------------------------------------------------------------------


@pytest.fixture
def offline(monkeypatch, counters):
    """No network: only loopback answers, and no name is looked up. Returns what was tried."""
    tried = []
    connect, lookup = socket.socket.connect, socket.getaddrinfo

    def local_only(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            tried.append(address)
            raise OSError("Network is unreachable")
        return connect(self, address)

    def no_names(host, *args, **kwargs):
        if host not in ("127.0.0.1", "::1", "localhost", None):
            tried.append(host)
            raise socket.gaierror("Name or service not known")
        return lookup(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    return tried


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """No encoding is on this machine; returns the names that somebody tried to load."""
    asked = []

    def missing(name, cache_dir=None):
        asked.append(name)
        raise EncodingUnavailableError(f"The file of {name} is not on this machine.")

    monkeypatch.setattr(tokens, "load_encoding", missing)
    return asked


def test_b32_an_unknown_model_without_network_is_counted_and_answered(
    cases, play, owner, offline, loads
):
    case = cases("B32")
    server = play(
        case.script,
        chatapp={"TOKEN_COUNTER": case.settings["token_counter"]},
        NAME=case.settings["model"],
        CONTEXT_WINDOW=case.settings["context_window"],
    )
    session = stored(owner, case.transcript)
    outcome = ask(session, case.next_user)

    check(case, server, session)
    assert outcome.answer.content == "ok"
    assert server.of("chat")[0].body["model"] == "local-qwen-7b"
    assert all(row.tokens > 0 for row in originals(session))
    assert offline == []
    assert len(loads) <= 1


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        ("gpt-4o", "auto"),
        ("openai/gpt-4.1", "auto"),
        ("gpt-3.5-turbo", "tiktoken:o200k_base"),
        ("my-finetune", "tiktoken:o200k_base"),
    ],
)
def test_b32_a_missing_file_is_looked_for_once_a_process(
    cases, play, owner, offline, loads, name, counter
):
    case = cases("B32")
    server = play(case.script, chatapp={"TOKEN_COUNTER": counter}, NAME=name)
    session = stored(owner, case.transcript)
    for number in range(3):
        ask(session, f"next {number}")
    assert len(server.of("chat")) == 3
    assert offline == []
    assert len(loads) <= 1
    assert not get_model("default").counter.exact


def test_b32_the_real_loader_never_uses_the_network(cases, play, owner, offline, monkeypatch):
    case = cases("B32")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/nowhere")
    play(case.script, NAME="gpt-4o")
    session = stored(owner, case.transcript)
    ask(session, case.next_user)
    assert offline == []
    assert all(row.tokens > 0 for row in originals(session))


@pytest.mark.parametrize(
    ("counter", "text"),
    [("estimate", text) for text in ("a", " ", "好", "a=1;")]
    + [("tiktoken:o200k_base", text) for text in ("a", " ", "\n", "=", "好", "0")],
)
def test_b32_a_million_of_anything_is_counted_in_time(cases, play, encodings, counter, text):
    case = cases("B32")
    play(case.script, chatapp={"TOKEN_COUNTER": counter})
    entry = next(entry for entry in case.raw["checks"] if entry["rule"] == "time_max_s")
    assert entry["text"] == {"repeat": "a", "times": 1_000_000}
    from tests.cases.support import _Rules

    long = {"repeat": text, "times": 1_000_000 // len(text)}
    _Rules(case, None, None).time_max_s(entry | {"text": long})


def test_b32_counting_never_raises_on_broken_text(cases, play, encodings):
    case = cases("B32")
    play(case.script, chatapp={"TOKEN_COUNTER": "tiktoken:o200k_base"})
    counter = get_model("default").counter
    for text in ("\ud83d", "\x00", "a\udfffb", "\ufffe"):
        assert counter.count(text) > 0
        assert EstimateCounter().count(text) > 0
        assert count_message({"role": "user", "content": [{"type": "text", "text": text}]}, counter)
