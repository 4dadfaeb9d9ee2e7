"""Where a session's branch stands, as tables: numbers that are stored, no message is read."""

from __future__ import annotations

from typing import Any

from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.parts import Table
from chatapp.context import text_tokens, tools_tokens
from chatapp.models import Session
from compaction.admin import words
from compaction.admin.acting import REFUSALS
from compaction.admin.tables import when
from compaction.models import CompactionProfile
from compaction.services.describe import branch_facts
from compaction.services.situation import Situation, situation_of


def standing_tables(session: Session) -> list[Table]:
    """Return state and token account of the active branch, or one sentence why there are none."""
    try:
        situation = situation_of(session)
        return [state_table(situation), account_table(situation)]
    except REFUSALS as refusal:
        return [Table(title="Compaction", columns=(), rows=[], empty=str(refusal))]


def state_table(situation: Situation) -> Table:
    """Return cursor, profile, lease and the next trigger."""
    facts, state = branch_facts(situation), situation.state
    covered = "Nothing yet."
    if state.cursor:
        covered = (
            f"Up to position {cells.place(state.cursor)}: {state.covered_messages:,} messages, "
            f"{state.covered_tokens:,} tokens."
        )
    rows: list[tuple[str, Any]] = [
        ("Summarised", covered),
        ("Last compaction", when(state.last_consolidated_at)),
        ("Profile", profile_link(situation.profile_row)),
        ("Now", activity(situation)),
        ("Due", words.reason_words(facts["due"]) if facts["due"] else "No trigger is due."),
        *((words.rule_words(rule["reason"]), trigger_words(rule)) for rule in facts["triggers"]),
    ]
    return Table(title="Compaction of the active branch", columns=(), rows=rows)


def profile_link(profile: CompactionProfile) -> SafeString | str:
    """Return a link to the profile in force."""
    return cells.row_link(profile)


def trigger_words(rule: dict[str, Any]) -> str:
    """Return how far away a trigger is."""
    return f"{rule['now']:,} of {rule['limit']:,}; {rule['left']:,} to go"


def activity(situation: Situation) -> str:
    """Return who works on the branch, what waits, and what failed."""
    state, sentences = situation.state, []
    if state.is_consolidating:
        sentences.append(f"A worker compacts it; its lease ends {when(state.lease_expires_at)}.")
    if state.pending:
        sentences.append("It will be looked at again after that.")
    if state.failures:
        times = "run" if state.failures == 1 else "runs"
        sentences.append(f"The last {state.failures} {times} failed.")
    if situation.backs_off:
        sentences.append(f"Automatic runs wait until {when(state.backoff_until)}.")
    return " ".join(sentences) or "Nobody works on it."


def account_table(situation: Situation) -> Table:
    """Return where the tokens of the next request go, from stored sums."""
    session, model, facts = situation.session, situation.model, situation.facts
    parts = [
        ("System prompt", text_tokens(model, session.system_prompt)),
        ("Tools", tools_tokens(model, session.tools)),
        ("Summaries", situation.summary_tokens),
        ("Messages since the last summary", facts.tokens),
        ("Kept free for the answer", situation.reserve),
    ]
    window = model.context_window
    used = sum(tokens for _, tokens in parts)
    parts.append(("Free", max(0, window - used)))
    note = f"The model's window holds {window:,} tokens."
    if used > window:
        note += f" The next request is {used - window:,} tokens too large and is compacted first."
    return Table(
        title="Tokens of the next request",
        columns=("Part", "Tokens", "Of the window"),
        note=note,
        rows=[
            (name, cells.number(tokens), cells.bar(tokens, window, f"{name}: {tokens:,} tokens"))
            for name, tokens in parts
        ],
    )
