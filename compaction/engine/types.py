"""The engine's vocabulary: what goes in, what is decided, what came out, what is asked.

All of it is frozen and knows neither Django nor the network, so the rules can be tested alone.
Token figures are tokens of whatever TokenCounter was passed in; durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from chatapp.messages.inline_files import FileSpan
from compaction.engine.provenance import SourcedLine, Unit

if TYPE_CHECKING:
    from compaction.engine.fidelity.measure import Quality


MAX_BOT_CHARS = 100
"""The longest name of a bot that a memory may be for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that an assistant message asks for; `arguments` is the text as sent, JSON or not."""

    id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One stored message as the engine sees it; `id` comes back in links, untouched.

    `tokens` is what a request pays for it, `chars` are the code points of its text and its calls as
    they are sent. `inline_files` are the files in its stored text, for which `text` has
    placeholders. Of the tokens, `unread_tokens` are for images, files and
    recordings, which a summariser is told of in a line of `text`. `thinking` are a model's thoughts
    as far as a summariser may read them; no request of the conversation holds them. `is_note`: it
    was put between the messages, and asks nothing.
    """

    id: Any
    role: str
    text: str = ""
    position: int = 0
    tokens: int = 0
    chars: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    images: int = 0
    unread_tokens: int = 0
    thinking: str = ""
    is_note: bool = False
    inline_files: tuple[FileSpan, ...] = ()

    @property
    def is_question(self) -> bool:
        """Whether a user speaks: a note is sent as a user's message, and asks nothing."""
        return self.role == "user" and not self.is_note

    @property
    def voice(self) -> str:
        """Who speaks, for those that read: the role, or `note`."""
        return "note" if self.is_note else self.role

    @property
    def read_tokens(self) -> int:
        """What a summariser pays for it."""
        return max(0, self.tokens - self.unread_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Items that may never be parted: a call and all its results."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A trigger fired: `reason` is the rule's name, `mode` is `inline` or `background`."""

    reason: str
    mode: str = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the cut falls: `summarise` goes to the summariser, `keep` stays verbatim."""

    summarise: tuple[Item, ...]
    keep: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a compaction would summarise now, and what of the rest never can be.

    `messages`, `tokens` and `chars` are what would no longer be sent verbatim: pinned messages are
    not among them. `request_tokens` are those tokens and frames as the model counts them.
    `fixed_messages`, `fixed_tokens` and `fixed_chars` came since the last summary, too, but are
    never summarised. `least_tokens` are the fewest that are worth a summary at all
    (carrying.least_stretch).
    """

    messages: int
    tokens: int
    request_tokens: int
    chars: int = 0
    fixed_messages: int = 0
    fixed_tokens: int = 0
    fixed_chars: int = 0
    least_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules look at: since the last summary, and of the whole next request.

    `usable` is window - max(reserve, answer's maximum): room for the answer is taken off; None when
    the window is not known. `seconds_since` is None before the first summary. `waiting_seconds` is
    how long the first message that left the tail has waited; None where too few did. `chars` are
    those since the last summary and of the summaries as they are sent. `passes_over`: a summary
    behind the last one was written by a later program and is not read. `window` is the whole
    window, 0 when it is not known. `pinned_system` are the messages that open the conversation:
    always sent, never summarised, no part of the window. `cache_age_ms` is how long ago the request
    was sent whose prompt the server keeps; None where none is known, or another one is under way.
    `gain` returns what a compaction would summarise; it looks for the cut, so it is called where a
    limit is reached. Without it a limit alone decides. `gainless_tokens` are those since the last
    summary that a run found no gain in; 0 where none did.
    """

    messages: int
    tokens: int
    request_tokens: int
    usable: int | None
    seconds_since: float | None = None
    waiting_seconds: float | None = None
    window: int = 0
    pinned_system: int = 0
    chars: int = 0
    cache_age_ms: int | None = None
    passes_over: bool = False
    gainless_tokens: int = 0
    gain: Callable[[], Gain] | None = field(default=None, compare=False, repr=False)

    @property
    def countable(self) -> int:
        """The messages that the sliding window counts."""
        return self.messages - self.pinned_system


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """One call of the summariser.

    `kind` names what is asked: `chunk` (items, perhaps with the summary they continue), `update`
    (items, and the summary that is brought up to date), `prefix` (the beginning of a turn whose
    rest stays), `branch` (items of a branch that was left) and `merge` (texts; `merges` is the kind
    of what they are summaries of) have an instruction of their own; a strategy that asks for
    something else names it and brings its `prompt`, in which no text of the conversation may stand.
    `style` says how messages and summary look (Profile.summary_style). `target_tokens` is the size
    asked for, `answer_tokens` the most that may be written; 0 allows twice the size. `reinforced`
    is set on the second try after an answer that did not count. `units` are what earlier passes
    kept: a summariser without a model chooses from them, too. `kept` are the messages behind those
    to summarise, to be read and not summarised. With `cites`, prose is asked for that cites
    messages by their numbers. `missing` is what an answer that was refused lacked. With
    `whole_room` the answer may be as long as the model can write. `passed_over` models of a
    summariser that has several were too small for it.
    """

    kind: str
    items: tuple[Item, ...] = ()
    texts: tuple[str, ...] = ()
    previous: str = ""
    instructions: str = ""
    target_tokens: int = 700
    reinforced: bool = False
    prompt: str = ""
    units: tuple[Unit, ...] = ()
    kept: tuple[Item, ...] = ()
    cites: bool = False
    missing: tuple[str, ...] = ()
    whole_room: bool = False
    passed_over: int = 0
    style: str = "headings"
    answer_tokens: int = 0
    merges: str = "chunk"

    @property
    def longest_tokens(self) -> int:
        """The tokens that a text of four times the size would be read of (acceptance.capped)."""
        return max(self.target_tokens, self.answer_tokens // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAnswer:
    """What a summariser said, before anybody judged it (see strategies/acceptance.py).

    `finish_reason` is the server's word. `end` is how that is read: whole, cut, filtered, refused,
    tool_calls, broken or unknown; empty where nobody read it, then a few plain words are known.
    `has_thoughts`: a part of its room went into reasoning; `had_whole_room`: there is no more.
    `was_capped`: the text went on beyond what is read (strategies.acceptance.capped), and with
    `is_endless` so far that it never counts.
    `duration_ms` is how long the call took where it ran beside another one; else 0.
    `cached_tokens` are those of the input that the server had in its prompt cache.
    """

    text: str
    finish_reason: str = "stop"
    end: str = ""
    has_tool_calls: bool = False
    has_thoughts: bool = False
    had_whole_room: bool = False
    was_capped: bool = False
    is_endless: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    cost: float = 0.0
    units: tuple[Unit, ...] = ()
    duration_ms: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call inside a run.

    `outcome`: ok, overflow, truncated (cut off or forced), error, or rejected; then `code` says why
    (compaction.engine.fidelity.gate).

    `key` is the strategy's own name for the step; `parent` the key of the step it belongs under,
    which was reported before; `depth` is one more than that step's, and 0 without one. `is_call` is
    False for a text made without the summariser, so that calls can be counted. `request` is what
    the summariser was asked.
    """

    key: int
    parent: int | None
    kind: str
    depth: int
    order: int
    first: Any = None
    last: Any = None
    message_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    outcome: str = "ok"
    is_call: bool = True
    duration_ms: int = 0
    error: str = ""
    output: str = ""
    model: str = ""
    cost: float = 0.0
    code: str = ""
    cached_tokens: int = 0
    request: SummaryRequest | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Paths that tool calls named, sorted by code unit.

    A file that was only read stands in `read`; `modified` are those that were written, the
    `created` ones among them; `deleted` are gone and stand in none of the others.
    """

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


NO_FILES = Files()


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """What a strategy is given to summarise.

    `previous` is the text that the new summary continues, `invented` what it names that nobody
    wrote; `digest` is the part of it that is a fallback digest. `sent_again` are positions of
    pinned messages, which are sent verbatim. `instructions` are a person's. `units` are the clauses
    that earlier passes kept, `named_before` what all that they named weighs. `kept` are the newest
    messages, `files` are those of earlier summaries. `parts_turn`: a turn goes on behind the items.
    """

    items: tuple[Item, ...]
    counter: TokenCounter
    previous: str = ""
    digest: str = ""
    instructions: str = ""
    sent_again: frozenset[int] = frozenset()
    units: tuple[Unit, ...] = ()
    named_before: float = 0.0
    invented: tuple[str, ...] = ()
    kept: tuple[Item, ...] = ()
    files: Files = NO_FILES
    parts_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEstimate:
    """What a job will take: model calls, and the tokens that they read and write."""

    calls: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished summary and how it came about: what is stored is what is said here.

    `algorithm` names what made it. `prompt` is the instruction that was sent and `prompt_version`
    its version; both are empty where no model was asked, and `writer` then says who wrote.
    `metadata` is stored beside the usual figures; what begins with `files_` as columns.
    `is_digest`: the text is made of the messages themselves, and stands beside the summary that
    was there before until one takes it in. `units` are the clauses to choose from in the next
    pass, `lines` say where each line of the text comes from, `quality` how much it knows,
    `rejections` why answers before it were refused. With `holds_earlier` the text holds what the
    summaries before it held, so that they need not be sent beside it, and its files are sent behind
    it: they are those of all that it holds. `model` is the one that wrote it, where a summariser
    has several. `from_hook`: a hook wrote it, and `details` are what it keeps with it. `abridged`
    is the abridged history up to its last item, `abridged_entries` what that was made of.
    `dropped` are items before those that were read, which a profile has passed over unread.
    """

    text: str
    items: tuple[Item, ...]
    chunk_count: int
    max_depth: int
    truncated: bool
    input_tokens: int
    output_tokens: int
    model_calls: int = 0
    leaf_count: int = 1
    split_depth: int = 0
    cost: float = 0.0
    steps: tuple[Step, ...] = field(default=())
    is_digest: bool = False
    algorithm: str = ""
    prompt: str = ""
    prompt_version: str = ""
    writer: str = ""
    model: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    files_created: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    lines: tuple[SourcedLine, ...] = ()
    quality: Quality | None = None
    rejections: tuple[str, ...] = ()
    holds_earlier: bool = False
    from_hook: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    abridged: str = ""
    abridged_entries: tuple[Mapping[str, Any], ...] = ()
    dropped: tuple[Item, ...] = ()

    @property
    def passed(self) -> tuple[Item, ...]:
        """All items that are not sent any more: those that were read, and those dropped unread."""
        return (*self.dropped, *self.items)

    @property
    def compression_ratio(self) -> float:
        """Output tokens over input tokens: smaller is better; 0 when there was no input."""
        return self.output_tokens / self.input_tokens if self.input_tokens else 0.0


class SummaryFailed(Exception):  # noqa: N818 - it is an outcome, told apart by `code`
    """No summary came out.

    `code`: summariser_error, bad_answer, too_many_calls, nothing_to_do, strategy_error.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class SummarizerOverflow(Exception):  # noqa: N818 - it is an outcome, not a fault
    """The summariser refused the request as larger than its window: halve it and go on.

    `model` is the one that was asked, where there are several.
    """

    model = ""


class SummarizerError(Exception):
    """The summariser could not answer for another reason; halving would not help.

    `model` is the one that was asked, where there are several. `was_cut_off`: the run's time was
    over; `was_hurried`: so little of it was left that this says nothing of the model.
    """

    def __init__(
        self, sentence: str = "", *, was_cut_off: bool = False, was_hurried: bool = False
    ) -> None:
        super().__init__(sentence)
        self.model = ""
        self.was_cut_off, self.was_hurried = was_cut_off, was_hurried


class NoMoreCallsError(Exception):
    """The summariser may not be asked again by this run: somebody waits who waited long enough.

    A strategy that has summarised the oldest items by then may return them as its outcome.
    """


class Summarizer(Protocol):
    """Answers one request, or raises SummarizerOverflow or SummarizerError.

    One with a method `begin(request)` can have that call go on beside others: `summarize` of the
    same request then waits for its answer.
    """

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the answer to one request, unjudged."""
        ...

    def input_limit(self, target_tokens: int) -> int | None:
        """Tokens of transcript that one call can take, or None when nobody knows."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    def count(self, text: str) -> int:
        """Return 0 for the empty text and at least 1 for any other."""
        ...


class Clock(Protocol):
    """Monotonic seconds."""

    def __call__(self) -> float:
        """Return the seconds since some moment that never changes."""
        ...
