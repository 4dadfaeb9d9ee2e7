"""Labels and explanations of every code that operators meet: reasons, statuses, steps, errors.

A run stores a code for programs and a sentence; what is the same for every run with that code
stands here. Pages and commands read it alike. A test holds that every code of the services has
words.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from chatapp.formatting import clock, duration
from chatapp.incidents import ERROR_WORDS
from compaction.engine.policy.reasons import NO_MODEL, RunCode, reason_label
from compaction.engine.provenance import Origin
from compaction.models import CompactionRun, CompactionStep, SessionSummary

Status = CompactionRun.Status

OUTCOMES = {
    "ok": "ok",
    "overflow": "too large",
    "truncated": "cut off",
    "error": "error",
    "forced": "shortened",
    "rejected": "refused",
}
OUTCOME_MEANINGS = {
    "ok": "the answer counts",
    "overflow": "refused as larger than the window; its input is halved",
    "truncated": "the answer filled its room; counts as too large",
    "error": "no usable answer",
    "forced": "made here without a model call, with parts left out",
    "rejected": "measured and not stored: asked for again, or chosen clauses took its place",
}
# The steps of a recovery from an overflow: what was tried.
ACTIONS = {
    "compact": "Compaction",
    "truncate": "Tool results cut",
    "halve": "Fewer messages sent",
    "give_up": "Gave up",
}
ACTION_MEANINGS = {
    "compact": "What was said so far is sent as a summary; nothing stored is lost.",
    "truncate": "The conversation goes on in a new branch with shortened tool results; the old "
    "branch is stored as it was.",
    "halve": "Only the newest messages were sent, in this turn alone; nothing stored changed.",
    "give_up": "Nothing was left to try: the user was told what to do.",
}
RECOVERY_OUTCOMES = {"smaller": "smaller", "no_help": "no help", "failed": "failed"}
INTERRUPTED = RunCode.INTERRUPTED
# The kinds of a step that strategies of ours have; a plug-in's may have others.
CHUNK, UPDATE, PREFIX, BRANCH, MERGE = "chunk", "update", "prefix", "branch", "merge"
HOOK = "hook"
KIND_MEANINGS = {
    CHUNK: "messages are summarised",
    UPDATE: "the summary before is brought up to date with the messages behind it",
    PREFIX: "the beginning of a turn that the cut parts is summarised; its later part stays",
    BRANCH: "a branch that was left is summarised",
    MERGE: "two summaries become one",
    HOOK: "a hook of this installation was asked and passed over; no model was called",
}
READS_MESSAGES = frozenset({CHUNK, UPDATE, PREFIX, BRANCH})
SUMMARY_STATUSES = {SessionSummary.Status.DRAFT.value: "Draft: not sent yet"}
NOT_MEASURED = "Not measured: made before quality was measured."
WRITTEN_BY_PERSON = "Not measured yet: a person wrote the text, and a worker measures it."
# How a line of a summary is known to come from its messages.
ORIGINS = {
    Origin.EXACT: "exact words",
    Origin.CITED: "cited by the model",
    Origin.MATCHED: "matched by what it names",
    Origin.NONE: "no source",
}
# What a text names, one and many.
FACT_KINDS = {
    "url": ("address", "addresses"),
    "mail": ("mail address", "mail addresses"),
    "path": ("path", "paths"),
    "identifier": ("identifier", "identifiers"),
    "date": ("date or time", "dates and times"),
    "name": ("name", "names"),
    "number": ("number", "numbers"),
    "rule": ("rule", "rules"),
}

_NOTHING_LOST = "Nothing was stored and nothing is lost: the messages are all still there."


def trigger_words(trigger: str) -> str:
    """Return who or what started a run, in words."""
    return str(dict(CompactionRun.Trigger.choices).get(trigger, trigger))


def why(run: CompactionRun) -> str:
    """Return a run's rule, and what started it where that says more, as a sentence."""
    reason, trigger = reason_label(run.reason), trigger_words(run.trigger)
    return f"{reason}." if reason == trigger else f"{reason} ({trigger.lower()})."


def status_words(run: CompactionRun) -> str:
    """Return how a run stands; a failed one whose worker stopped reads Interrupted."""
    if waits(run):
        return f"Waiting until {clock(run.waits_until)}"
    interrupted = run.status == CompactionRun.Status.FAILED and run.error_code == INTERRUPTED
    return "Interrupted" if interrupted else str(run.get_status_display())


