"""What each answer's request was made of: a few bytes an answer, and texts kept once a session.

A record names messages by their places and every other text by its digest, so it takes a few
hundred bytes however long the request was. Why it can be rebuilt years later:
docs/architecture.md#what-an-answer-was-given. chatapp/turns/made_of.py writes records,
chatapp/turns/rebuilding.py reads them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import models
from django.utils import timezone

from chatapp.compiled import CompiledInsert
from chatapp.round_trips import Statement

if TYPE_CHECKING:
    from chatapp.models import Message

# Of a SHA-256: so many characters tell the texts of one session, and one body, from all others.
DIGEST_CHARS = 22
# How many texts a process remembers to have stored; what it forgot is offered to the table again.
REMEMBERED_TEXTS = 16_384


class AnswerRequest(models.Model):
    """What one answer's request was made of; or, without a message, a text that requests share.

    Of an answer, `made_of` is described in chatapp/turns/made_of.py, `digest` is that of the body
    that was sent, and `left_out` counts the messages that the request went without: NULL where it
    had all of them, verbatim or in a summary. It is written once; only renumbering changes the
    places in it.

    Of a text (`packed`, compressed): a prompt, tools, memories, summaries as they were sent, a cut
    result. It is kept once a session, so that a later change of any of them leaves the past as it
    was. One table holds both, so that one INSERT writes an answer's record and what is new in it.
    """

    message = models.OneToOneField(
        "chatapp.Message", on_delete=models.CASCADE, null=True, related_name="request"
    )
    session = models.ForeignKey("chatapp.Session", on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=DIGEST_CHARS)
    made_of = models.JSONField(null=True)
    packed = models.BinaryField(null=True)
    left_out = models.PositiveIntegerField(null=True)
    # The branch of such an answer, so that lists of them read no message; NULL where messages are
    # left out on purpose (chatapp.incidents.LEFT_OUT_ON_PURPOSE), which nobody has to look at.
    left_out_branch = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        app_label = "chatapp"
        db_table = "answer_requests"
        constraints = [
            # A text is kept once a session, whoever stores it first; also the index that finds it.
            models.UniqueConstraint(
                fields=["session", "digest"],
                condition=models.Q(message__isnull=True),
                name="request_text_once",
            ),
        ]
        indexes = [
            # A session's timeline: answers that were given without part of the conversation.
            models.Index(
                fields=["session", "-created_at"],
                condition=models.Q(left_out__isnull=False),
                name="request_incomplete_session",
            ),
            # The front page counts the newest of them.
            models.Index(
                fields=["-created_at"],
                condition=models.Q(left_out__isnull=False),
                name="request_incomplete",
            ),
        ]

    def __str__(self) -> str:
        return f"Request of message {self.message_id}" if self.message_id else f"Text {self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A record before it is stored, with the texts that it names by their digests."""

    made_of: Mapping[str, Any]
    digest: str
    texts: Mapping[str, str] = field(default_factory=dict)
    left_out: int | None = None
    left_out_on_purpose: bool = False


def text_digest(text: str) -> str:
    """Return what a record names a text by."""
    return short_digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def short_digest(hexadecimal: str) -> str:
    """Return a SHA-256 in the form that records have."""
    found = base64.urlsafe_b64encode(bytes.fromhex(hexadecimal))
    return found.decode()[:DIGEST_CHARS]


def short_id(key: UUID) -> str:
    """Return an id in 22 characters; long_id takes it back."""
    return base64.urlsafe_b64encode(key.bytes).decode().rstrip("=")


def long_id(short: str) -> UUID:
    """Return the id that short_id shortened; raise ValueError for anything else."""
    return UUID(bytes=base64.urlsafe_b64decode(f"{short}=="))


# --- writing --------------------------------------------------------------------------------------

_stored: OrderedDict[tuple[UUID, str], None] = OrderedDict()


def keeping_request(answer: Message, record: RequestRecord) -> list[Statement[Any]]:
    """Return what stores the record of an answer with its texts, for the answer's transaction.

    `remember_texts` follows the commit.
    """
    session_id = answer.session_id
    new = [digest for digest in record.texts if (session_id, digest) not in _stored]
    rows = [
        AnswerRequest(session_id=session_id, digest=digest, packed=_packed(record.texts[digest]))
        for digest in new
    ]
    needs_look = record.left_out is not None and not record.left_out_on_purpose
    own = AnswerRequest(
        message_id=answer.pk,
        session_id=session_id,
        digest=record.digest,
        made_of=dict(record.made_of),
        left_out=record.left_out,
        left_out_branch=answer.branch_id if needs_look else None,
        created_at=answer.created_at,
    )
    # Another process may have stored a text just now: it stays.
    return _insert.asked([own, *rows])


