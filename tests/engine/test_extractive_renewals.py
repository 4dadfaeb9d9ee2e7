"""A statement of what holds from now on takes the older one's place, in twelve languages.

The words that say so are of time, of change, of replacing and of leaving. None of them is enough:
both statements have to be about the same, and in doubt both stay.
"""

from __future__ import annotations

import pytest

from compaction.engine.extractive.renewals import renewed, says_now
from tests.engine.extractive_support import talk, units_in

RENEWED = [
    (
        "The nightly export writes to the bucket atlas-raw.",
        "From now on the nightly export writes to atlas-curated.",
    ),
    (
        "Our team lead is Henrik Olsen.",
        "Henrik Olsen has left; Marta Lindqvist is our team lead as of Monday.",
    ),
    (
        "The retention period is 30 days.",
        "Legal came back: the retention period will be 45 days instead of 30.",
    ),
    ("We log everything with Fluentd.", "Vector has taken the place of Fluentd."),
    ("The kickoff takes place in room Cedar.", "The kickoff takes place in room Maple, not Cedar."),
    (
        "The gateway listens on port 8443.",
        "The gateway doesn't listen on port 8443 any more, it's 9443.",
    ),
    ("Unsere Mails verschickt der Dienst Brevo.", "Brevo wurde durch Mailjet ersetzt."),
    (
        "Die Praxis hat dienstags bis 18 Uhr offen.",
        "Ab sofort hat die Praxis dienstags nur noch bis 16 Uhr offen.",
    ),
    (
        "Den Vertrag betreut Frau Seidel.",
        "Den Vertrag betreut künftig Herr Brandt statt Frau Seidel.",
    ),
    ("Die Tests laufen auf Jenkins.", "Die Tests laufen von nun an auf Drone."),
    ("Mein Zug geht um 7:42.", "Mein Zug geht doch erst um 8:12."),
    ("Notre hébergeur est Gandi.", "Désormais, notre hébergeur est Scaleway."),
    (
        "La salle de réunion est la salle Monet.",
        "La salle Degas remplace la salle Monet pour la réunion.",
    ),
    (
        "Le cours de yoga commence à 18h30.",
        "Le cours de yoga ne commence plus à 18h30 mais à 19h15.",
    ),
    (
        "La base tourne sous MariaDB.",
        "On a laissé tomber MariaDB, la base tourne sous CockroachDB.",
    ),
    ("El repositorio está en Bitbucket.", "A partir de ahora el repositorio está en Codeberg."),
    ("La factura la revisa Lucía Ortega.", "Ya no la revisa Lucía Ortega; la revisa Pablo Ibarra."),
    ("El plazo de entrega es de 12 días.", "El plazo de entrega pasa a ser de 20 días."),
    ("Usamos Trello para las tareas.", "Linear sustituye a Trello para las tareas."),
    ("Il corriere è Bartolini.", "D'ora in poi il corriere è Poste."),
    ("La cache è su Memcached.", "Dragonfly sostituisce Memcached per la cache."),
    (
        "L'appuntamento dal dentista è giovedì 14.",
        "L'appuntamento dal dentista non è più giovedì 14 ma venerdì 22.",
    ),
    ("Il budget è 4.000 euro.", "Il budget sale a 5.500 euro."),
    ("O nosso fornecedor é a Altice.", "De agora em diante o nosso fornecedor é a Vodafone."),
    (
        "O servidor de testes é o orion-2.",
        "O servidor de testes deixou de ser o orion-2, passou a ser o vega-5.",
    ),
    ("A consulta é às 15h30.", "Afinal a consulta é às 16h45."),
    ("De back-ups staan op Backblaze.", "Voortaan staan de back-ups op Wasabi."),
    (
        "Onze boekhouder is Pieter de Graaf.",
        "Anouk Visser vervangt Pieter de Graaf als onze boekhouder.",
    ),
    ("De les begint om 19:00.", "De les begint niet meer om 19:00 maar om 20:15."),
    ("Отчёты лежат в Dropbox.", "Отныне отчёты лежат в Nextcloud."),
    ("Наш менеджер — Ольга Крылова.", "Вместо Ольги Крыловой наш менеджер теперь Денис Громов."),
    ("Порт прокси 3128.", "Порт прокси больше не 3128, а 8118."),
    ("我们的缓存用的是Memcached。", "我们的缓存现在用的是Valkey。"),
    ("项目负责人是李明。", "李明不再负责这个项目了,项目负责人是王芳。"),
    ("監視ツールはZabbixです。", "これからは監視ツールはGrafanaです。"),
    ("集合時間は9時です。", "集合時間は9時ではなくて10時半になりました。"),
    ("배포 도구는 Jenkins입니다.", "이제부터 배포 도구는 ArgoCD입니다."),
    ("회의는 3시에 시작합니다.", "회의는 더 이상 3시가 아니라 4시에 시작합니다."),
    ("خادم البريد هو Postfix.", "من الآن فصاعدا خادم البريد هو Exim."),
    ("The standup is at 9:15.", "We moved the standup from 9:15 to 10:00."),
    ("The fee is $12.", "The fee rose from $12 to $15."),
    ("We store photos in Dropbox.", "We gave up Dropbox and store photos in Ente."),
    ("Alerts go to Opsgenie.", "Moving forward alerts go to Betterstack."),
    ("Der Server steht in Halle 4.", "Der Server ist von Halle 4 in Halle 9 umgezogen."),
    ("Wir nutzen Asana.", "Notion hat Asana abgelöst."),
    ("Le code est sur Bitbucket.", "Le code a migré de Bitbucket vers Forgejo."),
    ("Ma banque est Revolut.", "Ma banque est maintenant Boursorama."),
    ("La oficina está en Calle Mayor.", "La oficina se ha mudado de Calle Mayor a Gran Vía."),
    ("El límite es 50 MB.", "El límite ha pasado de 50 MB a 80 MB."),
    ("Il cane si chiama Fido.", "Il cane si chiama Argo, non Fido."),
    ("Il medico è Paolo Ricci.", "Paolo Ricci è andato in pensione, il medico è Laura Serra."),
    ("O código fica no GitLab.", "Movemos o código do GitLab para o Gitea."),
    ("A reunião é na sala Tejo.", "A reunião passa para a sala Douro."),
    ("De docent is Bram Kuipers.", "Bram Kuipers is weg, de docent is nu Eva Smits."),
    ("De prijs is 25 euro.", "De prijs is van 25 naar 29 euro gegaan."),
    ("Офис на улице Мира.", "Офис переехал с улицы Мира на улицу Чехова."),
    ("Ставка 12%.", "Ставка выросла с 12% до 15%."),
    ("价格是128元。", "价格从128元涨到158元。"),
    ("料金は3000円です。", "料金は3500円になりました。"),
    ("담당자는 이수진입니다.", "앞으로 담당자는 최현우입니다."),
    ("المدير هو سامي.", "من الآن فصاعدا المدير هو كريم."),
]
APART = [
    ("Room 12 seats 40 people.", "Room 31 no longer seats 20 people but 25."),
    ("The staging cluster uses Calico.", "From now on the production cluster uses Cilium."),
    ("Anna's flight leaves at 9:20.", "From now on Ben's flight leaves at 11:45."),
    (
        "The invoices go to accounting@birch.example.",
        "The contracts now go to legal@birch.example.",
    ),
    (
        "We rented the cabin in Aspen for 900 dollars.",
        "The new car costs 24,000 dollars instead of 26,000.",
    ),
    (
        "Ticket OPS-118 is assigned to Priya.",
        "Ticket OPS-240 is no longer assigned to Marco, but to Lena.",
    ),
    ("The API key is rotated by Vault.", "Terraform replaces Ansible for the network."),
    ("Der Drucker steht in Raum 112.", "Der Plotter steht ab sofort in Raum 240."),
    ("Meine Schwester wohnt in Bremen.", "Mein Bruder wohnt jetzt in Kassel."),
    ("Der Newsletter geht über Brevo.", "Mailjet ersetzt Sendgrid für die Rechnungen."),
    ("Das Lager hat 40 Plätze.", "Künftig hat die Kantine 60 Plätze."),
    ("Le parking coûte 80 euros.", "Désormais, la cantine coûte 9 euros."),
    ("La formation a lieu à Nantes.", "Le séminaire n'a plus lieu à Lille mais à Rennes."),
    ("Paul utilise Emacs.", "Claire utilise désormais Zed."),
    ("El taller de Sevilla dura 3 horas.", "A partir de ahora la visita dura 2 horas."),
    ("La web usa Svelte.", "Flutter sustituye a Ionic en la app."),
    ("La palestra chiude alle 22:00.", "D'ora in poi la piscina chiude alle 20:30."),
    ("Il sito gira su Netlify.", "Kafka sostituisce RabbitMQ per gli eventi."),
    ("O ginásio abre às 7h00.", "A partir de agora a biblioteca abre às 9h30."),
    ("A Joana mora em Braga.", "O Rui deixou de morar em Faro, mora em Évora."),
    ("De frontend draait op Vercel.", "Voortaan draait de wachtrij op Fly."),
    ("Mijn auto staat in garage P2.", "Mijn fiets staat niet meer in P4 maar in P7."),
    ("Сайт работает на Nginx.", "Отныне почта работает на Exim."),
    ("Аня живёт в Казани.", "Теперь Олег живёт в Перми."),
    ("前端用的是Vue。", "后端现在用的是Gin。"),
    ("小李住在杭州。", "小王现在住在成都。"),
    ("経理はfreeeを使っています。", "これからは人事はSmartHRを使います。"),
    ("東京の店は9時に開きます。", "今は大阪の店は11時に開きます。"),
    ("프런트엔드는 React를 씁니다.", "이제부터 백엔드는 Ktor를 씁니다."),
    ("서울 사무실은 5층입니다.", "이제 부산 사무실은 9층입니다."),
    ("الموقع يعمل على Apache.", "من الآن فصاعدا البريد يعمل على Exim."),
    ("The train to York rose in price from $12 to $15.", "The bus fee rose from $9 to $11."),
    ("Bea gave up coffee.", "Tom gave up sugar and drinks tea."),
    ("Halle 4 hat Strom.", "Der Kran ist von Halle 2 in Halle 9 umgezogen."),
    ("La réunion RH a lieu à 14h00.", "Le déjeuner aura finalement lieu à 13h30."),
    ("Il gatto si chiama Fido.", "Il cane si chiama Argo, non Rex."),
    ("门票是128元。", "停车费从8元涨到10元。"),
    ("会場は渋谷ホールです。", "今後、受付は新宿ビルです。"),
    ("점심은 3만원입니다.", "저녁이 4만원에서 5만원으로 올랐습니다."),
    ("Ставка по кредиту 12%.", "Комиссия выросла с 1% до 2%."),
    ("De tuin kost 25 euro.", "De kaart is van 20 naar 29 euro gegaan."),
]


