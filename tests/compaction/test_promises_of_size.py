"""No run without gain: what is compacted gets smaller, in the background, and is not sent twice."""

from __future__ import annotations

import random
import re

import pytest

from chatapp.context.assembly import text_tokens
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.branches.context_builder import context_of
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.profile import PRESETS
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.lifecycle import RunRequest, request_run
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests import facts
from tests.compaction.support import NEVER, compact, say, state
from tests.factories import SessionFactory, profile, store, talk, user
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

pytestmark = pytest.mark.django_db
# In the shape of sentences that are no echo, no repetition, and name nothing.
BEES = [
    "hive", "queen", "drone", "comb", "honey", "nectar", "pollen", "swarm", "smoker", "veil",
    "frame", "brood", "wax", "propolis", "super", "feeder", "skep", "apiary", "meadow", "clover",
]  # fmt: skip


def sentences(chance: random.Random, words: int) -> str:
    """Return about so many words in sentences of ten."""
    found = []
    for _ in range(max(1, words // 10)):
        line = " ".join(chance.choice(BEES) for _ in range(10))
        found.append(f"{line.capitalize()}.")
    return " ".join(found)


class WordyServer(ModelServer):
    """Writes summaries of as many words as it is told to, whatever it is asked for."""

    def __init__(self, words, chance: random.Random) -> None:
        super().__init__()
        self.words, self.chance = words, chance

    def answer(self, body, headers):
        call, _ = super().answer(body, headers)
        if call.purpose == "chat":
            return call, {"text": "ok"}
        return call, {"text": sentences(self.chance, self.words(self.chance))}


@pytest.fixture
def chance() -> random.Random:
    return random.Random(f"{facts.seed()} sizes")


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    return SessionFactory(owner=owner)


def used(session: Session) -> int:
    """Return the tokens of the next request as its account says."""
    return context_of(snapshot_of(Session.objects.get(pk=session.pk))).account.used


# --- a run without gain is skipped ----------------------------------------------------------------


def test_what_would_gain_nothing_is_skipped_with_the_figures_of_its_words(
    owner, use_models, queued, chance
):
    """No failure and no back-off; 16 of 118 second compactions by hand "failed" like this."""
    profile(**NEVER, keep_last_n=0, target_summary_tokens=400)
    with WordyServer(lambda _: 300, chance) as server:
        use_models(server.models())
        session = SessionFactory(owner=owner)
        rows = store(session, talk(2, words=60))
        before = used(session)
        run = compact(session)
        assert used(session) == before
    assert (run.status, run.error_code) == ("skipped", "no_gain")
    words = (
        r"The summary of these 4 messages would have ([\d,]+) tokens, the messages have ([\d,]+)\."
    )
    found = re.fullmatch(words, run.error)
    assert found, run.error
    summary, messages = (int(text.replace(",", "")) for text in found.groups())
    assert messages == sum(row.tokens for row in rows)
    assert summary >= messages
    # Four messages become one: three frames of 4 tokens go, and that is no gain either.
    assert (run.tokens_before, run.tokens_after) == (before, before - messages + summary - 12)
    told = state(session)
    assert (told.failures, told.backoff_until, told.cursor) == (0, None, 0)
    assert not SessionSummary.objects.exists()


def test_the_embedded_summariser_compacts_twice_by_hand_and_nothing_fails(owner, queued):
    """The small case of the beds: "failed", with the sizes of something else in its sentence."""
    profile(**NEVER, keep_last_n=2)
    wires = []
    for number in range(1, 31):
        wires.append(
            user(
                f"Bed {number}: we must water plot-{number:02d} at 06:{number:02d} with "
                f"{number + 3} litres, and check src/garden/plot_{number:02d}.py before "
                f"2026-05-{number:02d}."
            )
        )
        noted = (
            f"Noted: plot-{number:02d}, I decided to keep the drip line because the soil sensor "
            f"reads {number} %. The rest of the bed stays as it was planned in the spring. "
        )
        wires.append({"role": "assistant", "content": noted * 3})
    session = SessionFactory(owner=owner, model="embedded", wires=wires)
    assert compact(session).status == "succeeded"
    first = SessionSummary.objects.get()
    store(
        session,
        [
            user("And bed 31?"),
            {"role": "assistant", "content": "Bed 31 is dry; 12 litres."},
            user("Do it."),
            {"role": "assistant", "content": "Done at 07:10."},
        ],
    )
    before = used(session)
    run = compact(session)
    assert run.status in ("succeeded", "skipped"), run.error
    assert (used(session) < before) == (run.status == "succeeded")
    if run.status == "skipped":
        assert run.error_code == "no_gain"
        return
    # What holds the older one is sent alone, so that nothing stands there twice.
    sent = [str(one["content"]) for one in context_of(snapshot_of(session)).messages]
    assert sum("<summary>" in text for text in sent) == 1
    assert not any(first.summary_text in text for text in sent)


def test_no_rule_summarises_less_than_twice_the_frame(session, model_server):
    profile(message_limit=4, max_context_tokens=0, keep_last_n=0, minimum_gain=0.0)
    store(session, [user("hi"), *talk(2, words=3)])
    assert decision_of(snapshot_of(session)) is None
    assert check_branch(session) is None
    say(session, "hi")
    assert not CompactionRun.objects.exists()
    assert model_server.summarising() == []


def test_a_run_of_too_little_asks_nobody(session, model_server):
    profile(**NEVER, keep_last_n=0)
    store(session, talk(2, words=3))
    run = request_run(
        RunRequest(
            session=session,
            branch=session.branch,
            trigger=CompactionRun.Trigger.PROACTIVE,
            reason="precheck",
            profile=snapshot_of(session).profile_row,
            background=True,
        )
    )
    run = execute_run(run.pk)
    assert (run.status, run.error_code) == ("skipped", "no_gain"), run.error
    assert "too few to be worth a summary" in run.error
    assert model_server.summarising() == []


def test_after_a_run_without_gain_rules_wait_until_more_has_come(
    owner, use_models, queued, chance, api
):
    profile(message_limit=4, max_context_tokens=0, keep_last_n=0, target_summary_tokens=400)
    with WordyServer(lambda _: 300, chance) as server:
        use_models(server.models())
        session = SessionFactory(owner=owner)
        store(session, talk(3, words=40))
        say(session, "and now?")
        run = CompactionRun.objects.get()
        assert (run.status, run.error_code, run.trigger) == ("skipped", "no_gain", "proactive")
        asked = len(server.summarising())
        for _ in range(3):
            say(session, "hm")
            assert check_branch(session) is None
        assert len(server.summarising()) == asked
        rules = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()["triggers"]
        assert "no smaller" in rules[0]["waits_for"]
        # A quarter more than there was then.
        store(session, talk(2, words=90))
        server.words = lambda _: 30
        say(session, "and now?")
    assert CompactionRun.objects.filter(status="succeeded").get().reason == "message_limit"
    assert state(session).gainless_total == 0


# --- in the background, and at most once ----------------------------------------------------------


def test_six_long_questions_are_at_most_one_compaction_in_the_background(
    owner, use_models, model_server, queued
):
    """The default profile summarised two messages before each answer."""
    use_models(model_server.models(CONTEXT_WINDOW=16_000, MAX_OUTPUT=1000))
    save_profile(name="plain", base="balanced", parameters={}, make_default=True)
    session = SessionFactory(owner=owner)
    for number in range(6):
        say(session, f"{number} " + "lorem " * 1200)
        for run in CompactionRun.objects.filter(status="queued"):
            execute_run(run.pk)
    runs = list(CompactionRun.objects.all())
    assert len(runs) <= 1
    assert all(run.mode == "background" for run in runs)


def test_six_long_questions_of_the_older_default_are_one_compaction_at_most(session):
    save_profile(name="plain", base="bisect", parameters={}, make_default=True)
    for number in range(6):
        say(session, f"{number} " + "lorem " * 1200)
    assert CompactionRun.objects.count() <= 1


def test_the_cooldown_moves_no_work_from_the_background_into_a_turn(
    owner, use_models, model_server, queued
):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=1000))
    save_profile(
        name="slow", base="balanced", parameters={"cooldown_seconds": 3600}, make_default=True
    )
    session = SessionFactory(owner=owner, wires=talk(60))
    assert execute_run(check_branch(session).pk).status == "succeeded"
    for _ in range(40):
        say(session, "lorem " * 150)
        for run in CompactionRun.objects.filter(status="queued"):
            execute_run(run.pk)
    done = CompactionRun.objects.filter(status="succeeded")
    assert done.count() > 1
    assert set(done.values_list("reason", "mode")) == {("ahead", "background")}


