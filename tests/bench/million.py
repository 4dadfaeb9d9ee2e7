"""A database with very many rows, made by a handful of statements instead of by the ORM.

    python -m tests.bench.million --messages 1000000

A million messages take a minute so; `python -m tests.bench.fill` makes fewer that are more like
real ones. Session 0 holds an eighth of the messages and no summary, session 1 as many and all but
its end summarised; the others hold 500 each, of which two in three are summarised and one in twenty
goes on in a fork. All sums are right, so that every page and every request works on it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import django

OWNERS = 20
PER_SESSION, STRETCH, FORK_AT, FORK_LENGTH = 500, 50, 300, 40
SUMMARY_TOKENS = 200
# Characters and tokens of six messages in a row: two questions with their answers, one by a tool.
TURN = (
    ("user", 160, 40), ("assistant", 480, 120), ("user", 160, 40),
    ("assistant", 0, 30), ("tool", 1200, 300), ("assistant", 480, 120),
)  # fmt: skip
CALLS = (
    '[{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]'
)
WORDS = "The harbour lies in the south, and the parts are expected there by the end of the week. "
# Rows a second, backwards from now: the newest message of each session is of this minute.
SECONDS_BETWEEN = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was made: the owner of all, and the sessions that a measurement looks at."""

    owners: tuple[Any, ...]
    backlog: UUID
    summarised: UUID
    forked: UUID
    ordinary: UUID
    messages: int


