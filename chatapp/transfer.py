"""Files become sessions: what is stored of parsed conversations, and what a second import adds."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend, notify
from chatapp.extensions import export_parts
from chatapp.formats import UnknownFormatError, parse
from chatapp.formats.records import (
    NO_LIMITS,
    Conversation,
    FileLimits,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
)
from chatapp.import_batches import ReadableConversation, batches, readable
from chatapp.import_trees import CountedAhead, TreeImporter, draft_of, parted_by_stored
from chatapp.llm.tokens import ModelTokenCounter
from chatapp.messages.vendor import without_imported
from chatapp.messages.wire import Cleaner
from chatapp.models import Message, Session
from chatapp.selectors import counter_of
from chatapp.spooled_files import SpooledFile

logger = logging.getLogger(__name__)
MAX_TITLE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one conversation became: its session, how many rows were added, whether it is new."""

    session: Session
    format: str
    messages_added: int
    created: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as the API and the command's JSON lines show it."""
        return {
            "session": str(self.session.pk),
            "title": self.session.title,
            "format": self.format,
            "messages_added": self.messages_added,
            "created": self.created,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file became, and what was left out of it, line by line."""

    imported: list[Imported]
    problems: ProblemList


# What became of some conversations, each in its place; None where nothing of one can be stored.
Results = Sequence[Imported | None]


# Called with the results of some conversations and what was left out of them.
Note = Callable[[Results, ProblemList], None]


def _nobody(results: Results, problems: ProblemList) -> None:
    """Tell nobody: the default."""


def import_file(
    *,
    owner: Any,
    content: bytes | SpooledFile,
    name: str = "",
    model: str = "default",
    limits: FileLimits = NO_LIMITS,
) -> ImportReport:
    """Store every conversation of a file; importing it twice adds nothing.

    Raises chatapp.formats.UnknownFormatError where the content is no known format, or nothing of it
    can be stored, TooMuchInFileError where it holds more than the limits allow. Each conversation
    is stored whole or not at all.
    """
    parsed = parse(content, name=name, limits=limits)
    problems = problems_of(parsed)
    imported: list[Imported] = []
    for batch in batches(parsed.conversations):
        results = import_batch(batch, owner=owner, model=model, problems=problems)
        imported += [one for one in results if one is not None]
    if not imported:
        raise nothing_stored(problems)
    return ImportReport(imported=imported, problems=problems)


def problems_of(parsed: ParsedFile) -> ProblemList:
    """Return what was wrong with a file, for more to be added."""
    problems = ProblemList(parsed.problems)
    problems.left_out += parsed.problems_left_out
    return problems


def nothing_stored(problems: ProblemList) -> UnknownFormatError:
    """Return the error for a file of which no conversation can be stored."""
    why = problems[0].text if problems else ""
    return UnknownFormatError(f"Nothing of the file can be stored. {why}".strip())


def import_batch(
    conversations: Sequence[Conversation],
    *,
    owner: Any,
    model: str,
    problems: ProblemList,
    note: Note = _nobody,
) -> Results:
    """Store some conversations, or what they have more than the sessions made from them earlier.

    All of them are stored, or none; `note` is called in their transaction. A conversation that has
    messages, none of which can be stored, becomes no empty session.
    """
    unstorable = ProblemList()
    ready = [readable(conversation, unstorable) for conversation in conversations]
    batch = _Batch(owner=owner, model=model, readable=ready)
    try:
        results, found = batch.store(unstorable, note)
    except IntegrityError:  # another import of the same file was a moment faster
        results, found = batch.store(unstorable, note)
    problems += found
    changed = [one.session for one in results if one is not None and one.messages_added]
    if changed:
        notify(context_backend.sessions_imported, changed)
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Conversations that are stored in one transaction, for one owner."""

    owner: Any
    model: str
    readable: Sequence[ReadableConversation]

    def store(self, unstorable: ProblemList, note: Note) -> tuple[Results, ProblemList]:
        """Store them; return what they became, and the problems with those that are added.

        Raises IntegrityError where one of them was stored meanwhile.
        """
        problems = ProblemList(unstorable)
        known = self._known()
        plain = [one for one in self.readable if one.key not in known and one.is_plain]
        prepared = transcript.prepare_sessions(
            [
                transcript.NewSession(
                    columns=self._columns(one), messages=[draft_of(each) for each in one.messages]
                )
                for one in plain
            ]
        )
        counter = CountedAhead(counter_of(Session(model=self.model)))
        for one in self.readable:
            if one.key not in known and not one.is_plain:
                counter.count_all(one.messages)
        with transaction.atomic():
            made = dict(zip((one.key for one in plain), prepared.store(), strict=True))
            results = [self._result(one, made, known, problems, counter) for one in self.readable]
            note(results, problems)
        return results, problems

    def _known(self) -> dict[str, Session]:
        """Return the sessions that earlier imports made of these conversations, by their keys."""
        keys = [one.key for one in self.readable]
        rows = Session.objects.select_related("active_branch")
        found = rows.filter(owner=self.owner, import_key__in=keys)
        return {str(session.import_key): session for session in found}

    def _result(
        self,
        one: ReadableConversation,
        made: Mapping[str, Session],
        known: Mapping[str, Session],
        problems: ProblemList,
        counter: ModelTokenCounter,
    ) -> Imported | None:
        if one.is_nothing:
            return None
        if one.key in known:
            return _import_rest(known[one.key], one.conversation, one.messages, problems)
        session = made.get(one.key)
        if session is None:
            session = _import_tree(one, self._columns(one), problems, counter)
        return Imported(
            session=session,
            format=one.conversation.format,
            messages_added=len(one.messages),
            created=True,
        )

    def _columns(self, one: ReadableConversation) -> dict[str, Any]:
        """Return the columns of a new session."""
        conversation, clean = one.conversation, Cleaner()
        about = _imported(conversation, one.messages) | (
            {"source_model": conversation.model} if conversation.model else {}
        )
        return {
            "owner": self.owner,
            "import_key": one.key,
            "title": clean.text(conversation.title)[:MAX_TITLE_CHARS],
            "model": self.model,
            "system_prompt": clean.text(conversation.system_prompt),
            "tools": clean.json(list(conversation.tools)),
            "metadata": clean.json(conversation.metadata | about),
        }


def _import_tree(
    one: ReadableConversation,
    columns: dict[str, Any],
    problems: ProblemList,
    counter: ModelTokenCounter,
) -> Session:
    """Store a conversation that has branches, or parts of apps, as a new session."""
    session = transcript.create_session(**columns)
    importer = TreeImporter(session, one.messages, counter)
    importer.plant(one.conversation.leaf)
    found = _take_back(session, one.conversation, importer.ids())
    problems += [Problem(line=0, text=sentence) for sentence in found]
    return session


def _take_back(session: Session, conversation: Conversation, ids: Sequence[UUID]) -> list[str]:
    """Hand the apps' parts back to the apps; return sentences about what they could not take.

    This happens before anybody hears of the session, because the parts belong to it.
    """
    if not conversation.parts:
        return []
    if len(ids) != len(conversation.messages):
        named = ", ".join(sorted(conversation.parts.keys() & export_parts().keys()))
        return [f"Not all messages could be stored, and so nothing of: {named}."] if named else []
    sentences: list[str] = []
    for name, part in export_parts().items():
        if name not in conversation.parts:
            continue
        try:
            with transaction.atomic():
                sentences += part.take_back(session.branch, ids, conversation.parts[name])
        # Whatever an app does with what a stranger wrote: the messages are stored.
        except Exception:
            logger.exception("The part %s of session %s was not taken back.", name, session.pk)
            sentences.append(f"“{name}” was left out: it could not be stored. The log says why.")
    return sentences


def _imported(conversation: Conversation, messages: Sequence[ImportedMessage]) -> dict[str, Any]:
    """Return what a session's metadata remembers of the file it came from."""
    return {"import": _fingerprint(messages) | {"format": conversation.format}}


def _import_rest(
    session: Session,
    conversation: Conversation,
    messages: list[ImportedMessage],
    problems: ProblemList,
) -> Imported:
    """Append what a file has gained since it was imported, unless the session has gone on."""
    before = session.metadata.get("import", {})
    count = int(before.get("messages", 0))
    earlier, added = messages[:count], messages[count:]
    same = _fingerprint(earlier)["digest"] == before.get("digest")
    if not same:
        earlier, added = parted_by_stored(session, messages)
        same = _fingerprint(earlier)["digest"] == before.get("digest")
    if not same or (added and not _is_untouched(session, earlier)):
        why = "other messages came in here" if same else "its earlier messages differ"
        problems.append(
            Problem(
                line=0,
                text=f"“{session.title}” was imported before and {why}; nothing was added to it.",
            )
        )
        added = []
    if added:
        with transaction.atomic():
            TreeImporter(session, added).plant_rest(conversation.leaf)
            session.metadata = session.metadata | _imported(conversation, messages)
            session.updated_at = timezone.now()
            session.save(update_fields=["metadata", "updated_at"])
    return Imported(
        session=session, format=conversation.format, messages_added=len(added), created=False
    )


def _is_untouched(session: Session, messages: Sequence[ImportedMessage]) -> bool:
    """Whether the session has no other messages than these, which were imported before.

    Placeholders are not counted: a session that was made smaller meanwhile may still grow.
    """
    stored = Message.objects.filter(session=session, kind__in=Message.SPOKEN).count()
    return stored == sum(message.kind in Message.SPOKEN for message in messages)


def _fingerprint(messages: Iterable[ImportedMessage]) -> dict[str, Any]:
    """Return how many messages there are and a digest of them, in the file's order."""
    digest, count = hashlib.sha256(), 0
    for message in messages:
        said = [without_imported(message.wire), message.summary]
        text = json.dumps(said, sort_keys=True, default=str)
        digest.update(text.encode("utf-8", "replace"))
        count += 1
    return {"messages": count, "digest": digest.hexdigest()}
