"""Exports keep summaries and the sources of their lines; imports take them back, or say why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from chatapp import transcript
from chatapp.extensions import ExportPart, Extension, register
from chatapp.models import Session
from chatapp.selectors import path_messages
from compaction.doctor.examine import examine
from compaction.models import (
    CompactionState,
    SessionSummary,
    SummaryLine,
    SummaryQuality,
    SummaryUnits,
)
from compaction.selectors import chain_of
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, sent
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, user
from tests.made_once import made_once

pytestmark = pytest.mark.django_db

ROWS = [
    {"role": "system", "content": "Answer in one sentence."},
    user("Please move the invoices of Aldermoor Ltd to /srv/ledger/2031 before 4 March."),
    call("move_files", "m1", '{"to": "/srv/ledger/2031"}'),
    result("m1", "moved 184 files to /srv/ledger/2031, checksum 7f3a-99"),
    {"role": "assistant", "content": "Moved 184 invoices to /srv/ledger/2031."},
    user("Never delete the originals in /srv/inbox. The contact is Ruta Vaitkus."),
    {"role": "assistant", "content": "Understood: the originals stay, Ruta Vaitkus is told."},
    user("The port of the report service is 48211, not 48112."),
    {"role": "assistant", "content": "Noted, port 48211."},
]
MORE = [
    user("The archive job is called nightly-vault-7 and runs at 02:40."),
    call("run_job", "r1", '{"name": "nightly-vault-7"}'),
    call("run_job", "r2", '{"name": "weekly-vault-2"}'),
    result("r1", "nightly-vault-7 ended with exit code 3: disk /dev/sdq full"),
    result("r2", "weekly-vault-2 ended with exit code 0"),
    {"role": "assistant", "content": "nightly-vault-7 failed, /dev/sdq is full."},
    user("Then order two disks of 18 TB from Corvid Supplies."),
    {"role": "assistant", "content": "Ordered under PO-55-1932."},
]
NEXT = [
    user(
        "Send the report to ops@corvid.example on 9 May, and a copy to the auditors at "
        "Hallgrim & Sons; they want the ledger of 2031, the list of moved files with their "
        "checksums, and a word about the disks that were ordered. Do not name the supplier."
    ),
    {
        "role": "assistant",
        "content": "I shall send the report to ops@corvid.example on 9 May, the ledger of 2031, "
        "the list of files and a word about the disks to Hallgrim & Sons, without the supplier. "
        "The report has 31 pages and lies in /srv/reports/2031-05.pdf until then.",
    },
]
LATEST = [user("What is left to do?"), {"role": "assistant", "content": "Only the report."}]


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


@pytest.fixture
@made_once
def session(owner) -> Session:
    """Two summaries in a chain, made by the embedded summariser, and a message pinned between."""
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(
        owner=owner, title="Ledgers", system_prompt="You keep books.", wires=ROWS
    )
    assert compact(session).status == "succeeded"
    store(session, MORE)
    transcript.set_pinned(path_messages(session.branch)[9], True)
    assert compact(session).status == "succeeded"
    store(session, LATEST)
    return session


def exported(api, session: Session, form: str = "json") -> dict[str, Any]:
    answer = api.get(f"/api/v1/sessions/{session.pk}/export/", {"as": form})
    return json.loads(answer.content)


def imported(api, document: Any) -> tuple[Session, list[str]]:
    """Import a file as another user; return the session and what was said to be wrong."""
    api.force_authenticate(UserFactory())
    body = document if isinstance(document, bytes | str) else json.dumps(document)
    answer = api.post(
        "/api/v1/sessions/import/", body, content_type="application/octet-stream"
    ).json()
    (item,) = answer["sessions"]
    session = Session.objects.get(pk=item["session"])
    return session, [problem["text"] for problem in answer["problems"]]


def chain(session: Session) -> list[SessionSummary]:
    return chain_of(session.branch)[::-1]


def indexes(session: Session) -> dict[Any, int]:
    return {row.pk: index for index, row in enumerate(path_messages(session.branch))}


def lines(session: Session) -> list[tuple[Any, ...]]:
    """Every line with the words it stands for and the words of the message it comes from."""
    places = indexes(session)
    texts = {row.pk: row.content or "" for row in path_messages(session.branch)}
    return [
        (
            row.number,
            summary.summary_text[row.start : row.end],
            row.origin,
            row.message_id and places[row.message_id],
            row.message_id and texts[row.message_id][row.message_start : row.message_end],
        )
        for summary in chain(session)
        for row in SummaryLine.objects.filter(summary=summary).order_by("number", "pk")
    ]


def same_state(one: Session, other: Session) -> bool:
    columns = ("covered_messages", "covered_tokens", "covered_chars")
    rows = CompactionState.objects
    return (
        rows.values_list(*columns).get(pk=one.branch.pk)
        == rows.values_list(*columns).get(pk=other.branch.pk)
    )  # fmt: skip


# --- there and back -------------------------------------------------------------------------------


def test_the_next_request_of_an_imported_session_is_that_of_the_exported_one(api, session):
    copy, problems = imported(api, exported(api, session))
    assert problems == []
    assert json.dumps(sent(copy)) == json.dumps(sent(session))
    assert same_state(copy, session)
    assert examine(copy.pk) == []


def test_jsonl_brings_the_same_back(api, session):
    copy, problems = imported(api, exported(api, session, "jsonl"))
    assert problems == []
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_the_commands_bring_the_same_back(session, tmp_path):
    path = tmp_path / "session.json"
    call_command("export_transcript", str(session.pk), output=path, stderr=StringIO())
    UserFactory(username="else")
    call_command("import_transcript", str(path), owner="else", stdout=StringIO())
    copy = Session.objects.exclude(pk=session.pk).get()
    assert json.dumps(sent(copy)) == json.dumps(sent(session))
    assert lines(copy) == lines(session)


def test_lines_come_back_with_the_words_that_they_come_from(api, session):
    copy, _ = imported(api, exported(api, session))
    found = lines(copy)
    assert found == lines(session)
    assert any(origin == "exact" and words for _, _, origin, _, words in found)


def test_columns_come_back(api, session):
    copy, _ = imported(api, exported(api, session))
    names = (
        "summary_text", "kind", "status", "reason", "trigger", "model", "prompt_version",
        "target_summary_tokens", "keep_last_n", "metadata", "instructions", "files_read",
        "files_modified", "summary_tokens", "approx_tokens", "tokens_before", "tokens_after",
        "message_count", "created_at", "format_version", "is_digest", "profile",
    )  # fmt: skip
    ours, theirs = chain(session), chain(copy)
    assert [[getattr(row, name) for name in names] for row in theirs] == [
        [getattr(row, name) for name in names] for row in ours
    ]
    assert [row.previous for row in theirs] == [None, theirs[0]]
    assert [row.links.count() for row in theirs] == [row.links.count() for row in ours]


def test_clauses_come_back_for_the_next_pass(api, session):
    copy, _ = imported(api, exported(api, session))
    kept = [
        [
            (row.named_weight, [[*unit[:3], places.get(unit[4]), *unit[5:]] for unit in row.units])
            for row in SummaryUnits.objects.filter(summary__session=one).order_by(
                "summary__covers_through"
            )
        ]
        for one in (session, copy)
        for places in ({str(pk): index for pk, index in indexes(one).items()},)
    ]
    assert kept[0] == kept[1]
    assert kept[0][0][1]


def test_quality_comes_back_without_the_judge(api, session, owner):
    rows = SummaryQuality.objects.filter(summary__session=session)
    rows.update(verdict="good", verdict_note="all there", verdict_by=owner, ignored=["48112"])
    copy, _ = imported(api, exported(api, session))
    names = (
        "version", "score", "yardstick", "cumulative", "unsupported_count", "rejected",
        "hindsight", "hindsight_facts", "verdict", "verdict_note", "figures", "facts", "ignored",
        "created_at",
    )  # fmt: skip
    found = [
        list(
            SummaryQuality.objects.filter(summary__session=one)
            .order_by("summary__covers_through")
            .values_list(*names)
        )
        for one in (session, copy)
    ]
    assert found[0] == found[1]
    assert found[0]
    theirs = SummaryQuality.objects.filter(summary__session=copy)
    assert {row.verdict_by for row in theirs} == {None}
    places = {str(pk) for pk in indexes(copy)}
    named = {fact["message"] for row in theirs for fact in row.lost} - {None}
    assert named <= places


def test_the_next_summary_is_the_same(api, session):
    copy, _ = imported(api, exported(api, session))
    for one in (session, copy):
        store(one, [*NEXT, *LATEST])
        assert compact(one).status == "succeeded"
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_a_pinned_call_comes_back_with_its_results(api, session):
    transcript.set_pinned(path_messages(session.branch).get(tool_call_id="m1"), True)
    copy, problems = imported(api, exported(api, session))
    assert problems == []
    pinned = [[row.pinned for row in path_messages(one.branch)] for one in (session, copy)]
    assert pinned[0] == pinned[1]
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_a_digest_comes_back_beside_the_summary_before_it(api, session):
    store(session, [*NEXT, *LATEST])
    assert compact(session).status == "succeeded"
    SessionSummary.objects.filter(pk=chain(session)[-1].pk).update(is_digest=True, format_version=1)
    copy, problems = imported(api, exported(api, session))
    assert problems == []
    assert [row.is_digest for row in chain(copy)] == [False, False, True]
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_a_summary_that_was_taken_back_is_not_exported(api, session):
    restore_summary(chain(session)[1])
    copy, problems = imported(api, exported(api, session))
    assert problems == []
    assert len(chain(copy)) == 1
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_a_long_result_that_is_cut_when_it_is_stored_keeps_its_places(api, owner, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 3000}
    profile(**NEVER, keep_last_n=2)
    log = "\n".join(f"host-{n} answers on port {47000 + n}" for n in range(400))
    wires = [user("list them"), call("hosts", "h1"), result("h1", log), *MORE]
    session = SessionFactory(owner=owner, wires=wires)
    compact(session)
    document = exported(api, session)
    copy, problems = imported(api, document)
    assert problems == []
    assert lines(copy) == lines(session)
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 2500}
    shorter, problems = imported(api, document)
    assert problems == []
    assert {words for *_, index, words in lines(shorter) if index == 2} <= {""}


def test_a_replayed_branch_is_exported_with_the_whole_results_and_their_places(api, session):
    row = path_messages(session.branch).get(tool_call_id="r1")
    before = lines(session)
    transcript.replay(session, contents={row.pk: "ended"})
    copy, problems = imported(api, exported(api, Session.objects.get(pk=session.pk)))
    assert problems == []
    assert lines(copy) == before


def test_a_fork_takes_the_summaries_of_its_parent_along(api, session):
    branch = transcript.fork(session, at=path_messages(session.branch)[16])
    transcript.activate(session, branch)
    store(session, LATEST)
    session = Session.objects.get(pk=session.pk)
    copy, problems = imported(api, exported(api, session))
    assert problems == []
    assert len(chain(copy)) == 2
    assert json.dumps(sent(copy)) == json.dumps(sent(session))


def test_a_profile_of_the_session_comes_back_where_it_is_known(api, session):
    CompactionState.objects.filter(pk=session.branch.pk).update(profile="test")
    document = exported(api, session)
    copy, problems = imported(api, document)
    assert problems == []
    assert CompactionState.objects.get(pk=copy.branch.pk).profile == "test"
    document["palimpsest"]["profile"] = "nobody-has-it"
    copy, problems = imported(api, document)
    assert problems == ["The profile was left out: there is none of that name here."]
    assert len(chain(copy)) == 2


def test_importing_twice_adds_no_summary(api, session):
    document = exported(api, session)
    api.force_authenticate(stranger := UserFactory())
    for _ in range(2):
        body = json.dumps(document)
        api.post("/api/v1/sessions/import/", body, content_type="application/octet-stream")
    assert SessionSummary.objects.filter(session__owner=stranger).count() == 2


def test_a_session_without_summaries_and_pins_has_no_key_of_ours(api, owner):
    session = SessionFactory(owner=owner, wires=ROWS)
    assert "palimpsest" not in exported(api, session)


def test_only_the_owner_gets_the_export(api, session):
    api.force_authenticate(UserFactory())
    assert api.get(f"/api/v1/sessions/{session.pk}/export/").status_code == 404


def test_a_file_without_our_key_imports_as_before(api, session):
    document = exported(api, session)
    del document["palimpsest"]
    copy, problems = imported(api, document)
    assert problems == []
    assert chain(copy) == []
    assert path_messages(copy.branch).count() == path_messages(session.branch).count()


def test_pages_and_addresses_show_an_imported_summary(api, admin_client, session):
    copy, _ = imported(api, exported(api, session))
    api.force_authenticate(copy.owner)
    for summary in chain(copy):
        for path in ("", "lines/", "quality/"):
            assert api.get(f"/api/v1/summaries/{summary.pk}/{path}").status_code == 200
        page = f"/admin/compaction/sessionsummary/{summary.pk}/change/"
        assert admin_client.get(page).status_code == 200
    assert admin_client.get(f"/admin/chatapp/session/{copy.pk}/change/").status_code == 200


# --- files of strangers ---------------------------------------------------------------------------


@pytest.fixture
def document(api, session) -> dict[str, Any]:
    return exported(api, session)


def holds(copy: Session, document: dict[str, Any], count: int) -> bool:
    """Whether all messages are there, so many summaries, and nothing that does not fit."""
    system = bool(document["system_prompt"])
    messages = path_messages(copy.branch).count() == len(document["messages"]) - system
    shown = json.dumps(sent(copy))
    return messages and len(chain(copy)) == count and examine(copy.pk) == [] and bool(shown)


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        *path, last = key.split("/")
        for step in path:
            summary = summary[int(step) if isinstance(summary, list) else step]
        summary[int(last) if isinstance(summary, list) else last] = value

    change.__name__ = f"{key} {str(value)[:20]!r}"
    return change


def set_messages(indexes: list[int]) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        after = 8 if summary["messages"][0] > 8 else 0
        # The second summary begins at message 9, with a call at 10.
        summary["messages"] = [index + after for index in indexes]
        summary["covers"] = [summary["messages"][0], summary["messages"][-1]]

    change.__name__ = f"messages are {indexes}"
    return change


def without(key: str) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        del summary[key]

    change.__name__ = f"no {key}"
    return change


SECRET = "password: hunter2-Zq81xWv7"
UNSOUND = [
    changed("text", ""),
    changed("text", 5),
    changed("text", "x" * 1_000_000),
    changed("text", "a\0b"),
    changed("text", "a\ud800b"),
    changed("text", f"The {SECRET}"),
    changed("status", "draft"),
    changed("status", "wild"),
    changed("status", []),
    changed("kind", "branch"),
    changed("format_version", 99),
    changed("trigger", "a stranger"),
    changed("reason", "<b>"),
    changed("model", "m" * 101),
    changed("created_at", "0001-01-01T00:00:00+00:00"),
    changed("created_at", "9999-01-01T00:00:00+00:00"),
    changed("created_at", "yesterday"),
    changed("target_summary_tokens", -1),
    changed("target_summary_tokens", True),
    changed("tokens_before", 10**400),
    changed("keep_last_n", 2**40),
    changed("compression_ratio", "much"),
    changed("metadata", []),
    changed("metadata", {"a": "x" * 1_000_000}),
    changed("files_read", "all"),
    changed("files_read", [["a"]]),
    changed("instructions", None),
    changed("profile", {"name": 5, "version": 1}),
    changed("previous", 1),
    changed("previous", -1),
    changed("messages", None),
    changed("messages", []),
    changed("messages", [5, 4]),
    changed("messages", [1, 1, 2]),
    changed("messages", [1, 10**9]),
    changed("messages", [1.5]),
    changed("messages", [True]),
    changed("covers", [0, 1]),
    changed("covers", "all"),
    changed("lines", {}),
    changed("lines", [5]),
    changed("lines/0/start", -1),
    changed("lines/0/end", 10**7),
    changed("lines/0/start", 10**6),
    changed("lines/1/start", 0),
    changed("lines/0/origin", "guessed"),
    changed("lines/0/origin", "none"),
    changed("lines/0/sources", []),
    changed("lines/0/sources", [[0, 0]]),
    changed("lines/0/sources", [[10**6, 0, 1]]),
    changed("lines/0/sources", [[0, 5, 4]]),
    changed("lines/0/sources", [[0, 0, 10**6]]),
    changed("lines/0/sources", [["0", 0, 1]]),
    changed("units", 7),
    changed("units", [["a"]]),
    changed("units/0/0", 7),
    changed("units/0/0", "x" * 1_000_000),
    changed("units", [["x" * 19_000, "fact", "user", 0, None, 0, 0, [], 1.0, ""]] * 200),
    changed("units/0/1", "dream"),
    changed("units/0/3", 2**70),
    changed("units/0/4", 10**6),
    changed("units/0/6", 10**6),
    changed("units/0/7", "many"),
    changed("units/0/8", None),
    changed("named_weight", None),
    changed("quality", []),
    changed("quality/score", 1000),
    changed("quality/verdict", "so so"),
    changed("quality/verdict_note", "x" * 5000),
    changed("quality/figures", {}),
    changed("quality/figures/entities", [1]),
    changed("quality/figures/rules", [1]),
    changed("quality/lost", [{}]),
    changed("quality/lost", [5]),
    changed("quality/facts", [["a", 1, 1.0]]),
    changed("cut", "all"),
    # Behind the call, before its result; and past a message that nothing would send any more.
    set_messages([1, 2]),
    set_messages([1, 2, 3, 5, 6]),
    without("text"),
    without("messages"),
    without("lines"),
]


@pytest.mark.parametrize("change", UNSOUND, ids=lambda change: change.__name__)
def test_a_summary_that_does_not_fit_is_left_out_with_those_behind_it(api, document, change):
    both = deepcopy(document)
    change(document["palimpsest"]["summaries"][0])
    copy, problems = imported(api, document)
    (problem,) = problems
    assert problem.startswith("Summary 1 was left out, with the 1 behind it: ")
    assert problem.endswith("sent verbatim.")
    assert holds(copy, document, 0)
    change(both["palimpsest"]["summaries"][1])
    copy, problems = imported(api, both)
    assert [text.partition(":")[0] for text in problems] == ["Summary 2 was left out"]
    assert holds(copy, both, 1)


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ("all", "“palimpsest” was left out: it is no object."),
        ([], "“palimpsest” was left out: it is no object."),
        ({}, "“palimpsest” was left out: its version is None, and 1 can be read."),
        ({"version": 2}, "“palimpsest” was left out: its version is 2, and 1 can be read."),
        ({"version": 1, "summaries": "x"}, "The summaries were left out: they are no list."),
        ({"version": 1, "summaries": {}}, "The summaries were left out: they are no list."),
        ({"version": 1, "summaries": [5]}, "Summary 1 was left out: the summary is no object."),
        (
            {"version": 1, "pinned": [99]},
            "The pinned messages were left out: they are no list of messages of the file.",
        ),
        (
            {"version": 1, "pinned": "all"},
            "The pinned messages were left out: they are no list of messages of the file.",
        ),
        ({"version": 1, "profile": 5}, "The profile was left out: there is none of that name"),
        ({"version": 1, "profile": "a\0"}, "The profile was left out: there is none of that name"),
        ({"version": 1, "profile": "\ud800"}, "The profile was left out: there is none of that"),
    ],
)
def test_a_key_of_ours_that_makes_no_sense_costs_no_message(api, document, own, sentence):
    document["palimpsest"] = own
    copy, problems = imported(api, document)
    (problem,) = problems
    assert problem.startswith(sentence)
    assert holds(copy, document, 0)


@pytest.mark.parametrize("own", [None, {"version": 1}, {"version": 1, "of a later day": [1]}])
def test_what_nobody_here_knows_is_passed_over(api, document, own):
    document["palimpsest"] = own
    copy, problems = imported(api, document)
    assert problems == []
    assert holds(copy, document, 0)


def test_a_message_that_is_left_out_takes_the_summaries_along(api, document):
    document["messages"][5] = {"role": "nobody", "content": "x"}
    copy, problems = imported(api, document)
    assert any("it counts messages, and not all of them could be read" in text for text in problems)
    assert chain(copy) == []
    assert path_messages(copy.branch).count() == len(document["messages"]) - 2


def test_a_message_that_is_too_long_takes_the_summaries_along(api, document, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 60}
    copy, problems = imported(api, document)
    assert problems[-1] == "Not all messages could be stored, and so nothing of: summaries."
    assert chain(copy) == []


def test_without_its_pin_a_message_that_no_summary_read_is_not_hidden(api, document):
    document["palimpsest"]["pinned"] = []
    del document["palimpsest"]["summaries"][0]["messages"][3]
    copy, problems = imported(api, document)
    assert "it would hide message" in problems[0]
    assert holds(copy, document, 0)


def test_secrets_beside_the_text_are_hidden(api, document):
    summary = document["palimpsest"]["summaries"][0]
    summary["units"][0][0] = summary["quality"]["lost"][0]["context"] = f"the {SECRET}"
    summary["instructions"] = SECRET
    copy, problems = imported(api, document)
    assert problems == []
    first = chain(copy)[0]
    stored = json.dumps([first.units.units, first.quality.lost, first.instructions])
    assert "hunter2" not in stored
    assert stored.count("[REDACTED:password]") == 3


def test_a_profile_that_keeps_secrets_takes_them(api, document):
    profile(**NEVER, keep_last_n=2, redact_secrets=False)
    summary = document["palimpsest"]["summaries"][1]
    summary["text"] += f"\nThe {SECRET}"
    copy, problems = imported(api, document)
    assert problems == []
    assert chain(copy)[1].summary_text.endswith(SECRET)


def test_markup_is_shown_as_the_text_that_it_is(api, admin_client, document):
    summary = document["palimpsest"]["summaries"][0]
    evil = "<script>alert(1)</script>"
    summary["text"] = evil
    summary["lines"] = [{"start": 0, "end": len(evil), "origin": "none", "sources": []}]
    summary["model"] = summary["metadata"]["algorithm"] = evil
    summary["quality"]["figures"]["unsupported"] = [evil]
    summary["quality"]["figures"]["entities"] = {evil: [1, 2]}
    copy, problems = imported(api, document)
    assert problems == []
    page = admin_client.get(f"/admin/compaction/sessionsummary/{chain(copy)[0].pk}/change/")
    assert page.status_code == 200
    assert evil not in page.content.decode()


def test_metadata_name_no_other_rows(api, document):
    summary = document["palimpsest"]["summaries"][0]
    summary["metadata"] |= {"replay_of": "x", "cut_from": 9, "summary_id": "y", "import_key": "1"}
    copy, problems = imported(api, document)
    assert problems == []
    mark = copy.messages.filter(kind="placeholder").order_by("position")[0]
    assert mark.metadata["summary_id"] == str(chain(copy)[0].pk)
    assert not {"replay_of", "cut_from", "import_key"} & mark.metadata.keys()


def test_the_tokens_of_a_summary_are_counted_and_not_believed(api, document, session):
    document["palimpsest"]["summaries"][1]["summary_tokens"] = 10**9
    copy, _ = imported(api, document)
    assert [row.summary_tokens for row in chain(copy)] == [
        row.summary_tokens for row in chain(session)
    ]


# --- the seam -------------------------------------------------------------------------------------


class Lamp(ExportPart):
    """Writes a word, and fails at taking it back once it has stored something."""

    def written(self, branch, messages):
        return {"messages": len(messages)}

    def take_back(self, branch, messages, part):
        type(branch).objects.filter(pk=branch.pk).update(message_count=99)
        raise RuntimeError(part)


@pytest.fixture
def joined(monkeypatch):
    monkeypatch.setattr("chatapp.extensions._registered", {})

    def join(part: ExportPart) -> None:
        register(Extension(name="lamp", parts={"lamp": part}))

    return join


def test_a_part_as_it_is_says_nothing_and_takes_nothing(api, owner, joined):
    joined(ExportPart())
    document = exported(api, SessionFactory(owner=owner, wires=ROWS))
    assert "palimpsest" not in document
    _, problems = imported(api, document | {"palimpsest": {"version": 1, "lamp": "on"}})
    assert problems == []


def test_a_part_that_fails_takes_back_what_it_stored_and_no_message(api, owner, joined):
    joined(Lamp())
    document = exported(api, SessionFactory(owner=owner, wires=ROWS))
    assert document["palimpsest"] == {"version": 1, "lamp": {"messages": len(ROWS)}}
    copy, problems = imported(api, document)
    assert problems == ["“lamp” was left out: it could not be stored. The log says why."]
    assert copy.branch.message_count == path_messages(copy.branch).count() == len(ROWS)