def main(arguments: Sequence[str]) -> int:
    """Migrate, fill, and print how long it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.million", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    started = time.monotonic()
    fill(options.messages, say=print)
    print(f"{options.messages:,} messages in {time.monotonic() - started:.0f} s.")
    return 0


def fill(
    messages: int,
    *,
    backlog: int | None = None,
    summarised: int | None = None,
    salt: str = "",
    say: Callable[[str], object] = lambda line: None,
) -> Filled:
    """Store so many messages with all that belongs to them, and have PostgreSQL gather statistics.

    `backlog` and `summarised` are the sizes of sessions 0 and 1, if not an eighth. At least 20
    others are made, so that each kind is among them. SQLite gathers nothing, as in an installation.
    Another filling of the same database needs another `salt`: ids and names are made with it.
    """
    from chatapp.models import Session

    eighth = max(PER_SESSION, messages // 8)
    filling = _Filling(messages, backlog or eighth, summarised or eighth, salt)
    for work in (
        filling.lay_out, filling.sessions, filling.messages, filling.summaries, filling.links,
        filling.attempts, filling.states, filling.requests, filling.incidents,
    ):  # fmt: skip
        started = time.monotonic()
        work()
        say(f"{work.__name__.replace('_', ' '):<12}{time.monotonic() - started:8.1f} s")
    filling.finish()
    ids = {number: UUID(filling.id_of("s", number)) for number in (0, 1, 7, 2)}
    assert Session.objects.filter(pk__in=ids.values()).count() == len(ids)
    return Filled(
        owners=tuple(filling.owners),
        backlog=ids[0],
        summarised=ids[1],
        forked=ids[7],
        ordinary=ids[2],
        messages=messages,
    )


class _Filling:
    """The statements, one table after the other; what they share stands in temporary tables."""

    def __init__(self, messages: int, backlog: int, summarised: int, salt: str) -> None:
        from django.contrib.auth import get_user_model
        from django.db import connection

        from compaction.profiles import find_profile

        self.connection = connection
        self.is_postgresql = connection.vendor == "postgresql"
        self.backlog, self.summarised, self.salt = backlog, summarised, salt
        self.count = max(20, (messages - backlog - summarised) // PER_SESSION)
        self.end = int(time.time())
        self.profile = find_profile()
        users: Any = get_user_model()._default_manager
        names = [f"filled{salt}{number:02}" for number in range(OWNERS)]
        users.bulk_create([users.model(username=name) for name in names])
        self.owners = list(users.filter(username__in=names).order_by("pk"))

    # --- what differs between the two databases ---

    def id_of(self, kind: str, number: int) -> str:
        """Return the id that `key` makes in the database."""
        from hashlib import md5

        return md5(f"{self.salt}{kind}{number}".encode(), usedforsecurity=False).hexdigest()

    def key(self, kind: str, number: str) -> str:
        made = f"MD5('{self.salt}{kind}' || ({number}))"
        return f"{made}::uuid" if self.is_postgresql else made

    def at(self, seconds_ago: str) -> str:
        when = f"{self.end} - ({seconds_ago})"
        if self.is_postgresql:
            return f"to_timestamp({when})"
        return f"strftime('%%Y-%%m-%%d %%H:%%M:%%S', {when}, 'unixepoch')"

    def _value(self, field: Any) -> Any:
        return field.get_db_prep_save(field.get_default(), self.connection)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)

    def insert(self, model: type, columns: dict[str, str], source: str) -> None:
        """Insert what a SELECT gives; every column that is not named gets the model's default."""
        from django.db.models import AutoField

        fields = {
            field.column: field
            for field in model._meta.concrete_fields  # type: ignore[attr-defined]
            if field.column in columns or not isinstance(field, AutoField)
        }
        assert columns.keys() <= fields.keys(), columns.keys() - fields.keys()
        values = [columns.get(name, "%s") for name in fields]
        given = [self._value(field) for name, field in fields.items() if name not in columns]
        table = model._meta.db_table  # type: ignore[attr-defined]
        names = ", ".join(f'"{name}"' for name in fields)
        text = f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} {source}"
        if self.is_postgresql:
            # A parameter has no type in a SELECT; the columns have one.
            types = {name: field.db_type(self.connection) for name, field in fields.items()}
            cast = [columns.get(name, f"CAST(%s AS {types[name]})") for name in fields]
            text = f"INSERT INTO {table} ({names}) SELECT {', '.join(cast)} {source}"
        self.run(text, given)

    # --- the tables ---

    def lay_out(self) -> None:
        """Say which branch stands where: number, session, first place, first message, size."""
        self.run("DROP TABLE IF EXISTS filled_numbers")
        self.run("DROP TABLE IF EXISTS filled_turn")
        self.run("DROP TABLE IF EXISTS filled_branches")
        self.run("CREATE TEMPORARY TABLE filled_numbers (n INTEGER PRIMARY KEY)")
        self.run(
            "INSERT INTO filled_numbers WITH RECURSIVE up(n) AS "
            "(SELECT 0 UNION ALL SELECT n + 1 FROM up WHERE n + 1 < %s) SELECT n FROM up",
            [max(self.backlog, self.summarised, 2 * self.count + 2)],
        )
        self.run(
            "CREATE TEMPORARY TABLE filled_turn (i INTEGER PRIMARY KEY, said VARCHAR(9), "
            "chars INTEGER, tokens INTEGER, chars_through INTEGER, tokens_through INTEGER)"
        )
        chars = tokens = 0
        for number, (role, length, cost) in enumerate(TURN):
            length = length or len("read_file{}")
            chars, tokens = chars + length, tokens + cost
            row = [number, role, length, cost, chars, tokens]
            self.run("INSERT INTO filled_turn VALUES (%s, %s, %s, %s, %s, %s)", row)
        self.turn_chars, self.turn_tokens = chars, tokens
        self.run(
            "CREATE TEMPORARY TABLE filled_branches (b INTEGER PRIMARY KEY, s INTEGER, "
            "start INTEGER, first BIGINT, size INTEGER, covered INTEGER)"
        )
        first, second, count = self.backlog, self.summarised, self.count
        both, rest = first + second, PER_SESSION - STRETCH
        self.run(
            "INSERT INTO filled_branches SELECT n, n, 0, CASE n WHEN 0 THEN 0 "
            f"WHEN 1 THEN {first} ELSE {both} + (n - 2) * {PER_SESSION} END, "
            f"CASE n WHEN 0 THEN {first} WHEN 1 THEN {second} ELSE {PER_SESSION} END, "
            f"CASE WHEN n %% 3 = 0 THEN 0 WHEN n = 1 THEN ({second} / {STRETCH} - 1) * {STRETCH} "
            f"ELSE {rest} END FROM filled_numbers WHERE n < %s",
            [count + 2],
        )
        forks = both + count * PER_SESSION
        self.run(
            f"INSERT INTO filled_branches SELECT {count + 2} + s, s, {FORK_AT}, "
            f"{forks} + s * {FORK_LENGTH}, {FORK_LENGTH}, 0 FROM filled_branches "
            "WHERE s %% 20 = 7 AND s > 1",
        )

    def _through(self, place: str, column: str) -> str:
        """Return the sum along the path up to a place, counted from 0, by its own row of `turn`."""
        whole = self.turn_chars if column == "chars" else self.turn_tokens
        return f"(({place}) / 6) * {whole} + t.{column}_through"

    def _sums(self, places: str, column: str) -> str:
        """Return the sum over so many places."""
        whole = self.turn_chars if column == "chars" else self.turn_tokens
        rest = f"SELECT {column}_through FROM filled_turn WHERE i = ({places}) %% 6 - 1"
        return f"(({places}) / 6) * {whole} + COALESCE(({rest}), 0)"

    def sessions(self) -> None:
        """Store sessions with their branches, the last one of each active."""
        from chatapp.models import POSITION_STEP, Branch, Session

        owner = f"{self.owners[0].pk} + s %% {OWNERS}"
        assert self.owners[-1].pk == self.owners[0].pk + OWNERS - 1
        ago = f"s * {SECONDS_BETWEEN}"
        self.insert(
            Session,
            {
                "id": self.key("s", "s"), "owner_id": owner, "title": "'Filled ' || s",
                "created_at": self.at(f"{ago} + 86400"), "updated_at": self.at(ago),
                "request_tokens": "1000 + s * 7 %% 90000", "active_branch_id": "NULL",
            },
            "FROM filled_branches WHERE start = 0",
        )  # fmt: skip
        total, step = "start + size", self._big(POSITION_STEP)
        self.insert(
            Branch,
            {
                "id": self.key("b", "b"), "session_id": self.key("s", "s"),
                "kind": "CASE WHEN start = 0 THEN 'root' ELSE 'fork' END",
                "parent_id": f"CASE WHEN start > 0 THEN {self.key('b', 's')} END",
                "jump_id": f"CASE WHEN start > 0 THEN {self.key('b', 's')} END",
                "depth": "CASE WHEN start > 0 THEN 1 ELSE 0 END",
                "fork_position": f"CASE WHEN start > 0 THEN start * {step} END",
                "head_position": f"({total}) * {step}",
                "message_count": total, "token_total": self._sums(total, "tokens"),
                "char_total": self._sums(total, "chars"), "created_at": self.at(ago),
            },
            "FROM filled_branches",
        )  # fmt: skip
        newest = "(SELECT MAX(b) FROM filled_branches f WHERE f.s = o.s)"
        self.run(
            f"UPDATE sessions SET active_branch_id = {self.key('b', newest)} "
            f"FROM filled_branches o WHERE o.start = 0 AND sessions.id = {self.key('s', 'o.s')}"
        )

    def _big(self, number: int) -> str:
        return f"CAST({number} AS BIGINT)"

    def messages(self) -> None:
        """Store all messages, and a placeholder behind what each summary covers."""
        from chatapp.models import POSITION_STEP, Message

        place = "o.start + n"
        step = self._big(POSITION_STEP)
        ago = f"(o.size - n) * 5 + o.s * {SECONDS_BETWEEN}"
        text = WORDS * 20
        spoken = "FROM filled_branches o JOIN filled_numbers ON n < o.size "
        self.insert(
            Message,
            {
                "id": self.key("m", "o.first + n"), "session_id": self.key("s", "o.s"),
                "branch_id": self.key("b", "o.b"), "position": f"({place} + 1) * {step}",
                "role": "t.said", "content": f"SUBSTR('{text}', 1 + n %% 80, t.chars)",
                "tool_calls": f"CASE WHEN t.i = 3 THEN {self._json(CALLS)} END",
                "tool_call_id": "CASE WHEN t.i = 4 THEN 'call_1' ELSE '' END",
                "tool_name": "CASE WHEN t.i = 4 THEN 'read_file' ELSE '' END",
                "tokens": "t.tokens", "chars": "t.chars",
                "tokens_through": self._through(place, "tokens"),
                "chars_through": self._through(place, "chars"),
                "pinned": f"({place}) %% 1000 = 402", "created_at": self.at(ago),
                "finish_reason": "CASE WHEN t.said = 'assistant' THEN 'stop' ELSE '' END",
            },
            f"{spoken} JOIN filled_turn t ON t.i = ({place}) %% 6",
        )  # fmt: skip

    def _json(self, text: str) -> str:
        return f"'{text}'::jsonb" if self.is_postgresql else f"'{text}'"

    def _stretches(self) -> str:
        """Return the FROM of one row for each summary: its branch `o`, its number `j.n`."""
        return (
            "FROM filled_branches o JOIN filled_numbers j "
            f"ON j.n < o.covered / {STRETCH} WHERE o.covered > 0"
        )

    def summaries(self) -> None:
        """Store a summary of each stretch with its run, so that foreign keys find it."""
        from chatapp.models import POSITION_STEP
        from compaction.models import CompactionRun, SessionSummary

        step, number = self._big(POSITION_STEP), "o.b * 100000 + j.n"
        ago = f"(o.size - j.n * {STRETCH}) * 5 + o.s * {SECONDS_BETWEEN}"
        both = {
            "session_id": self.key("s", "o.s"), "branch_id": self.key("b", "o.b"),
            "created_at": self.at(ago), "trigger": "'proactive'", "reason": "'message_limit'",
            "profile_id": f"{self.profile.pk}",
        }  # fmt: skip
        self.insert(
            CompactionRun,
            both | {
                "id": self.key("r", number), "mode": "'background'",
                "status": "CASE WHEN j.n %% 97 = 5 THEN 'failed' ELSE 'succeeded' END",
                "started_at": self.at(ago), "finished_at": self.at(f"{ago} - 4"),
                "spent_tokens": "4000", "model_calls": "1", "input_tokens": "4000",
                "output_tokens": f"{SUMMARY_TOKENS}",
            },
            self._stretches(),
        )  # fmt: skip
        first, last = f"o.first + j.n * {STRETCH}", f"o.first + j.n * {STRETCH} + {STRETCH - 1}"
        self.insert(
            SessionSummary,
            both | {
                "id": self.key("y", number), "run_id": self.key("r", number),
                "status": "'active'", "summary_text": f"'{WORDS * 10}'",
                "summary_tokens": f"{SUMMARY_TOKENS}", "message_count": f"{STRETCH}",
                "covers_from": f"(j.n * {STRETCH} + 1) * {step}",
                "covers_through": f"(j.n + 1) * {STRETCH} * {step}",
                "first_message_id": self.key("m", first), "last_message_id": self.key("m", last),
                "activated_at": self.at(ago), "updated_at": self.at(ago),
            },
            self._stretches(),
        )  # fmt: skip

    def links(self) -> None:
        """Link each summary with the messages that it was made from."""
        from compaction.models import SessionSummaryMessage

        self.insert(
            SessionSummaryMessage,
            {
                "summary_id": self.key("y", f"o.b * 100000 + i.n / {STRETCH}"),
                "message_id": self.key("m", "o.first + i.n"),
            },
            "FROM filled_branches o JOIN filled_numbers i ON i.n < o.covered WHERE o.covered > 0",
        )

    def attempts(self) -> None:
        """Store the step of each run; a few other runs wait in the queue."""
        from compaction.models import CompactionRun, CompactionStep

        number = "o.b * 100000 + j.n"
        self.insert(
            CompactionStep,
            {
                "run_id": self.key("r", number), "kind": "'chunk'", "order": "1",
                "outcome": "'ok'", "message_count": f"{STRETCH}", "input_tokens": "4000",
                "first_message_id": self.key("m", f"o.first + j.n * {STRETCH}"),
                "last_message_id": self.key("m", f"o.first + (j.n + 1) * {STRETCH} - 1"),
                "output": f"'{WORDS * 10}'", "created_at": self.at(f"o.s * {SECONDS_BETWEEN}"),
            },
            self._stretches(),
        )  # fmt: skip
        self.insert(
            CompactionRun,
            {
                "id": self.key("q", "o.b"), "session_id": self.key("s", "o.s"),
                "branch_id": self.key("b", "o.b"), "status": "'queued'", "mode": "'background'",
                "trigger": "'proactive'", "reason": "'message_limit'",
                "profile_id": f"{self.profile.pk}", "created_at": self.at("o.b"),
            },
            "FROM filled_branches o WHERE o.b %% 50 = 3",
        )  # fmt: skip

    def states(self) -> None:
        """Store how far each branch is summarised: a fork as far as its parent was before it."""
        from chatapp.models import POSITION_STEP
        from compaction.models import CompactionState

        covered = (
            "CASE WHEN o.start = 0 THEN o.covered ELSE (SELECT CASE WHEN p.covered < o.start THEN "
            f"p.covered ELSE o.start / {STRETCH} * {STRETCH} END "
            "FROM filled_branches p WHERE p.b = o.s) END"
        )
        self.insert(
            CompactionState,
            {
                "branch_id": self.key("b", "b"), "covered_messages": "c",
                "cursor": f"c * {self._big(POSITION_STEP)}",
                "covered_tokens": self._sums("c", "tokens"),
                "covered_chars": self._sums("c", "chars"),
                "failures": "CASE WHEN b %% 200 = 11 THEN 1 ELSE 0 END",
                "next_check_at": f"CASE WHEN b %% 100 = 13 THEN {self.at('-b * 60')} END",
            },
            f"FROM (SELECT o.b, {covered} AS c FROM filled_branches o) AS known",
        )  # fmt: skip

    def requests(self) -> None:
        """Store what the request of each answer that asks for no tool was made of."""
        from chatapp.answer_requests import DIGEST_CHARS, AnswerRequest

        place = "o.start + n"
        self.insert(
            AnswerRequest,
            {
                "message_id": self.key("m", "o.first + n"), "session_id": self.key("s", "o.s"),
                "digest": f"SUBSTR(MD5('{self.salt}d' || (o.first + n)), 1, {DIGEST_CHARS})",
                "made_of": self._json('{"v": 1, "runs": [[1, 40]], "note": "' + "x" * 240 + '"}'),
                "left_out": "CASE WHEN n %% 900 = 5 THEN 3 END",
                "created_at": self.at(f"(o.size - n) * 5 + o.s * {SECONDS_BETWEEN}"),
            },
            "FROM filled_branches o JOIN filled_numbers ON n < o.size "
            f"WHERE ({place}) %% 6 IN (1, 5)",
        )  # fmt: skip

    def incidents(self) -> None:
        """Store an incident for every fiftieth message."""
        from chatapp.models import Incident

        self.insert(
            Incident,
            {
                "id": self.key("i", "o.first + n"), "session_id": self.key("s", "o.s"),
                "branch_id": self.key("b", "o.b"), "kind": "'retry'", "code": "'busy'",
                "text": "'The server was busy.'",
                "created_at": self.at(f"(o.size - n) * 5 + o.s * {SECONDS_BETWEEN}"),
            },
            "FROM filled_branches o JOIN filled_numbers ON n < o.size AND n %% 50 = 7",
        )  # fmt: skip

    def finish(self) -> None:
        """Forget the temporary tables; let PostgreSQL count what there is."""
        for name in ("numbers", "turn", "branches"):
            self.run(f"DROP TABLE filled_{name}")
        if self.is_postgresql:
            self.run("VACUUM ANALYZE" if not self.connection.in_atomic_block else "ANALYZE")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
