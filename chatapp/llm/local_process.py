"""What runs in the local model's own process: llama.cpp's server, until its parent is gone.

The parent ends it with SIGTERM, which no Python code has to see: the library holds the interpreter
while it loads, and waits for running answers when it is asked to stop. Neither should keep anybody
waiting, and there is nothing to clean up.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from typing import Any

from chatapp.llm.local import HOST, LIBRARY

# Conversations whose prompt was read already, so that it is not read again; the library's own
# default is 8 GB.
PROMPT_CACHE_MIB = 512
_ERRORS_ONLY = 1


def main(description: str) -> int:
    """Serve the model that a JSON object describes; return only when that is impossible."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    library = importlib.import_module(LIBRARY)
    try:
        server = library.Server(parameters(library, **json.loads(description)))
    except RuntimeError:
        return 1  # the library has written why
    threading.Event().wait()
    del server  # alive until here: the library stops serving when nobody refers to it
    return 0


def parameters(
    library: Any, *, gguf: str, port: int, context: int, threads: int, alias: str
) -> Any:
    """Return the library's parameters for one model, one conversation at a time, on loopback."""
    wanted = library.CommonParams()
    wanted.model.path = gguf
    wanted.model_alias = {alias}
    wanted.hostnames = [HOST]
    wanted.port = port
    wanted.reuse_port = False
    wanted.n_ctx = context
    # More slots would share the window and, on few cores, only slow each other down.
    wanted.n_parallel = 1
    wanted.cpuparams.n_threads = threads
    wanted.cpuparams_batch.n_threads = threads
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


def _end_with_parent() -> None:
    """End the process when the parent's end of the pipe is closed, however the parent died."""
    # Not through sys.stdin, whose lock a waiting thread would hold when the interpreter ends.
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
