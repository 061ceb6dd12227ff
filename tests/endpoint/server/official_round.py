"""A program with the official Python client: `python -m ... ADDRESS plain|tls USER SECRET` sends and receives once."""

from __future__ import annotations

import sys

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer


def main(address: str, kind: str, user: str, secret: str) -> None:
    """Prints what it received."""
    is_tls = kind == "tls"
    configuration = ClientConfiguration(address, Credentials(user, secret), "")
    producer = Producer(configuration, ["orders"], tls_enable=is_tls)
    producer.startup()
    message = Message()
    message.topic, message.body = "orders", f"by {kind}".encode()
    producer.send(message)
    consumer = SimpleConsumer(configuration, kind, {"orders": FilterExpression("*")}, 5, tls_enable=is_tls)
    consumer.startup()
    for got in consumer.receive(32, 15):
        consumer.ack(got)
        print(got.body.decode())
    consumer.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
