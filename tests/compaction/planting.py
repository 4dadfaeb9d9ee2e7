"""A scene in which every column that holds texts holds a marker of its own, and all its addresses.

Columns and addresses are read from the models and from the admin's own urls: what is added later is
planted and visited by itself, or fails with a sentence that says what to teach this module.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db.models import CharField, JSONField, Model, TextField
from django.test import RequestFactory
from django.urls import URLPattern, URLResolver
from django.urls.resolvers import RegexPattern
from django.utils import timezone
from django_q.models import Failure, Schedule, Task

from chatapp.keys import create_key
from chatapp.messages.wire import CUT_FROM
from chatapp.models import (
    Branch,
    ImportedSession,
    ImportJob,
    Incident,
    LearnedLimits,
    Message,
    MessageOriginal,
    Session,
)
from compaction.engine.fidelity.entities import key_of
from compaction.models import (
    BulkItem,
    BulkJob,
    CompactionRun,
    CompactionStep,
    Memory,
    MemoryRun,
    MemoryVersion,
    ModelBreaker,
    RecoveryStep,
    SessionSummary,
    SummaryQuality,
    SummaryUnits,
    WorkerHeartbeat,
)
from tests import facts
from tests.compaction.recoveries import recovery_step_of, run_of
from tests.factories import SessionFactory, UserFactory, call, result, talk, user

OUR_APPS = ("chatapp", "compaction")
APPS_WITH_PAGES = (*OUR_APPS, "auth", "axes", "django_q")
SHORTEST_MARKER = 9

Planter = Callable[[str], Any]


def words(marker: str) -> str:
    return f"{marker} and more words."


def listed(marker: str) -> list[str]:
    return [marker]


def noted(marker: str) -> dict[str, str]:
    return {"note": marker}


def tool(marker: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "look_up", "description": marker}}]


def calls(marker: str) -> list[dict[str, Any]]:
    function = {"name": "look_up", "arguments": '{"word": "' + marker + '"}'}
    return [{"id": "call_1", "type": "function", "function": function}]


def said(marker: str) -> dict[str, Any]:
    return {"said": words(marker), "status": 400}


def entry(marker: str) -> list[dict[str, Any]]:
    return [{"state": "answered", "position": 5, "user": marker, "response": marker}]


def line(marker: str) -> list[dict[str, Any]]:
    moment = timezone.now().isoformat()
    found = {"id": str(uuid.uuid4()), "text": marker, "tokens": 3, "position": 5, "origin": "hand"}
    nobody = {"source": None, "created_by": None}
    return [found | nobody | {"accepted_at": moment, "created_at": moment}]


def lost(marker: str) -> list[dict[str, Any]]:
    fact = {"kind": "identifier", "speaker": "user", "message": None, "weight": 6.0}
    fact |= {"start": 0, "end": 1}
    return [fact | {"text": marker, "context": f"our {marker} stays"}]


# What is written into each column of texts. Some rows of a table have it, not all: see `Scene`.
PLANTED: Mapping[tuple[type[Model], str], Planter] = {
    (Session, "title"): str,
    (Session, "system_prompt"): words,
    (Session, "tools"): tool,
    (Session, "metadata"): noted,
    (Branch, "label"): str,
    (Message, "content"): words,
    (Message, "parts"): lambda marker: [{"type": "text", "text": marker}],
    (Message, "tool_calls"): calls,
    (Message, "tool_call_id"): str,
    (Message, "tool_name"): str,
    (Message, "reasoning"): words,
    (Message, "summary"): words,
    (Message, "vendor"): noted,
    (Message, "usage"): lambda marker: {"prompt_tokens": 1, "note": marker},
    (Message, "metadata"): lambda marker: {"note": marker, CUT_FROM: 9000},
    (MessageOriginal, "content"): words,
    (Incident, "text"): words,
    (Incident, "details"): said,
    (ImportJob, "name"): str,
    (ImportJob, "problems"): lambda marker: [{"line": 1, "text": marker}],
    (ImportJob, "error"): words,
    (SessionSummary, "summary_text"): words,
    (SessionSummary, "summary_prompt"): words,
    (SessionSummary, "metadata"): noted,
    (SessionSummary, "files_read"): listed,
    (SessionSummary, "files_modified"): listed,
    (SessionSummary, "files_created"): listed,
    (SessionSummary, "files_deleted"): listed,
    (SessionSummary, "details"): noted,
    (SessionSummary, "abridged"): words,
    (SessionSummary, "abridged_entries"): entry,
    (SessionSummary, "instructions"): words,
    (CompactionRun, "instructions"): words,
    (CompactionRun, "carried_instructions"): words,
    (CompactionRun, "switch_label"): str,
    (CompactionRun, "error"): words,
    (CompactionStep, "error"): words,
    (CompactionStep, "output"): words,
    (CompactionStep, "prompt"): words,
    (CompactionStep, "texts"): listed,
    (CompactionStep, "given"): lambda marker: {"kept": marker},
    (RecoveryStep, "text"): words,
    (RecoveryStep, "error"): words,
    (SummaryQuality, "verdict_note"): words,
    (SummaryQuality, "figures"): lambda marker: {"unsupported": [marker]},
    (SummaryQuality, "lost"): lost,
    (SummaryUnits, "units"): lambda marker: [[marker, "fact", "user", 1, "", 0, 0, 0.0]],
    (ModelBreaker, "last_error"): words,
    (BulkJob, "note"): words,
    (BulkItem, "error"): words,
    (Memory, "text"): str,
    (MemoryRun, "error"): words,
    (MemoryVersion, "before"): line,
    (MemoryVersion, "after"): line,
}
# Columns called like this hold words of the code, of settings or of servers, in every table.
CODES = {
    "code", "configured_entry", "digest", "error_code", "error_kind", "failing_code",
    "finish_reason", "format", "host", "kind", "mode", "model", "origin", "prefix", "profile",
    "prompt_version", "reason", "response_id", "server", "status", "trigger",
}  # fmt: skip
# Other columns of no text, and why.
NO_TEXTS = {
    "chatapp.auditentry.action": "codes of acts",
    "chatapp.auditentry.text": "ids and numbers (chatapp/audit.py)",
    "compaction.compactionstate.hold_end": "a code",
    "chatapp.answerrequest.made_of": "places, digests, parameters and names of settings",
    "chatapp.session.adaptations": "codes of changes",
    "chatapp.learnedlimits.adaptations": "codes of changes",
    "chatapp.apikey.name": "what an operator calls a key",
    "chatapp.apikey.scopes": "codes",
    "chatapp.learnedlimits.name": "a model's name",
    "chatapp.message.client_key": "a program's key, on no page",
    "chatapp.session.import_key": "a program's key, on no page",
    "compaction.bulkjob.chosen_by": "an address of the list, as its operator saw it",
    "compaction.compactionprofile.name": "what an operator calls a profile",
    "compaction.compactionprofile.description": "what an operator says of a profile",
    "chatapp.messageoriginal.parts": "shown in the place of the content, as that is",
    "compaction.compactionprofile.parameters": "settings of an operator",
    "compaction.dailyfigures.ratios": "numbers",
    "compaction.memory.bot": "a bot's name",
    "compaction.memorykey.bot": "a bot's name",
    "compaction.memoryrun.bot": "a bot's name",
    "compaction.memoryversion.bot": "a bot's name",
    "compaction.dailyfigures.scores": "numbers",
    "compaction.summaryquality.facts": "read by measures alone",
    "compaction.summaryquality.ignored": "keys of facts",
}
# Planted, and on no page; the clauses that summaries choose from are in an owner's export.
ON_NO_PAGE: set[tuple[type[Model], str]] = set()


def text_columns() -> Iterator[tuple[type[Model], str]]:
    """Yield every column of the two apps that may hold words, long or short."""
    for model in (model for label in OUR_APPS for model in apps.get_app_config(label).get_models()):
        for field in model._meta.concrete_fields:
            is_short = isinstance(field, CharField) and not field.choices
            if isinstance(field, TextField | JSONField) or is_short:
                yield model, field.name


def draw_markers() -> dict[tuple[type[Model], str], str]:
    """Return a marker a column, of many shapes, long enough to stand on no page by chance."""
    chance = random.Random(facts.seed())
    drawn = (fact.value for fact in facts.draw_facts(chance, 6 * len(PLANTED)))
    long = [value for value in drawn if len(value) >= SHORTEST_MARKER and '"' not in value]
    return dict(zip(PLANTED, long, strict=False))


_MARKS_OF_DIFFERENCES = re.compile(r'</?(?:del|ins)>|<span class="diff-sign">.</span>')


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is planted, and where it can be seen."""

    markers: Mapping[tuple[type[Model], str], str]
    session: Session
    operator: Any

    def seen_on(self, page: str) -> set[tuple[type[Model], str]]:
        """Return the columns whose markers stand on a page.

        Where two versions are compared, a mark may stand inside of one that is like another.
        """
        text = _MARKS_OF_DIFFERENCES.sub("", page)
        return {column for column, marker in self.markers.items() if marker in text}


