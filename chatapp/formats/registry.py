"""The formats of transcript files: which there are, and how a file of any of them is read.

A format is one module that declares a `Format`. One line of BUILT_IN adds it; so does one line of
the CHATAPP setting FORMATS ({"name": "dotted.path"}), whose names may replace built-in ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from chatapp.conf import chatapp_settings
from chatapp.formats.first_sight import telling
from chatapp.formats.reading import Document, read_file
from chatapp.formats.records import (
    NO_LIMITS,
    Conversation,
    FileLimits,
    ParsedFile,
    Problem,
    ProblemList,
    UnknownFormatError,
    refuse_more,
)
from chatapp.formats.unread import what_it_is
from chatapp.formatting import plural
from chatapp.spooled_files import CODING, SpooledFile

logger = logging.getLogger(__name__)
KEYS_SHOWN = 6

BUILT_IN = {
    "pi": "chatapp.formats.pi.FORMAT",
    "claude_code": "chatapp.formats.claude_code.FORMAT",
    "chatgpt": "chatapp.formats.chatgpt.FORMAT",
    "librechat": "chatapp.formats.librechat.FORMAT",
    "chatbot_ui": "chatapp.formats.chatbot_ui.FORMAT",
    "swe_agent": "chatapp.formats.swe_agent.FORMAT",
    "open_webui": "chatapp.formats.open_webui.FORMAT",
    "oasst": "chatapp.formats.oasst.FORMAT",
    "anthropic": "chatapp.formats.anthropic.FORMAT",
    "gemini": "chatapp.formats.gemini.FORMAT",
    "openai_responses": "chatapp.formats.openai_responses.FORMAT",
    "ui_messages": "chatapp.formats.ui_messages.FORMAT",
    "openai_chat": "chatapp.formats.openai_chat.FORMAT",
}
"""In the order in which they are asked; the most particular first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A form in which conversations are written; `?as=` and `--as` call it by its name.

    `write` yields pieces of text as it takes conversations, so that many need not fit in memory.
    """

    name: str
    ending: str
    media_type: str
    write: Callable[[Iterable[Conversation]], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of transcript files: what people call it, how it is told, read and written.

    `endings` are those of the files that are looked for in folders. `is_json` says that lines which
    are no JSON are damage to be reported. A format without `exports` can only be read.
    """

    name: str
    label: str
    endings: tuple[str, ...]
    recognises: Callable[[Document], bool]
    parse: Callable[[Document], ParsedFile]
    exports: tuple[Export, ...] = ()
    is_json: bool = True


def all_formats() -> tuple[Format, ...]:
    """Return every format in the order in which they are asked; those of plug-ins first."""
    return _load()[0]


def broken_formats() -> tuple[str, ...]:
    """Return a sentence about every entry of FORMATS that cannot be used."""
    return _load()[1]


def all_exports() -> Mapping[str, Export]:
    """Return every form that conversations can be written in by its name, built-in ones first."""
    return {export.name: export for found in all_formats()[::-1] for export in found.exports}


def file_endings() -> list[str]:
    """Return the endings of transcript files, such as `.jsonl`."""
    return sorted({ending for found in all_formats() for ending in found.endings})


@lru_cache(maxsize=1)
def _load() -> tuple[tuple[Format, ...], tuple[str, ...]]:
    added = chatapp_settings.formats
    paths = dict(added) | {name: path for name, path in BUILT_IN.items() if name not in added}
    formats, faults = [], []
    for name, path in paths.items():
        try:
            formats.append(_load_one(name, path))
        except ValueError as error:
            # One broken plug-in does not keep files of other formats out.
            logger.error("%s It is left out.", error)
            faults.append(str(error))
    return tuple(formats), tuple(faults)


def _load_one(name: str, path: str) -> Format:
    """Return the format at a dotted path; raise ValueError with a sentence."""
    try:
        found = import_string(path)
    except Exception as error:  # whatever a plug-in's module does while it is imported
        raise ValueError(f"The format {name!r} cannot be loaded from {path!r}: {error}.") from error
    if not isinstance(found, Format):
        raise ValueError(f"The format {name!r} at {path!r} is no Format.")
    if found.name != name:
        raise ValueError(f"The format {name!r} at {path!r} calls itself {found.name!r}.")
    return found


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "CHATAPP":
        _load.cache_clear()


setting_changed.connect(_reload, dispatch_uid="chatapp.formats.registry")


