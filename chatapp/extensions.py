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
of readiness (chatapp.health) and for what its admin shows. The latter is one AdminExtension (see
chatapp.admin.toolkit.extension). It is named by its dotted path and loaded with the first page, so
that an app can register before the admin is there.

Two seams stand elsewhere. The context backend, which the setting CHATAPP chooses, decides what a
request sends; its `facts` are the fields that the API adds to a context. Models, commands, system
checks and pages of an app's own models join as Django has them join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from django.urls import URLResolver, include, path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessPart:
    """How one part of the installation is. `text` is a sentence that strangers may read."""

    ok: bool
    text: str


ReadinessCheck = Callable[[], ReadinessPart]


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


_registered: dict[str, Extension] = {}


def register(extension: Extension) -> None:
    """Add an extension, behind those before it; one of the same name takes its place."""
    _registered[extension.name] = extension


def registered() -> Sequence[Extension]:
    """Return the extensions in the order in which they were registered."""
    return tuple(_registered.values())


def extension_urls() -> list[URLResolver]:
    """Return the addresses of all extensions."""
    found = [path("api/v1/", include(each.api_urls)) for each in registered() if each.api_urls]
    return found + [path("", include(each.urls)) for each in registered() if each.urls]
