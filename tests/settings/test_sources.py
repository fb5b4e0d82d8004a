# SPDX-License-Identifier: Apache-2.0
"""Settings for a start: which source wins, what files may hold, and what is refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import InvalidParameter
from aerobee.settings import BrokerConfig, InForce, load
from aerobee.settings.running import change, official_text
from aerobee.settings.sources import OF_A_NAME_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What a broker.conf in the wild has, and more.
COMMON = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr=127.0.0.1:9876
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
listenPort=10911
deleteWhen=04
fileReservedTime=48
mapedFileSizeCommitLog=1073741824
mappedFileSizeConsumeQueue=6000000
diskMaxUsedSpaceRatio=88
storePathRootDir=/data/rocketmq
storePathCommitLog=/data/rocketmq/commitlog
storePathConsumeQueue=/data/rocketmq/consumequeue
storePathIndex=/data/rocketmq/index
storeCheckpoint=/data/rocketmq/checkpoint
abortFile=/data/rocketmq/abort
maxMessageSize=65536
flushCommitLogLeastPages=4
flushConsumeQueueLeastPages=2
flushCommitLogThoroughInterval=10000
flushConsumeQueueThoroughInterval=60000
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
checkTransactionMessageEnable=false
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
brokerIP1=10.0.0.5
brokerIP2=10.0.0.5
haListenPort=10912
haMasterAddress=
traceTopicEnable=true
aclEnable=false
authenticationEnabled=false
authorizationEnabled=false
enablePropertyFilter=true
slaveReadEnable=true
transferMsgByHeap=true
warmMapedFileEnable=false
transientStorePoolEnable=false
waitTimeMillsInSendQueue=200
osPageCacheBusyTimeOutMills=1000
useReentrantLockWhenPutMessage=true
messageDelayLevel=1s 5s 10s
timerWheelEnable=true
enableMultiDispatch=false
popResponseReturnActualRetryTopic=true
serverSocketRcvBufSize=65535
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_later_sources_win_and_each_value_remembers_its_own(file: Callable[[str, str], Path]) -> None:
    conf = file("broker.conf", "brokerClusterName = F\nbrokerName=F\nregionId=F\nlistenPort=1\nbrokerIP1=F\n")
    environment = {"AEROBEE_BROKER__NAME": "E", "AEROBEE_BROKER__REGION": "E", "AEROBEE_BROKER__PORT": "2"}
    loaded = load(conf, environment, {"broker": {"region": "A", "port": 3}}, ["listenPort=4"])
    broker = loaded.broker
    assert (broker.cluster, broker.name, broker.region, broker.port) == ("F", "E", "A", 4)
    sources = [loaded.source("broker", name) for name in ("cluster", "name", "region", "port", "perm")]
    assert sources == [f"file {conf}", "environment AEROBEE_BROKER__NAME", "flag", "flag --set", "default"]


def test_a_toml_file_has_tables_and_either_name(file: Callable[[str, str], Path]) -> None:
    conf = file(
        "a.toml",
        'longPollingEnable = false\n[broker]\ndefault_queues = 3\n[store]\nflushDiskType = "SYNC_FLUSH"\n'
        "fileReservedTime = 24\n[namesrv]\nport = 1\n",
    )
    loaded = load(conf)
    assert (loaded.broker.long_polling, loaded.broker.default_queues) == (False, 3)
    assert (loaded.store.flush, loaded.store.retention_hours, loaded.namesrv.port) == ("sync", 24, 1)


def test_a_common_broker_conf_starts_with_one_warning_that_lists_what_has_no_effect(
    file: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        loaded = load(file("broker.conf", COMMON))
    assert (loaded.broker.advertise, loaded.broker.default_queues) == ("10.0.0.5", 4)
    assert (loaded.store.data, loaded.store.retention_hours) == ("/data/rocketmq", 48)
    [line] = [record.message for record in caplog.records]
    assert "have no effect here" in line
    assert "deleteWhen, mapedFileSizeCommitLog, diskMaxUsedSpaceRatio, storePathCommitLog" in line
    for obeyed in ("aclEnable", "authenticationEnabled", "storePathRootDir", "maxMessageSize"):
        assert obeyed not in line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("aclEnable=true\nauthenticationEnabled=true", "two kinds of access control"),
        ("authorizationEnabled=yes", "'yes' is not true or false"),
        ("authorizationEnabled=true", "'authorization' needs 'authentication'"),
        ("initAuthenticationUser=root:s3cret", "'init_user' is not of the form"),
        (
            'initAuthenticationUser={"username":"root","password":" "}',
            "'init_user' has an empty name or secret",
        ),
        ("innerClientAuthenticationCredentials={}", "'inner_credentials' is not of the form"),
        ("useTLS=true", "tls_cert"),
        ("tls.server.authClient=true", "tls_cert"),
        ("tls.server.mode=disabled", "'disabled' is not enforcing or permissive"),
        ("tls.server.mode=enforcing", "needs a certificate"),
        ("brokerRole=SLAVE", "always a master"),
        ("enableDLegerCommitLog=true", "always a master"),
        ("fileReservedTime=-1", "'fileReservedTime' (retention_hours): '-1'"),
        ("foo=1", "there is no setting 'foo'; `aerobee settings` lists them"),
        ("fileReservdTime=1", "there is no setting 'fileReservdTime'; did you mean 'fileReservedTime'?"),
        ("sendMessageThreadPoolNum=1", "did you mean 'sendMessageThreadPoolNums'?"),
        ("brokerName", "write name=value"),
    ],
)
def test_a_line_is_refused_with_its_name_its_value_and_the_file(
    file: Callable[[str, str], Path], line: str, words: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        load(file("broker.conf", f"brokerName=a\n{line}\n"))
    assert words in str(refused.value)


def test_the_refusal_names_the_source(file: Callable[[str, str], Path]) -> None:
    conf = file("a.toml", "useTLS = true\n")
    with pytest.raises(ValueError, match=f"'true'.* \\[file {conf}\\]"):
        load(conf)
    with pytest.raises(ValueError, match=r"'many'.* \[environment AEROBEE_STORE__OPEN_FILES\]"):
        load(environment={"AEROBEE_STORE__OPEN_FILES": "many"})
    with pytest.raises(ValueError, match=r"-7.* \[flag\]"):
        load(flags={"broker": {"port": -7}})
    with pytest.raises(ValueError, match=r"'0'.* \[flag --set\]"):
        load(pairs=["disk_full_ratio=0"])


def test_a_namesrv_conf_is_the_name_servers(file: Callable[[str, str], Path]) -> None:
    conf = file("namesrv.conf", "listenPort=1234\nkvConfigPath=/x\nscanNotActiveBrokerInterval=7000\n")
    loaded = load(conf, tables=OF_A_NAME_SERVER)
    assert (loaded.namesrv.port, loaded.namesrv.scan_interval_ms) == (1234, 7000)
    assert loaded.broker.port == 10911


@pytest.mark.parametrize("text", ["[broker\n", "\udcff"])
def test_a_file_that_cannot_be_read_is_named(
    file: Callable[[str, str], Path], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"settings file .*a\.toml"):
        load(path)
    with pytest.raises(ValueError, match=r"settings file .*: No such file"):
        load(tmp_path / "none.conf")


def test_a_secret_is_shown_nowhere(
    file: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    user = '{"username":"root","password":"s3cret-word"}'
    loaded = load(file("broker.conf", f"initAuthenticationUser={user}\n"))
    shown = [repr(loaded), repr(loaded.broker), str(loaded.broker), official_text(loaded.broker), caplog.text]
    assert not [text for text in shown if "s3cret-word" in text]
    assert "init_user='(hidden)'" in repr(loaded.broker)
    assert "initAuthenticationUser" not in official_text(loaded.broker)
    with pytest.raises(ValueError, match="not of the form") as refused:
        load(file("broken.conf", f"initAuthenticationUser={user}}}\n"))
    assert "s3cret-word" not in str(refused.value)


def test_a_secret_cannot_be_guessed_by_a_request() -> None:
    holder = InForce(BrokerConfig(init_user='{"username":"root","password":"s3cret-word"}'))
    for guess in ("s3cret-word", "other"):
        text = f'initAuthenticationUser={{"username":"root","password":"{guess}"}}'
        with pytest.raises(InvalidParameter, match="takes effect at the next start"):
            change(text, {"broker": holder})
