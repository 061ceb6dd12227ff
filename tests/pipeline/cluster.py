"""A standalone cluster of Spark on loopback: a master and some workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from stratalog.pipeline.java import java_home

from ..checkout import ROOT

PATIENCE_S = 120.0
CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}


class Cluster:
    """Running while its `with` statement does. `url` is the master's."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._port = _free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Cluster:
        try:
            self._start("master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
            self._wait_for(lambda: _listens(self._port))
            for number in range(self._workers):
                work = str(self._folder / f"worker-{number}")
                self._start(
                    "worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                    "--work-dir", work, self.url,
                )  # fmt: skip
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self, kind: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT),
                       "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable,
                       "SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=1800"}  # fmt: skip
        java = java_home()
        if java is not None:
            environment["JAVA_HOME"] = str(java)
        log = (self._folder / f"{kind}-{len(self._processes)}.log").open("wb")
        command = [str(home / "bin" / "spark-class"), CLASSES[kind], *arguments]
        self._processes.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        )  # fmt: skip

    def _wait_for(self, condition: object) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():  # type: ignore[operator]  # any callable without arguments
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster does not start; see its logs")
            time.sleep(0.1)  # a process of its own starts, and tells nobody

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        found = []
        for process in self._processes[1:]:
            for child in psutil.Process(process.pid).children(recursive=True):
                try:
                    if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                        found.append(child)
                except psutil.Error:
                    continue
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                try:
                    child.kill()
                except psutil.NoSuchProcess:
                    continue
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
