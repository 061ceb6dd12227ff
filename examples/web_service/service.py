"""A web service with workers in other processes.

    POST /jobs         a job; 202. Posted again with its Idempotency-Key it is still one job; 200
    GET /results/NAME  its result; 404 while there is none

This process has the store open. The workers connect to it, see worker.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stratalog import InvalidMessage, MessageStore, StoreClosed, StoreError
from stratalog.endpoint import RocketMQEndpoint

DAY_MS = 86_400_000
MAX_BYTES = 1 << 20
WORKER = Path(__file__).with_name("worker.py")


class Service(ThreadingHTTPServer):
    """The HTTP server, with the store and the newest results."""

    def __init__(self, store: MessageStore, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.store = store
        self.results: dict[str, dict[str, Any]] = {}
        store.configure_topic("jobs", queues=4, keep="until_acknowledged", id_window_ms=DAY_MS)
        threading.Thread(target=self._follow_results).start()

    def _follow_results(self) -> None:
        """Read the results from the first one on, and go on with new ones until the store is closed."""
        offset = 0
        try:
            while True:
                for message in self.store.read("results", 0, offset, wait_ms=60_000):
                    self.results[(message.key or b"").decode()] = json.loads(message.data)
                    offset = message.offset + 1
        except StoreClosed:
            pass


class Handler(BaseHTTPRequestHandler):
    """One request, in a thread of its own. Threads that append at once share a write and its force."""

    server: Service

    def do_POST(self) -> None:
        """Take a job. The answer goes out when the job is durable."""
        size = self.headers.get("Content-Length", "")
        if self.path != "/jobs":
            return self._answer(404, {"error": "there is POST /jobs"})
        if not size.isdecimal() or int(size) > MAX_BYTES:
            return self._answer(413, {"error": "a job has a Content-Length, of at most 1 MiB"})
        text = self.rfile.read(int(size))
        if len(text) < int(size):
            return None  # the client is gone, and a part of a job is none
        name = self.headers.get("Idempotency-Key") or uuid.uuid4().hex
        try:
            job = self.server.store.submit("jobs", data=text, key=name.encode(), message_id=name)
            job.result()
        except InvalidMessage as error:
            return self._answer(400, {"error": str(error)})
        except StoreError as error:  # nobody knows whether the job is stored: post it again with its key
            return self._answer(503, {"error": str(error)})
        return self._answer(200 if job.is_repeat else 202, {"job": name, "repeat": job.is_repeat})

    def do_GET(self) -> None:
        """Give a result."""
        result = self.server.results.get(unquote(self.path.removeprefix("/results/")))
        self._answer(200 if result else 404, result or {"error": "no result yet"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def start_worker(address: str) -> subprocess.Popen[bytes]:
    """A process that works. It has a session of its own: a Ctrl-C of the service is not its own."""
    return subprocess.Popen([sys.executable, WORKER, address], start_new_session=True)


def main(folder: str, port: str = "0", workers: str = "2") -> None:
    """Serve until SIGTERM or Ctrl-C; start workers that died anew."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes: list[subprocess.Popen[bytes]] = []
    with MessageStore.open(folder) as store, RocketMQEndpoint(store) as endpoint, Service(store, int(port)) as service:
        threading.Thread(target=service.serve_forever).start()
        print(f"http://127.0.0.1:{service.server_port}", flush=True)
        try:
            while True:
                alive = [process for process in processes if process.poll() is None]
                processes = alive + [start_worker(endpoint.address) for _ in range(int(workers) - len(alive))]
                time.sleep(0.1)
        except KeyboardInterrupt:
            service.shutdown()
        finally:
            for process in processes:
                process.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
