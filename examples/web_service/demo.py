"""A job whose worker is killed, and a service that is killed: each job is done once all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SERVICE = Path(__file__).with_name("service.py")


def start(folder: str, work_s: float) -> tuple[subprocess.Popen[str], str]:
    """The service, whose jobs take so long, and its address: the first line that it prints."""
    environment = {**os.environ, "WORK_S": str(work_s)}
    service = subprocess.Popen([sys.executable, SERVICE, folder], env=environment, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    return service, service.stdout.readline().strip()


def worker_of(service: subprocess.Popen[str], job: str) -> int:
    """The process that has a job now: workers print it."""
    assert service.stdout is not None
    return next(int(line.split()[0]) for line in service.stdout if line.split()[2] == job)


def ask(url: str, job: str | None = None, text: str | None = None) -> tuple[int, Any]:
    """The status and the answer: of a POST if there is a text, else of a GET."""
    headers = {"Idempotency-Key": job} if job else {}
    request = urllib.request.Request(url, text.encode() if text is not None else None, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def result_of(address: str, job: str) -> Any:
    """The result, once there is one."""
    while True:
        status, result = ask(f"{address}/results/{job}")
        if status == 200:
            return result
        time.sleep(0.02)


def main(folder: str) -> None:
    """Post, kill, post again, and look."""
    service, address = start(folder, work_s=3600)
    print("POST poem:", *ask(f"{address}/jobs", "poem", "the quick brown fox"))
    os.kill(worker_of(service, "poem"), signal.SIGKILL)
    print("its worker is killed in the middle, and another one gets it")
    worker = worker_of(service, "poem")
    service.kill()
    os.kill(worker, signal.SIGKILL)
    print("the service is killed, that worker too, and the service is started again")
    service.communicate()
    service, address = start(folder, work_s=0.1)
    print("POST poem, again:", *ask(f"{address}/jobs", "poem", "the quick brown fox"))
    print("POST letter:", *ask(f"{address}/jobs", "letter", "dear all"))
    print("GET poem:", result_of(address, "poem"))
    print("GET letter:", result_of(address, "letter"))
    service.terminate()
    service.communicate()  # until it has ended, and its workers too


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
