"""Texts that answer, apologise, plan or ask instead of summarising, and texts that only look so."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.fidelity.replies import (
    ANSWERS,
    FEWEST_NAMED,
    NAMES_NOTHING,
    reply_instead,
)
from compaction.engine.types import Item, SummaryRequest
from tests import real_data
from tests.fakes.summarizers import WordCounter

SHARE_OF_REPLIES = 0.7
SHARE_OF_SUMMARIES = 0.02


def request_of(*texts: str, **changes) -> SummaryRequest:
    items = tuple(
        Item(id=n, role="assistant" if n % 2 else "user", text=text, position=n)
        for n, text in enumerate(texts)
    )
    return SummaryRequest(kind="chunk", items=items, **changes)


TRAVEL = request_of(
    "Book PX-4471 for Alice Johnson.",
    "Booked for 2026-03-14 at the Hotel Adler.",
    "Mail it to alice@example.com and to /srv/travel/list.csv.",
    "Both have it, under QR-5582.",
    "The budget is 2,350 EUR.",
    "Noted, the budget is 2,350 EUR at most.",
    "Which train goes to Vienna?",
    "The night train goes to Vienna.",
)
SMALL = request_of("Where is the key?", "On the table.", "Thanks!", "You're welcome.")


@pytest.mark.parametrize(
    "text",
    [
        "Sure! You should take the night train; shall I book it for you now?",
        "Sure! You should take the night train to Vienna with PX-4471.",
        "I'm sorry, I can't help with that.",
        "I am unable to summarise this.",
        "I will now summarise the conversation about PX-4471.",
        "I'll book it at once.",
        "Let me know if you want me to book it.",
        "Please provide the dates of your journey.",
        "Would you like me to book the night train?",
        "You could take the night train.",
        "Klar! Nimm den Nachtzug.",
        "Soll ich den Nachtzug für Sie buchen?",
        "Möchten Sie, dass ich den Zug buche?",
        "Je vais réserver le train de nuit.",
        "Souhaitez-vous que je réserve ?",
        "¿Quieres que reserve el tren?",
        "Por favor, proporciona más datos.",
        "Você gostaria de reservar o trem?",
        "Vuoi che prenoti il treno?",
        "Wilt u dat ik de trein boek?",
        "Хотите, я забронирую поезд?",
        "您可以乘坐夜班火车。",
        "请提供更多信息。",
        "もちろん、予約します。",
        "물론이죠, 예약하겠습니다.",
        "هل تريد أن أحجز القطار؟",
    ],
)
@pytest.mark.parametrize("request_", [TRAVEL, SMALL])
def test_what_begins_as_a_reply_is_one(text, request_):
    assert reply_instead(text, request_) == ANSWERS


@pytest.mark.parametrize(
    "text",
    [
        "Take the night train to Vienna; it leaves in the evening, so you will have the whole day.",
        "The night train to Vienna would be best for you. Anything else?",
        "Nimm am besten den Nachtzug nach Vienna, dann hast du den ganzen Tag.",
    ],
)
def test_what_knows_the_last_turn_alone_and_speaks_to_somebody_is_a_reply(text):
    assert reply_instead(text, TRAVEL) == ANSWERS


@pytest.mark.parametrize(
    "text",
    [
        "The user asked many questions and all of them were answered politely.",
        "A journey was planned and the details of it were settled step by step.",
        "Several hotels and 12 trains were compared before the choice was made.",
    ],
)
def test_what_names_nothing_of_much_is_no_summary(text):
    assert reply_instead(text, TRAVEL) == NAMES_NOTHING
    # Where hardly anything was named, there is nothing to name.
    assert reply_instead(text, SMALL) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Booked PX-4471 for a journey to Vienna.",
        "The journey of alice was booked; her hotel is the adler, and she has the list.",
        "The user asked for a train to Vienna; the budget is 2,350 EUR.",
        "The list lies in /srv/travel/list.csv, and which train to take is open.",
        # Weak models are polite before they do what they were asked for.
        "Sure! Here is the summary:\nAlice Johnson travels on 2026-03-14 under QR-5582.",
        "Certainly, here's the summary of everything so far:\n\n## Facts\n- PX-4471 was booked",
        # A report of a plan, an apology, a question.
        "The assistant apologised for the delay of QR-5582 and promised to book.",
        "- I'm sorry, but I can't come on Friday\n- QR-5582",
        "## State\nThe conversation goes on.",
        # Prose beside a ledger names messages by their numbers.
        "The journey is planned [3], and the train to take was asked for last [7].",
        # Too short to tell it from a title.
        "First prose.",
        "",
    ],
)
def test_what_may_be_a_summary_counts(text):
    assert reply_instead(text, TRAVEL) == ""


def test_the_summary_before_counts_as_what_was_named():
    carried = request_of("Go on.", "Done.", previous=" ".join(f"PX-{n}" for n in range(4471, 4481)))
    assert reply_instead("The work went on and it is done by now.", carried) == NAMES_NOTHING
    assert reply_instead("PX-4475 went on and it is done by now.", carried) == ""


def test_a_merge_is_held_against_the_texts_it_joins():
    texts = ("PX-4471, PX-4472, PX-4473, PX-4474", "PX-4475, PX-4476, PX-4477, PX-4478")
    merge = SummaryRequest(kind="merge", texts=texts)
    assert reply_instead("Both parts were about the orders of somebody.", merge) == NAMES_NOTHING
    assert reply_instead("Both parts were about the orders, PX-4477 too.", merge) == ""


@pytest.mark.skipif(not real_data.is_there(), reason=real_data.ABSENT)
def test_real_replies_are_told_from_chosen_sentences():
    """Hold what the limits of replies.py were chosen by, on those that are not for tuning."""
    replies, summaries = [], []
    for one in real_data.conversations():
        if real_data.split(one.name) == "tune":
            continue
        items = real_data.to_items(one.messages)
        for request, reply in _places(items):
            if _named_before(request.items) >= FEWEST_NAMED:
                replies.append(bool(reply_instead(reply, request)))
                chosen = ExtractiveSummarizer(counter=WordCounter()).summarize(request)
                summaries.append(bool(reply_instead(chosen.text, request)))
    assert len(replies) > 30
    assert sum(replies) / len(replies) >= SHARE_OF_REPLIES
    assert sum(summaries) / len(summaries) <= SHARE_OF_SUMMARIES


def _named_before(items):
    """Return how many things were named before the last turn, and not in it."""
    recent = "\n".join(item.text for item in items[-2:]).casefold()
    texts = (item.text for item in items[:-2])
    keys = {one.key for text in texts for one in find_entities(text) if len(one.key) > 2}
    return sum(key not in recent for key in keys)


def _places(items):
    """Yield what stood before an answer of a model to its user, and the answer."""
    asked = [
        n
        for n, item in enumerate(items)
        if n > 6 and item.role == "assistant" and item.text.strip() and items[n - 1].role == "user"
    ]
    for n in asked[len(asked) // 2 :: max(1, len(asked) // 4)]:
        before = items[max(0, n - 60) : n]
        yield SummaryRequest(kind="chunk", items=before, target_tokens=150), items[n].text