def plant(session: Session, operator: Any) -> Scene:
    """Add rows of every kind to a compacted session, and a marker to every column of texts."""
    _more_rows(session)
    markers = draw_markers()
    assert len(markers) == len(PLANTED)
    for (model, name), marker in markers.items():
        rows = model._default_manager.all()
        if model is Message:
            rows = _messages_with(name)
        assert rows.update(**{name: PLANTED[model, name](marker)}), (model, name)
    quality = SummaryQuality.objects.filter(lost__isnull=False).get(summary__in=_active(session))
    first = Message.objects.filter(session=session, role="user").earliest("position")
    quality.lost = [fact | {"message": str(first.pk)} for fact in quality.lost]
    quality.save()
    _log(session, operator, markers[Session, "title"])
    session.refresh_from_db()
    return Scene(markers=markers, session=session, operator=operator)


def _active(session: Session) -> list[Any]:
    """Return the newest summary that counts: actions are tried on it."""
    return [SessionSummary.objects.filter(session=session, status="active").latest("created_at").pk]


def _messages_with(name: str) -> Any:
    """Return the rows that have something in a column, as the transcript writes them."""
    rows = Message.objects.all()
    if name in ("tool_name", "tool_call_id"):
        return rows.filter(role="tool")
    if name == "summary":
        return rows.filter(kind="placeholder")
    if name in ("content", "reasoning"):
        return rows.filter(kind="message").exclude(role="assistant", tool_calls__isnull=False)
    if name == "tool_calls":
        return rows.filter(tool_calls__isnull=False)
    if name == "metadata":
        return rows.filter(original__isnull=False)
    first = rows.filter(role="user").order_by("position")[:1]
    return rows.filter(pk__in=list(first.values_list("pk", flat=True)))


