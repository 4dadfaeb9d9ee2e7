"""Summaries as an exported file tells them, checked before anything is stored.

Whoever writes the file may be a stranger: every text is data, every number has limits, and what
does not fit the imported messages raises UnsoundError with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.utils import timezone

from chatapp.messages.wire import CUT_FROM, REASONING_ITEMS, REPLACED, REPLAY_OF, Cleaner
from compaction.engine.fidelity.measure import MOST_FACTS, MOST_LOST, LostFact, Quality
from compaction.engine.fidelity.redaction import redact, redact_json
from compaction.engine.provenance import Origin, SourcedLine, SourcePiece, Unit, UnitKind
from compaction.engine.types import Item
from compaction.models import CompactionRun, SessionSummary, SummaryQuality
from compaction.models.summaries import FORMAT_VERSIONS
from compaction.summaries.judging import NOTE_CHARS

MOST_TEXT_CHARS = 200_000
MOST_SHORT_CHARS = 5000
# The next pass reads them all.
MOST_UNIT_CHARS, MOST_UNITS_CHARS = 20_000, 2_000_000
MOST_ENTRIES = 20_000
MOST_NUMBER = 2**31 - 1
MOST_POSITION = 2**62
MOST_SMALL_NUMBER = 2**15 - 1
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
# Clocks of two machines differ.
CLOCK_SKEW = timedelta(days=1)
# In a message's metadata, which a placeholder's take in.
MESSAGE_KEYS = frozenset(
    {CUT_FROM, REASONING_ITEMS, REPLACED, REPLAY_OF, "extra", "import_key", "refusal", "wire_role"}
)
# What code compares and labels hold; people's words stand elsewhere.
_CODE = re.compile(r"[\w.:/+-]{1,40}")
_UNIT_COLUMNS = (
    *("text", "kind", "speaker", "position", "message", "start", "end"),
    *("entities", "worth", "note"),
)
_Read = TypeVar("_Read")


class UnsoundError(ValueError):
    """What a file says cannot be; the text completes the sentence "was left out: …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessages:
    """The messages that summaries have to fit, in the file's order.

    `cuts` are the indexes before which a group ends; `lengths` those of the texts that were cut
    when they were stored. `hides_secrets`: no summary may hold a secret.
    """

    ids: Sequence[UUID]
    items: Sequence[Item]
    cuts: frozenset[int]
    pinned: frozenset[int]
    lengths: Mapping[int, int]
    hides_secrets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredSummary:
    """One summary that fits: its columns, what stands beside it, and indexes of what it names.

    `linked` are messages, `previous` is one of the summaries before it. `judged` are the columns of
    its quality that no measure gives, empty where it was not measured.
    """

    columns: Mapping[str, Any]
    linked: Sequence[int]
    previous: int | None
    profile: tuple[str, int] | None
    units: tuple[Unit, ...]
    lines: tuple[SourcedLine, ...]
    quality: Quality | None
    named_weight: float | None
    judged: Mapping[str, Any] = field(default_factory=dict)


