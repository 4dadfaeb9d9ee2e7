"""imports/: files that a worker takes in, how far they are, and what one owner may have."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp import import_work, imports
from chatapp.erasure import erase_user
from chatapp.import_jobs import ImportedSession, ImportJob, ImportPiece
from chatapp.imports import accept_file, continue_import, deliver_lost, forget_old
from chatapp.models import Message, Session
from compaction.runs.sweep import sweep_runs
from compaction.tasks import import_file as import_task
from tests.chatapp.test_api_sessions import problem
from tests.factories import UserFactory, talk

pytestmark = pytest.mark.django_db
IMPORT = "/api/v1/sessions/import/"
IMPORTS = "/api/v1/imports/"
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def queue(queued):
    """What was put into the queue."""
    return queued


@pytest.fixture
def limits(settings):
    def change(**given) -> None:
        settings.CHATAPP = settings.CHATAPP | given

    return change


def lines(count: int, *, start: int = 0) -> bytes:
    made = (
        {"title": f"Talk {number}", "messages": talk(1, words=2, marker=number)}
        for number in range(start, start + count)
    )
    return b"\n".join(json.dumps(one).encode() for one in made)


def send(api, content: bytes, **headers):
    return api.post(IMPORT, content, content_type="application/octet-stream", headers=headers)


def waiting(api, content: bytes, commit) -> dict:
    """A file that was left to a worker, as the answer shows it."""
    with commit(execute=True):
        answer = send(api, content, prefer="respond-async")
    assert answer.status_code == 202
    return answer.json()


@pytest.fixture
def commit(django_capture_on_commit_callbacks):
    return django_capture_on_commit_callbacks


# --- at the door ----------------------------------------------------------------------------------


def test_a_small_file_is_imported_at_once_and_its_import_is_there_to_read(api):
    answer = send(api, lines(2))
    assert answer.status_code == 201
    body = api.get(answer["Location"]).json()
    assert (body["status"], body["sessions_made"], body["messages_added"]) == ("done", 2, 4)
    assert body["conversations"] == {"done": 2, "total": 2}
    assert body["lines"] == {"done": 2, "total": 2}
    assert body["sessions"] == answer.json()["sessions"]
    assert body["finished_at"] >= body["started_at"]


def test_a_client_may_ask_for_the_background(api, queue, commit):
    with commit(execute=True):
        answer = send(api, lines(2), prefer="wait=5, Respond-Async")
    assert answer.status_code == 202
    body = answer.json()
    assert answer["Location"].endswith(f"{IMPORTS}{body['id']}/")
    assert "no-store" in answer["Cache-Control"]
    assert (body["status"], body["conversations"]) == ("queued", {"done": 0, "total": None})
    assert queue == [("compaction.tasks.import_file", body["id"])]
    assert not Session.objects.exists()

    assert import_task(body["id"]) == "done"
    body = api.get(answer["Location"]).json()
    assert (body["status"], body["format"]) == ("done", "openai_chat")
    assert [one["title"] for one in body["sessions"]] == ["Talk 0", "Talk 1"]
    assert Message.objects.count() == 4
    assert not ImportPiece.objects.exists()


@pytest.mark.parametrize(
    "limit", [{"IMPORT_AT_ONCE_BYTES": 200}, {"IMPORT_AT_ONCE_CONVERSATIONS": 2}]
)
def test_a_file_that_is_larger_than_a_request_may_do_waits_for_a_worker(api, limits, limit):
    limits(**limit)
    answer = send(api, lines(3))
    assert answer.status_code == 202
    assert continue_import(uuid.UUID(answer.json()["id"])) == "done"
    assert Session.objects.count() == 3


def test_a_file_of_very_many_pieces_waits_for_a_worker_before_it_is_read(api, monkeypatch):
    monkeypatch.setattr(imports, "MOST_PIECES_AT_ONCE", 10)
    assert send(api, lines(1)).status_code == 201
    answer = send(api, lines(3))
    assert answer.status_code == 202
    assert answer.json()["conversations"] == {"done": 0, "total": None}


def test_a_request_that_takes_too_long_leaves_the_rest_to_a_worker(api, limits, monkeypatch):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    seconds = iter([0.0, 0.0, 5.0, *[21.0] * 100])
    monkeypatch.setattr(import_work.time, "monotonic", lambda: next(seconds))
    answer = send(api, lines(3))
    assert answer.status_code == 202
    assert answer.json()["conversations"] == {"done": 2, "total": 3}
    monkeypatch.undo()
    assert continue_import(uuid.UUID(answer.json()["id"])) == "done"
    body = api.get(answer["Location"]).json()
    assert [(one["title"], one["created"]) for one in body["sessions"]] == [
        ("Talk 0", True),
        ("Talk 1", True),
        ("Talk 2", True),
    ]
    assert Message.objects.count() == 6


def test_without_a_queue_everything_is_done_at_once(api, limits, monkeypatch):
    monkeypatch.setattr(imports.import_waiting, "has_listeners", lambda sender: False)
    limits(IMPORT_AT_ONCE_CONVERSATIONS=1, IMPORT_AT_ONCE_BYTES=1)
    answer = send(api, lines(3), prefer="respond-async")
    assert answer.status_code == 201
    assert Session.objects.count() == 3


def test_without_a_queue_what_takes_too_long_says_how_far_it_came(api, monkeypatch):
    monkeypatch.setattr(imports.import_waiting, "has_listeners", lambda sender: False)
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    seconds = iter([0.0, 0.0, *[21.0] * 100])
    monkeypatch.setattr(import_work.time, "monotonic", lambda: next(seconds))
    refusal = problem(send(api, lines(3)), 422)
    assert refusal["code"] == "import_too_slow"
    assert "20 seconds" in refusal["detail"]
    assert "1 of 3 conversations" in refusal["detail"]
    assert ImportJob.objects.get().status == "failed"


@pytest.mark.parametrize(
    ("limit", "content", "code", "number"),
    [
        ({"MAX_IMPORT_LINES": 50}, b"{}\n" * 51, "too_many_lines", "51"),
        ({"MAX_IMPORT_CONVERSATIONS": 2}, lines(3), "too_many_conversations", "3"),
    ],
)
def test_a_file_that_holds_too_much_is_refused_with_the_numbers(
    api, limits, limit, content, code, number
):
    limits(**limit)
    refusal = problem(send(api, content), 422)
    assert refusal["code"] == code
    assert f"{number} " in refusal["detail"]
    ((name, most),) = limit.items()
    assert f"{most} are allowed ({name})" in refusal["detail"]
    assert not Session.objects.exists()


def test_three_million_lines_of_nothing_are_refused_before_they_are_read(api):
    refusal = problem(send(api, b"{}\n" * 3_000_000), 422)
    assert refusal["code"] == "too_many_lines"
    assert "3,000,000 lines" in refusal["detail"]
    assert not ImportJob.objects.exists()


def test_an_owner_has_so_many_imports_under_way_and_no_more(api, limits, commit):
    limits(IMPORTS_PER_OWNER=2)
    first = waiting(api, lines(1), commit)
    waiting(api, lines(1, start=1), commit)
    ImportJob.objects.create(owner=UserFactory())
    refused = send(api, lines(1, start=2))
    assert problem(refused, 429)["code"] == "too_many_imports"
    assert int(refused["Retry-After"]) > 0
    assert "2 imports" in refused.json()["detail"]
    continue_import(uuid.UUID(first["id"]))
    assert send(api, lines(1, start=2)).status_code == 201


def test_what_dead_processes_left_counts_for_nobody(api, owner, limits):
    limits(IMPORTS_PER_OWNER=1)
    dead = ImportJob.objects.create(owner=owner, status="working", worker=uuid.uuid4())
    its_lease_expires(dead)
    assert send(api, lines(1)).status_code == 201


def test_a_refused_file_leaves_no_import_under_way(api):
    for _ in range(5):
        problem(send(api, b"hello"), 422)
    assert set(ImportJob.objects.values_list("status", "error_code")) == {
        ("failed", "unknown_format")
    }


def test_a_failure_of_the_server_leaves_no_import_under_way(api, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("what nobody expected")

    monkeypatch.setattr(import_work, "import_batch", fail)
    with pytest.raises(RuntimeError):
        send(api, lines(1))
    job = ImportJob.objects.get()
    assert (job.status, job.error_code) == ("failed", "interrupted")


def test_a_client_that_goes_away_ends_the_work_between_two_batches(owner, monkeypatch):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    stays = iter([False, False, True])
    with pytest.raises(import_work.ImportEndedError):
        accept_file(owner=owner, content=lines(5), is_abandoned=lambda: next(stays))
    job = ImportJob.objects.get()
    assert (job.status, job.error_code) == ("cancelled", "client_left")
    assert "2 of 5 conversations" in job.error
    assert [session.title for session in Session.objects.order_by("created_at")] == [
        "Talk 0",
        "Talk 1",
    ]
    assert Message.objects.count() == 4


# --- reading --------------------------------------------------------------------------------------


def test_imports_are_listed_newest_first_and_only_to_their_owner(api, commit):
    first, second = waiting(api, lines(1), commit), waiting(api, lines(2), commit)
    stranger = ImportJob.objects.create(owner=UserFactory())
    listed = api.get(IMPORTS).json()["results"]
    assert [one["id"] for one in listed] == [second["id"], first["id"]]
    for way in ("", "sessions/"):
        assert api.get(f"{IMPORTS}{stranger.pk}/{way}").status_code == 404
    assert api.delete(f"{IMPORTS}{stranger.pk}/").status_code == 404


def test_lists_and_pages_take_the_same_queries_whatever_they_hold(
    api, commit, django_assert_num_queries
):
    job = waiting(api, lines(120), commit)
    continue_import(uuid.UUID(job["id"]))
    with django_assert_num_queries(1):
        api.get(IMPORTS)
    with django_assert_num_queries(2):  # the import, its first sessions
        api.get(f"{IMPORTS}{job['id']}/")
    with django_assert_num_queries(2):
        page = api.get(f"{IMPORTS}{job['id']}/sessions/", {"page_size": 100}).json()
    assert [one["title"] for one in page["results"]] == [f"Talk {n}" for n in range(100)]
    page = api.get(page["next"]).json()
    assert [one["title"] for one in page["results"]] == [f"Talk {n}" for n in range(100, 120)]


def test_what_was_wrong_with_a_file_is_told_and_bounded(api, commit):
    job = waiting(api, b"{}\n" * 300 + lines(1), commit)
    continue_import(uuid.UUID(job["id"]))
    body = api.get(f"{IMPORTS}{job['id']}/").json()
    assert (len(body["problems"]), body["problems_left_out"]) == (200, 100)
    assert body["problems"][0]["line"] == 1
    assert body["lines"] == {"done": 301, "total": 301}


def test_a_small_import_says_how_many_problems_it_does_not_tell(api):
    told = send(api, b"{}\n" * 300 + lines(1)).json()["problems"]
    assert len(told) == 201
    assert told[-1]["text"].startswith("And 100 more")


def test_a_queued_import_says_that_no_worker_lives(api, commit):
    note = waiting(api, lines(1), commit)["note"]
    assert "manage.py qcluster" in note


# --- workers --------------------------------------------------------------------------------------


def test_a_worker_puts_a_long_import_back_and_the_next_one_goes_on(api, commit, monkeypatch, queue):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    job = waiting(api, lines(3), commit)
    turns = iter([False, True])
    with commit(execute=True):
        status = continue_import(uuid.UUID(job["id"]), is_stopping=lambda: next(turns, True))
    assert status == "queued"
    assert [task for task, _ in queue] == ["compaction.tasks.import_file"] * 2
    row = ImportJob.objects.get()
    assert (row.conversations_done, row.sessions_made, row.worker) == (1, 1, None)
    assert continue_import(row.pk) == "done"
    assert list(row.results.order_by("number").values_list("number", "created")) == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_two_workers_never_work_at_one_import(api, commit, monkeypatch):
    job = uuid.UUID(waiting(api, lines(2), commit)["id"])
    seen = []
    real = imports.content_of

    def meanwhile(row):
        seen.append(continue_import(job))
        return real(row)

    monkeypatch.setattr(imports, "content_of", meanwhile)
    assert continue_import(job) == "done"
    assert seen == ["gone"]
    assert Session.objects.count() == 2


def test_an_import_that_is_no_more_is_gone():
    assert continue_import(uuid.uuid4()) == "gone"


def killed(api, commit, monkeypatch, *, after: int) -> ImportJob:
    """An import whose worker was killed while it stored a batch, after so many others."""

    class Killed(BaseException):
        pass

    job = waiting(api, lines(4), commit)
    real, left = import_work.import_batch, iter(range(after))

    def dying(*args, **kwargs):
        if next(left, None) is None:
            raise Killed
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
        patch.setattr(import_work, "import_batch", dying)
        with pytest.raises(Killed):
            continue_import(uuid.UUID(job["id"]))
    row = ImportJob.objects.get(pk=job["id"])
    assert row.status == "working"
    return row


def its_lease_expires(job: ImportJob) -> None:
    ImportJob.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - DAY)


def test_the_sweep_delivers_what_a_killed_worker_left_and_nothing_is_stored_twice(
    api, commit, monkeypatch, queue
):
    job = killed(api, commit, monkeypatch, after=2)
    assert job.attempts == 0  # it came further
    queue.clear()
    with commit(execute=True):
        assert sweep_runs().requeued_imports == 0
    assert continue_import(job.pk) == "gone"
    its_lease_expires(job)
    with commit(execute=True):
        assert sweep_runs().requeued_imports == 1
    assert queue == [("compaction.tasks.import_file", str(job.pk))]
    assert continue_import(job.pk) == "done"
    job.refresh_from_db()
    assert (job.sessions_made, job.messages_added) == (4, 8)
    assert (Session.objects.count(), Message.objects.count()) == (4, 8)


def test_a_worker_whose_import_another_one_took_stores_nothing_more(api, commit, monkeypatch):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    job = waiting(api, lines(4), commit)
    real, batches = import_work.import_batch, []

    def meanwhile(*args, **kwargs):
        batches.append(1)
        if len(batches) == 3:
            ImportJob.objects.update(worker=uuid.uuid4())
        return real(*args, **kwargs)

    monkeypatch.setattr(import_work, "import_batch", meanwhile)
    assert continue_import(uuid.UUID(job["id"])) == "gone"
    assert len(batches) == 3
    assert Session.objects.count() == 2
    assert ImportJob.objects.get().status == "working"


def test_what_was_wrong_is_told_once_however_many_workers_it_takes(
    api, commit, monkeypatch, limits
):
    limits(MAX_MESSAGE_CHARS=300)
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    long = {"messages": [{"role": "user", "content": "x" * 301}, *talk(1, words=2)]}
    file = b"\n".join([json.dumps(long).encode(), lines(1), b"no JSON", lines(1, start=1)])
    job = waiting(api, file, commit)
    turns = iter([False, True])
    assert continue_import(uuid.UUID(job["id"]), is_stopping=lambda: next(turns, True)) == "queued"
    assert continue_import(uuid.UUID(job["id"])) == "done"
    told = [one["text"] for one in api.get(f"{IMPORTS}{job['id']}/").json()["problems"]]
    assert len(told) == 2
    assert sum("not readable JSON" in text for text in told) == 1
    assert sum("MAX_MESSAGE_CHARS" in text for text in told) == 1


def test_an_import_at_which_three_workers_died_fails_and_says_so(api, commit, monkeypatch):
    job = killed(api, commit, monkeypatch, after=1)
    ImportJob.objects.filter(pk=job.pk).update(attempts=3)
    its_lease_expires(job)
    assert continue_import(job.pk) == "failed"
    job.refresh_from_db()
    assert job.error_code == "interrupted"
    assert "1 of 4 conversations" in job.error
    assert not ImportPiece.objects.exists()


def test_a_request_whose_process_died_is_told_as_failed(owner):
    job = ImportJob.objects.create(
        owner=owner, status="working", worker=uuid.uuid4(), lease_expires_at=timezone.now() - DAY
    )
    assert deliver_lost() == 1
    assert continue_import(job.pk) == "failed"
    job.refresh_from_db()
    assert job.error_code == "interrupted"


def test_an_import_that_the_queue_lost_is_delivered_again_after_a_while(api, commit, queue):
    job = waiting(api, lines(1), commit)
    queue.clear()
    with commit(execute=True):
        assert deliver_lost() == 0
    ImportJob.objects.update(queued_at=timezone.now() - timedelta(minutes=11))
    with commit(execute=True):
        assert deliver_lost() == 1
        assert deliver_lost() == 0
    assert queue == [("compaction.tasks.import_file", job["id"])]


def test_an_import_that_takes_longer_than_all_workers_may_fails(api, commit, monkeypatch, limits):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    limits(IMPORT_BACKGROUND_SECONDS=100)
    job = waiting(api, lines(3), commit)
    ImportJob.objects.update(seconds=100.5)
    assert continue_import(uuid.UUID(job["id"])) == "failed"
    row = ImportJob.objects.get()
    assert row.error_code == "import_too_slow"
    assert "100 seconds" in row.error


def test_importing_a_file_twice_in_the_background_adds_nothing(api, commit):
    for _ in range(2):
        job = waiting(api, lines(3), commit)
        assert continue_import(uuid.UUID(job["id"])) == "done"
    body = api.get(f"{IMPORTS}{job['id']}/").json()
    assert (body["sessions_made"], body["messages_added"]) == (3, 0)
    assert {one["created"] for one in body["sessions"]} == {False}
    assert (Session.objects.count(), Message.objects.count()) == (3, 6)


def test_a_file_in_pieces_is_whole_again(api, commit, monkeypatch):
    monkeypatch.setattr("chatapp.import_jobs.PIECE_BYTES", 7)
    job = waiting(api, lines(2), commit)
    assert ImportPiece.objects.count() > 20
    assert continue_import(uuid.UUID(job["id"])) == "done"
    assert Message.objects.count() == 4


# --- ending ---------------------------------------------------------------------------------------


def test_a_waiting_import_is_cancelled_and_its_file_goes(api, commit):
    job = waiting(api, lines(2), commit)
    answer = api.delete(f"{IMPORTS}{job['id']}/")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["error"]["code"] == "cancelled"
    assert not ImportPiece.objects.exists()
    assert continue_import(uuid.UUID(job["id"])) == "gone"
    assert not Session.objects.exists()
    assert problem(api.delete(f"{IMPORTS}{job['id']}/"), 409)["code"] == "conflict"


def test_cancelling_ends_the_work_at_the_next_batch_and_keeps_what_is_stored(
    api, commit, monkeypatch
):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    job = waiting(api, lines(4), commit)
    real, batches = import_work.import_batch, []

    def meanwhile(*args, **kwargs):
        batches.append(1)
        if len(batches) == 3:
            api.delete(f"{IMPORTS}{job['id']}/")
        return real(*args, **kwargs)

    monkeypatch.setattr(import_work, "import_batch", meanwhile)
    assert continue_import(uuid.UUID(job["id"])) == "gone"
    assert len(batches) == 3
    body = api.get(f"{IMPORTS}{job['id']}/").json()
    assert (body["status"], body["sessions_made"]) == ("cancelled", 2)
    assert (Session.objects.count(), Message.objects.count()) == (2, 4)


def test_deleting_a_session_takes_it_out_of_its_import(api):
    answer = send(api, lines(2))
    first = answer.json()["sessions"][0]["session"]
    assert api.delete(f"/api/v1/sessions/{first}/").status_code == 204
    assert [one["title"] for one in api.get(answer["Location"]).json()["sessions"]] == ["Talk 1"]


def test_imports_that_ended_long_ago_are_forgotten_and_their_sessions_stay(api, commit):
    send(api, lines(1))
    ImportJob.objects.update(finished_at=timezone.now() - timedelta(days=31))
    waiting(api, lines(1, start=1), commit)
    assert forget_old() == 1
    assert [job.status for job in ImportJob.objects.all()] == ["queued"]
    assert Session.objects.count() == 1
    assert not ImportedSession.objects.exists()


def test_erasing_a_person_takes_their_imports_first(api, owner, commit):
    waiting(api, lines(2), commit)
    send(api, lines(1, start=5))
    there = []
    erased = erase_user(owner, on_session=lambda: there.append(ImportJob.objects.exists()))
    assert there == [False]
    assert erased.counts["imports"] == 2
    assert not ImportJob.objects.exists()
    assert not ImportPiece.objects.exists()
    assert not ImportedSession.objects.exists()
