"""What it takes to serve a small model on this machine, and what is wrong when it cannot be.

`local_server.py` runs the process, `local_process.py` is what runs in it.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

# Nobody but this machine may reach the server: it has no key and no limits.
HOST = "127.0.0.1"
DEFAULT_PORT = 8080
LARGEST_PORT = 65_535
DEFAULT_CONTEXT_TOKENS = 4096
# llama.cpp rounds up to multiples of 256, and aborts below that.
SMALLEST_CONTEXT_TOKENS = 256
LARGEST_CONTEXT_TOKENS = 1_048_576
MOST_THREADS = 512
LIBRARY = "xllamacpp"
INSTALL = "pip install 'palimpsest[local]', in a checkout pip install -e '.[local]'"
# A quarter of the window for the answer, but no longer one than people wait for.
LARGEST_ANSWER_TOKENS = 1024
_MAGIC = b"GGUF"
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


def answer_tokens(window: int) -> int:
    """Return how long an answer may be so that most of the window is left for the conversation."""
    return min(LARGEST_ANSWER_TOKENS, window // 4)


def usable_cores() -> int:
    """Return how many cores this process may use: a container's share, not the whole machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def require_gguf(path: Path) -> None:
    """Raise LocalModelError unless the path is a file that begins as a GGUF file does."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise LocalModelError(f"There is no file {path}. Name a GGUF file with --gguf.") from error
    except OSError as error:
        raise LocalModelError(
            f"{path} cannot be read: {error.strerror}. Name a GGUF file with --gguf."
        ) from error
    if start != _MAGIC:
        raise LocalModelError(
            f"{path} is no GGUF file: it begins with {start!r}, not with {_MAGIC!r}. Download it "
            "again, or convert the model; only GGUF can be served."
        )


def require_sensible(model: LocalModel) -> None:
    """Raise LocalModelError for numbers with which no server can start."""
    if not SMALLEST_CONTEXT_TOKENS <= model.context <= LARGEST_CONTEXT_TOKENS:
        raise LocalModelError(
            f"A window of {model.context} tokens cannot be served: --ctx takes "
            f"{SMALLEST_CONTEXT_TOKENS} to {LARGEST_CONTEXT_TOKENS}."
        )
    if not 1 <= model.threads <= MOST_THREADS:
        raise LocalModelError(
            f"{model.threads} threads cannot work: --threads takes 1 to {MOST_THREADS}; this "
            f"process may use {usable_cores()} cores."
        )
    if not model.alias.isprintable():
        raise LocalModelError("The name of the model (--alias) holds characters nobody can see.")


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


def require_library() -> None:
    """Raise LocalModelError where the extra is not installed. Nothing is imported."""
    if importlib.util.find_spec(LIBRARY) is None:
        raise LocalModelError(f"{LIBRARY} is not installed. Install the extra: {INSTALL}.")


def free_port(wanted: int) -> int:
    """Return the port to listen on, for 0 any free one; raise LocalModelError when it is taken."""
    if not 0 <= wanted <= LARGEST_PORT:
        raise LocalModelError(
            f"{wanted} is no port: --port takes 1 to {LARGEST_PORT}, or 0 for any free one."
        )
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, wanted))
        except OSError as error:
            raise LocalModelError(
                f"Port {wanted} is taken or not allowed. Choose another one with --port; 0 takes "
                "any free one."
            ) from error
        return int(listener.getsockname()[1])
