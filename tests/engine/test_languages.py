"""Which language a text is in: sure, or unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.fidelity.languages import LANGUAGES, UNKNOWN, language_of

SENTENCES = {
    "en": "The customer asked for a refund, and it is not clear who has to pay for the trip.",
    "de": "Der Kunde möchte das Geld zurück, und es ist noch nicht klar, wer den Versand bezahlt.",
    "fr": "Le client veut être remboursé et il ne sait pas encore qui doit payer le transport.",
    "es": "El cliente quiere que se le devuelva el dinero, pero no está claro quién paga el envío.",
    "pt": "O cliente não quer a máquina e pediu o dinheiro, mas você ainda não sabe quem paga.",
    "it": "Il cliente non vuole la macchina e chiede il rimborso della spesa, ma non si sa come.",
    "nl": "De klant wil het geld terug en het is nog niet duidelijk wie voor de reis moet betalen.",
    "ru": "Клиент просит вернуть деньги, но пока не ясно, кто из нас должен заплатить за доставку.",
    "ar": "يريد العميل أن يسترد المال من الشركة لكن لا أحد يعرف من يدفع ثمن الشحن في هذا البلد",
    "zh": "客户要求退款，但是还没有说清楚运费由谁来付，我们明天再和他确认。",
    "ja": "お客様は返金を希望していますが、送料を誰が払うのかはまだ決まっていません。",
    "ko": "고객이 환불을 요청했지만 배송비를 누가 낼지는 아직 정해지지 않았습니다.",
}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_plain_sentence_is_known(language):
    assert language_of(SENTENCES[language]) == language


def test_there_is_a_sentence_for_each_language():
    assert set(SENTENCES) == LANGUAGES


@pytest.mark.parametrize(
    "text",
    [
        "Kunden vill ha pengarna tillbaka och det är inte klart vem som ska betala för frakten.",
        "Kunden vil have pengene tilbage, og det er ikke klart, hvem der skal betale for fragten.",
        "Klient chce zwrotu pieniędzy, ale nie jest jasne, kto ma zapłacić za przesyłkę do domu.",
        "Клієнт хоче повернути гроші, але ще не ясно, хто має заплатити за доставку.",
        "Клиентът иска парите си обратно, но още не е ясно кой ще плати за доставката.",
        "مشتری پول خود را پس می‌خواهد ولی هنوز معلوم نیست چه کسی هزینه را می‌پردازد",
        "Ο πελάτης θέλει τα χρήματά του πίσω, αλλά δεν είναι σαφές ποιος πληρώνει.",
    ],
)
def test_a_language_that_is_not_listed_stays_unknown(text):
    assert language_of(text) == UNKNOWN


@pytest.mark.parametrize("text", ["", "   ", "OK.", "无", "## Facts", "- 17:30", "的", "🎉🎉🎉"])
def test_a_scrap_stays_unknown(text):
    assert language_of(text) == UNKNOWN


def test_names_and_identifiers_alone_are_of_no_language():
    text = "Goldman Sachs, OncoPharm, Nexa; ORD-4471-X, src/app/main.py, https://example.com/the/of/and"

    assert language_of(text) == UNKNOWN


def test_chinese_with_many_english_names_is_chinese():
    text = "我们决定用 PostgreSQL 和 Redis，不用 RabbitMQ。请把 Kubernetes 的配置也改一下。"

    assert language_of(text) == "zh"


def test_chinese_with_numbers_between_its_characters_is_chinese():
    assert language_of("我们5月3日在第2个车站见面，票价是35元，别忘了带护照。") == "zh"


def test_half_one_language_and_half_another_is_unknown():
    assert language_of(f"{SENTENCES['en']} {SENTENCES['ru']}") == UNKNOWN


def test_english_that_quotes_a_chinese_name_is_english():
    assert language_of(f"{SENTENCES['en']} The shop is called 绿禾.") == "en"


def test_an_english_text_without_function_words_is_unknown():
    assert (
        language_of("Refund pending. Transport unpaid. Machine scratched. Warranty void.")
        == UNKNOWN
    )


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_has_an_answer(text):
    assert language_of(text) in {*LANGUAGES, UNKNOWN}


def test_a_lone_surrogate_does_no_harm():
    assert language_of(f"\ud800{SENTENCES['de']}\udfff") == "de"
