"""A format from outside: plain text, one message a line, `who: what`. No JSON is in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chatapp.formats import (
    Conversation,
    Document,
    Export,
    Format,
    ImportedMessage,
    ParsedFile,
    Problem,
    visible_line,
)

TITLE = "# dialogue: "
ROLES = ("user", "assistant")


def recognises(document: Document) -> bool:
    """Whether the first line is a title of this format."""
    return document.text.startswith(TITLE)


def parse(document: Document) -> ParsedFile:
    """The one conversation of the file; other lines are left out and named."""
    title, *lines = document.text.splitlines()
    messages: list[ImportedMessage] = []
    problems = []
    for number, line in enumerate(lines, 2):
        role, colon, content = line.partition(": ")
        if not colon or role not in ROLES:
            problems.append(Problem(line=number, text="Nobody says this line."))
            continue
        wire = {"role": role, "content": content}
        parent = messages[-1].key if messages else None
        messages.append(ImportedMessage(key=str(number), parent=parent, wire=wire))
    name = title.removeprefix(TITLE)
    conversation = Conversation(
        format="toy", identity=f"toy:{name}", title=name, messages=tuple(messages)
    )
    return ParsedFile(format="toy", conversations=(conversation,), problems=tuple(problems))


def write(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One title and its lines after the other."""
    for conversation in conversations:
        yield f"{TITLE}{conversation.title}\n"
        for message in visible_line(conversation):
            yield f"{message.wire['role']}: {message.wire['content']}\n"


FORMAT = Format(
    name="toy",
    label="dialogues (text)",
    endings=(".dialogue",),
    recognises=recognises,
    parse=parse,
    exports=(Export(name="dialogue", ending=".dialogue", media_type="text/plain", write=write),),
    is_json=False,
)
