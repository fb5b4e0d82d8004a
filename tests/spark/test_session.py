# SPDX-License-Identifier: Apache-2.0
"""What `session()` sets beyond Spark's defaults, seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.spark import sessions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("", sessions.ARROW),
        ("-Xss4m", f"-Xss4m {sessions.ARROW}"),
        (
            "-Darrow.enable_unsafe_memory_access=false -Xss4m",
            "-Darrow.enable_unsafe_memory_access=false -Xss4m",
        ),
    ],
)
@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_arrow_looks_once_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, key: str, given: str, made: str
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    config = {"spark.ui.port": "1", **({key: given} if given else {})}
    other = ({"spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"} - {key}).pop()
    assert sessions._unchecked(config) == {"spark.ui.port": "1", key: made, other: sessions.ARROW}


def test_a_folder_of_settings_is_left_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert sessions._unchecked({"spark.ui.port": "1"}) == {"spark.ui.port": "1"}


@pytest.mark.spark
@pytest.mark.slow
def test_the_jvm_has_been_told(spark: SparkSession) -> None:
    java: Any = spark.sparkContext
    asked = java._jvm.java.lang.System.getProperty("arrow.enable_unsafe_memory_access")
    assert asked == "true"


def checksums(folder: Path) -> list[Path]:
    return list(folder.rglob(".*.crc"))


def local_files(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())


@pytest.mark.spark
@pytest.mark.slow
def test_no_crc_files_beside_local_files(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "batch"))
    rows = spark.readStream.format("rate").option("rowsPerSecond", "100").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    assert list(tmp_path.glob("checkpoint/offsets/*"))
    assert list(tmp_path.glob("batch/*.parquet"))
    assert checksums(tmp_path) == []


@pytest.mark.spark
@pytest.mark.slow
def test_files_that_have_one_are_checked_by_it_and_may_be_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "older"
    local_files(spark).setWriteChecksum(True)
    try:
        spark.range(100).coalesce(1).write.csv(str(place))
    finally:
        local_files(spark).setWriteChecksum(False)
    assert checksums(place)
    assert spark.read.csv(str(place)).count() == 100
    (file,) = place.glob("*.csv")
    file.write_bytes(file.read_bytes().replace(b"7", b"9"))
    with pytest.raises(Exception, match=r"(?i)checksum"):
        spark.read.csv(str(place)).collect()
    spark.range(5).coalesce(1).write.mode("overwrite").csv(str(place))
    assert checksums(place) == []
    assert spark.read.csv(str(place)).count() == 5
