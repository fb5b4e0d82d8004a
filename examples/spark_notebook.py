# SPDX-License-Identifier: Apache-2.0
"""A PySpark notebook as a script: each `# %%` is a cell in VS Code, and in Jupyter once it is an .ipynb
(`pip install jupytext`, `jupytext --to ipynb spark_notebook.py`). Needs `pip install aerobee[spark]`.

python examples/spark_notebook.py
"""

# %% A server, or the one named by AEROBEE_NAMESRV
from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import aerobee.blocking as aerobee
from aerobee.testing import TestServer

cleanup = ExitStack()
directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
namesrv = os.environ.get("AEROBEE_NAMESRV") or cleanup.enter_context(TestServer()).namesrv
print(f"name server at {namesrv}")

# %% Some orders to look at
with aerobee.Producer(namesrv, group="notebook") as producer:
    for first in range(0, 1_000, 100):
        producer.send_batch(
            [
                aerobee.Message(
                    "notebook-orders",
                    json.dumps(
                        {"order": n, "city": ["Wien", "Graz", "Linz"][n % 3], "amount": n % 50}
                    ).encode(),
                    tags="paid" if n % 4 else "void",
                    keys=[f"o-{n}"],
                )
                for n in range(first, first + 100)
            ]
        )

# %% Spark: it finds Java itself, and the data source needs no jar
from aerobee.spark.sessions import session  # noqa: E402

spark = session("notebook", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
spark.sparkContext.setLogLevel("ERROR")
orders = (
    spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", "notebook-orders").load()
)
orders.printSchema()

# %% Message columns, bodies as JSON
from pyspark.sql import functions as F  # noqa: E402

parsed = orders.select(
    "queueId",
    "queueOffset",
    "tags",
    F.from_json(F.col("body").cast("string"), "order INT, city STRING, amount INT").alias("o"),
).select("queueId", "queueOffset", "tags", "o.*")
by_city = (
    parsed.where("tags = 'paid'").groupBy("city").agg(F.count("*").alias("n"), F.sum("amount").alias("sum"))
)
by_city.orderBy("city").show()

# %% A stream that stops when everything there is has been read; its checkpoint knows how far it is
stream = (
    spark.readStream.format("rocketmq")
    .option("namesrv", namesrv)
    .option("subscribe", "notebook-orders")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    stream.writeStream.format("parquet")
    .option("checkpointLocation", str(directory / "checkpoint"))
    .trigger(availableNow=True)
    .start(str(directory / "lake"))
)
query.awaitTermination()
print(f"rows in the lake: {spark.read.parquet(str(directory / 'lake')).count()}")

# %% And back: a DataFrame becomes messages
by_city.select(
    F.to_json(F.struct("city", "sum")).cast("binary").alias("body"), F.col("city").alias("keys")
).write.format("rocketmq").option("namesrv", namesrv).option("topic", "notebook-sums").mode("append").save()
with aerobee.Admin(namesrv) as admin:
    print("sent back:", sorted(m.body.decode() for m in admin.messages_by_key("notebook-sums", "Wien")))

# %% The end
spark.stop()
cleanup.close()
