"""Erasing a person: everything they wrote, and everything that tells of it.

Sessions go in batches, each in a transaction of its own, so that years of conversations lock
nothing for long. What was broken off is finished by asking again: the user goes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session as WebSession
from django.db import transaction
from django.db.models import CASCADE, Model, QuerySet
from django.dispatch import Signal

from chatapp.formatting import plural, short_id
from chatapp.keys import ApiKey
from chatapp.models import Branch, ImportJob, Message, Session
from chatapp.part_store import delete_files_of

BATCH = 500
_LOG = "admin log entries"
_FILES = "files of message parts"
_TITLES = "titles of deleted sessions in the admin log"

user_erased = Signal()
"""Sent with `user` before anything of theirs goes.

Other apps take away what no row of the user's takes along when it is deleted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """How many rows went, by the plural of what they are; what there was none of is left out."""

    counts: Mapping[str, int]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {count:,}" for name, count in self.counts.items()) or "nothing"


def what_erasing_takes(user: Any) -> Erased:
    """Return what there is of the user; erasing takes more rows, those that hang on these."""
    sessions = Session.objects.filter(owner=user)
    counts = {_plural(Session): sessions.count()}
    for model in _with_session():
        counts[_plural(model)] = model._default_manager.filter(session__in=sessions).count()
    counts[_plural(ImportJob)] = ImportJob.objects.filter(owner=user).count()
    counts[_plural(ApiKey)] = ApiKey.objects.filter(owner=user).count()
    return Erased(counts={name: count for name, count in counts.items() if count})


def erase_user(user: Any, *, on_session: Callable[[], None] = lambda: None) -> Erased:
    """Delete the user with all that is theirs, and return what went.

    `on_session` is called for each session that is gone. The user is switched off first, so that
    nothing new comes in.
    """
    type(user)._default_manager.filter(pk=user.pk).update(is_active=False)
    counts: Counter[str] = Counter()
    log = _AdminLog(counts)
    counts["sessions in browsers"] += _log_out(user)
    user_erased.send(sender=type(user), user=user)
    # First, so that a worker makes no more sessions of a file of theirs.
    _delete_in_batches(ImportJob.objects.filter(owner=user), counts, log)
    for session in Session.objects.filter(owner=user).only("pk").iterator():
        for model in _with_session():
            _delete_in_batches(model._default_manager.filter(session=session.pk), counts, log)
        # While the session's row still says where to look, should the store not answer.
        counts[_FILES] += delete_files_of(session.pk)
        _delete(Session.objects.filter(pk=session.pk), [session.pk], counts, log)
        on_session()
    _delete_in_batches(ApiKey.objects.filter(owner=user), counts, log)
    log.forget_gone_titles()
    for attempts in (AccessAttempt, AccessLog, AccessFailureLog):
        found = attempts.objects.filter(username__iexact=user.get_username())
        counts["log-in attempts"] += found.delete()[0]
    log.forget_user(user)
    people = type(user)._default_manager.filter(pk=user.pk)
    with transaction.atomic():
        _count(people.delete()[1], counts)
    return Erased(counts={name: count for name, count in counts.items() if count})


# --- rows -----------------------------------------------------------------------------------------


def _with_session() -> Iterator[type[Model]]:
    """Yield the tables whose rows go with their session: messages first, branches last."""
    found = [
        relation.related_model
        for relation in Session._meta.related_objects
        if relation.on_delete is CASCADE and relation.field.name == "session"
    ]
    yield Message
    yield from (model for model in found if model not in (Message, Branch))
    yield Branch


def _delete_in_batches(rows: QuerySet[Any], counts: Counter[str], log: _AdminLog) -> None:
    while keys := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        _delete(rows.model._default_manager.filter(pk__in=keys), keys, counts, log)


def _delete(rows: QuerySet[Any], keys: list[Any], counts: Counter[str], log: _AdminLog) -> None:
    """Delete rows with what hangs on them, and what the admin's log tells of them."""
    with transaction.atomic():
        _count(rows.delete()[1], counts)
        log.forget(keys)


def _count(deleted: Mapping[str, int], counts: Counter[str]) -> None:
    for label, count in deleted.items():
        counts[_plural(apps.get_model(label))] += count


def _plural(model: type[Model]) -> str:
    return str(model._meta.verbose_name_plural)


def _log_out(user: Any) -> int:
    """End the user's sessions in browsers, which hold what pages told them last."""
    ended = [
        session.pk
        for session in WebSession.objects.iterator()
        if str(session.get_decoded().get(SESSION_KEY)) == str(user.pk)
    ]
    return WebSession.objects.filter(pk__in=ended).delete()[0]


# --- the admin's log ------------------------------------------------------------------------------


class _AdminLog:
    """Entries about rows that go: they hold titles, and what was done with them in words."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        labels = {model._meta.app_label for model in _with_session()} | {"chatapp"}
        self._entries = LogEntry.objects.filter(content_type__app_label__in=labels)
        # The log's ids have no index; there are few of them beside the messages.
        self._ids = set(self._entries.values_list("object_id", flat=True))

    def forget(self, keys: Iterable[Any]) -> None:
        """Delete the entries about rows with these keys."""
        known = [str(key) for key in keys if str(key) in self._ids]
        if known:
            self._counts[_LOG] += self._entries.filter(object_id__in=known).delete()[0]

    def forget_gone_titles(self) -> None:
        """Take the titles out of entries about sessions that were deleted before.

        Nobody can tell any more whose they were.
        """
        about = self._entries.filter(content_type__model=Session._meta.model_name)
        there = {str(key) for key in Session.objects.values_list("pk", flat=True)}
        for entry in about.only("object_id", "object_repr").iterator():
            nameless = f"Session {short_id(entry.object_id)}"
            if entry.object_id not in there and entry.object_repr != nameless:
                LogEntry.objects.filter(pk=entry.pk).update(object_repr=nameless)
                self._counts[_TITLES] += 1

    def forget_user(self, user: Any) -> None:
        """Delete the entries about the user; those that the user made go with the row."""
        about = LogEntry.objects.filter(
            content_type__app_label=user._meta.app_label,
            content_type__model=user._meta.model_name,
            object_id=str(user.pk),
        )
        self._counts[_LOG] += about.delete()[0]


def told(erased: Erased) -> str:
    """Return the sentence that says what went, without a name."""
    rows = sum(count for name, count in erased.counts.items() if name != _FILES)
    return f"A person was erased: {erased}. {plural(rows, 'row')} in all."
