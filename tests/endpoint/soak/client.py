"""The process of the endpoint's soak: producers and consumers of the official Python package, until its input ends.

Each line of its output is a JSON list: ["sending", name], ["sent", name] once that is answered, or ["failed", name,
error]; ["came", name], ["acking", name] and ["acked", name] once that is answered; ["idle"] after a receive without a
message.
The line `quiet` on standard input ends the sending.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq import FilterExpression, SimpleConsumer

from ..rocketmq.official_client import configuration, message, producer

TOPIC, GROUP = "soak", "soakers"
SENDERS, RECEIVERS = 2, 2
INVISIBLE_S = 20
POLL_S = 1
REST_S = 0.05  # after an error


class Client:
    """What the threads share."""

    def __init__(self) -> None:
        self.is_quiet = threading.Event()
        self.is_over = threading.Event()

    def say(self, *words: str) -> None:
        """One line, whole: it is one write."""
        os.write(1, f"{json.dumps(words)}\n".encode())

    def send(self, producer: Any, sender: int) -> None:
        """Send messages one after the other. One that has failed is not sent again: nobody knows what came of it."""
        number = 0
        while not self.is_quiet.is_set():
            name, number = f"{sender}/{number}", number + 1
            self.say("sending", name)
            try:
                producer.send(message(TOPIC, name.encode()))
            except Exception as error:
                self.say("failed", name, type(error).__name__)
                time.sleep(REST_S)  # a dead endpoint refuses at once
            else:
                self.say("sent", name)

    def receive(self, consumer: Any) -> None:
        """Receive and acknowledge."""
        while not self.is_over.is_set():
            try:
                found = consumer.receive(8, INVISIBLE_S)
            except Exception:  # of the official client, of whatever kind: the endpoint is dead, and comes back
                time.sleep(REST_S)  # it refuses at once
                continue
            if not found:
                self.say("idle")
            for one in found:
                self.say("came", one.body.decode())
            for one in found:
                self.acknowledge(consumer, one)

    def acknowledge(self, consumer: Any, one: Any) -> None:
        """Acknowledge once; what fails comes again."""
        name = one.body.decode()
        self.say("acking", name)
        try:
            consumer.ack(one)
        except Exception:
            return
        self.say("acked", name)


def main(address: str) -> None:
    """Run until the end."""
    client = Client()
    wanted = {TOPIC: FilterExpression("*")}
    with producer(address, TOPIC) as sender:
        receiver = SimpleConsumer(configuration(address), GROUP, wanted, await_duration=POLL_S)
        receiver.startup()
        threads = [threading.Thread(target=client.send, args=(sender, number)) for number in range(SENDERS)]
        threads += [threading.Thread(target=client.receive, args=(receiver,)) for _ in range(RECEIVERS)]
        for thread in threads:
            thread.start()
        for line in sys.stdin:
            if line.strip() == "quiet":
                client.is_quiet.set()
        client.is_quiet.set()
        client.is_over.set()
        for thread in threads:
            thread.join()
        receiver.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