def _more_rows(session: Session) -> None:
    first = Message.objects.filter(session=session, role="user").order_by("position").first()
    MessageOriginal.objects.create(message=first, content="whole")
    for kind in Incident.Kind.values:
        Incident.objects.create(session=session, branch=session.branch, kind=kind, code="timeout")
    Branch.objects.create(
        session=session, kind="replay", replaces=session.branch, fork_position=2_000_000
    )
    failed = run_of(session, 1, status="failed", error_code="bad_answer", error="x")
    CompactionStep.objects.create(run=failed, order=1, kind="chunk", outcome="error", error="x")
    recovery_step_of(session, 2, run=failed, action="compact", outcome="no_help", text="x")
    recovery_step_of(session, 3, action="give_up", outcome="failed", text="x")
    later = timezone.now() + timedelta(hours=1)
    run_of(session, 4, status="queued", trigger="manual", waits_until=later, error="x")
    (key,) = _active(session)
    SummaryUnits.objects.get_or_create(summary_id=key)
    SummaryQuality.objects.update_or_create(
        summary_id=key, defaults={"version": 1, "score": 50, "verdict": "bad"}
    )
    # The figures of the front page are worked out from the first run's day on.
    CompactionRun.objects.update(created_at=timezone.now())
    job = ImportJob.objects.create(owner=session.owner, status="failed", sessions_made=1)
    ImportedSession.objects.create(job=job, number=0, session=session)
    for number, accepted in enumerate((None, timezone.now())):
        Memory.objects.create(
            owner=session.owner, text="x", position=number, accepted_at=accepted, source=first,
            created_by=session.owner,
        )  # fmt: skip
    run = MemoryRun.objects.create(owner=session.owner, kind="compress", status="failed", error="x")
    MemoryRun.objects.create(
        owner=session.owner, kind="extract", session=session, summary_id=key, error="x"
    )
    MemoryVersion.objects.create(owner=session.owner, run=run)
    bulk = BulkJob.objects.create(status="paused", requested_by=session.owner)
    BulkItem.objects.create(job=bulk, session=session, status="failed")
    ModelBreaker.objects.create(model="default", failures=3, opened_at=timezone.now())
    WorkerHeartbeat.objects.create(id=uuid.uuid4(), kind="queue", host="here", pid=1, run=failed)
    LearnedLimits.objects.create(server="", name="scripted", context_window=9000)
    create_key(owner=session.owner, name="a key")
    for row in (True, False):
        Task.objects.create(
            id=uuid.uuid4().hex, name=f"n{row}", func="compaction.tasks.sweep", success=row,
            result="nothing", started=timezone.now(), stopped=timezone.now(),
        )  # fmt: skip


