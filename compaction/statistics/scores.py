"""How much summaries still know: scores by profile and model, and those that need a look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import Avg, Count, F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from compaction.conf import compaction_settings
from compaction.models import SessionSummary, SummaryQuality

Status = SessionSummary.Status
Verdict = SummaryQuality.Verdict
_KIND = ("profile__name", "model")
# The front page has room for the kinds that were used most.
MOST_KINDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """The scores (0 to 100) of one profile's summaries by one model.

    `p10` is the smallest score that one of ten summaries does not exceed (nearest rank); the median
    of an even number is the middle between two. `hindsight` is the mean share of the facts named
    later that the summaries knew, 0 to 1; None where that was never measured. `good` and `bad` are
    the verdicts that people gave.
    """

    profile: str
    model: str
    summaries: int
    p10: float
    median: float
    hindsight: float | None = None
    good: int = 0
    bad: int = 0

    @property
    def verdicts(self) -> str:
        """The verdicts in words; a dash where nobody gave one."""
        counts = ((self.good, "good"), (self.bad, "bad"))
        return ", ".join(f"{count:,} {word}" for count, word in counts if count) or "—"


def scores_by_kind(summaries: QuerySet[SessionSummary]) -> list[ScoreRow]:
    """Return the scores by profile and model, the most frequent first, in one query.

    Drafts and summaries that were not measured do not count. With n scores in order, the middle
    ones have n <= 2 * rank <= n + 2, and the nearest rank of p10 is the one with
    n <= 10 * rank < n + 10.
    """
    kinds = [F(name) for name in _KIND]
    rows = (
        summaries.filter(quality__isnull=False)
        .exclude(status=Status.DRAFT)
        .annotate(
            rank=Window(RowNumber(), partition_by=kinds, order_by="quality__score"),
            size=Window(Count("*"), partition_by=kinds),
            known=Window(Avg("quality__hindsight"), partition_by=kinds),
            good=_verdicts(Verdict.GOOD, kinds),
            bad=_verdicts(Verdict.BAD, kinds),
        )
        .annotate(twice=F("rank") * 2, tenfold=F("rank") * 10)
        .filter(
            Q(twice__gte=F("size"), twice__lte=F("size") + 2)
            | Q(tenfold__gte=F("size"), tenfold__lt=F("size") + 10)
        )
        .values_list(*_KIND, "rank", "size", "known", "good", "bad", "quality__score")
    )
    chosen: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for profile, model, *ranked in rows:
        chosen[profile or "", model].append(tuple(ranked))
    found = [_row(profile, model, ranked) for (profile, model), ranked in chosen.items()]
    return sorted(found, key=lambda row: (-row.summaries, row.profile, row.model))


def _row(profile: str, model: str, ranked: Sequence[tuple[Any, ...]]) -> ScoreRow:
    _, size, known, good, bad, _ = ranked[0]
    middle = [score for rank, *_, score in ranked if size <= 2 * rank <= size + 2]
    low = [score for rank, *_, score in ranked if size <= 10 * rank < size + 10]
    return ScoreRow(
        profile=profile,
        model=model,
        summaries=size,
        p10=low[0],
        median=sum(middle) / len(middle),
        hindsight=known,
        good=good,
        bad=bad,
    )


def _verdicts(verdict: str, kinds: Sequence[F]) -> Window:
    """Return how many summaries of each kind were given a verdict."""
    given = Count("quality", filter=Q(quality__verdict=verdict))
    return Window(given, partition_by=kinds)


def needs_look_q() -> Q:
    """Return the condition for summaries that are sent, scored low, and judged by nobody."""
    return Q(
        status=Status.ACTIVE, quality__score__lt=compaction_settings.low_score, quality__verdict=""
    )


def score_figures(since: datetime) -> dict[str, Any]:
    """Return what the front page shows, as JSON: kinds of summaries since then, low ones now."""
    kinds = scores_by_kind(SessionSummary.objects.filter(created_at__gte=since))
    return {
        "kinds": [asdict(row) for row in kinds[:MOST_KINDS]],
        "low": SessionSummary.objects.filter(needs_look_q()).count(),
    }


def rows_of(figures: Mapping[str, Any]) -> list[ScoreRow]:
    """Return the rows that `score_figures` made JSON of."""
    return [ScoreRow(**row) for row in figures.get("kinds", ())]