def waits(run: CompactionRun) -> bool:
    """Whether a queued run waits for something else than a worker, and until when is known."""
    return (
        run.status == CompactionRun.Status.QUEUED
        and run.waits_until is not None
        and run.waits_until > timezone.now()
    )


def summary_words(summary: SessionSummary) -> str:
    """Return whether a summary counts, in words."""
    return SUMMARY_STATUSES.get(summary.status, str(summary.get_status_display()))


def seconds(run: CompactionRun) -> str:
    """Return how long a finished run took."""
    if run.started_at is None or run.finished_at is None:
        return "—"
    return duration((run.finished_at - run.started_at).total_seconds())


def step_seconds(step: CompactionStep) -> str:
    """Return how long a step took."""
    return duration(step.duration_ms / 1000)


def is_forced(step: CompactionStep) -> bool:
    """Whether the text was shortened here, without a call: a model's cut-off answer has an error.

    A list reads only the error's beginning.
    """
    if step.outcome != CompactionStep.Outcome.TRUNCATED:
        return False
    begin = getattr(step, "error_begin", None)
    return not (step.error if begin is None else begin)


def reads_texts(step: CompactionStep) -> bool:
    """Whether a step read texts and no message; a chunk whose messages are gone read messages."""
    is_other = step.kind not in READS_MESSAGES
    return step.kind == MERGE or (is_other and step.first_message_id is None)


def kind_meaning(step: CompactionStep) -> str:
    """Return what is asked for by a step of its kind, as a sentence."""
    known = KIND_MEANINGS.get(step.kind, "a call that its strategy names so")
    return f"{step.kind.capitalize()}: {known}."


def outcome_kind(step: CompactionStep) -> str:
    """Return a key of OUTCOMES: how a step ended, a text shortened without one told apart."""
    if is_forced(step):
        return "forced"
    return step.outcome if step.outcome in OUTCOMES else "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Words for one code; `ways` are what helps: steps, profile, state, session, retry."""

    title: str
    happened: str
    means: str
    remedy: str
    ways: tuple[str, ...] = ()


