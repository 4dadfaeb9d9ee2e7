"""A summary's quality on its page: how much it knows, what it lost, and what to do about that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.page_parts import Panel, Table
from chatapp.admin.toolkit.permissions import SEE_TEXTS, TEXTS_HIDDEN, holds, may_run, may_see_texts
from chatapp.context.backend import warning_of_pins
from chatapp.formatting import when
from chatapp.models import Message
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import TranscriptError
from compaction import vocabulary
from compaction.admin.actions import REFUSALS, queued
from compaction.admin.forms import INSTRUCTIONS_CHARS
from compaction.admin.restoring import may_restore
from compaction.conf import compaction_settings
from compaction.engine.fidelity.entities import key_of
from compaction.models import SessionSummary, SummaryQuality
from compaction.runs.resummarize import resummarize
from compaction.summaries.judging import NOTE_CHARS, give_verdict, ignore_facts, show_facts_again

TITLE = "Quality"
LISTED = 60
_REMEMBER = "Keep these facts, word for word as the messages have them:"
_WHOLE = 100.0


def quality_of(summary: SessionSummary) -> SummaryQuality | None:
    """Return the stored quality; None for a summary that was made before it was measured."""
    found: SummaryQuality | None = getattr(summary, "quality", None)
    return found


def score_words(score: float | None) -> SafeString | str:
    """Return a score for a cell; a low one is marked, a dash stands for none."""
    if score is None:
        return "—"
    if score < compaction_settings.low_score:
        return format_html("{} {}", f"{score:.0f}", html.badge("low", "bad"))
    return f"{score:.0f}"


# --- the panel ------------------------------------------------------------------------------------


def quality_panel(request: HttpRequest, summary: SessionSummary) -> Panel:
    """Return the score and what it is made of, lost and unsupported facts, the verdict."""
    row = quality_of(summary)
    if row is None:
        edited, old = vocabulary.WRITTEN_BY_PERSON, vocabulary.NOT_MEASURED
        return Panel.saying(TITLE, edited if summary.is_edited else old)
    texts = may_see_texts(request)
    lost, ignored = _told_apart(row)
    shown = {
        "lines": _lines(row),
        "kinds": _kinds(row),
        "unsupported": _texts(row.figures, "unsupported") if texts else [],
        "carried_lost": _texts(row.figures, "carried_lost") if texts else [],
        "lost_count": len(lost),
        "facts": _facts(lost[:LISTED], summary) if texts else [],
        "more": max(0, len(lost) - LISTED) if texts else 0,
        "ignored": _facts(ignored, summary) if texts else [],
        "hidden": "" if texts else TEXTS_HIDDEN,
        "buttons": _buttons(request, summary),
        "again_url": _url(summary, "recall-facts") if may_judge(request) else "",
        "verdict": _verdict_words(row, texts=texts),
        "verdict_form": VerdictForm(initial=_judged(row)) if may_judge(request) else None,
        "verdict_url": _url(summary, "verdict"),
    }
    return Panel(
        title=TITLE, body=render_to_string("admin/compaction/quality.html", shown, request)
    )


def _lines(row: SummaryQuality) -> list[tuple[str, SafeString | str]]:
    """Return the figures, each with its name; what is not known is left out."""
    figures = row.figures
    lines = [
        ("Score", _of_hundred(row.score, "score", score_words(row.score))),
        ("Extractive text of the same size", _of_hundred(row.yardstick, "yardstick")),
        ("Rules kept", _share(figures, "rules", "no rule was given")),
        ("User's facts kept", _share(figures, "user_entities", "the user named none", whole=False)),
        ("Known of all since the first message", _percent(row.cumulative)),
        ("Hindsight", _hindsight(row)),
        ("Of the summary before, lost", _share(figures, "carried", "there was none")),
        ("Language", _language(figures)),
        ("Repeated", _percent(figures.get("repeated"))),
        ("Answers refused before it", f"{row.rejected:,}" if row.rejected else ""),
    ]
    return [(name, value) for name, value in lines if value not in ("", "—")]


def _of_hundred(
    score: float, label: str, words: SafeString | str | None = None
) -> SafeString | str:
    if not score and words is None:
        return ""
    bar = html.bar(score, _WHOLE, f"{label} {score:.0f} of 100")
    return format_html("{} of 100 {}", words or f"{score:.0f}", bar)


def _share(figures: dict[str, Any], name: str, none: str, *, whole: bool = True) -> str:
    """Return kept of all: 3 of 4, or the part of it where the figures are weights."""
    pair = _pair(figures.get(name))
    if pair is None:
        return ""
    kept, total = pair
    if not total:
        return none
    return f"{kept:,} of {total:,}" if whole else formatting.percent(kept / total)


def _pair(value: Any) -> tuple[float, float] | None:
    """Return the kept part and the whole; None where an older measure stored something else."""
    return tuple(value) if isinstance(value, list | tuple) and len(value) == 2 else None


def _percent(share: Any) -> str:
    return formatting.percent(share) if isinstance(share, int | float) else ""


def _hindsight(row: SummaryQuality) -> str:
    if row.hindsight is None:
        return "not measured yet: later turns decide what was needed"
    named = formatting.plural(row.hindsight_facts, "fact")
    return f"{formatting.percent(row.hindsight)} of {named} that later turns named"


def _language(figures: dict[str, Any]) -> SafeString | str:
    language = str(figures.get("language") or "")
    if figures.get("language_matches", True):
        return language
    return format_html("{} {}", html.badge("not the conversation's", "bad"), language)


def _kinds(row: SummaryQuality) -> Table | None:
    """Return the table of what is covered, by kind; None where the messages named nothing."""
    found = row.figures.get("entities") or {}
    rows = []
    for kind in (*vocabulary.FACT_KINDS, *(set(found) - set(vocabulary.FACT_KINDS))):
        kept, total = _pair(found.get(kind)) or (0, 0)
        if not total:
            continue
        name = _kind_words(kind, many=True)
        bar = html.bar(kept, total, f"{kept:,} of {total:,} {name}")
        rows.append((name.capitalize(), f"{kept:,}", f"{total:,}", bar))
    if not rows:
        return None
    return Table(title="Covered by kind", columns=("Kind", "Kept", "All", "Share"), rows=rows)


def _kind_words(kind: str, *, many: bool = False) -> str:
    return vocabulary.FACT_KINDS.get(kind, (kind, kind))[many]


def _texts(figures: dict[str, Any], name: str) -> list[str]:
    return [str(text) for text in figures.get(name) or ()][:LISTED]


# --- lost facts -----------------------------------------------------------------------------------


def fact_key(fact: dict[str, Any]) -> str:
    """Return the key by which a lost fact is chosen and ignored."""
    return key_of(str(fact.get("text", "")))


def _told_apart(row: SummaryQuality) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the lost facts in their order, those that were ignored apart."""
    lost: list[dict[str, Any]] = []
    ignored: list[dict[str, Any]] = []
    for fact in row.lost:
        (ignored if fact_key(fact) in row.ignored else lost).append(fact)
    return lost, ignored


