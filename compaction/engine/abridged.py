"""The abridged history: of each question the words, what was done for it, and the answer.

An entry is made from the messages of one question, up to the next one. Entries are stored with a
summary, and those of the next one are made of them and of what is new, so that the cost is that of
the new messages. Their texts are stored as they were written and are escaped when they are sent: no
text opens or closes a tag. Sizes are characters (code points).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compaction.engine import importance
from compaction.engine.extractive.sentences import encodable, printable
from compaction.engine.parameters import Profile
from compaction.engine.rendering import escape_node_tags
from compaction.engine.strategies.actions import KnownFiles
from compaction.engine.tool_actions import COMMAND, Act, Tools, acts_of_items, results_of, tools_of
from compaction.engine.types import Files, Item

ANSWERED, INTERRUPTED, CONTINUES = "answered", "interrupted", "continues"
STATES = (ANSWERED, INTERRUPTED, CONTINUES)
DOTS = "..."
LEAST_STORED_CHARS = 2_000
"""Of a text; where a profile's limit is higher, so much. A later profile may show more than this
one does."""
MOST_COMMANDS = 1_000
"""Of one entry; the oldest ones are forgotten."""
COMMAND_CHARS = 1_000
IMAGE_MARK = "[image]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is kept of one question: its words, what was done for it, and the answer.

    Files are sorted and stand in one list each: created ones not among the modified, viewed ones
    in no other. `commands` are those that were run, in their order, repeated ones too. `state` is
    one of STATES; `position` is that of the question. `score` and `why` say what it is worth.
    `names` are the identifiers, numbers, paths and addresses in its texts, as they are compared:
    None where nobody has looked for them, as in entries of earlier programs.
    """

    user: str = ""
    modified: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    viewed: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    response: str = ""
    state: str = CONTINUES
    score: float = 0.0
    why: tuple[str, ...] = ()
    position: int = 0
    names: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what JSON can hold; what is empty is left out."""
        found: dict[str, Any] = {"state": self.state, "position": self.position}
        for name in ("user", "response", *_LISTS, "why"):
            if value := getattr(self, name):
                found[name] = list(value) if isinstance(value, tuple) else value
        if self.score:
            found["score"] = round(self.score, 3)
        if self.names is not None:
            found["names"] = list(self.names)
        return found


_LISTS = ("modified", "created", "deleted", "viewed", "commands")


def entry_from_json(value: object) -> Entry | None:
    """Return the entry that JSON holds; None where it is none, or damaged."""
    if not isinstance(value, Mapping):
        return None
    texts: dict[str, Any] = {name: value.get(name, "") for name in ("user", "response")}
    lists: dict[str, Any] = {name: value.get(name, []) for name in (*_LISTS, "why")}
    numbers: dict[str, Any] = {"position": value.get("position"), "score": value.get("score", 0.0)}
    names = value.get("names")
    if (
        value.get("state") not in STATES
        or not all(isinstance(text, str) for text in texts.values())
        or not all(_are_texts(found) for found in lists.values())
        or not (names is None or _are_texts(names))
        or not all(_is_number(number) for number in numbers.values())
        or not isinstance(numbers["position"], int)
    ):
        return None
    tuples: dict[str, Any] = {name: tuple(found) for name, found in lists.items()}
    tuples["names"] = None if names is None else tuple(names)
    return Entry(state=value["state"], **texts, **tuples, **numbers)


_TEXT = {str}


def _are_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and set(map(type, value)) <= _TEXT


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


# --- from messages --------------------------------------------------------------------------------


def entries_of(
    items: Sequence[Item],
    *,
    earlier: Sequence[Entry] = (),
    profile: Profile,
    pinned: frozenset[int] = frozenset(),
) -> list[Entry]:
    """Return an entry a question, oldest first: the `earlier` ones and those of the items.

    The last earlier one goes on with what stands before the first question of the items. `pinned`
    are positions of messages. All entries get their score anew, since what they name may be named
    again by the new ones; texts are read of the new ones and of the last earlier one alone, the
    others say what they name.
    """
    tools = tools_of(profile.tool_actions)
    drafts = [_EntryDraft(entry) for entry in earlier[-1:]]
    acts = dict(acts_of_items(items, tools))
    for index, item in enumerate(items):
        if item.is_question:
            drafts.append(_EntryDraft(Entry(position=item.position)))
        elif not _counts(item):
            continue
        elif not drafts:
            # A conversation that begins without a question has an entry without one.
            drafts.append(_EntryDraft(Entry(position=item.position)))
        drafts[-1].take(item, index, acts.get(index, []))
    results = results_of(items)
    found = [*earlier[:-1]]
    for draft in drafts:
        found.append(draft.entry(results, profile, pinned, tools, is_last=draft is drafts[-1]))
    return _weighed(found)


def _counts(item: Item) -> bool:
    return item.role in ("assistant", "tool") and not item.is_note


class _EntryDraft:
    """An entry in the making, perhaps one that goes on from an earlier summary."""

    def __init__(self, entry: Entry) -> None:
        self._before = entry
        self._places: list[tuple[int, Item]] = []
        self._user, self._response = entry.user, entry.response
        self._commands = list(entry.commands)
        created = frozenset(entry.created)
        self._files = KnownFiles(
            Files(
                read=entry.viewed,
                modified=tuple(sorted({*entry.modified, *created})),
                created=entry.created,
                deleted=entry.deleted,
            )
        )

    def take(self, item: Item, index: int, acts: Sequence[Act]) -> None:
        """Add one message of the exchange, and what its calls do."""
        self._places.append((index, item))
        if item.is_question:
            self._user = _asked(item)
        elif item.role == "assistant" and not item.tool_calls and item.text.strip():
            self._response = item.text.strip()
        self._files.take(acts)
        commands = [_command(act.target) for act in acts if act.done == COMMAND]
        self._commands += filter(None, commands)

    def entry(
        self,
        results: Mapping[tuple[int, int], Item],
        profile: Profile,
        pinned: frozenset[int],
        tools: Tools,
        *,
        is_last: bool,
    ) -> Entry:
        """Return the entry as it stands; `why` holds the signals of its own items."""
        files, created = self._files.files, frozenset(self._files.files.created)
        words = importance.signals_of(self._places, results, pinned=pinned, tools=tools)
        return replace(
            self._before,
            user=_stored(self._user, profile.abridged_user_message_chars_limit),
            modified=tuple(path for path in files.modified if path not in created),
            created=files.created,
            deleted=files.deleted,
            viewed=files.read,
            commands=tuple(self._commands[-MOST_COMMANDS:]),
            response=_stored(self._response, profile.abridged_agent_response_chars_limit),
            state=ANSWERED if self._response else CONTINUES if is_last else INTERRUPTED,
            why=tuple(dict.fromkeys([*self._before.why, *words])),
            names=None,
        )


def _asked(item: Item) -> str:
    """Return a question's words; an image that they do not name has a mark."""
    marks = [IMAGE_MARK] * item.images if IMAGE_MARK[:-1] not in item.text else []
    return "\n".join(filter(None, [item.text.strip(), *marks]))