EXPLANATIONS: dict[str, Explanation] = {
    RunCode.SUMMARISER_ERROR: Explanation(
        title="The summariser could not answer",
        happened="A call of the summarising model failed for another reason than its input's size.",
        means=f"{_NOTHING_LOST} After an automatic run, the next ones wait for a while.",
        remedy="Read the failed call's error: a wrong key, a name the server does not know, or a "
        "server that is down. Mend that or name another summary_model in the profile; then run "
        "it again.",
        ways=("steps", "profile", "state", "retry"),
    ),
    RunCode.BAD_ANSWER: Explanation(
        title="The answer was no summary",
        happened="Asked twice, the model answered with an empty text, a tool call, an error's "
        "text or a question back.",
        means=f"{_NOTHING_LOST} Such an answer would have replaced what was really said.",
        remedy="Look at the last call's output. If it happens again, use another summary_model, or "
        "the extractive summariser, which needs no model.",
        ways=("steps", "profile", "retry"),
    ),
    RunCode.STRATEGY_ERROR: Explanation(
        title="The strategy failed",
        happened="The strategy or the cut that the profile names raised an error, or returned what "
        "cannot be stored.",
        means=f"{_NOTHING_LOST} After an automatic run, the next ones wait for a while.",
        remedy="Read the sentence: it names the strategy and its error. Mend the plug-in, or name "
        "another strategy or cut in the profile; then run it again.",
        ways=("steps", "profile", "state", "retry"),
    ),
    RunCode.TOO_MANY_CALLS: Explanation(
        title="The run needed more calls than it may make",
        happened="Halving went on until the profile's cap of model calls (max_model_calls) was "
        "reached.",
        means=f"{_NOTHING_LOST} The calls so far are paid for; their outputs stand in the steps.",
        remedy="Use a summary model with a larger window, which needs fewer halves, or raise "
        "max_model_calls in the profile.",
        ways=("steps", "profile", "retry"),
    ),
    RunCode.NOTHING_TO_DO: Explanation(
        title="There was nothing to compact",
        happened="Every message since the last summary is kept verbatim, the messages of the "
        "summary to replace are gone, or nothing was said on the branch that was left.",
        means="No model was called and nothing is lost: the messages are all still there.",
        remedy="Nothing has to be done. To compact earlier, keep fewer messages (keep_last_n or "
        "keep_recent_tokens in the profile).",
        ways=("profile", "state", "session"),
    ),
    RunCode.NOT_SMALLER: Explanation(
        title="The summary would have saved nothing",
        happened="The text that came out, with what stays beside it, is not smaller than what it "
        "was to replace.",
        means=f"{_NOTHING_LOST} The next request is as large as before.",
        remedy="Ask for a shorter summary (target_summary_tokens), keep fewer messages verbatim, "
        "or unpin messages: what is pinned is sent although it is summarised.",
        ways=("steps", "profile", "state", "retry"),
    ),
    RunCode.NO_GAIN: Explanation(
        title="Nothing would have been gained",
        happened="With the summary in its frame the next request would not be smaller than it is, "
        "or the messages are too few for one; the sentence gives the sizes.",
        means="Nothing was stored, and all messages are sent as before. Automatic runs wait until "
        "more has been said.",
        remedy="Nothing has to be done. To have less sent, ask for a shorter summary "
        "(target_summary_tokens), keep fewer messages verbatim, or unpin messages. By hand, a "
        "summary is stored in any case where that is asked for (force).",
        ways=("steps", "profile", "state", "session"),
    ),
    RunCode.LOST_RACE: Explanation(
        title="Another worker was faster",
        happened="While the summary was being written, the branch changed hands, its cursor "
        "moved, or its positions were renumbered.",
        means="Nothing was stored, so that no message is summarised twice or skipped.",
        remedy="Look whether another run of the session has done the work. If not, run it again.",
        ways=("state", "session", "retry"),
    ),
    RunCode.OUT_OF_TIME: Explanation(
        title="The run used up its time",
        happened="The calls took longer than a run may work (COMPACTION_RUN_SECONDS, or the time a "
        "waiting user is asked to wait).",
        means=_NOTHING_LOST,
        remedy="Look at how long the calls took. A faster model or one with a larger window needs "
        "less time; run again from here, it works in the background with the full time.",
        ways=("steps", "profile", "retry"),
    ),
    RunCode.INLINE_LIMIT: Explanation(
        title="It took longer than a request waits",
        happened="The calls or the time that a waiting user is asked to wait for were used up "
        "(COMPACTION_INLINE_CALLS, COMPACTION_INLINE_SECONDS) before anything could be stored.",
        means="Nothing is lost and nobody waits: the request went out, and another run does the "
        "work in the background.",
        remedy="Nothing, once. If it happens often, use a faster model or one with a larger "
        "window, or a profile that compacts ahead of need.",
        ways=("steps", "profile"),
    ),
    RunCode.INTERRUPTED: Explanation(
        title="The worker stopped in the middle",
        happened="The process that worked on the run ended, or the queue's own time was up.",
        means=f"{_NOTHING_LOST} The sweep starts such a run again by itself, a few times.",
        remedy="Look at the session's newest runs first. If none has taken over, run it again; if "
        "it is interrupted again and again, look at the worker's log and its memory.",
        ways=("session", "state", "retry"),
    ),
    RunCode.STOPPED: Explanation(
        title="The worker was asked to stop",
        happened="The queue's cluster was shut down, and the worker left the run between two "
        "calls.",
        means=f"{_NOTHING_LOST} Another run was queued in its place.",
        remedy="Nothing has to be done, as long as a cluster runs again.",
        ways=("session", "state"),
    ),
    RunCode.OVER_BUDGET: Explanation(
        title="The budget of an hour was used up",
        happened="The summarising calls of this session, or of all its owner's sessions, reached "
        "a limit for an hour.",
        means="Nothing was summarised, so that nothing more was spent; the messages are all "
        "still there.",
        remedy="Look at what the session's last runs called a model for. It goes on by itself; "
        "raise the COMPACTION_…_PER_HOUR setting if the limit is too low.",
        ways=("session", "state", "retry"),
    ),
    RunCode.BREAKER_OPEN: Explanation(
        title="The model was left alone",
        happened="The summarising model had failed several times in a row, so it is not called "
        "for a while.",
        means=f"{_NOTHING_LOST} One run tries the model again; the others follow when it answers.",
        remedy="Mend the model's server or key. “Close the breaker” on its page has the next "
        "run try at once.",
        ways=("state", "retry"),
    ),
    RunCode.UNKNOWN_MODEL: Explanation(
        title="There is no such model",
        happened="The session or the profile names a model that this installation does not have.",
        means=f"{_NOTHING_LOST} No model was called.",
        remedy="Set the session's model or the profile's summary_model to one of the configured "
        "names; then run it again.",
        ways=("profile", "session", "retry"),
    ),
    RunCode.INTERNAL_ERROR: Explanation(
        title="An error of the program ended the run",
        happened="Something went wrong that nobody foresaw; the worker's log has all of it.",
        means=f"{_NOTHING_LOST} The conversation goes on without this compaction.",
        remedy="Run it again. If it fails again, report it with the run's id and the log.",
        ways=("steps", "retry"),
    ),
    RunCode.BUSY: Explanation(
        title="The branch was busy",
        happened="Another run was compacting the same branch.",
        means="A branch has one worker at a time. The other run looks again when it is done.",
        remedy="Usually nothing has to be done. Run it again if the other run came to nothing.",
        ways=("state", "session", "retry"),
    ),
    RunCode.NOT_DUE: Explanation(
        title="It was no longer due",
        happened="When a worker came to the run, no trigger of the profile was due any more.",
        means="Another run had done the work.",
        remedy="Nothing has to be done. “Compact now” on the session's page does not ask for a "
        "trigger.",
        ways=("session", "state"),
    ),
    RunCode.HELD: Explanation(
        title="A person holds the branch",
        happened="A person had taken a summary back, and its messages are held: no rule compacts "
        "them.",
        means="They are sent verbatim; no model was called.",
        remedy="Nothing has to be done. Lift the hold on the session's page and the rules count "
        "again; “Compact now” lifts it, too.",
        ways=("session", "state"),
    ),
    RunCode.NOT_ACTIVE: Explanation(
        title="The summary was not active any more",
        happened="The summary to make again was replaced or taken back before a worker came.",
        means="There was nothing to replace; no model was called.",
        remedy="Re-summarise the version that is active now, if it is not good either.",
        ways=("session",),
    ),
    RunCode.CANCELLED: Explanation(
        title="Somebody cancelled it",
        happened="The run was cancelled before it ended.",
        means=_NOTHING_LOST,
        remedy="Run it again if it is wanted after all.",
        ways=("retry", "session"),
    ),
    RunCode.HOOK_CANCELLED: Explanation(
        title="A hook stopped it",
        happened="A hook of this installation (COMPACTION_HOOKS) did not want the compaction.",
        means=f"{_NOTHING_LOST} After an automatic run, the next ones wait for a while.",
        remedy="Read the hook's reason. If the compaction is wanted, mend the hook or take it out "
        "of the setting; then run it again.",
        ways=("state", "retry"),
    ),
    RunCode.DELETED: Explanation(
        title="The session was deleted",
        happened="The session was deleted while the run worked.",
        means="There is nothing left to compact.",
        remedy="Nothing can be done.",
    ),
}