def _facts(facts: Sequence[dict[str, Any]], summary: SessionSummary) -> list[dict[str, Any]]:
    """Return facts as the template shows them; one query finds all their messages."""
    messages = {str(row.pk): row for row in _messages(facts, summary)}
    shown = []
    for fact in facts:
        text, message = str(fact.get("text", "")), messages.get(str(fact.get("message")))
        before, found, after = str(fact.get("context", "")).partition(text)
        shown.append(
            {
                "key": fact_key(fact),
                "text": text,
                "kind": _kind_words(str(fact.get("kind", ""))),
                "who": str(fact.get("speaker", "")),
                "where": _where(message),
                "before": before,
                "found": found,
                "after": after,
            }
        )
    return shown


def _where(message: Message | None) -> SafeString | str:
    if message is None:
        return "—"
    link = html.row_link(message, f"position {formatting.place(message.position)}")
    return format_html("{} {}", link, html.badge("Pinned", "good")) if message.pinned else link


def _messages(facts: Iterable[dict[str, Any]], summary: SessionSummary) -> QuerySet[Message]:
    """Return the messages of some facts, without their texts; only the session's own."""
    keys = {str(fact["message"]) for fact in facts if fact.get("message")}
    rows = Message.objects.filter(pk__in=keys, session=summary.session_id)
    return rows.only("position", "pinned").order_by("position")


# --- what may be done -----------------------------------------------------------------------------


