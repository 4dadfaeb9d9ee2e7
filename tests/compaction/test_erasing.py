"""Erasing a person leaves no text of theirs in any table, and everybody else's as it was."""

from __future__ import annotations

import io
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import CharField, JSONField, QuerySet, TextField
from django.test import Client
from django.utils import timezone

from chatapp import erasure
from chatapp.erasure import erase_user, what_erasing_takes
from chatapp.keys import create_key
from chatapp.models import Branch, Incident, Message, MessageOriginal, Session
from compaction.memories.lines import add_memory
from compaction.models import (
    CompactionRun,
    CompactionStep,
    Memory,
    MemoryKey,
    MemoryRun,
    MemoryVersion,
    ModelBreaker,
    RecoveryStep,
    SessionSummary,
    SummaryQuality,
)
from compaction.runs.worker import compact_branch
from tests import facts
from tests.factories import SessionFactory, UserFactory, profile, store, talk

pytestmark = pytest.mark.django_db
ADMIN_USERS = "/admin/auth/user/"


def dump() -> str:
    """Return every value of every column of every table, as one text."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            found += [str(value) for row in cursor.fetchall() for value in row]
    return "\n".join(found)


def fill(row, marker: str) -> None:
    """Write the marker into every text of a row, whatever its table says of it."""
    for field in row._meta.concrete_fields:
        has_choices = bool(field.choices) or field.is_relation or field.unique
        if isinstance(field, JSONField):
            is_object = isinstance(field.get_default(), dict)
            setattr(row, field.attname, {"said": marker} if is_object else [{"said": marker}])
        elif isinstance(field, TextField):
            setattr(row, field.attname, f"text {marker} text")
        elif isinstance(field, CharField) and not has_choices and (field.max_length or 0) >= 40:
            setattr(row, field.attname, marker)
    row.save()


def write_everywhere(owner, marker: str) -> Session:
    """Store a conversation in which every table that can hold a text of the owner holds one."""
    session = SessionFactory(owner=owner, title=f"Trip {marker}", wires=talk(12, words=60))
    run = compact_branch(session=session, trigger="manual", reason="manual")
    assert run.status == "succeeded"
    step = CompactionStep.objects.filter(run=run).first() or CompactionStep.objects.create(
        run=run, kind="chunk", order=9, depth=0, outcome="ok"
    )
    message = Message.objects.filter(session=session).last()
    MessageOriginal.objects.create(message=message, content=marker)
    incident = Incident.objects.create(session=session, kind="error", code="x", text=marker)
    recovery = RecoveryStep.objects.create(
        session=session, branch=session.branch, recovery=uuid4(), order=1, action="halve"
    )
    summary = SessionSummary.objects.get(session=session)
    rows = [message, message.original, incident, run, step, recovery, summary]
    rows += [SummaryQuality.objects.get(summary=summary), session]
    for row in rows:
        fill(row, marker)
    Session.objects.filter(pk=session.pk).update(title=f"Trip {marker}", model="default")
    create_key(owner=owner, name=f"Key {marker}")
    line = add_memory(owner=owner, text="Drinks tea.", source=message.pk, created_by=owner)
    run_of_memories = MemoryRun.objects.create(owner=owner, kind="compress", status="failed")
    version = MemoryVersion.objects.create(owner=owner, run=run_of_memories)
    for row in (line, run_of_memories, version):
        fill(row, marker)
    session.refresh_from_db()
    return session


@pytest.fixture
def marker() -> str:
    return "MK-" + "".join(f"{ord(letter):x}" for letter in f"erase{facts.seed()}")[:20]


@pytest.fixture
def person(marker):
    profile(keep_last_n=2)
    found = UserFactory(username=f"nora-{marker}", email=f"{marker}@example.com", first_name=marker)
    found.set_password("right")
    found.save()
    return found


@pytest.fixture
def operator():
    return UserFactory(is_staff=True, is_superuser=True)


def log(operator, row, words: str = "Done.") -> None:
    LogEntry.objects.log_actions(operator.pk, [row], CHANGE, words, single_object=True)


def test_no_text_is_left_in_any_table(person, operator, marker):
    session = write_everywhere(person, marker)
    log(operator, session, f"Compacted {marker}.")
    log(operator, person)
    log(operator, session.branch, marker)
    log(operator, CompactionRun.objects.first(), marker)
    browser = Client()
    browser.force_login(person)
    told = browser.session
    told["said"] = marker
    told.save()
    Client().post("/admin/login/", {"username": person.username, "password": "wrong"})
    ModelBreaker.objects.create(model="m", failures=1, last_error=f"refused: {marker}")
    others = UserFactory()
    their_summary = SessionSummary.objects.get(session=write_everywhere(others, "somebody else's"))
    SummaryQuality.objects.filter(summary=their_summary).update(
        verdict_by=person, verdict_note=f"good, says {marker}"
    )
    CompactionRun.objects.filter(session__owner=others).update(
        requested_by=person, instructions=marker
    )
    assert dump().count(marker) > 20

    erased = erase_user(person)

    assert marker not in dump()
    assert erased.counts["sessions"] == 1
    # Twelve questions, twelve answers, and the placeholder of the summary.
    assert erased.counts["messages"] == 25
    assert erased.counts["admin log entries"] == 4
    assert "somebody else's" in dump()


def test_everybody_else_keeps_everything(person, operator, marker):
    write_everywhere(person, marker)
    others = UserFactory()
    theirs = write_everywhere(others, "theirs")
    log(operator, theirs)
    Client().force_login(others)
    browser = Client()
    browser.force_login(others)

    def kept() -> tuple[int, ...]:
        mine = {"session__owner": others}
        tables = (Message, Branch, CompactionRun, SessionSummary, Incident)
        return tuple(table.objects.filter(**mine).count() for table in tables)

    before = kept()
    erase_user(person)
    assert kept() == before
    assert LogEntry.objects.get(object_id=str(theirs.pk)).object_repr == "Trip theirs"
    assert others.api_keys.count() == 1
    assert browser.get("/api/v1/sessions/").status_code == 200


def test_titles_of_sessions_that_were_deleted_before_go_from_the_log(person, operator, marker):
    session = SessionFactory(owner=person, title=f"Trip {marker}")
    log(operator, session)
    session.delete()
    erase_user(person)
    assert marker not in dump()
    assert LogEntry.objects.get().object_repr.startswith("Session ")


def test_large_sessions_go_in_batches(person, monkeypatch, marker):
    session = write_everywhere(person, marker)
    monkeypatch.setattr(erasure, "BATCH", 5)
    sizes = []
    delete = erasure._delete

    def watched(rows, keys, counts, log):
        sizes.append(len(keys))
        delete(rows, keys, counts, log)

    monkeypatch.setattr(erasure, "_delete", watched)
    erase_user(person)
    assert max(sizes) == 5
    assert len(sizes) > 5
    assert not Message.objects.filter(session=session.pk).exists()


def test_no_cursor_is_open_while_rows_are_deleted(person, monkeypatch, marker):
    """Where somebody else writes meanwhile, SQLite would refuse every later write."""
    opened, read, delete = [], QuerySet.iterator, erasure._delete

    def watched(rows, *args, **kwargs):
        opened.append(rows.model)
        yield from read(rows, *args, **kwargs)
        opened.remove(rows.model)

    def checked(*args):
        assert opened == []
        delete(*args)

    monkeypatch.setattr(erasure, "BATCH", 2)
    for _ in range(5):
        SessionFactory(owner=person)
    monkeypatch.setattr(QuerySet, "iterator", watched)
    monkeypatch.setattr(erasure, "_delete", checked)
    assert erase_user(person).counts["sessions"] >= 5


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PRAGMA is SQLite's")
def test_what_goes_is_overwritten_in_the_file_and_so_is_what_goes_later(person, monkeypatch):
    def pragma() -> int:
        with connection.cursor() as cursor:
            return cursor.execute("PRAGMA secure_delete").fetchone()[0]

    seen = []
    delete = erasure._delete
    monkeypatch.setattr(erasure, "_delete", lambda *args: (seen.append(pragma()), delete(*args)))
    SessionFactory(owner=person)
    erase_user(person)
    assert set(seen) == {1}
    assert pragma() == 1


def test_what_was_broken_off_is_finished_later(person, monkeypatch, marker):
    write_everywhere(person, marker)
    SessionFactory(owner=person, title="The second one", wires=talk(1))

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        erase_user(person, on_session=stop)
    person.refresh_from_db()
    assert not person.is_active
    assert Session.objects.filter(owner=person).count() == 1
    erase_user(person)
    assert marker not in dump()
    assert not get_user_model().objects.filter(pk=person.pk).exists()


def test_a_person_who_wrote_nothing_is_erased_too(person, marker):
    assert str(what_erasing_takes(person)) == "nothing"
    erase_user(person)
    assert marker not in dump()


# --- the command ----------------------------------------------------------------------------------


def run(*arguments: str, answer: str = "", monkeypatch=None) -> str:
    out = io.StringIO()
    if monkeypatch is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    call_command("erase_user", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_says_in_figures_what_there_is_and_what_went(person, marker):
    write_everywhere(person, marker)
    told = run(person.username, "--yes")
    assert "sessions: 1" in told
    assert "A person was erased: " in told
    assert marker not in dump()


def test_the_command_asks_first(person, monkeypatch):
    with pytest.raises(CommandError, match="Nothing was erased"):
        run(person.username, answer="yes", monkeypatch=monkeypatch)
    assert get_user_model().objects.filter(pk=person.pk).exists()
    run(person.username, answer=person.username, monkeypatch=monkeypatch)
    assert not get_user_model().objects.filter(pk=person.pk).exists()


def test_the_command_knows_no_such_user(db):
    with pytest.raises(CommandError, match="no user"):
        run("nobody", "--yes")


# --- the admin ------------------------------------------------------------------------------------


def staff(*codenames: str, **fields):
    user = UserFactory(is_staff=True, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return user, client


def asked(client, person, **more):
    data = {"action": "erase", "_selected_action": [person.pk]} | more
    return client.post(ADMIN_USERS, data)


def test_the_admin_asks_and_erases(person, marker):
    write_everywhere(person, marker)
    operator, client = staff("view_user", "erase_user")
    page = asked(client, person).content.decode()
    assert "cannot be undone" in page
    assert "sessions: 1" in page
    assert get_user_model().objects.filter(pk=person.pk).exists()
    response = asked(client, person, erase_them="yes")
    assert response.status_code == 302
    assert "A person was erased" in client.get(ADMIN_USERS).content.decode()
    assert marker not in dump()
    entry = LogEntry.objects.get(user=operator)
    assert entry.object_repr == "a person"
    assert "sessions: 1" in entry.change_message


@pytest.mark.parametrize("codenames", [("view_user",), ("view_user", "change_user", "delete_user")])
def test_without_the_permission_the_admin_erases_nobody(person, codenames):
    _, client = staff(*codenames)
    assert "Erase selected" not in client.get(ADMIN_USERS).content.decode()
    asked(client, person, erase_them="yes")
    assert get_user_model().objects.filter(pk=person.pk).exists()


def test_operators_erase_neither_themselves_nor_superusers(operator):
    user, client = staff("view_user", "erase_user")
    for person in (user, operator):
        asked(client, person, erase_them="yes")
        assert "Nothing was erased" in client.get(ADMIN_USERS).content.decode()
    assert get_user_model().objects.filter(pk__in=[user.pk, operator.pk]).count() == 2


def test_log_in_attempts_of_long_ago_go_too(person):
    from axes.models import AccessAttempt

    AccessAttempt.objects.create(
        username=person.username.upper(), failures_since_start=1, user_agent="x", ip_address=None
    )
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(days=90))
    erase_user(person)
    assert not AccessAttempt.objects.exists()


# --- what stands elsewhere ------------------------------------------------------------------------


def test_words_about_rows_that_were_deleted_before_go_from_the_log(person, operator, marker):
    session = SessionFactory(owner=person, title=marker, wires=talk(1))
    key = create_key(owner=person, name=marker)
    row = person.api_keys.get()
    log(operator, row, f"Made {marker}.")
    log(operator, session, f"Renamed from {marker}.")
    log(operator, session.branch, marker)
    assert key.secret
    row.delete()
    session.delete()
    erase_user(person)
    assert marker not in dump()
    assert LogEntry.objects.count() == 3


def test_the_log_of_rows_that_are_there_stays_as_it_is(person, operator):
    others = SessionFactory(owner=UserFactory(), title="theirs")
    log(operator, others, "Compacted.")
    erase_user(person)
    assert LogEntry.objects.get().change_message == "Compacted."


def test_what_an_erased_operator_did_to_others_stays_without_a_name(person, marker):
    namesake = UserFactory(username="erased")
    others = SessionFactory(owner=UserFactory(), title="theirs")
    log(person, others, f"Because {marker} said so.")
    erase_user(person)
    assert marker not in dump()
    entry = LogEntry.objects.get(object_id=str(others.pk))
    assert (entry.user.username, entry.user.is_active) == ("(erased)", False)
    assert entry.user != namesake
    assert not entry.user.has_usable_password()


def test_a_servers_error_goes_with_whoever_it_quoted(person, marker):
    ModelBreaker.objects.create(model="m", failures=1, last_error=f"cannot handle {marker}")
    erase_user(person)
    assert marker not in dump()


@pytest.mark.django_db(transaction=True)
def test_a_person_whose_sessions_are_written_to_meanwhile_is_erased():
    """A turn that is under way when the person is erased goes on storing for a while."""
    person = UserFactory()
    sessions = [SessionFactory(owner=person, wires=talk(3)) for _ in range(3)]
    end = time.monotonic() + 3

    def write(session) -> None:
        try:
            while time.monotonic() < end:
                store(session, talk(1))
                time.sleep(0.01)
        except Exception:  # its session is gone, which is what was asked for
            pass
        finally:
            connection.close()

    writers = [threading.Thread(target=write, args=(session,)) for session in sessions]
    for writer in writers:
        writer.start()
    time.sleep(0.2)
    erase_user(person)
    for writer in writers:
        writer.join()
    assert not get_user_model().objects.filter(pk=person.pk).exists()
    assert not Message.objects.exists()
    assert not Branch.objects.exists()


def test_memories_go_with_their_owner_and_others_keep_theirs(person, marker):
    other = UserFactory()
    for owner in (person, other):
        write_everywhere(owner, marker if owner is person else "theirs")
    there = what_erasing_takes(person).counts
    assert (there["memories"], there["memory runs"], there["memory versions"]) == (1, 1, 1)
    erase_user(person)
    for model in (Memory, MemoryKey, MemoryRun, MemoryVersion):
        assert [row.owner_id for row in model.objects.all()] == [other.pk], model


def test_an_accounts_times_read_as_on_every_other_page_and_are_set_by_nobody(admin_client, person):
    joined = datetime(2026, 12, 1, 22, 4, tzinfo=UTC)
    type(person).objects.filter(pk=person.pk).update(date_joined=joined)
    address = f"{ADMIN_USERS}{person.pk}/change/"
    with timezone.override(UTC):
        page = admin_client.get(address).text
    assert '<div class="readonly">1 Dec 2026, 22:04</div>' in page
    sent = {"username": "renamed", "is_active": "on", "date_joined_0": "2020-01-01",
            "date_joined_1": "00:00"}  # fmt: skip
    assert admin_client.post(address, sent).status_code == 302
    person.refresh_from_db()
    assert (person.username, person.date_joined) == ("renamed", joined)
