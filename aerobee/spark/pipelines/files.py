# SPDX-License-Identifier: Apache-2.0
"""Files by Hadoop's FileSystem, so that a table may live on any storage Spark can write to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """The few operations a table's commit needs, relative to `root`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark._jvm
        self.root = root.rstrip("/")
        configuration = spark._jsc.hadoopConfiguration()
        self._fs = self._path("").getFileSystem(configuration)
        # No .crc side files: other readers would stumble over them, and the data has checks of its own.
        self._fs.setWriteChecksum(False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def delete(self, name: str) -> None:
        self._fs.delete(self._path(name), True)

    def move(self, source: str, target: str) -> None:
        self._fs.mkdirs(self._path(target).getParent())
        if not self._fs.rename(self._path(source), self._path(target)):
            raise OSError(f"cannot move {self.root}/{source} to {target}")

    def glob(self, pattern: str) -> list[str]:
        """Names relative to the root, sorted."""
        found = self._fs.globStatus(self._path(pattern))
        prefix = self._fs.makeQualified(self._path("")).toUri().getPath().rstrip("/") + "/"
        return sorted(status.getPath().toUri().getPath().removeprefix(prefix) for status in (found or []))

    def size(self, name: str) -> int:
        return int(self._fs.getFileStatus(self._path(name)).getLen())

    def read_json(self, name: str) -> Any:
        stream = self._fs.open(self._path(name))
        try:
            return json.loads(bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)))
        finally:
            stream.close()

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, json.dumps(value, sort_keys=True, ensure_ascii=False).encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Whole or not at all: written beside, then renamed."""
        fresh = f"{name}.tmp"
        stream = self._fs.create(self._path(fresh), True)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()
        self._fs.delete(self._path(name), False)
        self.move(fresh, name)
