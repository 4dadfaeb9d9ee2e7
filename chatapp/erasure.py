"""Erasing a person: everything they wrote, and everything that tells of it.

Sessions go in batches, each in a transaction of its own, so that years of conversations lock
nothing for long. What was broken off is finished by asking again: the user goes last.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import SESSION_KEY
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session as WebSession
from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import CASCADE, ForeignObjectRel, Model, QuerySet
from django.dispatch import Signal

from chatapp.answer_files import delete_answers_of
from chatapp.database import empty_log_of_changes, keeps_deleted_rows
from chatapp.formatting import plural, short_id
from chatapp.keys import ApiKey
from chatapp.models import Branch, ImportJob, Message, Session
from chatapp.part_store import delete_files_of
from chatapp.transcript import lock_branches

BATCH = 500
DELETE_ATTEMPTS = 20
PAUSE_SECONDS = 0.25
NOBODY = "(erased)"
"""A name that no form takes, of a user who can do nothing.

What an erased operator did to others' rows is kept under it.
"""
_LOG = "admin log entries"
_FILES = "files of message parts"
_ANSWERS = "files of answers that waited to be stored"
_TITLES = "admin log entries about deleted rows"
_IN_LOG = (
    "SQLite's log (the file that ends in -wal) still holds their texts: somebody is reading "
    "the database. It is emptied when every process that uses the database has ended, or by the "
    "SQL command PRAGMA wal_checkpoint(TRUNCATE) when nobody reads."
)

_IN_FILES = (
    "PostgreSQL's files hold the bytes of deleted rows until their tables are written anew: "
    "`manage.py erase_user --rewrite-tables`, at a time when nobody needs them."
)

user_erased = Signal()
"""Sent with `user` before anything of theirs goes.

