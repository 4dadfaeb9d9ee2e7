"""The kinds of things that need a look: where their rows are, what is said of one, what helps.

A kind is a `LookKind` in `KINDS`; one entry adds one to the front page, the list and the alerts.
Its rows are the newest of each thing: a branch of a session, or a model by its alias. Each kind
reads one index, newest first, so that a list takes one statement a kind however much is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from chatapp.database import database_now
from chatapp.formatting import clock, short_id, span_words
from chatapp.llm.errors import ErrorKind
from chatapp.models import AnswerRequest, Incident, Message, Session
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import RunCode
from compaction.models import (
    CompactionRun,
    CompactionState,
    ModelBreaker,
    SessionSummary,
    SummaryQuality,
)
from compaction.vocabulary import failing_words

LOOK_DAYS = 30
"""What happened longer ago is no task of today any more."""
STALE_AFTER = timedelta(minutes=5)
"""The sweep frees an expired lease within a minute: one this old means that no sweep runs."""
BRANCH, MODEL = "branch", "model"

Status = CompactionRun.Status


@dataclass(frozen=True, slots=True, kw_only=True)
class LookItem:
    """One thing that needs a look: when it happened last, and what its row says.

    `subject` is a branch's id as text, or a model's alias; `row` and `event_row` are the keys of
    the pages that it leads to.
    """

    kind: LookKind
    subject: str
    at: datetime
    session: str = ""
    row: str = ""
    event_row: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The sentence of the list: ids and times, never a text of the conversation."""
        return self.kind.said(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookKind:
    """One kind. `rows()` are its things as they are now, whatever people have set aside of them."""

    name: str
    label: str
    means: str
    """What it means, and what helps."""
    rows: Callable[[], QuerySet[Any]]
    said: Callable[[LookItem], str]
    page: type[Model]
    """Whose page a thing leads to, and whose rows an operator must be allowed to see."""
    at: str
    """The column that says when it happened."""
    subject: str
    """The column of what is marked: a branch's id, or a model's alias."""
    marked: str = BRANCH
    """The column of LookMark that names the subject."""
    session: str = ""
    row: str = ""
    """Columns of the session's id, where the row knows it, and of the key of its page."""
    event_page: type[Model] | None = None
    """Whose page tells of the one answer or turn that a thing is about: who may see that is led
    there, and not to the conversation as a whole."""
    event_row: str = ""
    """The column of its key."""
    reads: tuple[str, ...] = ()
    """Further columns, which become the item's details."""
    acts: tuple[str, ...] = ()
    """What helps; compaction/admin/needs_look.py knows how each is done."""
    tone: str = "bad"
    is_figure: bool = False
    """Whether the front page counts it among its figures instead: its rows are of a large table."""
    events: Callable[[], QuerySet[Any]] | None = None
    """What happened, whether or not it still needs a look: where that piles up, a floor tells up to
    when all of it is done (marks.py), so that no list goes through a month of it."""

    def item(self, values: Mapping[str, Any]) -> LookItem:
        """Return the item of a row that was read with `columns`."""
        return LookItem(
            kind=self,
            subject=str(values[self.subject]),
            at=values[self.at],
            session=str(values[self.session]) if self.session else "",
            row=str(values[self.row or self.subject]),
            event_row=str(values[self.event_row]) if self.event_row else "",
            details={name: values[name] for name in self.reads},
        )

    def key(self, subject: str) -> UUID | str | None:
        """Return what a subject's text stands for: a branch's id, or an alias; None for no id."""
        if self.marked != BRANCH:
            return subject
        try:
            return UUID(subject)
        except ValueError:
            return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that an item is made of."""
        named = (self.subject, self.at, self.session, self.row, self.event_row, *self.reads)
        return tuple(dict.fromkeys(name for name in named if name))


def _since() -> datetime:
    return database_now() - timedelta(days=LOOK_DAYS)


# --- where the rows are ---------------------------------------------------------------------------


def _left_out() -> QuerySet[AnswerRequest]:
    """Return the newest answer of each branch that was given without messages, however that was."""
    rows = _incomplete_answers()
    later = rows.filter(left_out_branch=OuterRef("left_out_branch"), pk__gt=OuterRef("pk"))
    return rows.filter(~Exists(later), created_at__gte=_since())


def _incomplete_answers() -> QuerySet[AnswerRequest]:
    return AnswerRequest.objects.filter(left_out__isnull=False, left_out_branch__isnull=False)


def _newer_runs() -> QuerySet[CompactionRun]:
    """Return what has come after a run of the same branch, or is under way."""
    return CompactionRun.objects.filter(
        branch=OuterRef("branch"), created_at__gt=OuterRef("created_at")
    ).exclude(status__in=(Status.SKIPPED, Status.CANCELLED))


def _failed_runs() -> QuerySet[CompactionRun]:
    """Return the newest run of each branch where it failed; a lost race is no failure."""
    return _failures().filter(~Exists(_newer_runs()), finished_at__gte=_since())


def _failures() -> QuerySet[CompactionRun]:
    failed = CompactionRun.objects.filter(status=Status.FAILED, finished_at__isnull=False)
    return failed.exclude(error_code=RunCode.LOST_RACE)


def _truncated_runs() -> QuerySet[CompactionRun]:
    """Return the newest run of each branch where its summary was shortened by force."""
    return _shortened().filter(~Exists(_newer_runs()), finished_at__gte=_since())


def _shortened() -> QuerySet[CompactionRun]:
    return CompactionRun.objects.filter(
        status=Status.SUCCEEDED, truncated=True, finished_at__isnull=False
    )


def _low_scores() -> QuerySet[SummaryQuality]:
    """Return the newest low score of each branch among the summaries that nobody has judged."""
    unjudged = SummaryQuality.objects.filter(
        verdict="",
        score__lt=compaction_settings.low_score,
        summary__status=SessionSummary.Status.ACTIVE,
    )
    later = unjudged.filter(
        summary__branch=OuterRef("summary__branch"), created_at__gt=OuterRef("created_at")
    )
    return unjudged.filter(~Exists(later), created_at__gte=_since())


def _over_the_window() -> QuerySet[Incident]:
    """Return the newest turn of each branch that ended too large, unless it was compacted since.

    A compaction that somebody took back helps no more while its messages are held; after that the
    rules compact them anew.
    """
    overflows = _overflows()
    later = overflows.filter(branch=OuterRef("branch"), created_at__gt=OuterRef("created_at"))
    compacted = CompactionState.objects.filter(
        branch=OuterRef("branch"),
        last_consolidated_at__gt=OuterRef("created_at"),
        hold_through__isnull=True,
    )
    newest = overflows.filter(branch__isnull=False, created_at__gte=_since())
    return newest.filter(~Exists(later), ~Exists(compacted))


def _overflows() -> QuerySet[Incident]:
    code = ErrorKind.CONTEXT_OVERFLOW.value
    return Incident.objects.filter(kind=Incident.Kind.ERROR, code=code)


def _failing_models() -> QuerySet[ModelBreaker]:
    """Return the models whose compactions fail, and those that are left alone."""
    rows = ModelBreaker.objects.annotate(since=Coalesce("failing_since", "opened_at"))
    return rows.filter(Q(failing_since__isnull=False) | Q(opened_at__isnull=False))


def _stale_leases() -> QuerySet[CompactionState]:
    """Return the branches that are held by a worker which fell silent, and that no sweep freed."""
    return CompactionState.objects.filter(
        lease_owner__isnull=False, lease_expires_at__lt=database_now() - STALE_AFTER
    )


def _held() -> QuerySet[CompactionState]:
    """Return the branches on which a person's restore holds the rules back."""
    rows = CompactionState.objects.filter(hold_through__isnull=False, hold_through__gt=F("cursor"))
    return rows.filter(Q(held_until__isnull=True) | Q(held_until__gt=database_now()))


# --- what is said ---------------------------------------------------------------------------------


def _failure(item: LookItem) -> str:
    return (
        f"A compaction of session {short_id(item.session)} failed: "
        f"{failing_words(item.details['error_code'])}"
    )


def _failing(item: LookItem) -> str:
    """Say since when a model fails and why; one whose breaker alone is open is only left alone."""
    if item.details["failing_since"] is None:
        return f"Model {item.subject} is left alone since {clock(item.at)}: its calls kept failing."
    because = failing_words(item.details["failing_code"])
    return f"Compactions of model {item.subject} fail since {clock(item.at)}: {because}."


def _stale(item: LookItem) -> str:
    silent = span_words(database_now() - item.at)
    return f"Branch {short_id(item.subject)} is held by a worker that fell silent {silent} ago"


KINDS: tuple[LookKind, ...] = (
    LookKind(
        name="summariser_failing",
        label="The summariser of a model fails",
        means="No turn fails for it: requests grow to the window, then sentences are chosen. Its "
        "page leads to the run that says what to do; a summary by the model ends this.",
        rows=_failing_models,
        said=_failing,
        page=ModelBreaker,
        at="since",
        subject="model",
        marked=MODEL,
        reads=("failing_since", "failing_code"),
    ),
    LookKind(
        name="over_window",
        label="Over the window",
        means="The turn ended without an answer: nothing that was tried made its request fit. "
        "Compact the session, unless its timeline says that one message alone is too large: that "
        "one must become shorter, or the session gets a model with a larger window.",
        rows=_over_the_window,
        events=_overflows,
        said=lambda item: (
            f"A request of session {short_id(item.session)} was larger than the window"
        ),
        page=Session,
        at="created_at",
        subject="branch_id",
        session="session_id",
        row="session_id",
        event_page=Incident,
        event_row="pk",
        acts=("compact",),
    ),
    LookKind(
        name="left_out",
        label="Answered with messages left out",
        means="The model saw only the newest messages. Nothing stored is lost: compact the "
        "session, and the next answer knows the older ones by their summary.",
        rows=_left_out,
        events=_incomplete_answers,
        said=lambda item: f"Session {short_id(item.session)} was answered with messages left out",
        page=Session,
        at="created_at",
        subject="left_out_branch",
        session="session_id",
        row="session_id",
        event_page=Message,
        event_row="message_id",
        acts=("compact",),
    ),
    LookKind(
        name="compaction_failed",
        label="Compaction failed",
        means="No summary was stored and nothing is lost; requests grow until a run succeeds. "
        "The run's page says what to do.",
        rows=_failed_runs,
        events=_failures,
        said=_failure,
        page=CompactionRun,
        at="finished_at",
        subject="branch_id",
        session="session_id",
        row="pk",
        reads=("error_code",),
        acts=("run_again",),
    ),
    LookKind(
        name="compaction_truncated",
        label="Compaction left parts out",
        means="The summary was shortened by force, so it does not know all that it covers. "
        "Make it again with another model or a larger target, or restore its messages.",
        rows=_truncated_runs,
        events=_shortened,
        said=lambda item: f"The summary of session {short_id(item.session)} was shortened by force",
        page=CompactionRun,
        at="finished_at",
        subject="branch_id",
        session="session_id",
        row="pk",
        acts=("summarise_again",),
        tone="busy",
    ),
    LookKind(
        name="low_score",
        label="A summary knows little",
        means="It is sent, and names little of what it covers; its page lists what was lost. Make "
        "it again, pin what must stay, or give it a verdict, which takes it off this list.",
        rows=_low_scores,
        said=lambda item: (
            f"The summary of session {short_id(item.session)} scored {item.details['score']:.0f} "
            "of 100"
        ),
        page=SessionSummary,
        at="created_at",
        subject="summary__branch_id",
        session="summary__session_id",
        row="summary_id",
        reads=("score",),
        acts=("summarise_again",),
        tone="busy",
        is_figure=True,
    ),
    LookKind(
        name="stale_lease",
        label="Stale lease",
        means="No sweep has freed it: does a worker run? Restarting frees the branch and starts "
        "its run again.",
        rows=_stale_leases,
        said=_stale,
        page=CompactionState,
        at="lease_expires_at",
        subject="branch_id",
        acts=("restart",),
    ),
    LookKind(
        name="held",
        label="Held after a restore",
        means="No rule compacts what somebody took back, so requests grow. Lift the hold when it "
        "has been read, or leave it: the window ends it in any case.",
        rows=_held,
        said=lambda item: f"Branch {short_id(item.subject)} is held since {clock(item.at)}",
        page=CompactionState,
        at="held_at",
        subject="branch_id",
        acts=("lift",),
        tone="busy",
    ),
)
"""In the order in which kinds of the same moment are listed."""
KIND_NAMES = {kind.name: kind for kind in KINDS}
