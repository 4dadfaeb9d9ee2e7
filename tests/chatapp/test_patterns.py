"""Patterns that are compiled when they are used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from chatapp.messages.patterns import compile_all, lazy_pattern


def test_it_is_a_pattern_like_any_other():
    words = lazy_pattern(r"(\w)\w*", re.IGNORECASE)
    assert words.findall("One two") == ["O", "t"]
    assert words.sub(r"\1", "One two") == "O t"
    assert [found.group() for found in words.finditer("One two")] == ["One", "two"]
    assert words.pattern == r"(\w)\w*"
    assert words.flags & re.IGNORECASE
    assert words.groups == 1


def test_nothing_is_compiled_before_its_first_use(monkeypatch):
    asked = []
    compile_ = re.compile
    monkeypatch.setattr(re, "compile", lambda *args: asked.append(args) or compile_(*args))
    pattern = lazy_pattern("first use")
    assert asked == []
    assert pattern.search("at first use")
    assert pattern.search("not") is None
    assert asked == [("first use", 0)]


def test_what_is_no_pattern_says_so_when_all_are_compiled():
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        compile_all()
    del wrong


def test_all_patterns_of_the_program_can_be_compiled():
    from compaction.engine.extractive import summarizer
    from compaction.engine.fidelity import measure, redaction

    assert {summarizer, measure, redaction}
    assert compile_all() > 100


def test_a_command_starts_without_what_makes_summaries():
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings';"
        "django.setup();"
        "print([name for name in sys.modules if name.startswith(('compaction.summaries.',"
        " 'compaction.engine.fidelity.', 'compaction.runs.worker', 'chatapp.formats.',"
        " 'chatapp.llm.openai_client', 'chatapp.admin.', 'openai', 'tiktoken'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