class Fields:
    """Reads one JSON object; what is missing, or not what it has to be, raises UnsoundError."""

    def __init__(self, value: Any, called: str) -> None:
        if not isinstance(value, dict):
            raise UnsoundError(f"{called} is no object")
        self._value = value
        self._called = called

    def take(self, key: str, default: Any = None) -> Any:
        """Return a value unread; a default where files of earlier versions have none."""
        if key not in self._value and default is None:
            raise UnsoundError(f"{self._called} has no “{key}”")
        return self._value.get(key, default)

    def text(self, key: str, *, most: int = MOST_SHORT_CHARS) -> str:
        """Return a text of at most so many characters."""
        value = self.take(key)
        if not isinstance(value, str):
            raise self._wrong(key, "no text")
        if len(value) > most:
            raise self._wrong(key, f"longer than {most:,} characters")
        return value

    def code(self, key: str) -> str:
        """Return a name that programs compare; it may be empty."""
        value = self.text(key)
        if value and not _CODE.fullmatch(value):
            raise self._wrong(key, "no name")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return one of some words."""
        value = self.take(key)
        if value not in choices:
            raise self._wrong(key, f"none of {', '.join(filter(None, choices))}")
        return str(value)

    def whole(self, key: str, *, most: int = MOST_NUMBER) -> int:
        """Return a whole number from 0 on."""
        value = self.take(key)
        if not is_index(value, most + 1):
            raise self._wrong(key, f"no whole number from 0 to {most}")
        return int(value)

    def number(self, key: str, *, most: float = MOST_NUMBER) -> float:
        """Return a number from 0 on, whole where it is written so."""
        return _number(self.take(key), most=most, wrong=lambda why: self._wrong(key, why))

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "neither true nor false")
        return value

    def pair(self, key: str) -> tuple[Any, Any]:
        """Return two numbers."""
        first, second = (
            _number(one, most=MOST_NUMBER, wrong=lambda why: self._wrong(key, why))
            for one in self.items(key, most=2, least=2)
        )
        return first, second

    def items(self, key: str, *, most: int = MOST_ENTRIES, least: int = 0) -> list[Any]:
        """Return a list, unread."""
        value = self.take(key)
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise self._wrong(key, f"no list of at most {most:,}")
        return value

    def texts(self, key: str, *, most: int = MOST_ENTRIES, needed: bool = True) -> tuple[str, ...]:
        """Return a list of short texts; none where it may be missing and is."""
        found = self.items(key, most=most) if needed or key in self._value else ()
        return tuple(Fields({key: each}, self._called).text(key) for each in found)

    def time(self, key: str) -> datetime:
        """Return a moment that has been."""
        try:
            value = datetime.fromisoformat(self.text(key, most=40))
            found = value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
        except (ValueError, OverflowError):
            raise self._wrong(key, "no time") from None
        if not EARLIEST <= found <= timezone.now() + CLOCK_SKEW:
            raise self._wrong(key, "no time that has been")
        return found

    def maybe(self, key: str, read: Callable[[str], _Read]) -> _Read | None:
        """Return what `read` makes of a value, None for null."""
        return None if self.take(key) is None else read(key)

    def _wrong(self, key: str, why: str) -> UnsoundError:
        return UnsoundError(f"“{key}” of {self._called} is {why}")


def is_index(value: Any, below: int) -> bool:
    """Whether a value is a whole number from 0 on, below a limit."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _number(value: Any, *, most: float, wrong: Callable[[str], UnsoundError]) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is not less than anything.
    if not is_number or not 0 <= value <= most:
        raise wrong(f"no number from 0 to {most:,}")
    found: float = value
    return found


def read_summary(
    value: Any, messages: ImportedMessages, *, after: int, earlier: int
) -> TransferredSummary:
    """Return a summary of a file that follows `earlier` others, which reach to the index `after`.

    Raises UnsoundError where it does not fit: then nothing that is built on it fits either.
    """
    cleaner = Cleaner()
    cleaner.json(value)
    if cleaner.replaced:
        raise UnsoundError("it holds characters that cannot be stored")
    fields = Fields(value, "the summary")
    text = fields.text("text", most=MOST_TEXT_CHARS)
    if not text.strip():
        raise UnsoundError("it has no text")
    if messages.hides_secrets:
        if redact(text).spans:
            raise UnsoundError("its text holds a secret")
        fields = Fields(redact_json(value), "the summary")
    return _SummaryReader(fields, text, messages).read(after=after, earlier=earlier)