def failing_words(code: str) -> str:
    """Return in a few words why compactions by a model fail; a code that is not known stays so."""
    kind, _, named = code.partition(":")
    if named:
        return f"{named} refused"
    known = EXPLANATIONS.get(kind)
    words = known.title if known else ERROR_WORDS.get(kind, kind)
    return words[:1].lower() + words[1:]


MEMORY_REASONS = {
    RunCode.NOTHING_TO_DO: "There was nothing to rewrite or to propose",
    RunCode.BAD_ANSWER: "The answer could not be used",
    RunCode.LOST_RACE: "The memories changed meanwhile",
    NO_MODEL: "The profile chooses sentences, and memories take a model",
}
"""Where a memory run's code says something else than that of a compaction."""


def memory_reason(code: str) -> str:
    """Return why a memory run came to nothing, or waits, in words; an unknown code stays so."""
    known = EXPLANATIONS.get(code)
    return MEMORY_REASONS.get(code, known.title if known else code)


def explanation_of(run: CompactionRun) -> Explanation | None:
    """Return the words for a run that ended without a summary; None for every other run."""
    if run.status not in (Status.FAILED, Status.SKIPPED, Status.CANCELLED):
        return None
    known = EXPLANATIONS.get(run.error_code)
    if known is not None:
        return known
    return Explanation(
        title=f"The run {run.get_status_display().lower()}"
        if run.status == Status.FAILED
        else f"The run was {run.get_status_display().lower()}",
        happened="No sentence was stored." if not run.error else "",
        means=_NOTHING_LOST,
        remedy="Look at its calls, and run it again.",
        ways=("steps", "retry"),
    )
