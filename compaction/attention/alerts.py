"""Alerts: a mail or a webhook about what newly needs a look, sent by the sweep in a worker.

Each thing is told once: again only when somebody has said that it is done, or it had ended, and it
is back. An alert holds sentences of ids and codes, counts and links, and no text of a conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.mail import send_mail
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.urls import reverse

from chatapp.database import database_now, release_connection
from chatapp.formatting import plural
from compaction.attention.kinds import KINDS, LookItem, LookKind
from compaction.attention.listing import waiting
from compaction.attention.marks import mark_of
from compaction.attention.webhook import WebhookError, post_json
from compaction.conf import compaction_settings
from compaction.events import event
from compaction.models import LookMark

MOST_AT_ONCE = 50
"""Things of one alert; the next sweep tells of further ones."""
logger = logging.getLogger(__name__)
# Nobody was told of the thing, or of what has happened since it was done.
_UNTOLD = Q(alerted_at__isnull=True) | Q(done_at__gt=F("alerted_at"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerted:
    """What a sweep told of: how many things, and over how many ways."""

    things: int = 0
    ways: int = 0


def alerting() -> bool:
    """Whether the settings name anybody who is told."""
    return bool(compaction_settings.alert_emails or compaction_settings.alert_webhook)


def kinds_alerted() -> list[LookKind]:
    """Return the kinds that are told of: those of COMPACTION_ALERT_KINDS, or all."""
    wanted = compaction_settings.alert_kinds
    return [kind for kind in KINDS if not wanted or kind.name in wanted]


def send_alerts() -> Alerted:
    """Tell of what newly needs a look; nothing while nobody is to be told.

    What no way could be told of is tried again with the next sweep. Two that sweep at once tell of
    each thing once: a claim decides. A process that is killed in between has told nobody.
    """
    if not alerting():
        return Alerted()
    kinds = kinds_alerted()
    for kind in kinds:
        _forget_ended(kind)
    claimed = list(_claimed(kinds))
    if not claimed:
        return Alerted()
    items = [item for _, item in claimed]
    # The mail server and the webhook may take their time.
    release_connection()
    ways = _told_by_mail(items) + _told_by_webhook(items)
    if not ways:
        LookMark.objects.filter(pk__in=[pk for pk, _ in claimed]).update(alerted_at=None)
        return Alerted()
    event("alerted", things=len(items), ways=ways)
    return Alerted(things=len(items), ways=ways)


def _untold(kind: LookKind) -> QuerySet[Any]:
    """Return the rows of a kind that are in the list and that nobody was told of."""
    marks = LookMark.objects.filter(kind=kind.name, **{kind.marked: OuterRef(kind.subject)})
    return waiting(kind).filter(~Exists(marks.exclude(_UNTOLD)))


def _claimed(kinds: Sequence[LookKind]) -> Iterator[tuple[int, LookItem]]:
    """Yield mark and item of each thing that this process tells of, newest of each kind first."""
    now, left = database_now(), MOST_AT_ONCE
    for kind in kinds:
        rows = _untold(kind).order_by(f"-{kind.at}", kind.subject).values(*kind.columns)
        for row in rows[:left]:
            item = kind.item(row)
            key = mark_of(item).pk
            if LookMark.objects.filter(_UNTOLD, pk=key).update(alerted_at=now):
                left -= 1
                yield key, item


def _forget_ended(kind: LookKind) -> None:
    """Forget that a thing was told of which has ended: should it come back, it is told of again."""
    still = kind.rows().filter(**{kind.subject: OuterRef(kind.marked)})
    told = LookMark.objects.filter(kind=kind.name, alerted_at__isnull=False)
    told.filter(~Exists(still)).update(alerted_at=None)


# --- what is told ---------------------------------------------------------------------------------


def link_to(item: LookItem) -> str:
    """Return the address of a thing's page; without the base of the settings, its path.

    That is the answer or the turn it is about, where it is about one.
    """
    kind = item.kind
    model, row = (kind.event_page, item.event_row) if kind.event_page else (kind.page, item.row)
    page = model._meta
    path = reverse(f"admin:{page.app_label}_{page.model_name}_change", args=[row])
    return f"{compaction_settings.alert_base_url.rstrip('/')}{path}"


def subject_line(items: Sequence[LookItem]) -> str:
    """Return what a mail is called."""
    return f"Palimpsest: {plural(len(items), 'thing')} to look at"


def lines_of(items: Sequence[LookItem]) -> str:
    """Return the text of a mail: each thing's sentence, its kind's remedy once, and its link."""
    said: list[str] = []
    for kind in dict.fromkeys(item.kind.name for item in items):
        own = [item for item in items if item.kind.name == kind]
        said += [f"{own[0].kind.label} ({len(own)})", own[0].kind.means, ""]
        said += [f"- {item.said}\n  {link_to(item)}" for item in own]
        said.append("")
    return "\n".join(said)


def body_of(items: Sequence[LookItem]) -> dict[str, Any]:
    """Return what a webhook is sent; `text` is what chat programs show."""
    things = [
        {
            "kind": item.kind.name,
            "said": item.said,
            "session": item.session or None,
            "at": item.at.isoformat(),
            "link": link_to(item),
        }
        for item in items
    ]
    text = "\n".join([subject_line(items), *(f"{one['said']} {one['link']}" for one in things)])
    return {"text": text, "count": len(things), "things": things}


def _told_by_mail(items: Sequence[LookItem]) -> int:
    """Return 1 where the mail server took the mail; what went wrong is logged."""
    to = compaction_settings.alert_emails
    if not to:
        return 0
    try:
        return send_mail(subject_line(items), lines_of(items), None, list(to))
    except Exception as error:
        # Whatever a mail server answers must not end the sweep.
        logger.warning("The alert could not be mailed: %s.", type(error).__name__)
        event("alert_failed", level=logging.WARNING, way="mail", error=type(error).__name__)
        return 0


def _told_by_webhook(items: Sequence[LookItem]) -> int:
    """Return 1 where the webhook took the alert; what went wrong is logged."""
    url = compaction_settings.alert_webhook
    if not url:
        return 0
    try:
        post_json(
            url,
            body_of(items),
            seconds=compaction_settings.alert_seconds,
            allow_private=compaction_settings.alert_webhook_private,
        )
    except WebhookError as error:
        logger.warning("The alert could not be sent: %s", error)
        event("alert_failed", level=logging.WARNING, way="webhook")
        return 0
    return 1
