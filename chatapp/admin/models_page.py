"""The page of the configured models: where each is, what is known of it, and a button that asks it.

Asking sends the six questions of `manage.py check_model`. It is bounded in time, because a person
and a thread of the web server wait for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.history import write_entry
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Table
from chatapp.admin.toolkit.permissions import may_run
from chatapp.llm.adaptations import in_words
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.probing import QUESTIONS, ProbeResult, answered, probe
from chatapp.llm.registry import ModelConfig, UnknownModelError, all_models, get_model
from chatapp.models import LearnedLimits
from chatapp.pools import Pool, answered_in

TITLE = "Models"
NAME = "chatapp_learnedlimits_models"
QUESTION_SECONDS, PAGE_SECONDS = 15, 60
HOW = (
    f"Asking sends {len(QUESTIONS)} small questions of a few hundred tokens each and takes up to "
    f"{PAGE_SECONDS} seconds. What a refusal teaches holds for every later request, turns and "
    "summaries alike."
)
NOT_ALLOWED = "Asking takes the permission to start runs."
NOTHING_LEARNED = "Nothing: requests go out as they are."


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """What came of asking one model, as the page shows it."""

    alias: str
    sentence: str
    table: Table
    learned: list[str]


class ModelsPage(WideList):
    """Adds <list>/models/ to the list of learned limits."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.models_view)
        return [path("models/", view, name=NAME), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> list[Link]:
        """Return the way from the list to the page."""
        return [*super().list_links(request), models_link()]

    @answered_in(Pool.SLOW)
    def models_view(self, request: HttpRequest) -> HttpResponse:
        """Show the models; ask the one that a POST names, and show what came of it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked, refusal = None, ""
        if request.method == "POST":
            if not may_run(request):
                raise PermissionDenied(NOT_ALLOWED)
            try:
                model = get_model(request.POST.get("alias", ""))
            except UnknownModelError as error:
                refusal = str(error)
            else:
                asked = _ask(request, model)
        context = self.admin_site.each_context(request) | {
            "title": TITLE,
            "opts": self.opts,
            "media": self.media,
            "models": [shown_model(model) for model in all_models().values()],
            "may_ask": may_run(request),
            "how": HOW,
            "not_allowed": NOT_ALLOWED,
            "asked": asked,
            "refusal": refusal,
        }
        return TemplateResponse(request, "admin/chatapp/models.html", context)


def models_link() -> Link:
    """Return the way to the page."""
    return Link(label="Ask the servers", url=reverse(f"admin:{NAME}"))


def server_of(model: ModelConfig) -> str:
    """Return where a model is, without what an address may hold before its host: a password."""
    if model.is_embedded:
        return "this machine, without a server"
    parts = urlsplit(model.base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() or "OpenAI"


def shown_model(model: ModelConfig) -> dict[str, Any]:
    """Return one model as the template draws it."""
    known = with_learned_limits(model)
    return {
        "alias": model.alias,
        "name": model.name,
        "server": server_of(model),
        "window": formatting.number(known.context_window),
        "answer": formatting.number(known.max_output),
        "known": [in_words(code) for code in sorted(known.adaptations)],
        "nothing": NOTHING_LEARNED,
    }


def _ask(request: HttpRequest, model: ModelConfig) -> AskedModel:
    """Ask a model and note in the history who did; what it learns is stored as in a turn."""
    before = with_learned_limits(model).adaptations
    started = time.monotonic()
    results = list(probe(model, each=QUESTION_SECONDS, together=PAGE_SECONDS))
    sentence = f"{answered(results)} It took {time.monotonic() - started:.1f} seconds."
    row = LearnedLimits(server=model.base_url[:300], name=model.name[:200])
    stored = LearnedLimits.objects.filter(server=row.server, name=row.name).first()
    write_entry(request, stored or row, CHANGE, f"Asked the server of {model.alias}: {sentence}")
    return AskedModel(
        alias=model.alias,
        sentence=sentence,
        table=results_table(model, results, known=bool(before)),
        learned=[
            in_words(code) for code in sorted(with_learned_limits(model).adaptations - before)
        ],
    )


def results_table(model: ModelConfig, results: list[ProbeResult], *, known: bool) -> Table:
    """Return a line a question; what servers say is escaped, as everything of strangers is."""
    nothing = "nothing more than is known" if known else "nothing"
    return Table(
        title=f"What came of asking {model.alias}",
        columns=("Asked for", "Answered", "Seconds", "Tokens", "Cost", "What had to be changed"),
        rows=[
            (
                result.title,
                _verdict(result),
                f"{result.seconds:.1f}" if result.was_asked else "—",
                formatting.number(result.tokens) if result.tokens else "—",
                formatting.money(result.cost),
                _said(result, nothing),
            )
            for result in results
        ],
    )


def _verdict(result: ProbeResult) -> SafeString:
    if not result.was_asked:
        return html.badge("not asked", "busy")
    if result.sentence:
        return html.badge("no", "bad")
    return html.badge("yes, it called the tool" if result.calls_tool else "yes", "good")


def _said(result: ProbeResult, nothing: str) -> SafeString | str:
    lines = [change.text for change in result.changes]
    if result.sentence:
        lines.append(result.sentence)
    return format_html_join("", "<p>{}</p>", ((line,) for line in lines)) or nothing
