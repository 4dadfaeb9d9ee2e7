"""What happens to a session without any other app: incidents of its turns, replayed branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from chatapp import formatting, incidents
from chatapp.admin import cells
from chatapp.admin.parts import Link
from chatapp.admin.timeline.entries import Entry
from chatapp.models import Branch, Incident, Session


class Incidents:
    """Retries, changed requests, warnings and errors."""

    key = "incident"

    def rows(self, session: Session) -> QuerySet[Incident]:
        """Return the session's incidents."""
        return Incident.objects.filter(session=session.pk)

    def entries(self, session: Session, rows: Sequence[Incident]) -> Mapping[Any, Entry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row) for row in rows}

    def _entry(self, incident: Incident) -> Entry:
        links = [Link(label="Details", url=cells.change_url(Incident, incident.pk))]
        if incident.branch_id:
            url = cells.change_url(Branch, incident.branch_id)
            links.append(Link(label="Branch", url=url))
        return Entry(
            at=incident.created_at,
            title=incidents.code_words(incident.code),
            label=str(incident.get_kind_display()),
            tone=incidents.tone_of(incident),
            reason=incident.text,
            said=incidents.said_in(incident.details),
            numbers=incidents.numbers_of(incident.details),
            means=incidents.meaning_of(incident),
            links=links,
        )


class Replays:
    """Branches that repeat another with shortened tool results."""

    key = "replay"

    def rows(self, session: Session) -> QuerySet[Branch]:
        """Return the session's replays."""
        return Branch.objects.filter(session=session.pk, kind=Branch.Kind.REPLAY)

    def entries(self, session: Session, rows: Sequence[Branch]) -> Mapping[Any, Entry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row) for row in rows}

    def _entry(self, branch: Branch) -> Entry:
        links = [Link(label="New branch", url=cells.change_url(Branch, branch.pk))]
        if branch.replaces_id:
            url = cells.change_url(Branch, branch.replaces_id)
            links.append(Link(label="Branch it replaces", url=url))
        return Entry(
            at=branch.created_at,
            title="The conversation was replayed with shortened tool results",
            label=str(branch.get_kind_display()),
            tone="busy",
            reason=f"A new branch leaves the old one behind position "
            f"{formatting.place(branch.fork_position or 0)} and repeats what follows.",
            numbers=[
                ("Messages", formatting.number(branch.message_count)),
                ("Tokens", formatting.number(branch.token_total)),
            ],
            means="The old branch is stored as it was, with the whole texts.",
            links=links,
        )