def remember_texts(session_id: UUID, record: RequestRecord) -> None:
    """Remember that the texts of a record are stored, so that later ones do not bring them."""
    for digest in record.texts:
        _stored[session_id, digest] = None
        _stored.move_to_end((session_id, digest))
    while len(_stored) > REMEMBERED_TEXTS:
        _stored.popitem(last=False)


_insert = CompiledInsert(AnswerRequest, ignore_conflicts=True)


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def texts_named(session_id: UUID, digests: Iterable[str]) -> dict[str, str]:
    """Return the session's texts by their digests; those that are gone are not among them."""
    rows = AnswerRequest.objects.filter(
        session_id=session_id, message__isnull=True, digest__in=set(digests)
    )
    return {
        digest: zlib.decompress(bytes(packed)).decode("utf-8", "surrogatepass")
        for digest, packed in rows.values_list("digest", "packed")
        if packed is not None
    }


# --- places ---------------------------------------------------------------------------------------

# What stands in one place of a request: a stored message by its position, with the digest of what
# was sent as its content or "" for its own; or a word of made_of.py for what is none.
Part = tuple[int, str] | str

MESSAGES, PINS, CUT, FIRST = "messages", "pins", "cut", "first"
_OF_PLACES = (MESSAGES, PINS, CUT, FIRST)
# 7, 7+3 (7 to 10 in whole steps), 7500000u (between two steps), 7~digest (with other content).
_STORED = re.compile(r"(\d+)(u?)(?:\+(\d+))?(?:~(\S+))?")
BATCH = 500


def write_parts(parts: Iterable[Part]) -> str:
    """Return parts as a record holds them; neighbours in whole steps take a few characters."""
    from chatapp.models import POSITION_STEP

    words: list[str] = []
    run: tuple[int, int] | None = None  # the first step, how many follow

    def close() -> None:
        if run is not None:
            words.append(f"{run[0]}+{run[1]}" if run[1] else str(run[0]))

    for part in parts:
        step, rest = divmod(part[0], POSITION_STEP) if isinstance(part, tuple) else (0, 1)
        is_plain = not rest and isinstance(part, tuple) and not part[1]
        if is_plain and run is not None and step == run[0] + run[1] + 1:
            run = (run[0], run[1] + 1)
            continue
        close()
        run = (step, 0) if is_plain else None
        if isinstance(part, str):
            words.append(part)
        elif not is_plain:
            place = f"{part[0]}u" if rest else str(step)
            words.append(f"{place}~{part[1]}" if part[1] else place)
    close()
    return " ".join(words)


def read_parts(text: str) -> list[Part]:
    """Return the parts that write_parts wrote."""
    from chatapp.models import POSITION_STEP

    parts: list[Part] = []
    for word in text.split():
        found = _STORED.fullmatch(word)
        if found is None:
            parts.append(word)
            continue
        at, unit, more, content = found.groups()
        first = int(at) * (1 if unit else POSITION_STEP)
        steps = range(int(more or 0) + 1)
        parts += [(first + step * POSITION_STEP, content or "") for step in steps]
    return parts


def move_places(session_id: UUID, moved: Mapping[int, int]) -> None:
    """Have the records of a session name messages by the positions that they moved to."""
    rows = AnswerRequest.objects.filter(session_id=session_id, message__isnull=False)
    batch: list[AnswerRequest] = []
    for row in rows.iterator(chunk_size=BATCH):
        made: dict[str, Any] = row.made_of or {}
        for key in _OF_PLACES:
            if key in made:
                made[key] = write_parts(
                    part if isinstance(part, str) else (moved.get(part[0], part[0]), part[1])
                    for part in read_parts(made[key])
                )
        batch.append(row)
        if len(batch) == BATCH:
            AnswerRequest.objects.bulk_update(batch, ["made_of"])
            batch = []
    AnswerRequest.objects.bulk_update(batch, ["made_of"])
