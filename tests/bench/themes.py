"""The themes of the benchmark, and how they are run one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from django.conf import settings
from django.test import override_settings

from tests.bench.instant import models
from tests.bench.measure import Row
from tests.bench.sizes import Sizes


def run(themes: Sequence[str], sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the themes, measured with a model that answers at once."""
    with instant_settings():
        for theme in themes:
            yield from import_module(f"tests.bench.{theme}").measure(sizes)


def instant_settings() -> override_settings:
    """Return the settings of a process whose model answers at once, for a `with`."""
    return override_settings(CHATAPP=settings.CHATAPP | {"MODELS": models()})