def _stored(text: str, limit: int) -> str:
    return truncate_middle(encodable(text).replace("\x00", ""), max(limit, LEAST_STORED_CHARS))


def _command(text: str) -> str:
    return truncate_middle(printable(text), COMMAND_CHARS)


def _weighed(entries: Sequence[Entry]) -> list[Entry]:
    names = [_names_of(one) for one in entries]
    found = []
    for entry, named, again in zip(entries, names, importance.named_again(names), strict=True):
        score, why = importance.weighed(entry.why, again)
        is_known = (entry.score, entry.why, entry.names) == (score, why, named)
        found.append(entry if is_known else replace(entry, score=score, why=why, names=named))
    return found


def _names_of(entry: Entry) -> tuple[str, ...]:
    """Return what an entry names, sorted: looked for once, then kept with it."""
    if entry.names is not None:
        return entry.names
    return tuple(sorted(importance.things_named(_texts(entry))))


def without_names(entry: Entry) -> Entry:
    """Return an entry whose names are looked for again: for one whose texts were changed."""
    return replace(entry, names=None)


def _texts(entry: Entry) -> tuple[str, ...]:
    lists = (getattr(entry, name) for name in _LISTS)
    return entry.user, entry.response, *("\n".join(found) for found in lists)


# --- as text --------------------------------------------------------------------------------------


def truncate_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters: its beginning, three dots and its end."""
    if len(text) <= max(0, limit):
        return text
    if limit <= len(DOTS):
        return DOTS[: max(0, limit)]
    kept = limit - len(DOTS)
    front = kept // 2
    return f"{text[:front]}{DOTS}{text[len(text) - kept + front :]}"


def abridged_text(
    entries: Sequence[Entry], profile: Profile, texts: dict[int, str] | None = None
) -> str:
    """Return the entries as they are sent: at most as many characters as the profile allows.

    What does not fit is left out (kept_entries); the newest entry is shortened, and left out only
    where its tags alone are longer than that. `texts` keeps what entries are as text, by their
    places, for who asks for several lengths.
    """
    return "\n".join(text for _, text in _chosen(entries, profile, texts))


def kept_entries(
    entries: Sequence[Entry], profile: Profile, texts: dict[int, str] | None = None
) -> list[Entry]:
    """Return the entries that are sent, in order of time: those that are worth storing.

    They are chosen by score, of equal ones the newest; without `importance` the newest in a row.
    """
    return [entry for entry, _ in _chosen(entries, profile, texts)]


def _chosen(
    entries: Sequence[Entry], profile: Profile, texts: dict[int, str] | None
) -> list[tuple[Entry, str]]:
    texts = {} if texts is None else texts
    room = profile.abridged_total_chars_limit
    if not entries or room <= 0:
        return []
    newest = len(entries) - 1
    shown = {newest: _shortened(entries[newest], profile, room)}
    if not shown[newest]:
        return []
    order = list(range(newest - 1, -1, -1))
    if profile.importance:
        order.sort(key=lambda index: -entries[index].score)
    left = room - len(shown[newest])
    for index in order:
        # With the shortest entry there is no room for any other: nothing more is made into text.
        if left <= len(_user_block("")):
            break
        if index not in texts and _least_size(entries[index], profile) < left:
            texts[index] = entry_text(entries[index], profile)
        text = texts.get(index)
        if text is not None and len(text) < left:
            shown[index] = text
            left -= len(text) + 1
        elif not profile.importance:
            break
    return [(entries[index], shown[index]) for index in sorted(shown)]


def _least_size(entry: Entry, profile: Profile) -> int:
    """Return how many characters an entry has at least as text: most are too long for what is left.

    What is done to its words makes them longer, or cuts them at the limit.
    """
    user = min(len(entry.user), max(0, profile.abridged_user_message_chars_limit))
    response = min(len(entry.response), max(0, profile.abridged_agent_response_chars_limit))
    return user + response + len(_user_block(""))


def entry_text(entry: Entry, profile: Profile) -> str:
    """Return one entry as it is sent, within the profile's limits for its parts."""
    user, response = _cut_texts(entry, profile)
    ending = _ending(response, entry.state)
    return _joined(_user_block(user), _actions_block(entry, profile), ending)


