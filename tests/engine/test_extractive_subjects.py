"""Only what two statements are about the same of is replaced: in doubt both stay.

A wrong replacement loses a fact for ever; one that is missed leaves two values, the newer one last.
"""

from __future__ import annotations

import random

import pytest

from compaction.engine.extractive.renewals import renewed
from compaction.engine.extractive.subjects import SubjectIndex, are_alike
from tests.engine.extractive_support import talk, units_in


def texts(*said: str) -> list[str]:
    return [unit.text for unit in units_in(*talk(*said))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("PR 231 is merged.", "PR 245 is now merged."),
        ("任务31已完成。", "现在任务32已完成。"),
        ("母は大阪に住んでいます。", "父は大阪ではなく京都に住んでいます。"),
        ("앱은 Onyx로 작동합니다.", "웹은 Onyx가 아니라 Amber로 작동합니다."),
        ("Test case TC-17 passes.", "TC-18 now passes."),
        ("User 4711 has access.", "User 4712 now has access too."),
        ("User 4711 has access.", "User 4712 now has access."),
        ("Invoice INV-2041 was paid on 3 May.", "INV-2042 is now paid."),
        ("We pay 300 EUR for hosting.", "We now pay 45 EUR for the domain."),
        ("Our budget is 5000 EUR.", "The rent is not 5000 EUR but 6000 EUR."),
        ("The deposit of 5000 EUR was paid in May.", "The rent is not 5000 EUR but 6000 EUR."),
        (
            "The staging database listens on port 5432.",
            "The proxy should listen on port 6432, not 5432.",
        ),
        ("Der Server nutzt Redis.", "Der Client nutzt nicht Redis, sondern Memcached."),
        ("Staging has 16 GB.", "Production has 32 GB, not 16 GB."),
        ("Staging has 16 GB of memory.", "Production now has 32 GB of memory."),
        ("Ticket 88 ist geschlossen.", "Ticket 91 ist jetzt geschlossen."),
        ("Raum 204 ist frei.", "Jetzt ist Raum 207 frei."),
        ("La factura F-201 está pagada.", "La factura F-202 ahora está pagada."),
        ("Le ticket 45 est fermé.", "Le ticket 46 est maintenant fermé."),
        ("Il server usa Redis.", "Il client non usa Redis, ma Memcached."),
        ("O servidor usa Redis.", "O cliente usa Memcached em vez de Redis."),
        ("De server gebruikt Redis.", "De client gebruikt niet Redis maar Memcached."),
        ("Сервер использует Redis.", "Клиент использует не Redis, а Memcached."),
        ("Заявка 231 закрыта.", "Заявка 245 теперь закрыта."),
        ("服务器使用Redis。", "客户端使用的不是Redis，而是Memcached。"),
        ("用户4711可以登录。", "用户4712现在可以登录。"),
        (
            "サーバーはRedisを使用しています。",
            "クライアントはRedisではなくMemcachedを使用しています。",
        ),
        ("チケット231は完了しました。", "今はチケット245が完了しました。"),
        ("서버는 Redis를 사용합니다.", "클라이언트는 Redis가 아니라 Memcached를 사용합니다."),
        ("티켓 231은 완료되었습니다.", "이제 티켓 245는 완료되었습니다."),
        ("الخادم يستخدم Redis.", "العميل لا يستخدم Redis بل Memcached."),
        ("The app supports German.", "The app now supports French."),
        ("My sister lives in Oslo.", "I don't live in Oslo but in Bergen."),
        ("The backup runs at 02:00.", "The report runs at 03:00, not at 02:00."),
        ("Anna's flight lands at 9:40.", "Ben's flight lands at 10:20, not 9:40."),
        ("Der Drucker steht in Raum 12.", "Der Scanner steht jetzt in Raum 14."),
        ("La cocina cuesta 900 EUR.", "El baño no cuesta 900 EUR sino 1200 EUR."),
        (
            "The API key of Marlow expires on 3 May.",
            "The certificate of Kestrel expires not on 3 May but on 9 May.",
        ),
        ("Build 118 is green.", "As of today build 119 is green."),
        ("We hired Anna.", "We now hired Ben."),
        ("The cache lives on Redis.", "The queue no longer lives on Redis, but on NATS."),
        ("Le serveur tourne sur Onyx.", "Le client ne tourne pas sur Onyx mais sur Amber."),
        ("The search index uses Onyx.", "The payment worker was moved from Onyx to Amber."),
        ("The staging cluster runs v1.2.0.", "The production cluster now runs v1.3.0."),
        ("Door 14 is locked.", "Door 15 is locked now."),
        ("Bug 5521 is fixed.", "Bug 5530 is fixed now."),
        ("Sensor S-81 reports errors.", "Sensor S-82 now reports errors."),
        ("The lease for the van ends on 4 June.", "The lease for the flat now ends on 9 July."),
        ("Update: PR 231 is merged.", "Update: PR 245 is merged."),
        ("Locker 12 belongs to Ilse.", "Locker 13 now belongs to Anselm."),
        ("We ship to Norway.", "We now ship to Iceland."),
        ("The library offers Spanish courses.", "The library now offers Dutch courses."),
        ("My father works at Siemens.", "My mother works at Bosch, not at Siemens."),
        ("Bus 42 stops at Elm Street.", "Tram 9 doesn't stop at Elm Street but at Oak Avenue."),
        ("The red team meets at 10:00.", "The blue team meets at 11:00, not at 10:00."),
        ("The bakery opens at 7:00.", "The pharmacy now opens at 8:00."),
        ("Paket 7781 ist angekommen.", "Paket 7790 ist nun angekommen."),
        ("Die Kaution beträgt 1500 EUR.", "Die Miete beträgt nicht 1500 EUR, sondern 800 EUR."),
        ("Lena wohnt in Bonn.", "Paul wohnt nicht in Bonn, sondern in Kiel."),
        ("Das Backup läuft auf Onyx.", "Das Monitoring läuft jetzt auf Amber."),
        ("Ich kenne Berlin gut.", "Ich kenne jetzt Hamburg gut."),
        ("La commande C-118 est livrée.", "La commande C-119 est désormais livrée."),
        ("La cave est à Lyon.", "Le bureau n'est pas à Lyon mais à Metz."),
        ("Le loyer coûte 700 EUR.", "L'assurance coûte 90 EUR au lieu de 700 EUR."),
        ("El pedido 55 está listo.", "El pedido 56 ahora está listo."),
        ("Mi hermano vive en Lima.", "Mi prima ya no vive en Lima, sino en Quito."),
        ("La tienda abre a las 9:00.", "El banco abre a las 10:00, no a las 9:00."),
        ("L'ordine 301 è pronto.", "L'ordine 302 adesso è pronto."),
        ("Marta lavora a Torino.", "Luca non lavora a Torino ma a Genova."),
        ("A sala 4 está livre.", "A sala 5 agora está livre."),
        ("O hotel fica em Faro.", "O museu não fica em Faro mas em Lagos."),
        ("Kamer 12 is vrij.", "Kamer 14 is nu vrij."),
        ("De winkel zit in Gent.", "De fabriek zit niet in Gent maar in Luik."),
        ("Мастерская находится в Туле.", "Склад находится не в Туле, а в Орле."),
        ("Дверь 4 закрыта.", "Дверь 5 теперь закрыта."),
        ("订单3301已发货。", "订单3302现在已发货。"),
        ("办公室在北京。", "仓库不是在北京，而是在上海。"),
        ("会議室は東京です。", "倉庫は東京ではなく大阪です。"),
        ("注文8812は発送済みです。", "注文8813は現在は発送済みです。"),
        ("창고는 Onyx를 씁니다.", "사무실은 Onyx가 아니라 Amber를 씁니다."),
        ("주문 77이 도착했습니다.", "주문 78이 이제 도착했습니다."),
        ("المصنع يعمل على Onyx.", "المكتب لا يعمل على Onyx بل على Amber."),
        ("الطلب 71 جاهز.", "الطلب 72 الآن جاهز."),
        ("The garage rent is 90 EUR.", "We moved the gym fee from 90 EUR to 60 EUR."),
    ],
)
def test_what_is_said_of_another_thing_replaces_nothing(first, second):
    found = units_in(*talk(first, "assistant: Fine.", second))
    assert first in [unit.text for unit in found]
    assert not any(unit.note for unit in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The budget is 500 EUR.", "The budget is now 700 EUR."),
        ("The mill runs on Onyx.", "The mill now runs on Amber."),
        ("Our API gateway listens on port 8080.", "Our API gateway now listens on port 9090."),
        ("The owner of the garage is Basalt.", "The owner of the garage is now Willow."),
        ("Der Server nutzt Redis.", "Der Server nutzt nicht Redis, sondern Memcached."),
        ("Der Server nutzt Redis.", "Der Server nutzt jetzt Memcached."),
        ("Die Miete beträgt 900 EUR.", "Die Miete beträgt jetzt 950 EUR."),
        ("Wir wohnen in Kiel.", "Wir wohnen jetzt in Bonn."),
        ("Le serveur utilise Redis.", "Le serveur n'utilise pas Redis mais Memcached."),
        ("Le loyer est de 900 EUR.", "Le loyer est maintenant de 950 EUR."),
        ("El servidor usa Redis.", "El servidor usa Memcached en lugar de Redis."),
        ("La reunión es en Madrid.", "La reunión no es en Madrid sino en Sevilla."),
        ("La reunión es en Madrid.", "La reunión ahora es en Sevilla."),
        ("Il server usa Redis.", "Il server non usa Redis, ma Memcached."),
        ("Il negozio è a Lecce.", "Il negozio adesso è a Trento."),
        ("O servidor usa Redis.", "O servidor usa Memcached em vez de Redis."),
        ("A loja fica em Braga.", "A loja agora fica em Porto."),
        ("De server gebruikt Redis.", "De server gebruikt niet Redis maar Memcached."),
        ("De winkel staat in Breda.", "De winkel staat nu in Tilburg."),
        ("Сервер использует Redis.", "Сервер использует не Redis, а Memcached."),
        ("Сервер работает на Onyx.", "Сервер теперь работает на Amber."),
        ("服务器使用Redis。", "服务器使用的不是Redis，而是Memcached。"),
        ("服务器用的是Redis。", "服务器现在用的是Memcached。"),
        ("预算是500元。", "预算现在是700元。"),
        ("サーバーはRedisを使用しています。", "サーバーはRedisではなくMemcachedを使用しています。"),
        ("서버는 Redis를 사용합니다.", "서버는 Redis가 아니라 Memcached를 사용합니다."),
        ("서버는 Node30입니다.", "서버는 이제 Node45입니다."),
        ("الخادم يستخدم Redis.", "الخادم لا يستخدم Redis بل Memcached."),
        ("الخادم على Node30.", "الخادم الآن على Node45."),
        (
            "The staging database listens on port 5432.",
            "The staging database listens on port 6432, not 5432.",
        ),
        ("The rent is 5000 EUR.", "The rent is not 5000 EUR but 6000 EUR."),
        ("The backup runs at 02:00.", "The backup runs at 03:00, not at 02:00."),
        ("I live in Hamburg.", "I now live in Leipzig."),
        ("The cache lives on Redis.", "The cache no longer lives on Redis, but on NATS."),
        ("The hosting costs 300 EUR a month.", "The hosting now costs 320 EUR a month."),
        ("Production has 16 GB.", "Production now has 32 GB."),
        ("The release is planned for 3 May.", "The release is now planned for 9 May."),
        ("Our supplier is Marlow.", "Our supplier used to be Marlow, now it's Kestrel."),
        ("The search index uses Onyx.", "The search index was moved from Onyx to Amber."),
        ("The gate code is 4417.", "The gate code is now 9023."),
        ("My dentist is Moreau.", "My dentist is now Keller."),
        ("The choir rehearses in Hall B7.", "The choir now rehearses in Hall C2."),
        ("The ferry costs 30 EUR.", "The ferry costs 35 EUR, not 30 EUR."),
        ("The invoices go to Marlow.", "The invoices no longer go to Marlow, but to Kestrel."),
        ("We meet at 10:00.", "We meet at 11:00 instead of 10:00."),
        ("The parser is written in Perl.", "The parser isn't written in Perl but in Rust."),
        ("The alarm is set to 6:30.", "The alarm is now set to 7:15."),
        ("The contract ends on 4 June.", "As of today the contract ends on 9 July."),
        ("Nightly jobs run on Onyx.", "Nightly jobs run on Amber, not on Onyx."),
        ("Die Probe ist um 18:00.", "Die Probe ist jetzt um 19:00."),
        ("Unser Lieferant ist Marlow.", "Unser Lieferant ist nicht Marlow, sondern Kestrel."),
        ("Die Schule hat 400 Schüler.", "Die Schule hat inzwischen 430 Schüler."),
        ("Lena wohnt in Bonn.", "Lena wohnt nicht mehr in Bonn, sondern in Kiel."),
        ("Das Archiv liegt auf Onyx.", "Ab heute liegt das Archiv auf Amber."),
        ("Le bureau est à Lyon.", "Le bureau est maintenant à Metz."),
        ("Le loyer coûte 700 EUR.", "Le loyer coûte 750 EUR au lieu de 700 EUR."),
        ("Notre fournisseur est Marlow.", "Notre fournisseur n'est plus Marlow, mais Kestrel."),
        ("Mi prima vive en Lima.", "Mi prima ya no vive en Lima, sino en Quito."),
        ("La clave es 4417.", "La clave ahora es 9023."),
        ("El curso empieza a las 9:00.", "El curso empieza a las 10:00, no a las 9:00."),
        ("Luca lavora a Torino.", "Luca non lavora a Torino ma a Genova."),
        ("O museu fica em Faro.", "O museu não fica em Faro mas em Lagos."),
        ("A senha é 4417.", "A senha agora é 9023."),
        ("De fabriek zit in Gent.", "De fabriek zit niet in Gent maar in Luik."),
        ("De code is 4417.", "De code is nu 9023."),
        ("Склад находится в Туле.", "Склад находится не в Туле, а в Орле."),
        ("Код 4417.", "Код теперь 9023."),
        ("仓库在北京。", "仓库不是在北京，而是在上海。"),
        ("密码是4417。", "密码现在是9023。"),
        ("倉庫は東京です。", "倉庫は東京ではなく大阪です。"),
        ("暗証番号は4417です。", "暗証番号は今は9023です。"),
        ("창고는 Onyx를 씁니다.", "창고는 Onyx가 아니라 Amber를 씁니다."),
        ("비밀번호는 4417입니다.", "비밀번호는 이제 9023입니다."),
        ("المصنع يعمل على Onyx.", "المصنع لا يعمل على Onyx بل على Amber."),
        ("الرمز هو 4417.", "الرمز الآن هو 9023."),
        ("The podcast is hosted by Ilse.", "The podcast is now hosted by Anselm."),
        ("The gym fee is 90 EUR.", "We moved the gym fee from 90 EUR to 60 EUR."),
    ],
)
def test_what_is_said_anew_of_the_same_thing_replaces_it(old, new):
    (*_, last) = found = units_in(*talk(old, "assistant: Fine.", new))
    assert [unit.text for unit in found] == ["Fine.", new]
    assert last.note.startswith("replaces ")


