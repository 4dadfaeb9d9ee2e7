"""Where a replay stands: what is summarised, what is sent of it, and what failed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from compaction.engine.abridged import Entry
from compaction.engine.carrying import (
    carried_tokens,
    chars_as_sent,
    counts_characters,
    frame_tokens,
    sends_node,
)
from compaction.engine.parameters import Profile
from compaction.engine.policy.small_windows import within_window
from compaction.engine.protocols import SentSummary
from compaction.engine.provenance import Unit
from compaction.engine.rendering import with_files
from compaction.engine.types import NO_FILES, Files, Item, Outcome, TokenCounter

LONGEST_BACKOFF_SECONDS = 3600
# Digits of a clause's worth that are kept with a summary, as where one is stored.
WORTH_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayModel:
    """What a replay has to know of the conversation's model; `scale` is tokens per counted one.

    `result_window` is the window of the model that summarises, by which results are cut for it.
    `frame_tokens` is what a message takes besides its words, `is_single` says that the server takes
    one system message only.
    """

    window: int
    max_output: int
    scale: float
    counter: TokenCounter
    result_window: int = 0
    frame_tokens: int = 0
    is_single: bool = False

    def reserve(self, profile: Profile) -> int:
        """Return the tokens kept free for the answer, never more than half of the window."""
        return min(max(profile.reserve_tokens, self.max_output), self.window // 2)

    def usable(self, profile: Profile) -> int | None:
        """Return the tokens that a request may have; None where the window is not known."""
        return self.window - self.reserve(profile) if self.window > 0 else None

    def summary_profile(self, profile: Profile) -> Profile:
        """Return the profile with summaries of sizes that the window has room for."""
        usable = self.usable(profile)
        return within_window(profile, None if usable is None else math.floor(usable / self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedSummary:
    """A summary of the replay: what is continued of it, what is sent of it, and its size.

    `covered` messages stand before its end. `entries` are what the next abridged history is made
    of, besides what is new.
    """

    text: str
    sent: SentSummary
    tokens: int
    covered: int
    holds_earlier: bool = False
    is_digest: bool = False
    units: tuple[Unit, ...] = ()
    named_weight: float = 0.0
    files: Files = NO_FILES
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        *,
        covered: int,
        counter: TokenCounter,
        entries: Sequence[Entry] = (),
    ) -> ReplayedSummary:
        """Return an outcome as a summary that covers so many messages.

        `entries` are those that its abridged history was chosen from.
        """
        files = Files(
            read=outcome.files_read,
            modified=outcome.files_modified,
            created=outcome.files_created,
            deleted=outcome.files_deleted,
        )
        sent = sent_text_of(outcome)
        stored = {one["position"] for one in outcome.abridged_entries}
        return cls(
            text=outcome.text,
            sent=SentSummary(text=sent, abridged=outcome.abridged),
            tokens=counter.count(sent),
            covered=covered,
            holds_earlier=outcome.holds_earlier,
            is_digest=outcome.is_digest,
            units=tuple(
                one._replace(worth=round(one.worth, WORTH_DIGITS)) for one in outcome.units
            ),
            named_weight=outcome.quality.named_weight if outcome.quality else 0.0,
            files=files,
            entries=tuple(one for one in entries if one.position in stored),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCut:
    """Where the cut falls: so many messages are summarised, with so many tokens; some are read."""

    messages: int
    tokens: int
    chars: int
    newest: tuple[Item, ...]


def sent_text_of(outcome: Outcome) -> str:
    """Return the text of an outcome as requests hold it."""
    if not outcome.holds_earlier:
        return outcome.text
    return with_files(
        outcome.text,
        read=outcome.files_read,
        modified=outcome.files_modified,
        deleted=outcome.files_deleted,
    )


@dataclass(slots=True, kw_only=True)
class ReplayState:
    """The state of one replay; `cursor` messages are summarised.

    `written` are the summaries that are sent, oldest first, `digest` the fallback digest that no
    summary has taken in, `draft` a summary that waits until a rule asks for it. `asked_seconds` is
    when the request was sent whose prompt a server still keeps.
    """

    profile: Profile
    counter: TokenCounter
    cursor: int = 0
    written: list[ReplayedSummary] = field(default_factory=list)
    digest: ReplayedSummary | None = None
    draft: ReplayedSummary | None = None
    failures: int = 0
    gainless_total: int = 0
    """Tokens of the conversation when a run would have made no request smaller."""
    backoff_until: float | None = None
    last_seconds: float | None = None
    asked_seconds: float | None = None
    cut: tuple[tuple[int, int, int], ReplayedCut] | None = None
    """Where the cut was found last, with what it depends on: several rules ask for it."""
    frame_tokens: int = field(init=False)
    is_node: bool = field(init=False)
    summary_tokens: int = field(init=False, default=0)
    """Tokens of the summaries as they are sent, with frames and abridged histories."""
    summary_chars: int = field(init=False, default=0)
    """Their characters, where a rule counts any."""
    fronts: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    """Messages before the conversation, by those that are no summary and the number of these."""

    def __post_init__(self) -> None:
        self.frame_tokens = frame_tokens(self.profile, self.counter.count)
        self.is_node = sends_node(self.profile)

    @property
    def sent(self) -> list[ReplayedSummary]:
        """All summaries that are sent, in the order of what they cover."""
        found = [*self.written, *([self.digest] if self.digest else [])]
        return sorted(found, key=lambda one: one.covered)

    @property
    def continued(self) -> list[ReplayedSummary]:
        """What the next summary continues; after a failure, no fallback digest."""
        digest = [self.digest] if self.digest and not self.failures else []
        return [*self.written[-1:], *digest]

    @property
    def sent_forms(self) -> list[SentSummary]:
        """The summaries as requests hold them."""
        return [one.sent for one in self.sent]

    def carried_tokens(self, summaries: Sequence[SentSummary]) -> int:
        """Return the tokens of summaries besides their texts: frames and abridged histories."""
        return carried_tokens(self.profile, summaries, self.counter.count)

    def staying(self, outcome: Outcome) -> Sequence[ReplayedSummary]:
        """Return what is sent beside an outcome as the newest summary."""
        if outcome.is_digest:
            return self.written
        others = 0 if outcome.holds_earlier else self.profile.summary_limit - 1
        found = self.written[-others:] if others else []
        stays = self.digest is not None and self.digest not in self.continued
        return [*found, *([self.digest] if stays and self.digest else [])]

    def take(self, summary: ReplayedSummary, *, seconds: float) -> None:
        """Let a summary count: it is sent, and the cursor moves behind it."""
        if summary.is_digest:
            self.digest = summary
            self.failures = min(max(0, self.profile.digest_after_failures - 1), self.failures)
        else:
            if self.digest in self.continued:
                self.digest = None
            kept = [] if summary.holds_earlier else self.written
            self.written = [*kept, summary][-self.profile.summary_limit :]
            self.failures = 0
        self.draft, self.gainless_total = None, 0
        self.cursor, self.last_seconds, self.backoff_until = summary.covered, seconds, None
        self.summary_tokens = sum(one.tokens for one in self.sent)
        self.summary_tokens += self.carried_tokens(self.sent_forms)
        if counts_characters(self.profile):
            self.summary_chars = chars_as_sent(self.profile, self.sent_forms)

    def keep(self, draft: ReplayedSummary) -> None:
        """Keep a summary that does not count yet."""
        self.draft, self.failures, self.backoff_until = draft, 0, None

    def fail(self, *, seconds: float, pause: float) -> None:
        """Note a failure: automatic runs wait, each time twice as long."""
        self.failures += 1
        wait = min(LONGEST_BACKOFF_SECONDS, pause * 2 ** min(self.failures - 1, 12))
        self.hold_off(until=seconds + wait)

    def hold_off(self, *, until: float) -> None:
        """Have automatic runs wait; a longer pause is not made shorter."""
        self.backoff_until = max(until, self.backoff_until or until)