class _SummaryReader:
    """Reads one summary part by part."""

    def __init__(self, fields: Fields, text: str, messages: ImportedMessages) -> None:
        self._fields = fields
        self._text = text
        self._messages = messages
        # What is as long as it was is the same text, cut in the same way.
        self._was_cut = fields.take("cut")
        if not isinstance(self._was_cut, dict):
            raise UnsoundError("its lengths of cut texts are no object")

    def read(self, *, after: int, earlier: int) -> TransferredSummary:
        fields = self._fields
        quality = fields.take("quality")
        measured = None if quality is None else Fields(quality, "the quality")
        return TransferredSummary(
            columns=self._columns(),
            linked=self._linked(after),
            previous=fields.maybe("previous", lambda key: fields.whole(key, most=earlier - 1)),
            profile=fields.maybe("profile", lambda key: _profile(fields.take(key))),
            units=self._units(),
            lines=self._lines(),
            quality=None if measured is None else self._quality(measured),
            named_weight=fields.maybe("named_weight", fields.number),
            judged=_judged(measured) if measured else {},
        )

    def _columns(self) -> dict[str, Any]:
        fields = self._fields
        fields.choice("status", [SessionSummary.Status.ACTIVE])
        version = _format_version(fields)
        return {
            "kind": fields.choice("kind", [SessionSummary.Kind.COMPACTION]),
            "format_version": version,
            "summary_text": self._text,
            "trigger": fields.choice("trigger", CompactionRun.Trigger.values),
            "reason": fields.code("reason"),
            "model": fields.text("model", most=100),
            "prompt_version": fields.text("prompt_version", most=40),
            "temperature": fields.maybe("temperature", fields.number),
            "target_summary_tokens": fields.whole("target_summary_tokens"),
            "keep_last_n": fields.whole("keep_last_n"),
            "approx_tokens": fields.whole("approx_tokens"),
            "tokens_before": fields.whole("tokens_before"),
            "tokens_after": fields.whole("tokens_after"),
            "compression_ratio": fields.number("compression_ratio"),
            "truncated": fields.flag("truncated"),
            "is_digest": fields.flag("is_digest"),
            "metadata": _metadata(fields.take("metadata")),
            "instructions": fields.text("instructions", most=MOST_TEXT_CHARS),
            "files_read": list(fields.texts("files_read")),
            "files_modified": list(fields.texts("files_modified")),
            "files_created": list(fields.texts("files_created", needed=False)),
            "files_deleted": list(fields.texts("files_deleted", needed=False)),
            "from_hook": fields.flag("from_hook", False),
            "details": _metadata(fields.take("details", {})),
            "created_at": fields.time("created_at"),
        }

    def _linked(self, after: int) -> list[int]:
        """Return the messages that were read: in order, none passed over that would be hidden."""
        messages, linked = self._messages, self._fields.items("messages", most=MOST_NUMBER)
        covers = self._fields.items("covers", most=2, least=2)
        low = after
        for index in linked:
            if not is_index(index, len(messages.ids)) or index <= low:
                raise UnsoundError("its messages are not in the file, or not in order")
            low = index
        if not linked or covers != [linked[0], linked[-1]]:
            raise UnsoundError("it does not cover the messages that it was made from")
        hidden = set(range(after + 1, low + 1)) - set(linked) - messages.pinned
        if hidden:
            raise UnsoundError(f"it would hide message {min(hidden)}, which no summary has read")
        if low + 1 not in messages.cuts:
            raise UnsoundError("it ends between a tool call and its result")
        return list(linked)

    def _piece(self, message: Any, start: Any, end: Any) -> SourcePiece:
        """Return a piece of a message: its offsets where they can be those of the stored text."""
        messages = self._messages
        if not is_index(message, len(messages.ids)):
            raise UnsoundError("a source is no message of the file")
        if messages.lengths.get(message) != self._was_cut.get(str(message)):
            return SourcePiece(message=messages.ids[message])
        size = len(messages.items[message].text)
        if not is_index(end, size + 1) or not is_index(start, end + 1):
            raise UnsoundError("a source stands outside its message")
        return SourcePiece(message=messages.ids[message], start=start, end=end)

    def _units(self) -> tuple[Unit, ...]:
        units = tuple(map(self._unit, self._fields.items("units")))
        if sum(len(unit.text) for unit in units) > MOST_UNITS_CHARS:
            raise UnsoundError("its units are longer than any that are kept")
        return units

    def _unit(self, row: Any) -> Unit:
        if not isinstance(row, list) or len(row) != len(_UNIT_COLUMNS):
            raise UnsoundError(f"a unit is no list of {len(_UNIT_COLUMNS)}")
        fields = Fields(dict(zip(_UNIT_COLUMNS, row, strict=True)), "a unit")
        position = fields.whole("position", most=MOST_POSITION)
        piece = None
        if fields.take("message") is not None:
            piece = self._piece(*(fields.take(name) for name in ("message", "start", "end")))
            position = self._messages.items[fields.take("message")].position
        return Unit(
            text=fields.text("text", most=MOST_UNIT_CHARS),
            kind=UnitKind(fields.choice("kind", [*UnitKind])),
            speaker=fields.text("speaker"),
            position=position,
            message=piece and piece.message,
            start=piece.start if piece else 0,
            end=piece.end if piece else 0,
            entities=fields.texts("entities"),
            worth=fields.number("worth"),
            note=fields.text("note"),
        )

    def _lines(self) -> tuple[SourcedLine, ...]:
        lines, low = [], 0
        for value in self._fields.items("lines"):
            fields = Fields(value, "a line")
            end = fields.whole("end", most=len(self._text))
            start = fields.whole("start", most=end)
            if start < low:
                raise UnsoundError("its lines are not in order")
            low = end
            origin = Origin(fields.choice("origin", [*Origin]))
            sources = tuple(map(self._source, fields.items("sources")))
            if bool(sources) is (origin is Origin.NONE):
                raise UnsoundError("a line's origin does not fit its sources")
            lines.append(SourcedLine(start=start, end=end, origin=origin, sources=sources))
        return tuple(lines)

    def _source(self, value: Any) -> SourcePiece:
        if not isinstance(value, list) or len(value) != 3:
            raise UnsoundError("a source is no list of message, start and end")
        return self._piece(*value)

    def _quality(self, fields: Fields) -> Quality:
        figures = Fields(fields.take("figures"), "the figures")
        kinds = figures.take("entities")
        counted = Fields(kinds, "the entities")
        return Quality(
            version=fields.whole("version", most=MOST_SMALL_NUMBER),
            score=fields.number("score", most=100),
            yardstick=fields.number("yardstick", most=100),
            entities={str(kind): counted.pair(kind) for kind in kinds},
            user_entities=figures.pair("user_entities"),
            all_entities=figures.pair("all_entities"),
            user_identifiers=figures.pair("user_identifiers"),
            words=figures.number("words"),
            user_words=figures.number("user_words"),
            rules=figures.pair("rules"),
            unsupported=figures.texts("unsupported"),
            unsupported_share=figures.number("unsupported_share"),
            repeated=figures.number("repeated"),
            language_matches=figures.flag("language_matches"),
            language=figures.text("language", most=40),
            compression=figures.number("compression"),
            carried=figures.pair("carried"),
            carried_lost=figures.texts("carried_lost"),
            cumulative=fields.maybe("cumulative", fields.number),
            named_weight=self._fields.number("named_weight"),
            lost=tuple(self._lost(one) for one in fields.items("lost", most=MOST_LOST)),
            facts=tuple(_fact(one) for one in fields.items("facts", most=MOST_FACTS)),
        )

    def _lost(self, value: Any) -> LostFact:
        fields = Fields(value, "a lost fact")
        message, start, end = (fields.take(name) for name in ("message", "start", "end"))
        piece = None if message is None else self._piece(message, start, end)
        return LostFact(
            text=fields.text("text"),
            kind=fields.text("kind", most=40),
            speaker=fields.text("speaker"),
            message=piece and piece.message,
            start=piece.start if piece else 0,
            end=piece.end if piece else 0,
            context=fields.text("context"),
            weight=fields.number("weight"),
        )


