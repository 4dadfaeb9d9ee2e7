"""Counting: exact where it can be, estimated well where not, and never why a turn fails."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp.llm import encodings, tokens
from chatapp.llm.encodings import Chars4Counter, EncodingUnavailableError, EstimateCounter
from chatapp.llm.tokens import (
    PIECE_CHARS,
    ModelTokenCounter,
    TiktokenCounter,
    count_message,
    counter_for,
    describe_counter,
    encoding_for_model,
    reset_counters,
)
from tests.growth import takes_longer

SHARED = Path(__file__).parents[3].parent / "shared"
ENCODINGS = SHARED / "encodings"
DATA = SHARED / "data"
CASES = SHARED / "cases"
O200K_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"

needs_rank_files = pytest.mark.skipif(
    not (ENCODINGS / O200K_FILE).exists(), reason=f"{ENCODINGS} is not here"
)
needs_data = pytest.mark.skipif(
    not (DATA / "README.md").exists(), reason=f"{DATA} with real conversations is not here"
)

CHINESE = "你好世界这是测试"
MILLION = 1_000_000


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not counted yet, on a machine without encodings."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr(encodings, "OFFLINE_PACKAGE", "no_such_package_anywhere")
    reset_counters()
    yield
    reset_counters()


@pytest.fixture(scope="module")
def o200k() -> ModelTokenCounter:
    return TiktokenCounter("o200k_base", cache_dir=ENCODINGS)


@pytest.fixture(scope="module")
def cl100k() -> ModelTokenCounter:
    return TiktokenCounter("cl100k_base", cache_dir=ENCODINGS)


# --- the estimate -------------------------------------------------------------


def test_empty_text_is_nothing_and_any_other_text_something() -> None:
    for counter in (EstimateCounter(), Chars4Counter()):
        assert counter.count("") == 0
        assert [counter.count(text) for text in (" ", "a", "\n", "。", "\ud800")] >= [1] * 5


def test_forty_chinese_messages_of_two_hundred_characters_are_four_thousand_tokens_or_more() -> (
    None
):
    message = CHINESE * 25

    assert sum(EstimateCounter().count(message) for _ in range(40)) >= 4000


def test_five_chinese_characters_are_three_to_five_tokens() -> None:
    assert EstimateCounter().count("你好世界你") in (3, 4, 5)


def test_the_estimate_takes_little_time_for_a_million_of_anything() -> None:
    for unit in (" ", "a", "中", "\n", "😀", "a ", "\ud800"):
        assert EstimateCounter().count(unit * MILLION) > 0
        assert not takes_longer(partial(EstimateCounter().count, unit * MILLION), 0.7)


@given(st.text(st.characters()))  # with lone surrogates
@settings(deadline=None)
def test_the_estimate_never_raises(text: str) -> None:
    count = EstimateCounter().count(text)

    assert count >= (1 if text else 0)
    assert count <= 4 * len(text)


@needs_rank_files
@needs_data
def test_nineteen_of_twenty_real_messages_are_estimated_within_a_fifth(
    o200k: ModelTokenCounter,
) -> None:
    estimate = EstimateCounter()
    errors: dict[str, list[float]] = defaultdict(list)
    for source, text in _real_texts():
        if len(text) >= 200:
            exact = o200k.count(text)
            errors[source].append(abs(estimate.count(text) - exact) / exact)
    assert set(errors) == {
        *("openai_chat", "pi", "claude_code", "crosswoz"),
        *("memorybank_cn", "memorybank_en", "oasst", "swe_agent"),
    }
    percentiles = {source: _percentile_95(found) for source, found in errors.items()}
    percentiles["all"] = _percentile_95([error for found in errors.values() for error in found])

    assert {source: error for source, error in percentiles.items() if error > 0.20} == {}


@needs_rank_files
@pytest.mark.parametrize(
    "text",
    [
        "東京は日本の首都であり、世界最大の都市圏の一つです。多くの人々が毎日電車で通勤しています。",
        "서울은 대한민국의 수도이며 많은 사람들이 살고 있는 큰 도시입니다. 오늘 날씨가 좋습니다.",
        "北京是中华人民共和国的首都，也是全国的政治中心和文化中心，每年都有很多游客来参观。",
    ],
    ids=["japanese", "korean", "chinese"],
)
def test_even_a_single_east_asian_sentence_is_estimated_within_two_fifths(
    text: str, o200k: ModelTokenCounter
) -> None:
    assert EstimateCounter().count(text) == pytest.approx(o200k.count(text), rel=0.4)


# --- characters divided by four -----------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("abcde", 2), ("你好世界你", 2), ("😀😀😀", 1), ("abcd", 1)]
)
def test_chars4_is_a_quarter_of_the_code_points_rounded_up(text: str, expected: int) -> None:
    assert Chars4Counter().count(text) == expected


# --- exact counts -------------------------------------------------------------


@needs_rank_files
def test_known_texts_have_their_known_counts(
    o200k: ModelTokenCounter, cl100k: ModelTokenCounter
) -> None:
    assert (o200k.count(""), o200k.count("hello world"), cl100k.count("hello world")) == (0, 2, 2)
    assert o200k.count("a" * 16) == 2
    assert (o200k.name, o200k.exact) == ("tiktoken:o200k_base", True)


@needs_rank_files
@pytest.mark.parametrize(
    "unit", [" ", "a", "\n", "中", "!", "\u0301", " \n", "\ud800", "<|endoftext|>"]
)
def test_a_million_of_one_thing_is_counted_within_seconds(
    unit: str, o200k: ModelTokenCounter, cl100k: ModelTokenCounter
) -> None:
    for counter in (o200k, cl100k):
        text = unit * (MILLION // len(unit))
        assert counter.count(text) > 0
        assert not takes_longer(partial(counter.count, text), 5)


@needs_rank_files
def test_a_million_blanks_are_counted_though_tiktoken_alone_panics(
    o200k: TiktokenCounter, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BaseException, match="StackOverflow") as panic:
        o200k._encoding.encode_ordinary(" " * MILLION)
    assert not isinstance(panic.value, Exception)
    capfd.readouterr()

    assert 7_000 < o200k.count(" " * MILLION) < 9_000  # tiktoken merges up to 128 blanks
    assert capfd.readouterr().err == ""


@needs_rank_files
def test_a_million_letters_are_counted_exactly(o200k: ModelTokenCounter) -> None:
    assert o200k.count("a" * MILLION) == MILLION // 8


@needs_rank_files
def test_a_piece_on_which_tiktoken_panics_is_estimated(
    o200k: TiktokenCounter, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tokens, "PIECE_CHARS", 2 * MILLION)

    assert o200k.count(" " * MILLION) == EstimateCounter().count(" " * MILLION)


@needs_rank_files
def test_a_piece_on_which_tiktoken_raises_is_estimated_and_the_text_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def encode_ordinary(self, text: str) -> NoReturn:
            raise ValueError(text)

    monkeypatch.setattr(tokens, "load_encoding", lambda name, cache_dir: Broken())
    counter = TiktokenCounter("o200k_base")

    assert counter.count("the secret") == EstimateCounter().count("the secret")
    assert "estimated" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_a_process_that_is_told_to_stop_while_counting_stops(
    signal: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def encode_ordinary(self, text: str) -> NoReturn:
            raise signal

    monkeypatch.setattr(tokens, "load_encoding", lambda name, cache_dir: Interrupted())

    with pytest.raises(signal):
        TiktokenCounter("o200k_base").count("text")


@needs_rank_files
@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "MK-3101 why does my template print <|endoftext|> and <|im_start|>system?",
        "MK-3102 <|im_end|> is a special token",
        "and <|fim_prefix|>?",
    ],
)
def test_text_that_looks_like_a_special_token_counts_as_plain_text(
    text: str, o200k: ModelTokenCounter
) -> None:
    for counter in (o200k, EstimateCounter()):
        count = counter.count(text)
        assert count > 1
        assert abs(count - len(text) / 4) <= 40


@needs_rank_files
def test_lone_surrogates_are_counted(o200k: ModelTokenCounter) -> None:
    assert o200k.count("broken \udc80 and \ud83d text") >= 5


@needs_rank_files
@given(st.text(st.characters()))
@settings(max_examples=300, deadline=None)
def test_exact_counting_never_raises(text: str) -> None:
    counter = counter_for("o200k_base", cache_dir=ENCODINGS)

    assert counter.exact
    assert counter.count(text) >= (1 if text else 0)


@needs_rank_files
@given(
    st.lists(
        st.sampled_from(
            [" ", "a", "Foo", "12", "\n", "\n\n", ", ", "。", "你好", "'s", "!", "\t", "é"]
        ),
        min_size=1,
    )
)
@settings(max_examples=200, deadline=None)
def test_pieces_are_short_and_make_up_the_text(units: list[str]) -> None:
    text = "".join(units) * (3 * PIECE_CHARS // len(units))

    pieces = list(tokens._pieces(text))

    assert "".join(pieces) == text
    assert all(0 < len(piece) <= PIECE_CHARS for piece in pieces)


@needs_rank_files
@needs_data
@pytest.mark.parametrize(
    "sources", [("memorybank_en", "oasst"), ("memorybank_cn", "crosswoz"), ("pi",)]
)
def test_counting_in_pieces_is_within_a_ten_thousandth_of_counting_at_once(
    sources: tuple[str, ...], o200k: TiktokenCounter, cl100k: TiktokenCounter
) -> None:
    text = "\n".join(text for source, text in _real_texts() if source in sources)[: 2 * MILLION]
    assert len(text) > 3 * PIECE_CHARS

    for counter in (o200k, cl100k):
        at_once = len(counter._encoding.encode_ordinary(text))
        assert abs(counter.count(text) - at_once) <= at_once / 10_000


# --- choosing a counter -------------------------------------------------------


@needs_rank_files
def test_auto_counts_exactly_when_the_file_is_here() -> None:
    counter = counter_for("o200k_base", cache_dir=ENCODINGS)

    assert (counter.name, counter.exact) == ("tiktoken:o200k_base", True)
    assert describe_counter(counter) == "Exact counts with tiktoken's o200k_base."


def test_auto_estimates_when_the_file_is_not_here(tmp_path: Path) -> None:
    counter = counter_for("o200k_base", cache_dir=tmp_path)

    assert (counter.name, counter.exact) == ("estimate", False)
    assert describe_counter(counter) == (
        "Estimated from the kinds of characters, because the file of o200k_base is not on this "
        "machine. Run manage.py load_encodings or install palimpsest[offline]."
    )


def test_a_model_without_a_known_encoding_is_estimated() -> None:
    counter = counter_for(encoding_for_model("local-qwen-7b"), cache_dir=ENCODINGS)

    assert counter.name == "estimate"
    assert "encoding is not known" in describe_counter(counter)


def test_modes_without_an_encoding_need_no_file() -> None:
    assert counter_for("o200k_base", mode="estimate", cache_dir=ENCODINGS).name == "estimate"
    assert counter_for("o200k_base", mode="chars4", cache_dir=ENCODINGS).name == "chars4"


@needs_rank_files
def test_a_mode_that_names_an_encoding_overrides_the_models() -> None:
    counter = counter_for(None, mode="tiktoken:cl100k_base", cache_dir=ENCODINGS)

    assert counter.name == "tiktoken:cl100k_base"


def test_a_mode_that_names_an_unknown_encoding_estimates_and_says_why() -> None:
    counter = counter_for(None, mode="tiktoken:klingon", cache_dir=None)

    assert counter.name == "estimate"
    assert "'klingon' is not an encoding" in describe_counter(counter)


@pytest.mark.parametrize("mode", ["exact", "", "tiktoken"])
def test_another_mode_is_refused_with_the_known_ones(mode: str) -> None:
    with pytest.raises(ValueError, match="auto, estimate, chars4 or tiktoken:<encoding>"):
        counter_for("o200k_base", mode=mode, cache_dir=None)


def test_nothing_touches_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("the network was used")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, no_network)

    assert counter_for("o200k_base", cache_dir=tmp_path).count("hello") > 0
    reset_counters()
    if (ENCODINGS / O200K_FILE).exists():
        assert counter_for("o200k_base", cache_dir=ENCODINGS).count("hello") == 1


def test_a_missing_encoding_is_tried_and_logged_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = _count_attempts(monkeypatch)

    first = counter_for("o200k_base", cache_dir=tmp_path)
    again = [counter_for("o200k_base", cache_dir=tmp_path) for _ in range(5)]

    assert attempts == ["o200k_base"]
    assert all(counter is first for counter in again)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@needs_rank_files
def test_a_found_encoding_is_loaded_and_logged_once_per_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="chatapp.llm.tokens")
    attempts = _count_attempts(monkeypatch)

    counters = [counter_for("o200k_base", cache_dir=ENCODINGS) for _ in range(3)]

    assert attempts == ["o200k_base"]
    assert len(set(map(id, counters))) == 1
    assert [record.message for record in caplog.records] == [
        "Exact counts with tiktoken's o200k_base."
    ]


@needs_rank_files
def test_threads_that_start_together_load_an_encoding_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = _count_attempts(monkeypatch)
    barrier = threading.Barrier(8)
    counts = []

    def count() -> None:
        barrier.wait()
        counts.append(counter_for("cl100k_base", cache_dir=ENCODINGS).count("hello world"))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts == [2] * 8
    assert attempts == ["cl100k_base"]


@pytest.mark.parametrize("content", [b"", b"damaged", b"\x00" * 1000])
def test_a_damaged_file_leads_to_the_estimate_and_stays_where_it_is(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / O200K_FILE).write_bytes(content)

    counter = counter_for("o200k_base", cache_dir=tmp_path)

    assert counter.name == "estimate"
    assert (tmp_path / O200K_FILE).read_bytes() == content


@needs_rank_files
def test_tiktokens_own_cache_folder_is_used_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ENCODINGS / O200K_FILE, tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    assert counter_for("o200k_base", cache_dir=None).exact
    assert [path.name for path in tmp_path.iterdir()] == [O200K_FILE]


def test_a_counter_that_is_built_directly_says_that_its_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EncodingUnavailableError, match="not on this machine"):
        TiktokenCounter("o200k_base", cache_dir=tmp_path)


def test_every_counter_is_described_in_a_sentence() -> None:
    class Other:
        name = "tokenizer:qwen"
        exact = True

        def count(self, text: str) -> int:
            return len(text)

    assert describe_counter(EstimateCounter()) == (
        "Estimated from the kinds of characters, because the settings ask for it."
    )
    assert describe_counter(Chars4Counter()).startswith("Characters divided by four")
    assert describe_counter(Other()) == "Counted by tokenizer:qwen."


# --- the encoding of a model --------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (name, "o200k_base")
            for name in ("gpt-4o", "gpt-4o-mini-2024-07-18", "chatgpt-4o-latest")
        ),
        *((name, "o200k_base") for name in ("gpt-4.1-nano", "gpt-4.5-preview", "gpt-5", "gpt-5.2")),
        *((name, "o200k_base") for name in ("o1", "o1-mini", "o3", "o3-pro", "o4-mini")),
        *((name, "o200k_base") for name in ("ft:gpt-4o-mini:org::id", "openai/gpt-4o", "GPT-4o")),
        ("gpt-oss-20b", "o200k_base"),
        *((name, "cl100k_base") for name in ("gpt-4", "gpt-4-turbo", "gpt-4-0613", "gpt-35-turbo")),
        *((name, "cl100k_base") for name in ("gpt-3.5-turbo", "gpt-3.5", "ft:gpt-3.5-turbo:x")),
        *((name, "cl100k_base") for name in ("text-embedding-3-small", "davinci-002")),
        *((name, None) for name in ("", "local-qwen-7b", "claude-opus-4-5", "gpt-4all", "o1x")),
        *((name, None) for name in ("someone/gpt-4", "text-davinci-003", "gpt", "my-gpt-4o")),
    ],
)
def test_a_models_name_tells_its_encoding(name: str, expected: str | None) -> None:
    assert encoding_for_model(name) == expected


def test_the_table_agrees_with_tiktokens_own_for_encodings_that_we_know() -> None:
    from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

    for name, theirs in MODEL_TO_ENCODING.items():
        if theirs in encodings.ENCODING_NAMES:
            assert encoding_for_model(name) == theirs, name
        else:
            assert encoding_for_model(name) is None, name
    for prefix, theirs in MODEL_PREFIX_TO_ENCODING.items():
        expected = "o200k_base" if theirs == "o200k_harmony" else theirs
        assert encoding_for_model(prefix) == expected, prefix


# --- messages -----------------------------------------------------------------

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path":"a.txt","n":1}'},
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"role": "user", "content": "abcde"}, 2),
        ({"role": "user", "content": ""}, 0),
        ({"role": "user", "content": None}, 0),
        ({"role": "user"}, 0),
        ({"role": "user", "content": "你好世界你"}, 2),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 7),
        (
            {
                "role": "assistant",
                "tool_calls": [
                    {"function": {"name": "read", "arguments": {"path": "a.txt", "n": 1}}}
                ],
            },
            7,
        ),
        ({"role": "user", "content": [{"type": "text", "text": "abcd"}, IMAGE]}, 1201),
        ({"role": "tool", "content": [{"type": "input_image", "image_url": "x"}] * 2}, 2400),
    ],
)
def test_the_worked_examples_of_the_specification_hold(wire: dict[str, Any], expected: int) -> None:
    assert count_message(wire, Chars4Counter()) == expected


def test_a_messages_texts_are_rounded_up_once() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]

    assert count_message({"role": "user", "content": parts}, Chars4Counter()) == 1


def test_role_name_ids_and_reasoning_cost_nothing() -> None:
    bare = {"role": "assistant", "content": "abcd"}
    dressed = bare | {
        "name": "a long name for an assistant",
        "tool_call_id": "call_0123456789",
        "id": "msg_0123456789",
        "reasoning_content": "thinking " * 100,
        "content": [
            {"type": "thinking", "thinking": "thinking " * 100},
            {"type": "text", "text": "abcd"},
        ],
    }

    assert count_message(dressed, Chars4Counter()) == count_message(bare, Chars4Counter()) == 1


def test_refusals_are_counted() -> None:
    refusal = {"type": "refusal", "refusal": "I cannot"}

    assert count_message({"refusal": "I cannot"}, Chars4Counter()) == 2
    assert count_message({"content": [refusal]}, Chars4Counter()) == 2


def test_older_and_custom_calls_are_counted() -> None:
    older = {"function_call": {"name": "read", "arguments": '{"path":"a.txt","n":1}'}}
    custom = {"tool_calls": [{"type": "custom", "custom": {"name": "run", "input": "print"}}]}

    assert count_message(older, Chars4Counter()) == 7
    assert count_message(custom, Chars4Counter()) == 2


def test_chinese_arguments_are_counted_as_written_and_not_escaped() -> None:
    call = {"function": {"name": "", "arguments": {"城": "北京"}}}

    assert count_message({"tool_calls": [call]}, Chars4Counter()) == 3  # {"城":"北京"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "function", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["content", "tool_calls", "function_call", "refusal"])


@given(st.dictionaries(KEYS, JSON))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_message_however_malformed_raises(wire: dict[str, Any]) -> None:
    assert count_message(wire, EstimateCounter()) >= 0


# --- the cases ----------------------------------------------------------------


def test_case_b27_is_not_counted_at_a_quarter() -> None:
    path = CASES / "B27-chinese-text-counted-at-a-quarter-of-its-size.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    transcript = json.loads(path.read_text(encoding="utf-8"))["transcript"]
    messages = [{"role": m["role"], "content": _expand(m["content"])} for m in transcript]

    assert sum(count_message(message, EstimateCounter()) for message in messages) >= 4000


def test_case_b32_a_million_letters_without_a_tokenizer_take_less_than_five_seconds(
    tmp_path: Path,
) -> None:
    counter = counter_for(None, cache_dir=tmp_path)
    assert counter.count("a" * MILLION) > 0
    assert not takes_longer(lambda: counter.count("a" * MILLION), 5)


# --- what the tests read and measure ------------------------------------------


def _count_attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    attempts: list[str] = []
    load = tokens.load_encoding

    def counted(name: str, cache_dir: Path | None) -> Any:
        attempts.append(name)
        return load(name, cache_dir)

    monkeypatch.setattr(tokens, "load_encoding", counted)
    return attempts


def _percentile_95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def _expand(content: Any) -> str:
    """Write out the `repeat` and `concat` of shared/cases."""
    if isinstance(content, str):
        return content
    if "repeat" in content:
        return str(content["repeat"] * content["times"])
    return "".join(map(_expand, content["concat"]))


def _real_texts() -> Iterator[tuple[str, str]]:
    """Yield source and text of the messages of shared/data; Chinese ones joined, as too short."""
    for path in sorted((DATA / "openai_chat").glob("*.json")):
        loaded = _json(path)
        for messages in (
            [e["traj"] for e in loaded] if isinstance(loaded, list) else [loaded["messages"]]
        ):
            for message in messages:
                yield "openai_chat", _wire_text(message)
    for source in ("pi", "claude_code"):
        for path in sorted((DATA / source).glob("*.jsonl")):
            for line in _json_lines(path):
                if isinstance(line.get("message"), dict):
                    yield source, _wire_text(line["message"])
    for dialogue in _json(DATA / "crosswoz" / "test_long20.json").values():
        yield "crosswoz", "".join(message["content"] for message in dialogue["messages"])
    for language in ("cn", "en"):
        for user in _json(DATA / "memorybank" / f"memorybank_{language}.json").values():
            for day in user["history"].values():
                texts = [text for turn in day for text in (turn["query"], turn["response"])]
                for text in ["\n".join(texts)] if language == "cn" else texts:
                    yield f"memorybank_{language}", text
    for tree in _json_lines(DATA / "oasst" / "en_trees_dev.jsonl"):
        for text in _tree_texts(tree["prompt"]):
            yield "oasst", text
    for path in sorted((DATA / "swe_agent").glob("*.json")):
        loaded = _json(path)
        for message in loaded if isinstance(loaded, list) else loaded["history"]:
            yield "swe_agent", _wire_text(message)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> Iterator[Any]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue  # one file has a corrupt line, on purpose


def _tree_texts(node: dict[str, Any]) -> Iterator[str]:
    yield node["text"]
    for reply in node["replies"]:
        yield from _tree_texts(reply)


def _wire_text(message: dict[str, Any]) -> str:
    """Return what a message would count, with pi's and Claude Code's calls and results as text."""
    texts = [_content_text(message.get("content"))]
    for call in message.get("tool_calls") or []:
        called = call["function"]
        texts += [called["name"], _compact(called["arguments"])]
    return "".join(texts)


def _content_text(content: Any) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = []
    for part in content:
        match part:
            case {"type": "text", "text": text}:
                texts.append(text)
            case {"type": "tool_use", "name": name, "input": arguments}:
                texts += [name, _compact(arguments)]
            case {"type": "toolCall", "name": name, "arguments": arguments}:
                texts += [name, _compact(arguments)]
            case {"type": "tool_result"}:
                texts.append(_content_text(part.get("content")))
    return "".join(texts)


def _compact(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