# --- small conversations never grow ---------------------------------------------------------------


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_small_conversation_is_never_made_larger(owner, use_models, queued, preset):
    chance = random.Random(f"{facts.seed()} small {preset}")
    own = {"cooldown_seconds": 0, "minimum_gain": 0.0, "keep_recent_tokens": 20, "keep_last_n": 1}
    save_profile(name="small", base=preset, parameters=own, make_default=True)
    with WordyServer(lambda one: one.choice((5, 40, 200, 900)), chance) as server:
        use_models(server.models())
        for _ in range(6):
            session = SessionFactory(owner=owner)
            for _ in range(chance.randint(1, 9)):
                question = sentences(chance, 10 * chance.randint(1, 8))
                store(session, [user(chance.choice(("hi", question))), *talk(1)[1:]])
                before = used(session)
                if chance.random() < 0.5:
                    run = compact(session, trigger="proactive", reason="precheck")
                else:
                    run = compact(session, keep_last_n=chance.choice((None, 0, 1)))
                assert run.status in ("succeeded", "skipped"), run.error
                after = used(session)
                if run.status == "succeeded":
                    assert (run.tokens_before, run.tokens_after) == (before, after)
                    assert after < before
                else:
                    assert after == before


RENDERINGS = ("system", "merged_system", "user_tags", "node")