@pytest.mark.parametrize(
    "change",
    [
        "Our budget is not 5000 EUR but 6000 EUR.",
        "Our budget is now 6000 EUR.",
        "Sorry, our budget is 6000 EUR.",
        "We moved our budget from 5000 EUR to 6000 EUR.",
    ],
)
def test_of_all_that_say_a_value_only_what_is_about_the_same_goes(change):
    found = texts(
        "The deposit of 5000 EUR was paid in May.",
        "Our budget is 5000 EUR.",
        "assistant: Noted, the budget is 5000 EUR.",
        "assistant: The deposit was 5000 EUR.",
        change,
    )
    assert found == [
        "The deposit of 5000 EUR was paid in May.",
        "The deposit was 5000 EUR.",
        change,
    ]


def test_a_denial_about_nothing_that_was_said_wipes_nothing():
    said = [
        "Our budget is 5000 EUR.",
        "The deposit of 5000 EUR was paid in May.",
        "The rent is not 5000 EUR but 6000 EUR.",
    ]
    assert texts(*said) == said


@pytest.mark.parametrize("word", ["too", "also", "as well"])
def test_what_holds_as_well_renews_nothing(word):
    assert renewed("The mill is in Oslo.", f"The mill is now in Bergen {word}.") is None


@pytest.mark.parametrize(
    ("older", "newer", "is_same"),
    [
        ({"mill"}, {"mill", "old"}, True),
        ({"staging", "cluster"}, {"production", "cluster"}, False),
        ({"meeting"}, {"meetings"}, True),
        ({"budget"}, {"rent"}, False),
        (set(), {"rent"}, False),
    ],
)
def test_two_subjects_are_one_where_neither_names_what_the_other_does_not(older, newer, is_same):
    assert are_alike(older, newer) is is_same


@pytest.mark.parametrize("seed", range(8))
def test_the_index_finds_all_that_are_alike_and_what_names_no_subject(seed):
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Words of one stem, in two forms, short ones and such that are in most subjects.
    stems = [f"{letter}{chance.choice(('', 'a', 'amb', 'amber'))}" for letter in "cdfghklmnprst"]
    words = [stem + ending for stem in stems for ending in ("", "s", "ed")]
    weights = [chance.random() ** 3 for _ in words]
    drawn = [frozenset(chance.choices(words, weights, k=chance.randrange(9))) for _ in range(400)]
    index = SubjectIndex()
    for number, subject in enumerate(drawn):
        index.add(number, subject)
    gone = set(chance.sample(range(400), 40))
    for subject in drawn[:100]:
        found = {number for number, _ in index.near(subject, gone.__contains__)}
        wanted = {n for n, other in enumerate(drawn) if not other or are_alike(subject, other)}
        assert wanted - gone <= found
        assert not found & gone
