# SPDX-License-Identifier: Apache-2.0
"""Files of a table, wherever Spark can write it: by Hadoop's FileSystem, or by Arrow's where no JVM is at hand.

A Spark Connect session has no JVM to call. A lake's batches run in a Python process beside the server then, which sees
the same file systems by Arrow (local and mounted paths, s3://, gs://, hdfs://).
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aerobee.spark.sessions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """The few operations a table's commit needs, relative to `root`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._disk: _Disk = _ByArrow(self.root) if is_remote(spark) else _ByHadoop(spark, self.root)

    def exists(self, name: str) -> bool:
        return self._disk.exists(name)

    def delete(self, name: str) -> None:
        """A file or a folder; nothing when it is not there."""
        self._disk.delete(name)

    def move(self, source: str, target: str) -> None:
        self._disk.move(source, target)

    def glob(self, pattern: str) -> list[str]:
        """Names relative to the root, sorted."""
        return sorted(self._disk.glob(pattern))

    def size(self, name: str) -> int:
        return self._disk.size(name)

    def read_json(self, name: str) -> Any:
        return json.loads(self._disk.read(name))

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, json.dumps(value, sort_keys=True, ensure_ascii=False).encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Whole or not at all: written beside, then renamed."""
        fresh = f"{name}.tmp"
        self._disk.write(fresh, data)
        self._disk.delete(name)
        self._disk.move(fresh, name)


class _Disk(Protocol):
    def exists(self, name: str) -> bool: ...
    def delete(self, name: str) -> None: ...
    def move(self, source: str, target: str) -> None: ...
    def glob(self, pattern: str) -> list[str]: ...
    def size(self, name: str) -> int: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...


class _ByHadoop:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark._jvm
        self._root = root
        configuration = spark._jsc.hadoopConfiguration()
        self._fs = self._path("").getFileSystem(configuration)
        # No .crc side files: other readers would stumble over them, and the data has checks of its own.
        self._fs.setWriteChecksum(False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}" if name else self._root)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def delete(self, name: str) -> None:
        self._fs.delete(self._path(name), True)

    def move(self, source: str, target: str) -> None:
        self._fs.mkdirs(self._path(target).getParent())
        if not self._fs.rename(self._path(source), self._path(target)):
            raise OSError(f"cannot move {self._root}/{source} to {target}")

    def glob(self, pattern: str) -> list[str]:
        found = self._fs.globStatus(self._path(pattern))
        prefix = self._fs.makeQualified(self._path("")).toUri().getPath().rstrip("/") + "/"
        return [status.getPath().toUri().getPath().removeprefix(prefix) for status in (found or [])]

    def size(self, name: str) -> int:
        return int(self._fs.getFileStatus(self._path(name)).getLen())

    def read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        stream = self._fs.create(self._path(name), True)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()


class _ByArrow:
    def __init__(self, root: str) -> None:
        from pyarrow import fs

        # A plain path is local here, as it is to Spark unless its settings name another default file system.
        place = root if ":/" in root else str(Path(root).absolute())
        self._fs, self._base = fs.FileSystem.from_uri(place)

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def _info(self, name: str) -> Any:
        return self._fs.get_file_info(self._path(name))

    def exists(self, name: str) -> bool:
        return bool(self._info(name).type.name != "NotFound")

    def delete(self, name: str) -> None:
        kind = self._info(name).type.name
        if kind == "Directory":
            self._fs.delete_dir(self._path(name))
        elif kind != "NotFound":
            self._fs.delete_file(self._path(name))

    def move(self, source: str, target: str) -> None:
        self._fs.create_dir(self._path(target).rpartition("/")[0], recursive=True)
        self._fs.move(self._path(source), self._path(target))

    def glob(self, pattern: str) -> list[str]:
        found = [""]
        for part in pattern.split("/"):
            found = [name for folder in found for name in self._children(folder, part)]
        return found

    def _children(self, folder: str, part: str) -> list[str]:
        from pyarrow import fs

        held = self._fs.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True))
        names = [info.base_name for info in held if fnmatchcase(info.base_name, part)]
        return [f"{folder}/{name}" if folder else name for name in names]

    def size(self, name: str) -> int:
        return int(self._info(name).size)

    def read(self, name: str) -> bytes:
        with self._fs.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
        if self._fs.type_name == "local":
            with open(self._path(name), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # Arrow has none
            return
        with self._fs.open_output_stream(self._path(name)) as stream:
            stream.write(data)
