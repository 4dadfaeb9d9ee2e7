"""Stands in for xllamacpp: copied under its name, it writes down what it was given.

Environment and parameters go into the file's `.json`. The bytes behind the file's magic say what to
do: `fails`, `killed`, or nothing, and then it loads for half a second and answers.
"""

import http.server
import json
import os
import pathlib
import signal
import threading
import time
from types import SimpleNamespace


def CommonParams():
    return SimpleNamespace(
        model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
    )


def plain(value):
    if isinstance(value, SimpleNamespace):
        return {name: plain(inner) for name, inner in vars(value).items()}
    return sorted(value) if isinstance(value, set) else value


ENVIRONMENT = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GGML_NO_BACKTRACE")}


class Server:
    def __init__(self, wanted):
        path = pathlib.Path(wanted.model.path)
        told = {"environment": ENVIRONMENT, "parameters": plain(wanted), "pid": os.getpid()}
        path.with_suffix(".json").write_text(json.dumps(told))
        behaviour = path.read_bytes()[4:].decode()
        if behaviour == "fails":
            raise RuntimeError("Failed to init server")
        if behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        ready = time.monotonic() + 0.5
        window = min(wanted.n_ctx, 2048)

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                loading = time.monotonic() < ready
                meta = {"n_ctx": window, "n_ctx_train": 2048}
                body = {"error": {"code": 503}} if loading else {"data": [{"meta": meta}]}
                self.send_response(503 if loading else 200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

        server = http.server.ThreadingHTTPServer((wanted.hostnames[0], wanted.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
