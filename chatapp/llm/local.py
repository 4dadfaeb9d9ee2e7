"""A small model on this machine: llama.cpp's server inside this process, reachable from it alone.

The extra `local` brings the library. It finds a free port, says on the error output why it cannot
start, and answers in threads of its own; here stands only what it would do otherwise by itself.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import platform
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Nobody but this machine may reach the server: it has no key and no limits.
HOST = "127.0.0.1"
LIBRARY = "xllamacpp"
INSTALL = "pip install 'palimpsest[local]', in a checkout pip install -e '.[local]'"
# A quarter of the window for the answer, but no longer one than people wait for.
LARGEST_ANSWER_TOKENS = 1024
# Conversations whose prompt was read already, so that it is not read again; the library's own
# default is 8 GB.
PROMPT_CACHE_MIB = 512
ANSWER_SECONDS = 5.0
_ERRORS_ONLY = 1
# Read when the library is loaded. Threads that wait by spinning are in each other's way as soon as
# a core has anything else to do: on two cores that is 4 tokens a second instead of 26. Whoever sets
# it in the shell knows better.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}
_CPUINFO = Path("/proc/cpuinfo")


class LocalModelError(Exception):
    """The model cannot be served; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """What to serve and how: the file, the port, the window in tokens, threads, the name."""

    gguf: Path
    port: int
    context: int
    threads: int
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that answers: its address, its window, and the longest text of its training."""

    url: str
    window: int
    trained: int
    # The library stops serving when nobody refers to it.
    server: Any


def serve(model: LocalModel) -> Serving:
    """Load the model, however long that takes, and return its server.

    Raises LocalModelError where it cannot be loaded.
    """
    if not model.gguf.is_file():
        raise LocalModelError(f"There is no file {model.gguf}. Name a GGUF file with --gguf.")
    require_processor()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        library = importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        raise LocalModelError(
            f"{LIBRARY} is not installed. Install the extra: {INSTALL}."
        ) from error
    # The library holds the interpreter while it loads, so Python could not see Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = library.Server(_parameters(library, model))
    except RuntimeError as error:
        raise LocalModelError(
            "The model cannot be served; the lines above say why. The port may be taken, the file "
            f"damaged or too new for the installed {LIBRARY}, or memory too small for the window."
        ) from error
    finally:
        signal.signal(signal.SIGINT, handler)
    window, trained = _sizes(server.listening_address)
    return Serving(
        url=f"{server.listening_address}/v1", window=window, trained=trained, server=server
    )


def answer_tokens(window: int) -> int:
    """Return how long an answer may be so that most of the window is left for the conversation."""
    return min(LARGEST_ANSWER_TOKENS, window // 4)


def usable_cores() -> int:
    """Return how many cores this process may use: a container's share, not the whole machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def require_processor(cpuinfo: Path = _CPUINFO) -> None:
    """Raise LocalModelError where the library would die with SIGILL at its first line.

    Where there is no such file (macOS, Windows) or another architecture, nothing is known.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return
    flags = [line.partition(":")[2].split() for line in text.splitlines() if line[:5] == "flags"]
    if flags and not all("avx2" in line for line in flags):
        raise LocalModelError(
            f"This processor has no AVX2, which {LIBRARY} needs. Serve the model on another "
            "machine, and name its address in OPENAI_BASE_URL."
        )


def _parameters(library: Any, model: LocalModel) -> Any:
    """Return the library's parameters for one model, one conversation at a time, on loopback."""
    wanted = library.CommonParams()
    wanted.model.path = str(model.gguf)
    wanted.model_alias = {model.alias}
    wanted.hostnames = [HOST]
    wanted.port = model.port
    wanted.reuse_port = False
    wanted.n_ctx = model.context
    # More slots would share the window and, on few cores, only slow each other down.
    wanted.n_parallel = 1
    wanted.cpuparams.n_threads = model.threads
    wanted.cpuparams_batch.n_threads = model.threads
    wanted.cache_ram_mib = PROMPT_CACHE_MIB
    # A page in this machine's browser can reach loopback too; it may read nothing here, and other
    # people's prompts are shown to nobody.
    wanted.cors_origins = ""
    wanted.ui = False
    wanted.endpoint_slots = False
    # It would load the model twice, to fit it into a graphics card's memory.
    wanted.fit_params = False
    wanted.verbosity = _ERRORS_ONLY
    return wanted


def _sizes(address: str) -> tuple[int, int]:
    """Return the window and the length of the training, as the server tells them; tokens."""
    # http.client, because it asks no proxy.
    place = urlsplit(address)
    connection = http.client.HTTPConnection(
        place.hostname or HOST, place.port, timeout=ANSWER_SECONDS
    )
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models")
        meta = json.loads(connection.getresponse().read())["data"][0]["meta"]
    return int(meta["n_ctx"]), int(meta["n_ctx_train"])
