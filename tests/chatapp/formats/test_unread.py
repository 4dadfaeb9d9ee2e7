"""A file that cannot be read is called by its name, and what to do stands beside it."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import pytest

from chatapp.formats import UnknownFormatError, parse

from .conftest import ReadFile
from .test_chatgpt import export, node
from .test_open_webui import chat, message
from .test_trees import as_librechat, as_nested_oasst, long_line


def refusal(content: bytes | str) -> str:
    with pytest.raises(UnknownFormatError) as refused:
        parse(content, name="file")
    sentence = str(refused.value)
    assert sentence.startswith("“file” is ")
    assert "These formats can be read" in sentence
    return sentence


# Two answers to one question, as llama.cpp's page exports them.
LLAMA = {
    "conv": {"id": "c", "name": "Trip", "currNode": "m3", "lastModified": 1},
    "messages": [
        {"id": "m1", "convId": "c", "role": "user", "content": "Why?", "parent": "r"},
        {"id": "m2", "convId": "c", "role": "assistant", "content": "So.", "parent": "m1"},
        {"id": "m3", "convId": "c", "role": "assistant", "content": "Thus.", "parent": "m1"},
    ],
}
CHAT = json.dumps([{"role": "user", "content": "Hi"}])


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("conversations.json", json.dumps([export(node("q", None))]))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (archive(), "a ZIP archive; unpack it and send .* ChatGPT's conversations.json"),
        (gzip.compress(b"[]", mtime=0), "compressed .gzip.; unpack it"),
        (b"PAR1\x15\x04", "a Parquet table; save it as JSON lines"),
        (b"SQLite format 3\x00\x10", "an SQLite database; export the chats as JSON"),
        (CHAT.encode("utf-16"), "text in UTF-16; save it as UTF-8"),
        (CHAT.encode("utf-16-le"), "text in UTF-16; save it as UTF-8"),
        (CHAT.encode("utf-16-be"), "text in UTF-16; save it as UTF-8"),
        (b"%PDF-1.7\n", "a PDF; export the conversation as JSON"),
        ("<!DOCTYPE html><title>Chat</title>", "a web page; .* conversations.json"),
        ("\n<html>", "a web page"),
        ("# Conversation\n- conversationId: c1\n", "a LibreChat export as text.* as JSON"),
        ("Conversation\n====\nconversationId: c1\n", "a LibreChat export as text.* as JSON"),
        ('{"conversations": [{"from": "human", "value": "Hi"}]}', "a ShareGPT data set, which is"),
        ('{"conversations": [{"conversation": {}, "responses": []}]}', "a Grok export, which is"),
        (json.dumps(LLAMA), "an export of llama.cpp's web page, which is"),
        (json.dumps([LLAMA]), "an export of llama.cpp's web page, which is"),
        ('[{"title": "Trip", "mapping": {}}]', "a ChatGPT export that holds no message"),
    ],
)
def test_what_is_no_transcript_is_named(content: bytes | str, sentence: str) -> None:
    with pytest.raises(UnknownFormatError, match=sentence):
        parse(content)
    refusal(content)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("claude_ai_export/claude_ai_export_mostly_blank.json", "a claude.ai export"),
        ("codex/hyperweave_patches_two_compactions.jsonl", "a session of Codex"),
        ("gemini_cli/entire_ab2b9748b105_session.json", "a session of Gemini CLI"),
    ],
)
def test_real_files_of_other_programs_are_named(real_file: ReadFile, path: str, name: str) -> None:
    assert f"is {name}, which is not read; write it as OpenAI chat" in refusal(real_file(path))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (json.dumps([export(node("q", None, "user", "Why?"))]), "ChatGPT export"),
        (json.dumps(chat(message("q", None, "Why?"))), "Open WebUI export"),
        (as_librechat(long_line(3)), "LibreChat export"),
        (as_nested_oasst(long_line(3)), "file of OpenAssistant trees"),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_that_is_cut_off_is_named(content: str, name: str, indent: int | None) -> None:
    whole = json.dumps(json.loads(content), indent=indent)

    sentence = refusal(whole[: len(whole) - 2])

    assert f"is a {name} that is cut off or damaged; export it again." in sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "holds an empty list, which is no conversation"),
        ("{}", "holds an empty object, which is no conversation"),
        ("[1]", "holds a list of 1 item that starts with a number"),
        ("[1, 2]", "holds a list of 2 items that starts with a number"),
        ('{"messages": []}', "but it holds no message"),
        ('[{"messages": []}, {"messages": []}]', "but it holds no message"),
        (json.dumps([export(node("r", None))]), "but it holds no message"),
    ],
)
def test_what_makes_nothing_is_an_error(content: str, words: str) -> None:
    with pytest.raises(UnknownFormatError, match=words):
        parse(content, name="file")