def _shortened(entry: Entry, profile: Profile, room: int) -> str:
    """Return an entry of at most `room` characters: less of its answer, its actions, its words.

    Where not even its tags have room it is empty.
    """
    text = entry_text(entry, profile)
    if len(text) <= room:
        return text
    user, response = _cut_texts(entry, profile)
    block, ending = _user_block(user), _ending("", entry.state)
    actions = _actions_block(entry, profile)
    left = room - len(_joined(block, actions, _response_block("")))
    if response and left > len(DOTS):
        return _joined(block, actions, _response_block(truncate_middle(response, left)))
    # The most lines of each list that fit; with fewer the text is never longer.
    most, none = max(_limits(profile).values()), -1
    while none < most:
        half = (none + most + 1) // 2
        actions = _actions_block(entry, profile, most=half)
        if len(_joined(block, actions, ending)) <= room:
            none = half
        else:
            most = half - 1
    if none > 0:
        return _joined(block, _actions_block(entry, profile, most=none), ending)
    left = room - len(_joined(_user_block(""), "", ending))
    # A tag that is cut is no tag: it would open what nothing closes.
    return _joined(_user_block(truncate_middle(user, left)), "", ending) if left >= 0 else ""


def _cut_texts(entry: Entry, profile: Profile) -> tuple[str, str]:
    user = truncate_middle(escape_node_tags(entry.user), profile.abridged_user_message_chars_limit)
    limit = profile.abridged_agent_response_chars_limit
    return user, truncate_middle(escape_node_tags(entry.response), limit)


def _joined(*blocks: str) -> str:
    return "\n".join(filter(None, blocks))


def _user_block(text: str) -> str:
    return f"<user>\n{text}\n</user>"


def _response_block(text: str) -> str:
    return f"<agent_response>\n{text}\n</agent_response>"


def _ending(response: str, state: str) -> str:
    if response:
        return _response_block(response)
    marks = {INTERRUPTED: "<agent_was_interrupted/>", CONTINUES: "<agent_continues/>"}
    return marks.get(state, "")


def _limits(profile: Profile) -> dict[str, int]:
    """Return how many lines each list has, in the order in which the lists stand."""
    return {
        "modified": profile.abridged_num_files_modified,
        "created": profile.abridged_num_files_created,
        "deleted": profile.abridged_num_files_deleted,
        "viewed": profile.abridged_num_files_viewed,
        "commands": profile.abridged_num_terminal_commands,
    }


def _actions_block(entry: Entry, profile: Profile, most: int | None = None) -> str:
    """Return what was done; of each list at most as many lines as the profile or `most` say."""
    lists = []
    for name, limit in _limits(profile).items():
        limit = limit if most is None else min(limit, most)
        what, tag = ("commands", "terminal_commands") if name == "commands" else ("files", "")
        lines = _lines(getattr(entry, name), limit, profile.abridged_action_chars_limit, what)
        if lines:
            tag = tag or f"files_{name}"
            listed = "\n".join(f"        {line}" for line in lines)
            lists.append(f"    <{tag}>\n{listed}\n    </{tag}>")
    return "\n".join(["<agent_actions>", *lists, "</agent_actions>"]) if lists else ""


def _lines(values: Sequence[str], most: int, chars: int, what: str) -> list[str]:
    """Return the first values, each once, and a line that counts the others."""
    if most <= 0 or chars <= 0:
        return []
    unique = list(dict.fromkeys(values))
    lines = [truncate_middle(escape_node_tags(printable(one)), chars) for one in unique[:most]]
    more = len(unique) - most
    return [*lines, f"{DOTS} {more:,} more {what}"] if more > 0 else lines