@pytest.mark.parametrize("rendering", RENDERINGS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_six_chats_of_hi_never_grow_by_rule_or_hand(owner, use_models, queued, preset, rendering):
    """Each turn a rule may fire, and after it somebody compacts by hand."""
    own = {"minimum_gain": 0.0, "cooldown_seconds": 0, "rendering": rendering}
    save_profile(name="hi", base=preset, parameters=own, make_default=True)
    short = {"when": {"purpose": "summary"}, "reply": {"text": "They said hi."}}
    with ModelServer([short, *ECHO_AND_ANSWER]) as server:
        use_models(server.models(CONTEXT_WINDOW=4000, MAX_OUTPUT=200))
        for number, turns in enumerate((1, 2, 3, 4, 6, 12)):
            session = SessionFactory(owner=owner, system_prompt="Be brief." * (number % 2))
            for _ in range(turns):
                say(session, "hi")
                for queued_run in CompactionRun.objects.filter(status="queued"):
                    execute_run(queued_run.pk)
            before, sent = used(session), context_of(snapshot_of(session)).messages
            assert before <= _whole(session)
            run = compact(session, keep_last_n=0)
            after = used(session)
            if run.status == "succeeded":
                assert (run.tokens_before, run.tokens_after) == (before, after)
                assert after < before
                continue
            assert (run.status, after) == ("skipped", before)
            assert context_of(snapshot_of(session)).messages == sent
            assert run.error_code in ("no_gain", "nothing_to_do")
            if run.error_code == "no_gain":
                said = r"The summary of .* would have \d+ tokens, the messages? ha"
                assert re.match(said, run.error)


def test_who_wants_a_summary_whatever_it_saves_says_so(owner, model_server, queued, api):
    profile(**NEVER, keep_last_n=0)
    short = {"when": {"purpose": "summary"}, "reply": {"text": "They said hi."}}
    model_server.script = [short, *model_server.script]
    session = SessionFactory(owner=owner)
    store(session, [user("hi"), {"role": "assistant", "content": "Good morning to you."}] * 2)
    url = f"/api/v1/sessions/{session.pk}/compact/"
    skipped = api.post(url, {"wait": True}, format="json").json()
    assert (skipped["status"], skipped["error_code"]) == ("skipped", "no_gain")
    assert not SessionSummary.objects.exists()
    run = api.post(url, {"wait": True, "force": True}, format="json").json()
    assert (run["status"], run["reason"]) == ("succeeded", "forced")
    assert SessionSummary.objects.get().summary_text == "They said hi."


def _whole(session: Session) -> int:
    """Return the tokens of a request that sends all of a session."""
    rows = Message.objects.filter(session=session, kind="message")
    frames = 4 * (rows.count() + 1 + bool(session.system_prompt))
    prompt = text_tokens(snapshot_of(session).model, session.system_prompt)
    return prompt + sum(row.tokens for row in rows) + frames


# --- no summary of more than twice its target -----------------------------------------------------


@pytest.mark.parametrize("words", [450, 1500])
@pytest.mark.parametrize("checks", [{}, {"ledger": True, "quality_gate": True}])
def test_a_stored_summary_has_at_most_twice_its_target(
    owner, use_models, queued, chance, words, checks
):
    """Ten times as much was stored, and two of them sent."""
    profile(**NEVER, keep_last_n=0, target_summary_tokens=200, **checks)
    with WordyServer(lambda _: words, chance) as server:
        use_models(server.models())
        session = SessionFactory(owner=owner)
        for _ in range(3):
            store(session, talk(20, words=60))
            calls = len(server.summarising())
            run = compact(session)
            assert run.status == "succeeded", run.error
            # Once more, shorter; not again and again.
            assert len(server.summarising()) - calls == 2
        asked = [call.body.get("max_tokens") or 0 for call in server.summarising()]
    sizes = [one.summary_tokens for one in SessionSummary.objects.all()]
    assert max(sizes) <= 400
    assert max(asked) <= 400
    if not checks:
        cut = SessionSummary.objects.filter(truncated=True)
        assert cut.count() == 3
        assert all(one.summary_text.endswith(".") for one in cut)


@pytest.mark.parametrize("words", [4_000, 12_000])
@pytest.mark.parametrize("checks", [{}, {"ledger": True, "quality_gate": True}])
def test_a_summary_of_more_than_is_read_is_cut_like_any_other(
    owner, use_models, queued, chance, words, checks
):
    """It ended as a bad answer, and the run with it; of it 20 000 characters are read."""
    profile(**NEVER, keep_last_n=0, target_summary_tokens=200, **checks)
    with WordyServer(lambda _: words, chance) as server:
        use_models(server.models(CONTEXT_WINDOW=128_000))
        run = compact(SessionFactory(owner=owner, wires=talk(20, words=500)))
        assert run.status == "succeeded", run.error
        assert len(server.summarising()) == 2
    assert all(len(step.output) <= 20_000 for step in CompactionStep.objects.filter(run=run))
    summary = SessionSummary.objects.get()
    assert summary.summary_tokens <= 400
    if not checks:
        assert summary.truncated
        assert summary.summary_text.endswith(".")


def test_a_summary_that_is_written_without_end_is_none(owner, use_models, queued, chance):
    profile(**NEVER, keep_last_n=0, target_summary_tokens=200)
    with WordyServer(lambda _: 25_000, chance) as server:
        use_models(server.models(CONTEXT_WINDOW=128_000))
        run = compact(SessionFactory(owner=owner, wires=talk(20, words=500)))
    assert (run.status, run.error_code) == ("failed", "bad_answer")
    assert not SessionSummary.objects.exists()


def test_thoughts_still_have_room_beside_a_small_summary(owner, use_models, queued, model_server):
    profile(**NEVER, keep_last_n=0, target_summary_tokens=100)
    use_models(model_server.models(CAPABILITIES={"reasoning_effort": "low"}))
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    compact(session)
    (call,) = model_server.summarising()
    room = [value for name, value in call.body.items() if name.startswith("max_")]
    assert room == [512]


# --- what is sent of older summaries --------------------------------------------------------------


def test_a_summary_that_says_what_the_older_one_said_is_sent_alone(session):
    profile(**NEVER, keep_last_n=0, summary_limit=2)
    for number in range(3):
        store(session, talk(20, marker=100 * number + 1))
        assert compact(session).status == "succeeded"
    newest = SessionSummary.objects.latest("covers_through")
    sent = [m for m in context_of(snapshot_of(session)).messages if "<summary>" in str(m)]
    assert len(sent) == 1
    assert newest.summary_text in sent[0]["content"]
    # The marks of the first stretch came all the way.
    assert code(1) in newest.summary_text


def test_a_summary_that_left_the_older_one_out_is_sent_beside_it(session, model_server):
    profile(**NEVER, keep_last_n=0, summary_limit=2)
    store(session, talk(20, marker=1))
    compact(session)
    told = {
        "text": f"## Requests\n- The user put questions 0 to 19, {code(401)} to {code(420)}.\n"
        "## Last state\n- The assistant answered question 19."
    }
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": told},
        *model_server.script,
    ]
    store(session, talk(20, marker=401))
    run = compact(session)
    assert run.status == "succeeded", run.error
    sent = [m for m in context_of(snapshot_of(session)).messages if "<summary>" in str(m)]
    assert [(code(1) in m["content"], code(420) in m["content"]) for m in sent] == [
        (True, False),
        (False, True),
    ]


