"""The demo's account, its conversations, and their compaction."""

from __future__ import annotations

import contextlib
import io
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models.signals import post_save
from django.utils.crypto import salted_hmac

from chatapp.conf import chatapp_settings
from chatapp.keys import MARK, ApiKey, create_key, find_key
from chatapp.llm.encodings import EncodingUnavailableError, find_rank_file
from chatapp.models import Session
from chatapp.transfer import import_file
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.models import CompactionRun, CompactionStep
from compaction.runs.resummarize import estimate_compaction
from compaction.runs.worker import compact_branch, execute_run

USERNAME = "operator"
PASSWORD_BYTES = 12
DEMO_KEY = "demo"
# 160 bits; a header with more would not fit into a line of a terminal.
DEMO_KEY_DIGITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The account; `password` is known only in the run that made it."""

    user: Any
    token: str
    password: str = ""


def ensure_operator() -> Operator:
    """Return the operator's account, made now where it is missing; an old password stays."""
    users: Any = get_user_model()._default_manager
    user, password = users.filter(**{get_user_model().USERNAME_FIELD: USERNAME}).first(), ""
    if user is None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = users.create_superuser(USERNAME, password=password)
    return Operator(user=user, token=_token_of(user), password=password)


def _token_of(user: Any) -> str:
    """Return the demo's API key, made now where it is missing.

    It can be shown each time although only its hash is stored: it is worked out anew from the
    installation's SECRET_KEY, whose holder could sign the operator's session as well.
    """
    digest = salted_hmac(DEMO_KEY, str(user.pk), algorithm="sha256").hexdigest()
    secret = f"{MARK}{digest[:DEMO_KEY_DIGITS]}"
    known = find_key(secret.encode())
    if known is None or known.state != "active":
        ApiKey.objects.filter(owner=user, name=DEMO_KEY).delete()
        create_key(owner=user, name=DEMO_KEY, secret=secret)
    return secret


# The model without a server: the demo needs no key and calls nobody, whatever OPENAI_* says.
MODEL = "embedded"
# The conversation that the demo asks about; the answer is a rule of the part that is summarised.
ASKED_FILE = "coding_agent"
QUESTION = "How much of the ceiling should a retry always wait?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One stored sample conversation; `file` is its name, `added` what this import stored."""

    session: Session
    file: str
    added: int


def store_samples(owner: Any) -> list[Sample]:
    """Store the sample conversations and return them; a second time adds nothing."""
    return [
        Sample(session=item.session, file=path.stem, added=item.messages_added)
        for path in _files()
        for item in import_file(
            owner=owner, content=path.read_bytes(), name=path.name, model=MODEL
        ).imported
    ]


def _files() -> list[Path]:
    return sorted(Path(apps.get_app_config("chatapp").path, "samples").glob("*.json"))


ENCODING = "o200k_base"
TIMEOUT_SECONDS = 3.0
# The time-out is for each wait on the network; a name server or a slow line can take many of them.
PATIENCE_SECONDS = 8.0


def load_encoding_quickly() -> str:
    """Return a sentence on how tokens are counted, having tried to make the counts exact."""
    try:
        if find_rank_file(ENCODING, chatapp_settings.encodings_dir):
            return f"{ENCODING} is already there: token counts are exact"
    except EncodingUnavailableError:
        pass
    outcome: list[bool] = []
    # A thread that nobody waits for in the end: urlopen cannot be told to give up altogether.
    attempt = threading.Thread(target=_attempt, args=(outcome,), daemon=True)
    attempt.start()
    attempt.join(PATIENCE_SECONDS)
    if outcome == [True]:
        return f"{ENCODING} loaded: token counts are exact"
    return "not available: token counts are estimated (manage.py load_encodings)"


def _attempt(outcome: list[bool]) -> None:
    quiet = io.StringIO()
    try:
        call_command(
            "load_encodings", ENCODING, timeout=TIMEOUT_SECONDS, stdout=quiet, stderr=quiet
        )
    except (CommandError, OSError):
        outcome.append(False)
    else:
        outcome.append(True)


Status = CompactionRun.Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A session and the run that compacted it, now or earlier; tokens are those of one request."""

    session: Session
    messages: int
    run: CompactionRun
    before: bool
    is_held: bool = False
    """Whether a person took its summary back: then it is left as it is."""

    @property
    def succeeded(self) -> bool:
        """Whether there is a summary."""
        return self.run.status == Status.SUCCEEDED

    @property
    def has_failed(self) -> bool:
        """Whether the session should have been compacted and was not.

        It need not be where nothing can be summarised, in a short fork for example.
        """
        return not (self.succeeded or self.is_elsewhere or self.run.status == Status.SKIPPED)

    @property
    def is_elsewhere(self) -> bool:
        """Whether another run has the conversation, perhaps one of a demo that was killed."""
        return self.run.error_code == RunCode.BUSY

    @property
    def ratio(self) -> float | None:
        """Tokens after over tokens before; smaller is better."""
        if not self.run.tokens_before or self.run.tokens_after is None:
            return None
        return self.run.tokens_after / self.run.tokens_before

    @property
    def seconds(self) -> float:
        """How long the run took."""
        if self.run.started_at is None or self.run.finished_at is None:
            return 0.0
        return (self.run.finished_at - self.run.started_at).total_seconds()


def calls_ahead(session: Session) -> int:
    """Return how many model calls compacting the session will take; 0 when it needs nothing."""
    snapshot = snapshot_of(session)
    return 0 if _done_run(snapshot) else estimate_compaction(snapshot).calls


def compact_sample(session: Session) -> Compacted:
    """Compact a session and return its run; one that needs nothing keeps its last run.

    Storing the conversation has queued a run where a trigger was due. It is done here, in the
    worker's place: the queue's own delivery then finds it finished.
    """
    snapshot = snapshot_of(session)
    run = _done_run(snapshot)
    before = run is not None
    if run is None:
        waiting = CompactionRun.objects.filter(branch=snapshot.branch, status=Status.QUEUED)
        queued = waiting.order_by("created_at").first()
        if queued is not None:
            run = execute_run(queued.pk)
        if run is None or run.status == Status.SKIPPED:
            run = compact_branch(
                session=session,
                branch=snapshot.branch,
                trigger=CompactionRun.Trigger.MANUAL,
                reason=Reason.MANUAL,
            )
    return Compacted(
        session=session,
        messages=snapshot.branch.message_count,
        run=run,
        before=before,
        is_held=before and snapshot.state.is_held,
    )


def _done_run(snapshot: BranchSnapshot) -> CompactionRun | None:
    """Return the newest run that succeeded, if the branch needs no other one now.

    One that a person holds needs none, whatever the rules say.
    """
    if not snapshot.state.is_held:
        if not snapshot.summaries:
            return None
        if decision_of(snapshot) is not None and cut_of(snapshot).messages:
            return None
    runs = CompactionRun.objects.filter(branch=snapshot.branch, status=Status.SUCCEEDED)
    return runs.order_by("-finished_at").first()


@contextlib.contextmanager
def every_call(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` after every model call of this process's runs, inside the block."""

    def stored(*, created: bool, **kwargs: Any) -> None:
        if created:
            tell()

    post_save.connect(stored, sender=CompactionStep, weak=False, dispatch_uid="compaction.demo")
    try:
        yield
    finally:
        post_save.disconnect(sender=CompactionStep, dispatch_uid="compaction.demo")