def _fact(value: Any) -> tuple[str, bool, float]:
    if not isinstance(value, list) or len(value) != 3:
        raise UnsoundError("a fact is no list of key, known and weight")
    fields = Fields(dict(zip(("key", "known", "weight"), value, strict=True)), "a fact")
    return fields.text("key"), fields.flag("known"), fields.number("weight")


def _judged(fields: Fields) -> dict[str, Any]:
    """Return what people and later turns said of a summary; who judged it is not in the file."""
    return {
        "rejected": fields.whole("rejected", most=MOST_SMALL_NUMBER),
        "hindsight": fields.maybe("hindsight", lambda key: fields.number(key, most=1)),
        "hindsight_facts": fields.whole("hindsight_facts"),
        "hindsight_at": fields.maybe("hindsight_at", fields.time),
        "verdict": fields.choice("verdict", ["", *SummaryQuality.Verdict.values]),
        "verdict_note": fields.text("verdict_note", most=NOTE_CHARS),
        "verdict_at": fields.maybe("verdict_at", fields.time),
        "ignored": list(fields.texts("ignored")),
        "created_at": fields.time("created_at"),
    }


def _format_version(fields: Fields) -> int:
    """Return the format's version; a number that a file keeps as text is that number."""
    told = fields.take("format_version")
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 6:
        return _format_version(Fields({"format_version": int(told)}, "the summary"))
    version = fields.whole("format_version")
    if version not in FORMAT_VERSIONS:
        raise UnsoundError("its format is of another version")
    return version


def _profile(value: Any) -> tuple[str, int]:
    fields = Fields(value, "the profile")
    return fields.text("name", most=60), fields.whole("version")


def _metadata(value: Any) -> dict[str, Any]:
    """Return metadata as a strategy writes it; what messages keep in theirs has no place in it."""
    if not isinstance(value, dict) or len(str(value)) > MOST_TEXT_CHARS:
        raise UnsoundError("its metadata are no object of a fitting size")
    return {key: item for key, item in value.items() if key not in MESSAGE_KEYS}