@pytest.mark.parametrize(("old", "new"), RENEWED)
def test_the_newer_statement_takes_the_older_ones_place_and_says_so(old, new):
    found = units_in(*talk(old, new))
    assert [unit.text for unit in found] == [new]
    assert found[0].note.startswith("replaces ")


@pytest.mark.parametrize(("first", "second"), APART)
def test_statements_about_two_things_both_stay(first, second):
    found = units_in(*talk(first, second))
    assert [unit.text for unit in found] == [first, second]
    assert not any(unit.note for unit in found)


@pytest.mark.parametrize("text", ["Now book the room Amber.", "Jetzt buche Raum 4.", "Nu boeken."])
def test_an_order_that_begins_with_now_says_nothing_of_what_holds(text):
    assert not says_now(text)


def test_the_same_words_in_another_order_are_the_same_statement():
    value = renewed("Die Orgel steht in Halle 4.", "Ab sofort steht die Orgel in Halle 9.")
    assert value is not None
    assert value.text == "4"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The wall in Oslo is green.", "From now on the wall in Bergen is green."),
        ("Ticket 88 is closed.", "As of today ticket 91 is closed."),
        ("The app supports German.", "From now on the app supports French."),
        ("We also sell tea.", "From now on we also sell coffee."),
    ],
)
def test_what_is_spoken_of_is_no_value(old, new):
    assert renewed(old, new) is None
