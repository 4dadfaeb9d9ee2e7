"""Sessions whose trees are worth a picture: one that people grew, and one of 2,000 branches."""

from __future__ import annotations

from typing import Any

from chatapp import transcript
from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.models import SessionSummary
from tests.factories import call, result, store, user

WIDE = 2_000
TRUNK = (
    ("Plan a harvest festival for 300 guests.", "Three halls fit: the barn, the school, the quay."),
    ("Take the barn. What does it lack?", "Water, power for the kitchen, and parking."),
    ("Compare two caterers.", "Linden is cheaper; Quay Street cooks on the spot."),
    ("Take Linden. Write to them.", "Here is the letter, with the numbers and the date."),
    ("Now the music.", "A brass band until eight, then a DJ."),
)


def store_tree(owner: Any) -> Session:
    """Store a conversation that was taken up again at several places."""
    session = transcript.create_session(owner=owner, title="Harvest festival")
    rows = store(session, [wire for pair in TRUNK for wire in _pair(*pair)])
    root = session.branch
    school = _branch(session, rows[1], "The school", *_pair("Take the school.", "It is closed."))
    _branch(session, school[-1], "", *_pair("Ask the mayor.", "The mayor agrees, in writing."))
    _branch(session, school[-1], "", *_pair("Ask the parents.", "They would rather not."))
    quay = _branch(session, rows[4], "Quay Street", call("prices", "p1"), result("p1", "39 each"))
    _branch(session, quay[-1], "中文菜单", *_pair("用中文写菜单。", "好的：南瓜汤、烤鸭、苹果派。"))
    _branch(session, rows[7], "")
    _summary(root, through=rows[3].position)
    _summary(quay[0].branch, through=quay[0].position, kind="branch")
    return session


def store_wide_tree(owner: Any) -> Session:
    """Store a conversation of 2,000 branches: half of them at one place, half all along."""
    session = transcript.create_session(owner=owner, title="Two thousand ways")
    pairs = [_pair(f"Question {n}.", f"Answer {n}.") for n in range(200)]
    rows = store(session, [wire for pair in pairs for wire in pair])
    places = [rows[1 if number % 2 else number % len(rows)] for number in range(WIDE - 1)]
    forks = [
        Branch(
            session=session,
            parent=session.branch,
            kind=Branch.Kind.FORK,
            fork_position=at.position,
            head_position=at.position + POSITION_STEP,
            message_count=at.position // POSITION_STEP + 1,
            token_total=at.tokens_through + 6,
            depth=1,
            jump=session.branch,
        )
        for at in places
    ]
    Branch.objects.bulk_create(forks, batch_size=500)
    answers = [
        Message(
            session=session,
            branch=fork,
            position=fork.head_position,
            role="user",
            content=f"Way {number}: something else.",
            tokens=6,
            tokens_through=fork.token_total,
        )
        for number, fork in enumerate(forks)
    ]
    Message.objects.bulk_create(answers, batch_size=500)
    return session


def _pair(question: str, answer: str) -> list[dict[str, Any]]:
    return [user(question), {"role": "assistant", "content": answer}]


def _branch(session: Session, at: Message, label: str, *wires: Any) -> list[Message]:
    """Store a branch that leaves at a message, and return its messages."""
    before = session.branch
    transcript.activate(session, transcript.fork(session, at=at, label=label))
    rows = store(session, wires)
    transcript.activate(session, before)
    return rows


def _summary(branch: Branch, *, through: int, kind: str = "compaction") -> None:
    SessionSummary.objects.create(
        session_id=branch.session_id,
        branch=branch,
        kind=kind,
        summary_text="The barn was chosen.",
        trigger="manual",
        reason="manual",
        covers_from=POSITION_STEP,
        covers_through=through,
    )
