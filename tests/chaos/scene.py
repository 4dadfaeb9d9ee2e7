"""One chaos from its start to its end, on processes and rows that are there already or made here.

Django must have been set up: `__main__` does it, because only then the addresses are known.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from django.core.management import call_command
from django.db import connection
from django_q.models import Schedule

from tests.chaos import report
from tests.chaos.checks import not_whole, too_little, violations
from tests.chaos.ledger import Ledger
from tests.chaos.mischief import Mischief
from tests.chaos.model import UnsteadyModel
from tests.chaos.processes import ROOT, STOP_SECONDS, Part, cluster, web_worker
from tests.chaos.sessions import make_books
from tests.chaos.stored import has_shortened, read_branches, unfinished_runs
from tests.chaos.surroundings import Surroundings
from tests.chaos.writers import Writers

WEB_WORKERS = CLUSTERS = 2
PROGRESS_SECONDS = 10
# A turn whose web worker died holds its session for 40 s.
LAST_ANSWERS_SECONDS = 60
SETTLE_SECONDS = 45
SWEEP_SECONDS = 2
DOCTOR_SECONDS = 60
LEFT_OUT = re.compile(r"messages_left_out\b.*? session=(\S+)")
# Nothing may wait or work twice in a row: a run that ended may have asked for the next one.
QUIET_LOOKS = 2


@dataclass(kw_only=True)
class Scene:
    """`play` returns what does not hold; `stop` ends all processes at once, at any time."""

    surroundings: Surroundings
    environment: Mapping[str, str]
    model: UnsteadyModel
    seed: int
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        folder = self.surroundings.folder
        self._webs = [web_worker(n, self.environment, folder) for n in range(WEB_WORKERS)]
        self._clusters = [cluster(n, self.environment, folder) for n in range(CLUSTERS)]
        self._started = time.monotonic()

    @property
    def parts(self) -> Sequence[Part]:
        """All processes."""
        return (*self._webs, *self._clusters)

    def play(self, *, seconds: float, sessions: int, writers: int) -> list[str]:
        """Start, do mischief, settle, stop, look; return a sentence for each violation."""
        ledger, mischief = self._prepare(sessions, seconds)
        writing = Writers(
            ledger=ledger,
            ports=[web.port for web in self._webs],
            seed=self.seed,
            count=writers,
        )
        writing.start()
        mischief.start()
        self._watch(seconds, ledger, mischief)
        mischief.end()
        self.model.steady()
        found = self._settle(writing, ledger, mischief)
        found += self._end_processes()
        found += mischief.faults + ledger.refusals
        found += self._look(ledger)
        found += self._doctor()
        found += too_little(report.done(ledger, mischief), sessions=sessions)
        for line in report.table(ledger, mischief, self.model):
            self.say(line)
        return found

    def stop(self) -> None:
        """Kill everything."""
        for part in self.parts:
            part.kill()

    def _prepare(self, sessions: int, seconds: float) -> tuple[Ledger, Mischief]:
        call_command("migrate", verbosity=0)
        ledger = Ledger(make_books(sessions))
        for part in self.parts:
            part.start()
        for part in self.parts:
            part.wait_until_ready()
        self.say(f"{self._seconds():5.0f} s  {', '.join(part.name for part in self.parts)} work")
        mischief = Mischief(
            surroundings=self.surroundings,
            model=self.model,
            ledger=ledger,
            webs=self._webs,
            clusters=self._clusters,
            seed=self.seed,
            seconds=seconds,
        )
        return ledger, mischief

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _watch(self, seconds: float, ledger: Ledger, mischief: Mischief) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(PROGRESS_SECONDS, left))
            self.say(report.progress(self._seconds(), ledger, mischief))

    def _settle(self, writing: Writers, ledger: Ledger, mischief: Mischief) -> list[str]:
        """Let the last requests be answered and the last runs end; the sweep does its part."""
        found = []
        # From here on only this process sweeps, so that nothing begins after the last look.
        Schedule.objects.all().delete()
        if not writing.finish(LAST_ANSWERS_SECONDS):
            found += [
                f"Session {book.session_id}: {book.open.key} was never acknowledged, although it "
                f"was sent {book.open.attempts} times."
                for book in ledger.waiting()
                if book.open is not None
            ]
        self.say(f"{report.progress(self._seconds(), ledger, mischief)}; nothing is sent any more")
        end = time.monotonic() + SETTLE_SECONDS
        quiet = 0
        while quiet < QUIET_LOOKS and time.monotonic() < end:
            mischief.sweep()
            time.sleep(SWEEP_SECONDS)
            quiet = 0 if unfinished_runs() else quiet + 1
        self.say(report.progress(self._seconds(), ledger, mischief))
        return found

    def _end_processes(self) -> list[str]:
        for part in self.parts:
            part.terminate()
        found = [
            f"{part.name} had not ended {STOP_SECONDS} s after the last SIGTERM; see "
            f"{part.log.name}."
            for part in self.parts
            if not part.ends_within(STOP_SECONDS)
        ]
        self.stop()
        return found

    def _look(self, ledger: Ledger) -> Iterator[str]:
        """Yield what does not hold for any session."""
        for book in ledger.books:
            branches = list(read_branches(book.session_id))
            if len(branches) != 1:
                yield f"Session {book.session_id}: it has {len(branches)} branches instead of one."
            for branch in branches[:1]:
                yield from violations(branch, book.sent)
        told = self._told()
        allowed = {
            book.number: inf if has_shortened(book.session_id) else told[book.session_id]
            for book in ledger.books
        }
        yield from not_whole(self.model.requests, allowed)
        connection.close()

    def _told(self) -> Counter[str]:
        """Return how often the logs say, for every session, that a request left messages out."""
        logs = (web.log.read_text(errors="replace") for web in self._webs)
        return Counter(session for log in logs for session in LEFT_OUT.findall(log))

    def _doctor(self) -> list[str]:
        """Return what `manage.py doctor` calls an error."""
        examined = subprocess.run(
            [sys.executable, "manage.py", "doctor", "--json"],
            cwd=ROOT,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=DOCTOR_SECONDS,
        )
        self.say(f"doctor: {examined.stderr.strip().rpartition(chr(10))[2]}")
        findings = [json.loads(line) for line in examined.stdout.splitlines() if line]
        errors = [one for one in findings if one["severity"] == "error"]
        found = [f"doctor: {one['code']}: {one['text']} {one}" for one in errors]
        if examined.returncode != 0 and not found:
            found.append(f"doctor ended with {examined.returncode}: {examined.stderr[-500:]}")
        return found