def _log(session: Session, operator: Any, title: str) -> None:
    """Write the title into the operator's log, as older versions did."""
    LogEntry.objects.create(
        user=operator, content_type=ContentType.objects.get_for_model(Session),
        object_id=str(session.pk), object_repr=title, action_flag=CHANGE,
        change_message=f"Compact now: {title}: a run is queued.",
    )  # fmt: skip
    Failure.objects.update(result=f"Traceback: {title}")


def conversation() -> list[dict[str, Any]]:
    """Return messages of every role, with a call and its result."""
    found = [*talk(3, marker=1), user("Look it up."), call("look_up", "call_1"), result("call_1")]
    return [*found, *talk(2, marker=9)]


def new_session(owner: Any) -> Session:
    return SessionFactory(owner=owner, wires=conversation())


def staff(name: str, **columns: Any) -> Any:
    return UserFactory(username=name, is_staff=True, **columns)


# --- addresses ------------------------------------------------------------------------------------

LEADING_OUT = ("/admin/logout/", "/admin/login/")
_ARGUMENT = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One address of the admin as it is declared, with the model whose page it belongs to."""

    text: str
    model: type[Model] | None

    @property
    def arguments(self) -> list[str]:
        return _ARGUMENT.findall(self.text)


def routes() -> list[Route]:
    """Return every address below /admin/, from the urls of the admin itself."""
    return list(_routes(admin.site.get_urls(), "/admin/"))


def _routes(patterns: list[Any], before: str) -> Iterator[Route]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from _routes(each.url_patterns, before + str(each.pattern))
        elif isinstance(each, URLPattern) and not isinstance(each.pattern, RegexPattern):
            text = before + str(each.pattern)
            yield Route(text=text, model=_model_of(text))


def _model_of(text: str) -> type[Model] | None:
    parts = text.removeprefix("/admin/").split("/")
    for model in admin.site._registry:
        if parts[:2] == [model._meta.app_label, model._meta.model_name]:
            return model
    return None


def addresses(*, most_rows: int) -> list[str]:
    """Return every address, with the ids of at most so many rows of its model.

    An address that ends the visit is left out: nobody is logged in behind it.
    """
    found = [f"/admin/{label}/" for label in APPS_WITH_PAGES]
    found.append("/admin/nowhere/")
    for route in routes():
        found += _filled(route, most_rows)
    return [each for each in (*found, *_boxes()) if each not in LEADING_OUT]


def _filled(route: Route, most_rows: int) -> Iterator[str]:
    if not route.arguments:
        yield route.text
        if route.model is not None:
            yield f"{route.text}?q=abcd"
        return
    for row in _rows(route, most_rows):
        for name in _forms_of(route)[:most_rows]:
            values = _values(route, row, name)
            address = _ARGUMENT.sub(lambda found, given=values: str(given[found[1]]), route.text)
            yield address
            if address.endswith("/request/"):
                yield f"{address}?download=1"


def _rows(route: Route, most: int) -> list[Model]:
    model = route.model or Session
    rows = model._default_manager.order_by("pk")
    return list(rows[:most])


def _forms_of(route: Route) -> list[str]:
    if "name" not in route.arguments:
        return [""]
    assert route.model is not None
    return [*admin.site.get_model_admin(route.model).forms_of_page(), "nothing"]


def _values(route: Route, row: Model, name: str) -> dict[str, Any]:
    """Return what stands in the place of each argument of an address."""
    others = type(row)._default_manager.exclude(pk=row.pk).order_by("pk")
    other = others.first()
    known = {
        "object_id": row.pk,
        "id": row.pk,
        "pk": row.pk,
        "step_id": row.pk,
        "owner_id": row.owner_id if isinstance(row, Session) else 0,
        "other_id": other.pk if other else uuid.uuid4(),
        "name": name,
        "content_type_id": ContentType.objects.get_for_model(row).pk,
    }
    unknown = set(route.arguments) - set(known)
    assert not unknown, f"Teach tests/compaction/planting.py what {unknown} of {route.text} are."
    return known


def _boxes() -> Iterator[str]:
    """Yield what boxes that look for rows ask, once for every table that a foreign key names."""
    asked = {}
    for label in OUR_APPS:
        for model in apps.get_app_config(label).get_models():
            for field in model._meta.concrete_fields:
                if field.is_relation:
                    named = f"app_label={label}&model_name={model._meta.model_name}"
                    asked[field.related_model] = f"{named}&field_name={field.name}&term="
    yield from (f"/admin/autocomplete/?{each}" for each in asked.values())


def posts(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    """Return all that can be sent: to every address, every form, every action of a list.

    What is erased comes last, for the rest is gone then.
    """
    data = _sent(scene)
    found = dict.fromkeys([*addresses(most_rows=1), *_to_forms()])
    actions = sorted(_actions(scene), key=lambda each: each[1]["action"] == "erase")
    return [*((address, data) for address in found), *actions]


def _to_forms() -> Iterator[str]:
    for route in routes():
        if "name" in route.arguments:
            for row in _rows(route, 3):
                for name in _forms_of(route):
                    given = _values(route, row, name)
                    yield _ARGUMENT.sub(lambda one, given=given: str(given[one[1]]), route.text)


def _sent(scene: Scene) -> dict[str, Any]:
    """Return what every form of the desk finds in it what it needs."""
    (key,) = _active(scene.session)
    fact = key_of(scene.markers[SummaryQuality, "lost"])
    return {
        "instructions": "", "keep_last_n": "", "summary": str(key), "cascade": "on",
        "profile": "", "facts": [fact], "verdict": "good", "note": "It is.", "opened": "1",
        "name": "mine", "base": "bisect", "owner": str(scene.operator.pk), "scopes": ["read"],
        "expires_days": "", "post": "yes", "text": "Drinks tea.", "bot": "",
        "alias": "default", "description": "Another one.", "kind": "summariser_failing",
        "subject": "default", "act": "done",
    }  # fmt: skip


def _actions(scene: Scene) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every action of every list, for all rows of its table; of people, for the owner."""
    request = RequestFactory().get("/admin/")
    request.user = UserFactory(is_staff=True, is_superuser=True)
    for model, pages in admin.site._registry.items():
        rows = model._default_manager.all()
        if model is get_user_model():
            rows = rows.filter(pk=scene.session.owner_id)
        keys = rows.values_list("pk", flat=True)
        for name in pages.get_actions(request):
            label = f"{model._meta.app_label}/{model._meta.model_name}"
            chosen = {"action": name, "_selected_action": [str(key) for key in keys]}
            yield f"/admin/{label}/", chosen | {"post": "yes", "erase_them": "yes", "index": "0"}


def stored() -> dict[str, list[dict[str, Any]]]:
    """Return every row of the two apps and the users, to be compared with a later moment."""
    models = [model for label in OUR_APPS for model in apps.get_app_config(label).get_models()]
    found = {
        model: model._default_manager.values() for model in (*models, Schedule, LogEntry, Task)
    }
    found[get_user_model()] = get_user_model().objects.values("pk", "is_active", "is_superuser")
    return {model._meta.label: sorted(rows, key=str) for model, rows in found.items()}
