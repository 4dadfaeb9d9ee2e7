"""A model's kindness takes no room in a summary: nobody goes on from it."""

from __future__ import annotations

import random

import pytest

from compaction.engine.extractive.pleasantries import is_pleasantry
from tests.engine.extractive_support import section, summarize, talk
from tests.facts import code

KIND = (
    "Hi Jason, nice to meet you!",
    "You're welcome, Jason.",
    "I'm just an AI companion with no physical form.",
    "That sounds wonderful, I'm glad to hear it!",
    "I hope you have a lovely trip.",
    "Don't worry, you can do it!",
    "Is there anything else? I'm happy to help.",
    "Das freut mich, viel Erfolg!",
    "C'est génial, bon courage !",
    "De nada, mucha suerte.",
    "Не за что, удачи!",
    "不用谢，祝你早日康复。",
    "我是你的AI伴侣，有什么可以帮你的吗？",
    "どういたしまして、頑張ってください。",
    "천만에요, 힘내세요!",
)
TELLING = (
    "Don't worry, the backup runs on the second server every night.",
    "That sounds good, the museum opens at 9:30.",
    "I hope you packed the blue adapter and the spare battery for the drone.",
    "I understand your question: the lease ends when the roof is repaired.",
    "Das freut mich, der Schlüssel liegt unter der Matte neben der Tür.",
    "不用谢，钥匙放在门口的蓝色盒子里面，记得带上。",
    "The trip is planned with the night train and a cabin for two.",
    # What was done, found and advised, in few words.
    "No problem, I cancelled the flight.",
    "No problem was found in the logs.",
    "You're welcome, Anna called.",
    "Don't worry, the fever is harmless.",
    "Congratulations, the permit was granted.",
    "Take care: the stove is hot.",
    "You must take care of the boiler.",
    "Happy to confirm the refund.",
    "Let me know if the pump leaks.",
    "If you need any antihistamine, take cetirizine.",
    "That is a good price for the boat.",
    "It is good practice to rotate keys.",
    "The clinic is closed, enjoy the park.",
    "The clinic is closed and I hope you have a lovely trip.",
    "You have a leak in the café.",
    "Yes, enjoy your trip!",
    "Gern geschehen, der Flug ist storniert.",
    "De rien, le vol est annulé.",
    "Prego, il volo è cancellato.",
    "De nada, el vuelo está cancelado.",
    "Не за что, рейс отменён.",
    "别担心，护照找到了。",
    "不客气，已退款。",
    "你需要先加油。",
)


@pytest.mark.parametrize("text", KIND)
def test_what_is_kind_and_says_nothing_is_a_pleasantry(text):
    assert is_pleasantry(text)


@pytest.mark.parametrize("text", TELLING)
def test_what_says_something_beside_it_is_none(text):
    assert not is_pleasantry(text)


def test_small_talk_is_kept_for_what_was_said_in_it():
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    rng = random.Random(seed)
    told = [
        f"My {thing} is called {code(rng.randrange(10_000))}."
        for thing in ("dog", "boat", "band", "street", "school", "choir", "garden", "team")
    ]
    said = [text for pair in zip(told, rng.sample(KIND[:9], 8), strict=True) for text in pair]
    texts = [f"assistant: {text}" if n % 2 else text for n, text in enumerate(said)]
    made = summarize(*talk(*texts), target_tokens=160, ratio=1.0).text
    kept = [text for text in told if text in made]
    assert len(kept) >= 6
    assert not any(text in made for text in KIND)


@pytest.mark.parametrize("kind", ["No problem", "You're welcome", "Don't worry"])
def test_what_a_model_did_is_kept_beside_its_kind_words(kind):
    told = f"{kind}, I cancelled the ferry."
    made = summarize(
        *talk(
            "We take the ferry at nine, the tickets are with Odile.",
            "assistant: The pier is the second one behind the fish market.",
            "We would rather go by train, please see to the ferry.",
            f"assistant: {told}",
        ),
        target_tokens=200,
        ratio=1.0,
    ).text
    assert f"- [assistant] {told}" in made.splitlines()


def test_a_models_goodbye_is_no_last_state():
    made = summarize(
        *talk(
            "We take the ferry at nine, the tickets are with Odile.",
            "assistant: The pier is the second one behind the fish market.",
            "We will walk there then.",
            "assistant: You're welcome, have a lovely trip!",
        ),
        target_tokens=200,
        ratio=1.0,
    ).text
    assert section(made, "Last state") == ["- We will walk there then."]