def parse(
    content: bytes | str | SpooledFile, *, name: str = "", limits: FileLimits = NO_LIMITS
) -> ParsedFile:
    """All conversations of a file in any readable format, and what was not sound in it.

    `name` is only used to speak of the file; the format is found from the content.
    Raises UnknownFormatError with a sentence for the user, TooMuchInFileError with another.
    """
    file, problems = decoded(content)
    called = f"“{name}”" if name else "The file"
    if _is_blank(file):
        raise UnknownFormatError(f"{called} is empty. {_readable()}")
    document = read_file(file, limits=limits)
    nothing: list[str] = []
    for candidate in recognising(document):
        parsed = candidate.parse(document)
        refuse_more(
            len(parsed.conversations),
            limits.conversations,
            what="conversations",
            code="too_many_conversations",
            setting="MAX_IMPORT_CONVERSATIONS",
        )
        damage = document.problems if candidate.is_json else ()
        found = _in_order(problems, damage, parsed.problems)
        conversations, left_out = _readable_ones(parsed.conversations)
        if conversations:
            left_out += found
            return replace(
                parsed,
                conversations=_told_apart(conversations),
                problems=tuple(left_out),
                problems_left_out=left_out.left_out,
                lines=document.lines,
            )
        nothing.append(f"{called} looks like {candidate.label}, but {_why_not(found)}")
    raise UnknownFormatError(f"{[*nothing, f'{called} {_seen(document)}.'][0]} {_readable()}")


def _in_order(*lists: Sequence[Problem]) -> ProblemList:
    """Return the problems of several lists by their lines, the first of them one by one."""
    listed = sorted(chain(*lists), key=lambda problem: problem.line)
    found = ProblemList(listed)
    found.left_out += sum(one.left_out for one in lists if isinstance(one, ProblemList))
    return found


def _readable_ones(
    conversations: Sequence[Conversation],
) -> tuple[list[Conversation], ProblemList]:
    """Return the conversations that hold messages, and a problem for those that do not.

    A system prompt alone is no conversation: a session of it would hold nothing that was said.
    """
    kept = [one for one in conversations if one.messages]
    count = len(conversations) - len(kept)
    if not count:
        return kept, ProblemList()
    which = "A conversation" if count == 1 else f"{count} conversations"
    verb = "was" if count == 1 else "were"
    sentence = f"{which} without a readable message {verb} left out."
    return kept, ProblemList([Problem(line=0, text=sentence)])


def _why_not(problems: ProblemList) -> str:
    if not problems:
        return "it holds no message."
    first, rest = problems[0], len(problems) - 1 + problems.left_out
    more = f" So {'was' if rest == 1 else 'were'} {rest:,} more." if rest else ""
    return f"no message in it can be read. Line or item {first.line}: {first.text}{more}"


def decoded(content: bytes | str | SpooledFile) -> tuple[SpooledFile, tuple[Problem, ...]]:
    """A file as UTF-8 without its byte order mark; undecodable bytes are replaced and told."""
    if isinstance(content, str):
        return SpooledFile([content.removeprefix("\ufeff").encode(*CODING)]), ()
    file, line = SpooledFile.of(content).as_text()
    if line is None:
        return file, ()
    sentence = "Bytes that are not UTF-8 were replaced by “\ufffd”; the first stand in this line."
    return file, (Problem(line=line, text=sentence),)


def _is_blank(file: SpooledFile) -> bool:
    if file.is_large:
        return all(piece.isspace() for piece in file.pieces())
    return not file.size or file.read().decode(*CODING).isspace()


def recognising(document: Document) -> Iterator[Format]:
    """Yield the formats that recognise a file, in the order in which they are asked."""
    sample = telling(document)
    yield from (candidate for candidate in all_formats() if candidate.recognises(sample))


def _told_apart(conversations: Iterable[Conversation]) -> tuple[Conversation, ...]:
    # Two conversations of one file may be word for word the same, and are still two.
    seen: dict[str, int] = {}
    result = []
    for conversation in conversations:
        times = seen[conversation.identity] = seen.get(conversation.identity, 0) + 1
        if times > 1:
            conversation = replace(conversation, identity=f"{conversation.identity}#{times}")
        result.append(conversation)
    return tuple(result)


def _readable() -> str:
    return f"These formats can be read: {', '.join(entry.label for entry in all_formats())}."


def _seen(document: Document) -> str:
    if known := what_it_is(document):
        return known
    if not document.records:
        why = f" Line {document.problems[0].line}: {document.problems[0].text}"
        return f"holds no readable JSON.{why.rstrip('.')}"
    value = document.records[0].value
    if document.is_lines:
        return f"holds JSON lines that are no conversation; the first is {_describe(value)}"
    return f"holds {_describe(value)}, which is no conversation in a known form"


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(str(key)[:40] for key in list(value)[:KEYS_SHOWN])
        more = ", …" if len(value) > KEYS_SHOWN else ""
        return f"an object with the keys {keys}{more}" if keys else "an empty object"
    if isinstance(value, list):
        if not value:
            return "an empty list"
        return f"a list of {plural(len(value), 'item')} that starts with {_kind(value[0])}"
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return _describe(value)
    if value is None:
        return "null"
    names = {list: "a list", str: "a text", bool: "a truth value"}
    # By isinstance: the lists of a large file are of a kind of their own.
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a number")
