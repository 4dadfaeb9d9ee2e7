"""The one way another app joins chatapp: an Extension, registered in its AppConfig.ready().

    class LampConfig(AppConfig):
        name = "lamp"

        def ready(self) -> None:
            from chatapp.extensions import Extension, register
            from lamp.health import bulb

            register(
                Extension(
                    name="lamp",
                    api_urls="lamp.api.urls",
                    readiness={"bulb": bulb},
                    admin="lamp.admin.ADMIN",
                )
            )

chatapp imports no app that joins it; it asks `registered()` for addresses (chatapp.urls), for parts
of readiness (chatapp.health), for parts of exports (chatapp.exports, chatapp.transfer), for marks
in the tree of a session (chatapp.outline) and for what its admin shows.
The latter is one AdminExtension (see chatapp.admin.toolkit.extension). It is named by its dotted
path and loaded with the first page, so that an app can register before the admin is there.

Two seams stand elsewhere. The context backend, which the setting CHATAPP chooses, decides what a
request sends; its `facts` are the fields that the API adds to a context. Models, commands, system
checks and pages of an app's own models join as Django has them join.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from django.urls import URLResolver, include, path

if TYPE_CHECKING:
    from chatapp.models import Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessPart:
    """How one part of the installation is. `text` is a sentence that strangers may read."""

    ok: bool
    text: str


ReadinessCheck = Callable[[], ReadinessPart]


class ExportPart:
    """What an app adds to a session's export, and takes back at import; as it is, nothing.

    A part is JSON and names messages by their index in `messages`, the ids of the exported ones in
    order. An index means the same message after the import, whose id is another one.
    """

    def written(self, branch: Branch, messages: Sequence[UUID]) -> Any:
        """Return what an export of the branch says; None where there is nothing to say."""
        return None

    def take_back(self, branch: Branch, messages: Sequence[UUID], part: Any) -> Iterable[str]:
        """Store what a file says of a branch that was just imported; return what was left out.

        Each sentence becomes a problem of the import. `part` may be anything: strangers write
        files. It runs in a transaction of its own; an error takes back what it stored, and the
        messages stay.
        """
        return ()


class MarkKind(StrEnum):
    """What a mark in the tree of a session stands for."""

    SUMMARY = "summary"
    BRANCH_SUMMARY = "branch_summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMark:
    """A row of an app at a place of a session's tree: `model` and `pk` say which.

    It holds on the branch from the position on, and on what forks there or later.
    """

    kind: MarkKind
    branch_id: UUID
    position: int
    model: type[Model]
    pk: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePart:
    """A part of a session's tree: stretches of some branches, and all of others."""

    stretches: Mapping[UUID, tuple[int, int | None]]
    """By a branch's id: behind which position, and up to which one; None: to its end."""
    whole: QuerySet[Branch]

    def where(self, branch: str, position: str) -> Q:
        """Return which rows stand in it, by the names of their columns; some around it as well.

        There are four conditions at most, however many the branches are.
        """
        kinds: dict[tuple[bool, bool], list[UUID]] = defaultdict(list)
        for key, (after, through) in self.stretches.items():
            kinds[after >= 0, through is not None].append(key)
        behind = min((after for after, _ in self.stretches.values() if after >= 0), default=0)
        ends = (through for _, through in self.stretches.values() if through is not None)
        up_to = max(ends, default=0)
        found = Q(**{f"{branch}__in": self.whole})
        for (has_begin, has_end), keys in kinds.items():
            inside = Q(**{f"{branch}__in": keys})
            inside &= Q(**{f"{position}__gt": behind}) if has_begin else Q()
            found |= inside & (Q(**{f"{position}__lte": up_to}) if has_end else Q())
        return found

    def branches(self, branch: str) -> Q:
        """Return which rows belong to its branches, wherever they stand on them."""
        return Q(**{f"{branch}__in": self.whole}) | Q(**{f"{branch}__in": list(self.stretches)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchUnderWay:
    """A session is about to go on in another branch: when run `run` (its id, its status) has ended.

    `branch` is where it goes on then; None where that one is gone.
    """

    run: UUID
    status: str
    branch: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What an app adds to chatapp; everything but the name may stay empty."""

    name: str
    api_urls: str = ""
    """Module whose addresses stand below /api/v1/."""
    urls: str = ""
    """Module whose addresses stand at the root, /metrics for example."""
    readiness: Mapping[str, ReadinessCheck] = field(default_factory=dict)
    """What /readyz can look at, by the name that READYZ_PARTS chooses it by."""
    admin: str = ""
    """Dotted path of an AdminExtension."""
    stream_events: str = ""
    """Dotted path of the StreamEvents that its context backend sends, for the API's schema."""
    parts: Mapping[str, ExportPart] = field(default_factory=dict)
    """What exports of sessions hold of the app, by its key in the file; taken back in order."""
    tree_marks: Callable[[UUID, TreePart | None], Iterable[TreeMark]] | None = None
    """Reads what the app marks in the tree of a session, by its id, in one statement or two; with
    a part, what it marks there; some around it may be among them."""
    switch_under_way: Callable[[UUID], SwitchUnderWay | None] | None = None
    """Reads whether a session, by its id, is about to change its branch, in one statement."""


_registered: dict[str, Extension] = {}


def register(extension: Extension) -> None:
    """Add an extension, behind those before it; one of the same name takes its place."""
    _registered[extension.name] = extension


def registered() -> Sequence[Extension]:
    """Return the extensions in the order in which they were registered."""
    return tuple(_registered.values())


def export_parts() -> Mapping[str, ExportPart]:
    """Return what apps add to exports, by the key in the file, in the order it is taken back in."""
    return {name: part for each in registered() for name, part in each.parts.items()}


def extension_urls() -> list[URLResolver]:
    """Return the addresses of all extensions."""
    found = [path("api/v1/", include(each.api_urls)) for each in registered() if each.api_urls]
    return found + [path("", include(each.urls)) for each in registered() if each.urls]
