# SPDX-License-Identifier: Apache-2.0
"""The same load by PyPI `rocketmq` 0.4.4, the C++ library, for comparison; needs that package's own venv.

.interop/venv-cpp/bin/python benchmarks/client_cpp.py NAMESRV TOPIC COUNT [THREADS]
"""

from __future__ import annotations

import resource
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report(what: str, count: int, cpu: float, wall: float) -> None:
    print(
        f"{what:<28} {count:>8} messages  {count / wall:>9.0f}/s  {cpu / count * 1e6:>6.1f} us CPU a message"
        f"  {count / cpu:>9.0f}/s a core",
        flush=True,
    )


def warm(producer: Producer, topic: str) -> None:
    """Its threads fail while the route of a topic is first asked for."""
    for _ in range(50):
        try:
            message = Message(topic)
            message.set_body(b"x" * 128)
            producer.send_sync(message)
        except Exception:
            time.sleep(0.1)
        else:
            return


def send(namesrv: str, topic: str, count: int, threads: int) -> int:
    producer = Producer("bench-cpp")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    warm(producer, topic)
    left = iter(range(count - 1))
    taking = threading.Lock()
    failed: list[int] = []

    def worker() -> None:
        while True:
            with taking:
                if next(left, None) is None:
                    return
            message = Message(topic)
            message.set_body(b"x" * 128)
            try:
                producer.send_sync(message)
            except Exception:
                failed.append(1)  # "No route info" now and then, while its route cache is refreshed

    cpu, wall = cpu_seconds(), time.perf_counter()
    workers = [threading.Thread(target=worker) for _ in range(threads)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    sent = count - 1 - len(failed)
    report(f"C++ send, {threads} threads", sent, cpu_seconds() - cpu, time.perf_counter() - wall)
    producer.shutdown()
    return sent + 1


def consume(namesrv: str, topic: str, count: int) -> None:
    consumer = PushConsumer(f"bench-cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    seen, done = [0], threading.Event()

    def handle(message: object) -> None:
        seen[0] += 1
        if seen[0] >= count:
            done.set()

    consumer.subscribe(topic, handle)
    cpu, wall = cpu_seconds(), time.perf_counter()
    consumer.start()
    done.wait(120)
    report("C++ push", seen[0], cpu_seconds() - cpu, time.perf_counter() - wall)
    consumer.shutdown()


if __name__ == "__main__":
    address, name, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    stored = send(address, name, number, int(sys.argv[4]) if len(sys.argv) > 4 else 16)
    consume(address, name, stored)
