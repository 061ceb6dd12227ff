"""Sales an hour, kept up to date by a stream from a store to a store."""

from __future__ import annotations

import json
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum, window
from pyspark.sql.streaming.query import StreamingQuery

from stratalog import MessageStore
from stratalog.pipeline import spark_session

ORDER = "from_json(cast(data as string), 'at timestamp, cents long') as order"
ROW = "'hours' as topic", "0 as queue_id", "to_json(struct(hour.start as hour, orders, cents)) as data"
SETTINGS = {"spark.sql.shuffle.partitions": "2"}  # the parts of the stream's state; 200 are for a cluster


def hourly(spark: SparkSession, folder: str) -> StreamingQuery:
    """Add up the orders that have come since the last run. An hour is written when an order of a later one has come.

    Without the trigger the query goes on with new orders. If it is killed, the next run goes on where it was, and each
    hour is in the store once.
    """
    messages = spark.readStream.format("stratalog").option("topic", "orders").option("columns", "data")
    orders = messages.load(f"{folder}/shop").selectExpr(ORDER).select("order.*")
    hours = orders.withWatermark("at", "0 seconds").groupBy(window("at", "1 hour").alias("hour"))
    totals = hours.agg(count("*").alias("orders"), sum("cents").alias("cents"))
    query = totals.selectExpr(*ROW).writeStream.format("stratalog").option("path", f"{folder}/totals")
    return query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()


def sell(folder: str, hour: int, orders: int) -> None:
    """Append orders of an hour to the shop's store."""
    made = [{"at": f"2026-11-27T{hour:02}:{number % 60:02}:00Z", "cents": 100 * number} for number in range(orders)]
    with MessageStore.open(f"{folder}/shop") as store:
        store.append_batch([("orders", number % 4, json.dumps(order).encode()) for number, order in enumerate(made)])


def main(spark: SparkSession, folder: str) -> None:
    """Sell, run the stream, and look at the totals; twice."""
    for hours in ([9, 10, 11], [12]):
        for hour in hours:
            sell(folder, hour, orders=1000)
        hourly(spark, folder).awaitTermination()
        print("after orders of the hours", hours)
        with MessageStore.open(f"{folder}/totals", read_only=True) as totals:
            for row in sorted(message.data.decode() for message in totals.read("hours", 0)):
                print(row)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(spark_session("local[2]", settings=SETTINGS), made)
