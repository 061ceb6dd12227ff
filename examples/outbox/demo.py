"""A shop and a relay that are killed again and again: no order is lost, and none is there twice."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from relay import TABLE
from shop import GOODS, Shop

from stratalog import MessageStore

HERE = Path(__file__).parent
ORDERS = 300
KILLS = 3


def start(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    """One of the two programs, in a process of its own."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGKILL."""
    process.kill()
    process.communicate()


def rows_in(database: Path) -> list[tuple[str, str, int]]:
    """The orders that have come through, in their order."""
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(TABLE)
        return list(opened.execute("SELECT name, item, count FROM orders ORDER BY offset"))


def main(folder: Path, chance: random.Random) -> None:
    """Kill, then let them finish, and compare."""
    store, database = folder / "store", folder / "orders.sqlite"
    MessageStore.open(store).close()
    relay = start("relay.py", store, database)
    for _ in range(KILLS):
        shop = start("shop.py", store, ORDERS)
        assert shop.stdout is not None
        for _ in range(chance.randrange(1, ORDERS // KILLS)):
            shop.stdout.readline()  # an order is taken
        kill(shop)
        time.sleep(chance.random() * 0.1)
        kill(relay)
        relay = start("relay.py", store, database)
    print(f"killed {KILLS} shops and {KILLS} relays")
    start("shop.py", store, ORDERS).communicate()
    while len(rows := rows_in(database)) < ORDERS:
        time.sleep(0.02)
    kill(relay)
    with MessageStore.open(store) as opened:
        taken = Shop(opened)
    print(f"orders in the shop: {len(taken.orders)}, in the database: {len(rows)}")
    print("each once, and in order:", [name for name, _, _ in rows] == [f"o-{number}" for number in range(ORDERS)])
    sold = {item: sum(count for _, of, count in rows if of == item) for item in taken.left}
    print("sold and left make the stock:", all(sold[item] + left == GOODS for item, left in taken.left.items()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made), random.Random())
