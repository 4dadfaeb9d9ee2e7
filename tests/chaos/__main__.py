"""The chaos test: real web workers and queue clusters, and everything that can go wrong with them.

    python -m tests.chaos [--seconds 90] [--seed N] [--sessions 50] [--writers 8]

It needs PostgreSQL (DATABASE_URL) and Redis (REDIS_URL), and works on a database, a queue and a
folder of its own. Writers post messages and turns; meanwhile processes are killed and stopped,
connections cut, tasks delivered twice, runs cancelled, and the summariser is slow or fails. Then
everything settles, and what is stored is compared with what was acknowledged. Exit status 0: all
invariants hold; 1: they do not; 2: wrong usage, or PostgreSQL or Redis is not there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from tests.chaos.model import UnsteadyModel
from tests.chaos.surroundings import DRIVER, NotThereError, Surroundings

if TYPE_CHECKING:
    from tests.chaos.scene import Scene

VIOLATIONS_STATUS, USAGE_STATUS, WATCHDOG_STATUS = 1, 2, 3
# Starting, settling and looking take less than that; then everything is killed.
SPARE_SECONDS = 150


def main(arguments: list[str]) -> int:
    """Make chaos, look at what came of it, and return the exit status."""
    options = _options(arguments)
    try:
        surroundings = Surroundings.of(os.environ, database=options.database)
    except NotThereError as missing:
        print(missing, file=sys.stderr)
        return USAGE_STATUS
    say(f"Seed {options.seed}; {options.sessions} sessions, {options.writers} writers")
    found: list[str] = ["It did not come to its end."]
    try:
        with UnsteadyModel(options.seed) as model:
            found = _play(surroundings, model, options)
    finally:
        surroundings.remove(keep=options.keep)
    return VIOLATIONS_STATUS if found else 0


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def _play(
    surroundings: Surroundings, model: UnsteadyModel, options: argparse.Namespace
) -> list[str]:
    scene = _scene(surroundings, model, options.seed)
    from tests.chaos.report import verdict

    watchdog = threading.Timer(options.seconds + SPARE_SECONDS, _give_up, [scene])
    watchdog.daemon = True
    watchdog.start()
    signal.signal(signal.SIGTERM, _end_on_signal)
    try:
        found = scene.play(
            seconds=options.seconds, sessions=options.sessions, writers=options.writers
        )
    finally:
        scene.stop()
        watchdog.cancel()
        _close_connections()
    for line in verdict(found):
        say(line)
    if options.keep:
        say(f"Kept: database {surroundings.database}, logs in {surroundings.folder}")
    return found


def _scene(surroundings: Surroundings, model: UnsteadyModel, seed: int) -> Scene:
    """Make the database, set up Django for it in this process, and return the scene."""
    surroundings.create()
    environment = surroundings.environment(model.url)
    # Errors of this process are seen where they are caught; its connections are spared.
    os.environ.update(environment | {"LOG_LEVEL": "CRITICAL", "PGAPPNAME": DRIVER})
    import django

    django.setup()
    from tests.chaos.scene import Scene

    return Scene(
        surroundings=surroundings, environment=environment, model=model, seed=seed, say=say
    )


def _close_connections() -> None:
    from django.db import connections

    connections.close_all()


def _give_up(scene: Scene) -> None:
    """Kill everything: something waits that should not."""
    say("The chaos test did not end in its time: everything is killed.")
    scene.stop()
    # A process that was being started again meanwhile.
    scene.stop()
    os._exit(WATCHDOG_STATUS)


def _end_on_signal(number: int, frame: Any) -> None:
    """End as after an error, so that no process stays."""
    sys.exit(128 + number)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=90, help="how long the chaos lasts")
    parser.add_argument("--seed", type=int, help="which chaos; without it, another one each time")
    parser.add_argument("--sessions", type=_positive, default=50)
    parser.add_argument("--writers", type=_positive, default=8)
    parser.add_argument("--database", default="palimpsest_chaos", help="is dropped and made anew")
    parser.add_argument("--keep", action="store_true", help="leave database and logs for a look")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