# --- the unanswered question is the newest message alone ------------------------------------------


def test_a_tools_output_that_was_posted_as_a_users_is_compacted(session, model_server):
    """26,762 tokens blocked every compaction, and were then dropped."""
    profile(**NEVER, keep_last_n=0)
    dump = f"{code(711)} " + "row of the log\n" * 8000
    store(session, [*talk(3, marker=1), user(dump), user(f"{code(712)} what went wrong?")])
    run = compact(session)
    assert run.status == "succeeded", run.error
    sent = context_of(snapshot_of(session)).messages
    assert sent[-1] == user(f"{code(712)} what went wrong?")
    assert not any(dump[:100] in str(message["content"]) for message in sent)
    assert code(711) in SessionSummary.objects.get().summary_text
    assert used(session) < 500
    assert run.tokens_after == used(session)


def test_a_window_that_such_a_message_fills_is_no_end(owner, use_models, model_server, queued):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500))
    save_profile(name="plain", base="balanced", parameters={}, make_default=True)
    session = SessionFactory(owner=owner, wires=talk(3, marker=1))
    store(session, [user(f"{code(711)} " + "row of the log\n" * 6000)])
    drafts = [NewMessage(wire=user(f"{code(712)} what went wrong?"))]
    assert run_turn(Turn(session=session, drafts=drafts)).answer.content == "ok"
    request = model_server.of("chat")[-1].messages
    assert request[-1] == user(f"{code(712)} what went wrong?")
    kept = Message.objects.filter(session=session, content__startswith=code(711)).get()
    assert not any(kept.content[:100] == str(one["content"])[:100] for one in request)


# --- hardly ever wait -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "longest", "words"), [(8192, 4096, 150), (8192, 1024, 250), (32_000, 16_000, 300)]
)
def test_where_answers_take_much_of_the_window_no_turn_waits_either(
    owner, use_models, model_server, queued, window, longest, words
):
    """70 % of the window lay behind the size at which a request is looked at: each turn waited."""
    use_models(model_server.models(CONTEXT_WINDOW=window, MAX_OUTPUT=longest))
    save_profile(name="usual", base="balanced", parameters={}, make_default=True)
    session = SessionFactory(owner=owner)
    for number in range(40):
        say(session, f"{number} " + "lorem " * words)
        for run in CompactionRun.objects.filter(status="queued"):
            execute_run(run.pk)
    done = CompactionRun.objects.filter(status="succeeded")
    assert done.count() > 1
    assert set(done.values_list("reason", "mode")) == {("ahead", "background")}
