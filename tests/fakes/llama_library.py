"""Stands in for xllamacpp: copied under its name, it writes down what it was given.

Environment and parameters go into the file's `.json`. The bytes behind the file's magic say what to
do: `fails`, `slow`, or nothing, and then it loads for half a second and answers.
"""

import http.server
import json
import os
import pathlib
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
        time.sleep(60 if behaviour == "slow" else 0.5)
        window = min(wanted.n_ctx, 2048)

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                meta = {"n_ctx": window, "n_ctx_train": 2048}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"data": [{"meta": meta}]}).encode())

        try:
            server = http.server.ThreadingHTTPServer((wanted.hostnames[0], wanted.port), Handler)
        except OSError as error:
            raise RuntimeError("Failed to init server") from error
        self.listening_address = "http://{}:{}".format(*server.server_address)
        threading.Thread(target=server.serve_forever, daemon=True).start()
