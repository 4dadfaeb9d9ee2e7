"""The process that serves a local model: started, waited for, and gone at the end of the block."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from chatapp.llm.local import HOST, LocalModel, LocalModelError

POLL_SECONDS = 0.1
ANSWER_SECONDS = 5.0
STOP_SECONDS = 5.0
_BASE_DIR = Path(__file__).resolve().parents[2]
# Read when the library is loaded, so they must stand in the process's environment before that.
# Threads that wait by spinning are in each other's way as soon as a core has anything else to do:
# on two cores that is 4 tokens a second instead of 26. Whoever sets it in the shell knows better.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that answers: its window, and the longest text its model was trained on; tokens."""

    window: int
    trained: int


class LocalServer:
    """llama.cpp's server in a child process for the length of a `with` block.

    A child, because the library can die by a signal, and cannot be interrupted. It has a session
    of its own, so that Ctrl-C reaches the parent only, and it ends when the parent does: even after
    SIGKILL nothing stays behind.
    """

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for OPENAI_BASE_URL."""
        return f"http://{HOST}:{self._model.port}/v1"

    def __enter__(self) -> LocalServer:
        description = json.dumps(asdict(self._model) | {"gguf": str(self._model.gguf)})
        self._process = subprocess.Popen(  # noqa: S603 - a command line of this module
            [sys.executable, "-m", "chatapp.llm.local_process", description],
            cwd=_BASE_DIR,
            env=_ENVIRONMENT | os.environ,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_ready(self) -> Serving:
        """Return when the model is loaded, however long that takes.

        Raises LocalModelError when the process ends instead.
        """
        while True:
            found = _asked(self._model.port)
            self._must_live()
            if found is not None:
                return found
            time.sleep(POLL_SECONDS)

    def wait_until_ended(self) -> None:
        """Raise LocalModelError when the process has ended by itself; return never."""
        while True:
            self._must_live()
            time.sleep(POLL_SECONDS)

    def _must_live(self) -> None:
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise LocalModelError(ended_sentence(status))

    def stop(self) -> None:
        """End the process; a request it was answering is cut off."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()


def ended_sentence(status: int) -> str:
    """Return what a process's end means, and what to do."""
    if status == -signal.SIGKILL:
        return (
            "The model server was killed, most likely because memory ran out. Take a smaller "
            "model, or a smaller window with --ctx."
        )
    if status == -signal.SIGILL:
        return (
            "The model server met an instruction that this processor does not have. Serve the "
            "model on another machine, and name its address in OPENAI_BASE_URL."
        )
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return (
        f"The model server ended by itself ({how}); its last lines above say why. The file may be "
        "damaged, or too new for the installed xllamacpp, or memory too small for the window."
    )


def _asked(port: int) -> Serving | None:
    """Return what the server says of its model; None while it loads (status 503) or starts."""
    # http.client, because it asks no proxy.
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            return None
        meta: dict[str, Any] = json.loads(body)["data"][0]["meta"]
        return Serving(window=int(meta["n_ctx"]), trained=int(meta["n_ctx_train"]))
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None
    finally:
        connection.close()