Other apps take away what no row of the user's takes along when it is deleted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """How many rows went, by the plural of what they are; what there was none of is left out.

    `is_in_log` says that SQLite's log of changes still holds them, `is_in_files` that PostgreSQL's
    files do.
    """

    counts: Mapping[str, int]
    is_in_log: bool = False
    is_in_files: bool = False

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
    for model in _of_owner(user):
        counts[_plural(model)] = model._default_manager.filter(owner=user).count()
    return Erased(counts={name: count for name, count in counts.items() if count})


def erase_user(user: Any, *, on_session: Callable[[], None] = lambda: None) -> Erased:
    """Delete the user with all that is theirs, and return what went.

    `on_session` is called for each session that is gone. The user is switched off first, so that
    nothing new comes in.
    """
    erased = _erased(user, on_session)
    is_in_log = not empty_log_of_changes()
    return replace(erased, is_in_log=is_in_log, is_in_files=keeps_deleted_rows())


def _erased(user: Any, on_session: Callable[[], None]) -> Erased:
    type(user)._default_manager.filter(pk=user.pk).update(is_active=False)
    counts: Counter[str] = Counter()
    log = _AdminLog(counts)
    counts["sessions in browsers"] += _log_out(user)
    user_erased.send(sender=type(user), user=user)
    # First, so that a worker makes no more sessions of a file of theirs.
    _delete_in_batches(ImportJob.objects.filter(owner=user), counts, log)
    for key in _keys_until_none(Session.objects.filter(owner=user)):
        _delete_session(key, counts, log)
        on_session()
    _delete_in_batches(ApiKey.objects.filter(owner=user), counts, log)
    for model in _of_owner(user):
        _delete_in_batches(model._default_manager.filter(owner=user), counts, log)
    log.forget_what_is_gone()
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
    # Also those that a session does not name.
    relations = Session._meta.get_fields(include_hidden=True)
    found = [
        relation.related_model
        for relation in relations
        if isinstance(relation, ForeignObjectRel)
        and relation.on_delete is CASCADE
        and relation.field.name == "session"
    ]
    yield Message
    yield from (model for model in found if model not in (Message, Branch))
    yield Branch


def _of_owner(user: Any) -> Iterator[type[Model]]:
    """Yield the tables of other apps whose rows go with their owner, and with no session."""
    own = (Session, ImportJob, ApiKey)
    for relation in user._meta.related_objects:
        is_owner = relation.on_delete is CASCADE and relation.field.name == "owner"
        if is_owner and relation.related_model not in own:
            yield relation.related_model


def _keys_until_none(rows: QuerySet[Any]) -> Iterator[Any]:
    """Yield the keys of rows that are deleted one by one.

    No cursor stays open: on SQLite its connection could not write any more once somebody else has.
    """
    while keys := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        yield from keys


def _delete_session(key: UUID, counts: Counter[str], log: _AdminLog) -> None:
    """Delete a session, also while a turn or a run that was under way still writes to it.

    Most goes in batches that lock little. What comes in meanwhile goes with the rest, under the
    locks that writers take, too.
    """
    with suppress(IntegrityError, OperationalError):
        for model in _with_session():
            _delete_in_batches(model._default_manager.filter(session=key), counts, log)
    # While the session's row still says where to look, should the store not answer.
    counts[_FILES] += delete_files_of(key)
    counts[_ANSWERS] += delete_answers_of(key)
    for attempt in range(1, DELETE_ATTEMPTS + 1):
        try:
            with transaction.atomic():
                lock_branches(key, for_deletion=True)
                rows = Session.objects.select_for_update().filter(pk=key)
                _delete(rows, [key], counts, log)
            return
        except (IntegrityError, OperationalError):
            if attempt == DELETE_ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS)


def _delete_in_batches(rows: QuerySet[Any], counts: Counter[str], log: _AdminLog) -> None:
    # As many as there are now: a quick writer would keep it busy for ever.
    for _ in range(rows.count() // BATCH + 1):
        keys = list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH])
        if not keys:
            return
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

    def forget_what_is_gone(self) -> None:
        """Take the words out of entries about rows that were deleted before.

        Nobody can tell any more whose they were.
        """
        for content_type in ContentType.objects.filter(pk__in=self._entries.values("content_type")):
            about = self._entries.filter(content_type=content_type)
            there = _stored_keys(content_type.model_class(), about)
            nameless: dict[int, str] = {}
            for entry in about.only("object_id", "object_repr", "change_message").iterator():
                name = f"{content_type.name.capitalize()} {short_id(entry.object_id or '')}"
                told = (entry.object_repr, entry.change_message)
                if entry.object_id not in there and told != (name, ""):
                    nameless[entry.pk] = name
            # Behind the cursor, beside which SQLite might not write.
            for key, name in nameless.items():
                LogEntry.objects.filter(pk=key).update(object_repr=name, change_message="")
            self._counts[_TITLES] += len(nameless)

    def forget_user(self, user: Any) -> None:
        """Delete the entries about the user; what the user did to others' rows stays, nameless."""
        about = LogEntry.objects.filter(
            content_type__app_label=user._meta.app_label,
            content_type__model=user._meta.model_name,
            object_id=str(user.pk),
        )
        self._counts[_LOG] += about.delete()[0]
        done = LogEntry.objects.filter(user=user)
        if done.exists():
            done.update(user=_nobody(type(user)), change_message="")


def _stored_keys(model: type[Model] | None, entries: QuerySet[LogEntry]) -> set[str]:
    """Return which of the rows that log entries are about are still there."""
    if model is None:
        return set()
    keys = []
    for told in entries.values_list("object_id", flat=True).distinct():
        with suppress(ValidationError):  # a key of an older version of the table
            keys.append(model._meta.pk.to_python(told))
    found: set[str] = set()
    for start in range(0, len(keys), BATCH):
        rows = model._default_manager.filter(pk__in=keys[start : start + BATCH])
        found |= {str(key) for key in rows.values_list("pk", flat=True)}
    return found


def _nobody(users: Any) -> Any:
    """Return the user without a person, who cannot log in."""
    found, is_new = users._default_manager.get_or_create(
        **{users.USERNAME_FIELD: NOBODY}, defaults={"is_active": False}
    )
    if is_new:
        found.set_unusable_password()
        found.save()
    return found


def told(erased: Erased) -> str:
    """Return the sentence that says what went, without a name, and what is still to be done."""
    rows = sum(count for name, count in erased.counts.items() if name != _FILES)
    sentence = f"A person was erased: {erased}. {plural(rows, 'row')} in all."
    left = [_IN_LOG] * erased.is_in_log + [_IN_FILES] * erased.is_in_files
    return " ".join([sentence, *left])