class FactsForm(forms.Form):
    """Which of the lost facts are meant."""

    facts = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple, error_messages={"required": "Tick at least one fact."}
    )

    def __init__(self, *args: Any, rows: Iterable[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = {fact_key(row): row for row in rows}
        field: Any = self.fields["facts"]
        field.choices = [(key, str(row.get("text", ""))) for key, row in self.rows.items()]

    def clean_facts(self) -> list[dict[str, Any]]:
        """Return the facts themselves."""
        return [self.rows[key] for key in self.cleaned_data["facts"]]


class VerdictForm(forms.Form):
    """What an operator thinks of a summary."""

    verdict = forms.ChoiceField(
        required=False,
        choices=[*SummaryQuality.Verdict.choices, ("", "No verdict")],
        widget=forms.RadioSelect,
    )
    note = forms.CharField(
        required=False,
        max_length=NOTE_CHARS,
        label="In words",
        widget=forms.Textarea(attrs={"rows": 2}),
    )


Make = Callable[[HttpRequest, SessionSummary, Any], forms.Form | None]


def _chosen_of(*, ignored: bool = False, active: bool = False) -> Make:
    """Return what makes the form of facts once it is sent: the panel itself shows the boxes."""

    def make(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
        row = None if data is None else quality_of(summary)
        if row is None or (active and summary.status != SessionSummary.Status.ACTIVE):
            return None
        return FactsForm(data, rows=_told_apart(row)[ignored])

    return make


def _pin(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString | str:
    """Pin the messages of the facts, each with its calls and results."""
    pinned: dict[Any, Message] = {}
    for message in Message.objects.filter(pk__in=_messages(asked["facts"], summary).values("pk")):
        if message.pk in pinned:
            continue
        try:
            pinned |= {row.pk: row for row in set_pinned(message, True, by=request.user)}
        except TranscriptError as refusal:
            raise RefusedError(str(refusal)) from refusal
    if not pinned:
        raise RefusedError("None of these facts has a message that is still stored.")
    tokens = sum(row.tokens for row in pinned.values())
    said = (
        f"Pinned {formatting.plural(len(pinned), 'message')}, {tokens:,} tokens: sent verbatim "
        "with every request from now on. The API takes a pin back."
    )
    return " ".join(filter(None, (said, warning_of_pins(summary.session))))


def _redo(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString:
    try:
        run = resummarize(
            summary,
            instructions=instructions_for(asked["facts"], before=summary.instructions),
            background=True,
            requested_by=request.user,
        )
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return queued(run)


def instructions_for(facts: Iterable[dict[str, Any]], *, before: str = "") -> str:
    """Return the instructions that name some facts, as many as fit, behind those of `before`.

    What those named of facts already gives way. Only the facts, never the sentences around them:
    an order that stands in a message must not become one of the operator's.
    """
    own = before.partition(_REMEMBER)[0].strip()
    text = f"{own}\n\n{_REMEMBER}" if own else _REMEMBER
    for fact in facts:
        line = f"\n- “{' '.join(str(fact.get('text', '')).split())}”"
        if len(text) + len(line) > INSTRUCTIONS_CHARS:
            break
        text += line
    return text


def _ignore(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> str:
    count = ignore_facts(summary, keys=[fact_key(fact) for fact in asked["facts"]])
    return f"{formatting.plural(count, 'fact')} of this summary ignored: listed apart from now on."


def _recall(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> str:
    count = show_facts_again(summary, keys=[fact_key(fact) for fact in asked["facts"]])
    return f"{formatting.plural(count, 'fact')} listed among the lost ones again."


def _make_verdict(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
    return VerdictForm(data) if data is not None and quality_of(summary) is not None else None


def _judge(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> str:
    give_verdict(summary, verdict=asked["verdict"], note=asked["note"], by=request.user)
    return "Your verdict is stored." if asked["verdict"] else "There is no verdict any more."


def _judged(row: SummaryQuality) -> dict[str, str]:
    return {"verdict": row.verdict, "note": row.verdict_note}


def _verdict_words(row: SummaryQuality, *, texts: bool) -> SafeString | str:
    """Return the verdict with who gave it and when; nothing where there is none.

    The note is a text: it tells what the summary says.
    """
    if not row.verdict:
        return ""
    badge = html.badge(row.verdict.capitalize(), row.verdict)
    by = row.verdict_by.get_username() if row.verdict_by else "somebody who is gone"
    note = f": {row.verdict_note}" if texts and row.verdict_note else ""
    return format_html("{} by {}, {}{}", badge, by, when(row.verdict_at), note)


def may_pin(request: HttpRequest) -> bool:
    """Whether the operator may pin messages, and see them: `change message`, `read texts`."""
    return holds(request, SEE_TEXTS, "chatapp.change_message")


def may_judge(request: HttpRequest) -> bool:
    """Whether the operator may judge summaries: who may take them back, and read them."""
    return may_see_texts(request) and may_restore(request)


def may_redo(request: HttpRequest) -> bool:
    """Whether the operator may have facts summarised again, and read them."""
    return may_see_texts(request) and may_run(request)


QUALITY_FORMS = {
    "pin-facts": PageForm(label="Pin", make=_chosen_of(), do=_pin, may=may_pin),
    "redo-facts": PageForm(
        label="Re-summarise with these",
        make=_chosen_of(active=True),
        do=_redo,
        may=may_redo,
    ),
    "ignore-facts": PageForm(label="Ignore", make=_chosen_of(), do=_ignore, may=may_judge),
    "recall-facts": PageForm(
        label="Show again",
        make=_chosen_of(ignored=True),
        do=_recall,
        may=may_judge,
    ),
    "verdict": PageForm(label="Verdict", make=_make_verdict, do=_judge, may=may_judge),
}
"""Forms that the panel shows itself; only a refused one stands above the page like the others."""

_MEANS = {
    "pin-facts": "their messages are sent verbatim from now on",
    "redo-facts": "a worker makes a new version and is told to keep them",
    "ignore-facts": "they are listed apart",
}


def _buttons(request: HttpRequest, summary: SessionSummary) -> list[dict[str, str]]:
    """Return the buttons below the lost facts that the operator may use."""
    is_active = summary.status == SessionSummary.Status.ACTIVE
    return [
        {"label": QUALITY_FORMS[name].label, "url": _url(summary, name), "means": means}
        for name, means in _MEANS.items()
        if QUALITY_FORMS[name].may(request) and (is_active or name != "redo-facts")
    ]


def _url(summary: SessionSummary, name: str) -> str:
    return reverse("admin:compaction_sessionsummary_do", args=[summary.pk, name])
