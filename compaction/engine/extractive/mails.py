"""Where a message has a mail that somebody else wrote, and where its sender speaks again.

Who pastes a mail often closes it with nothing: their own words are the last paragraph. A mail can
end with an order, too, which is nobody's request. What tells them apart is who speaks: the user
asks for something to be done with the mail, or speaks of its writer as "her" or "them"; a sentence
that names an address or a secret, asks to delete or send something, gives a right away or says what
is to be done always or never, stays the mail's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import sentence_spans

LONGEST_REQUEST = 600
"""Characters of the paragraph behind a mail that can be the user's own."""
_HEAD = lazy_pattern(
    r"^(?:from|von|de|da|van|от|发件人|差出人|보낸 ?사람|من) ?[:：] ?[^\n@]{0,200}@[^\n]{1,200}$",
    re.I | re.M,
)
_DASHES = lazy_pattern(r"^[-_=]{3,}[ \t]*$", re.M)
_MAIL = r"(?:e-?mails?|mails?|messages?|letters?|thread)"
_OF_READER = lazy_pattern(
    # What is to be done with the mail, and what its reader asks for themselves.
    rf"\b(?:summari[sz]e|translate|proofread|explain|rephrase|shorten|answer) "
    rf"(?:this|that|the|her|his|their) {_MAIL}\b"
    r"|\b(?:what|how) (?:should|do|can|could|would|shall|must) i (?:\w+ )?(?:answer|reply|respond|"
    r"say|write)\b"
    r"|\b(?:draft|write|compose|prepare|suggest) (?:me )?(?:a|an) (?:\w+ ){0,2}(?:reply|answer|"
    r"response)\b"
    r"|\bwas soll ich (?:\w+ ){0,2}(?:antworten|schreiben)\b"
    r"|\b(?:übersetz|fass|beantwort|erklär)\w{0,3} (?:bitte )?diese (?:e-?)?mail\b"
    r"|\b(?:schreib|entwirf|formulier|verfass)\w{0,2} (?:mir |bitte ){0,2}eine "
    r"(?:\w+ ){0,2}antwort\b"
    r"|\brédige[rz]?(?:-moi)? une (?:\w+ ){0,2}réponse\b"
    r"|\b(?:résume[rz]?|tradui\w{1,4}) ce (?:mail|courriel|message)\b"
    r"|\bque (?:dois|puis)-je (?:(?:lui|leur) )?(?:répondre|écrire)\b"
    r"|\b(?:redacta|escribe) una (?:\w+ )?respuesta\b"
    r"|\bqué (?:les? )?(?:debo|puedo) (?:responder|contestar)(?:les?)?\b"
    r"|\b(?:resume|traduce) este (?:correo|mensaje)\b"
    r"|\bscrivi una (?:\w+ )?risposta\b|\b(?:riassumi|traduci) questa mail\b"
    r"|\bcosa (?:le |gli )?(?:devo|posso) risponder(?:e|le|gli)\b"
    r"|\bescreve uma (?:\w+ )?resposta\b|\bo que (?:lhe )?(?:devo|posso) responder\b"
    r"|\b(?:resume|traduz) este (?:e-?mail|correio)\b"
    r"|\bwat moet ik (?:\w+ ){0,2}antwoorden\b|\bvertaal deze mail\b"
    r"|\bчто мне (?:ей |ему |им )?(?:ответить|написать)\b|\b(?:переведи|перескажи) это письмо\b"
    r"|(?:总结|翻译)(?:一下)?这封|我(?:该|应该)怎么回"
    r"|このメールを(?:要約|翻訳|訳)|何と返(?:事|信)|返信を書いて"
    r"|이 메일을? (?:요약|번역)|뭐라고 답장|답장을? 써",
    re.I,
)
_OF_WRITER = lazy_pattern(
    # In a mail, "him" may be anybody: such a sentence counts behind a name that closes it.
    r"\b(?:answer|reply to|respond to|write (?:back )?to) (?:her|him|them)\b"
    r"|\bantworte (?:ihr|ihm|ihnen)\b|\bréponds?(?:-| )(?:lui|leur)\b|\brépondez-(?:lui|leur)\b"
    r"|\b(?:respóndele|contéstale)s?\b|\brispondi(?:gli|le)\b|\bresponde-lhe\b"
    r"|\b(?:antwoord|schrijf) (?:haar|hem|hen)\b|\b(?:haar|hem|hen) een (?:\w+ )?antwoord "
    r"schrijven\b|\bответь (?:ей|ему|им)\b|回复[她他]",
    re.I,
)
_SIGNED = lazy_pattern(r"\n[ \t]*[^\W\d_][^\n.!?:;,。！？]{0,38}\n\s*$")
_OF_ORDER = lazy_pattern(
    r"@|https?:|/\w+/|\b(?:passwords?|passwd|secrets?|tokens?|api[- ]?keys?|credentials?|keys?|"
    r"instructions?|system prompt|delete|remove|wipe|forward|transfer|wire|pay|execute|passwort\w*|"
    r"schlüssel|lösch\w*|überweis\w*|mot de passe|supprime\w*|contraseñas?|borra\w*|clave|segreto|"
    r"cancella\w*|senhas?|apaga\w*|wachtwoord\w*|verwijder\w*|парол\w*|удали\w*|ключ\w*|"
    # What is to hold for good, what gives rights away, and who speaks of "the user".
    r"never|always|from now on|niemals|nie|immer|jamais|toujours|nunca|siempre|sempre|nooit|altijd|"
    r"никогда|всегда|grants?|granting|approves?|uploads?|installs?|runs?|access|admin\w*|zugriff|"
    r"accès|acceso|accesso|acesso|toegang|доступ\w*|the (?:user|assistant)|(?:der|dem) nutzer|"
    r"l['’]utilisateur|el usuario|l['’]utente|o usuário|de gebruiker|пользовател\w*)\b"
    r"|密[码钥]|删除|转账|不要告诉|永远|权限|数据库|パスワード|削除|常に|決して|비밀번호|삭제|항상|절대",
    re.I,
)


def mail_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield mails from their first line up to a line of dashes, else to the end of the text.

    Of the last paragraph, the sentences of who pasted the mail are left out.
    """
    head = _HEAD.search(text)
    while head:
        closed = _DASHES.search(text, head.end())
        if closed is None:
            start = head.start()
            for first, last in _own_sentences(text, head.end()):
                yield start, first
                start = last
            yield start, len(text)
            return
        yield head.start(), closed.start()
        head = _HEAD.search(text, closed.end())


def _own_sentences(text: str, since: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences of the last paragraph that speak of the mail and its writer."""
    end = len(text.rstrip())
    start = text.rfind("\n\n", since, end) + 2
    if start < since + 2 or end - start > LONGEST_REQUEST:
        return
    is_signed = bool(_SIGNED.search(text, since, start))
    for first, last in sentence_spans(text[start:end]):
        sentence = text[start + first : start + last]
        is_own = _OF_READER.search(sentence) or (is_signed and _OF_WRITER.search(sentence))
        if is_own and not _OF_ORDER.search(sentence):
            yield start + first, start + last
