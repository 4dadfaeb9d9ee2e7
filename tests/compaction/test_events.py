"""Structured logs: one line a decision, which nothing in it can forge."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from logging.config import DictConfigurator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.conf import logging_settings
from compaction.events import event
from tests.factories import SessionFactory

ROOT = Path(__file__).resolve().parent.parent.parent
RUN = UUID("6f1f7f66-2c2b-4d5e-9d0e-0a4a2f3b1c2d")
LOGGER = logging.getLogger("compaction.events")


class Lines(logging.Handler):
    """Keeps what is logged while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Lines:
        self._level = LOGGER.level
        LOGGER.setLevel(logging.DEBUG)
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        LOGGER.removeHandler(self)
        LOGGER.setLevel(self._level)


def logged(name: str, **fields) -> logging.LogRecord:
    with Lines() as lines:
        event(name, **fields)
    (record,) = lines.records
    return record


def line(name: str, **fields) -> str:
    return logged(name, **fields).getMessage()


def test_a_line_begins_with_the_event_and_names_its_fields():
    assert line("run_ended", run=RUN, reason="message_limit", status="failed", seconds=1.2) == (
        f"run_ended run={RUN} reason=message_limit status=failed seconds=1.2"
    )


@pytest.mark.django_db
def test_rows_are_told_by_their_ids():
    session = SessionFactory()
    assert line("run_requested", session=session, branch=session.branch) == (
        f"run_requested session={session.pk} branch={session.branch.pk}"
    )


def test_what_is_not_known_is_left_out():
    assert line("lease_taken", tokens_before=None, seconds=0) == "lease_taken seconds=0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "true"), (False, "false"), (12, "12"), (-3, "-3"), (0.12345, "0.123"), (2.0, "2.0")],
)
def test_numbers_are_numbers_and_booleans_are_words(value, shown):
    assert line("x", value=value) == f"x value={shown}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "no"', r'"say \"no\""'),
        ("a\nrun_ended status=failed", r'"a\nrun_ended status=failed"'),
        ("back\\slash", r'"back\\slash"'),
        ("\u2028", r'"\u2028"'),
        ("\x1b[31m", r'"\u001b[31m"'),
        ("100% %s", '"100% %s"'),
    ],
    ids=[
        "plain", "empty", "space", "equals", "quote", "newline", "backslash", "separator", "escape",
        "percent",
    ],
)  # fmt: skip
def test_what_could_be_taken_for_something_else_is_quoted(value, shown):
    assert line("x", value=value) == f"x value={shown}"


@given(value=st.text(max_size=100), reason=st.text(max_size=100))
def test_no_text_can_forge_a_line_or_a_field(value, reason):
    written = line("x", value=value, reason=reason, last=1)
    assert written.isascii()
    assert written.isprintable()
    names = [word.partition("=")[0] for word in shlex.split(written)]
    assert names == ["x", *(["reason"] if reason else []), "value", "last"]


def test_a_long_text_is_cut_because_it_is_no_name():
    assert line("x", value="a" * 5_000) == f"x value={'a' * 100}"


@pytest.mark.parametrize("value", [{"content": "secret"}, ["secret"], ValueError("secret")])
def test_what_is_neither_name_nor_number_is_told_by_its_type_only(value):
    assert "secret" not in line("x", value=value)
    assert line("x", value=value) == f"x value={type(value).__name__}"


def test_the_record_has_the_fields_for_formatters():
    record = logged("run_ended", run=RUN, reason="manual", seconds=1.25, truncated=True)
    assert (record.event, record.run, record.reason) == ("run_ended", str(RUN), "manual")
    assert (record.seconds, record.truncated) == (1.25, True)


def test_a_field_that_a_record_has_itself_gets_another_name():
    record = logged("x", module="m", message="n", process=7)
    assert (record.field_module, record.field_message, record.field_process) == ("m", "n", 7)
    assert record.getMessage() == "x module=m message=n process=7"


def test_decisions_are_told_at_info_unless_somebody_should_look():
    assert logged("x").levelno == logging.INFO
    assert logged("x", level=logging.WARNING).levelno == logging.WARNING


def test_the_record_says_who_decided():
    assert logged("x").funcName == "logged"


def test_a_silenced_logger_costs_nothing():
    class Unread:
        @property
        def pk(self) -> str:
            raise AssertionError("somebody looked")

    LOGGER.setLevel(logging.ERROR)
    try:
        event("x", run=Unread())
    finally:
        LOGGER.setLevel(logging.NOTSET)


# --- LOG_FORMAT ---


def as_json(record: logging.LogRecord) -> dict:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    formatters = logging_settings(line_format="json", level="INFO")["formatters"]
    handler.setFormatter(DictConfigurator({}).configure_formatter(formatters["chosen"]))
    handler.emit(record)
    (written,) = stream.getvalue().splitlines()
    return json.loads(written)


def test_json_shows_the_fields_beside_the_line():
    shown = as_json(logged("run_ended", run=RUN, reason="manual", seconds=1.25))
    time = shown.pop("time")
    assert time.endswith("+00:00")
    assert shown == {
        "level": "INFO",
        "logger": "compaction.events",
        "message": f"run_ended run={RUN} reason=manual seconds=1.25",
        "event": "run_ended",
        "run": str(RUN),
        "reason": "manual",
        "seconds": 1.25,
    }


def test_json_keeps_an_error_in_one_line():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "failed", (), sys.exc_info())
    assert "ValueError: two\nlines" in as_json(record)["exc_info"]


def test_json_does_not_show_requests():
    record = logging.makeLogRecord({"name": "a", "msg": "m", "request": "/x?token=secret"})
    assert "request" not in as_json(record)


def started(**variables: str) -> subprocess.CompletedProcess[str]:
    """Log one decision in a fresh interpreter with the product's own settings."""
    code = (
        "import django; django.setup(); from compaction.events import event; event('x', seconds=1)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings", "LOG_LEVEL": "INFO"}
        | variables,
    )  # fmt: skip


def test_lines_are_the_default():
    done = started(LOG_FORMAT="line")
    assert done.stderr.strip().endswith("INFO compaction.events: x seconds=1"), done.stderr


def test_log_format_json_writes_an_object_a_line():
    done = started(LOG_FORMAT=" JSON ")
    assert json.loads(done.stderr)["seconds"] == 1


def test_another_log_format_is_refused_with_a_sentence():
    done = started(LOG_FORMAT="xml")
    assert done.returncode != 0
    assert "LOG_FORMAT must be line or json, not 'xml'." in done.stderr


def test_the_table_of_events_names_every_event_and_no_other():
    """Ten were logged that the table did not have, a broken hold among them."""
    files = [*ROOT.glob("compaction/**/*.py"), *ROOT.glob("chatapp/**/*.py")]
    call = re.compile(r'(?<![\w.])event\(\s*"([a-z_]+)"')
    logged = {name for file in files for name in call.findall(file.read_text())}
    text = (ROOT / "docs" / "operations.md").read_text()
    table = text.partition("| about | events |")[2].partition("\n\n")[0]
    assert logged >= {"run_ended", "swept"}
    assert set(re.findall(r"`([a-z_]+)`", table)) == logged
