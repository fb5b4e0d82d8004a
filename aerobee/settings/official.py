# SPDX-License-Identifier: Apache-2.0
"""Every setting that Apache RocketMQ from 4.3.0 to 5.3.3 reads from broker.conf, namesrv.conf or a request, by name.

Those that are declared here are obeyed; those of `REFUSED` are refused where their value asks for what this server
does not do, because somebody relies on it; the rest has no meaning here and is taken without effect, so that files
and scripts written for RocketMQ work as they are.
"""

from __future__ import annotations

_ALWAYS_MASTER = "this broker is always a master and does not replicate"
_TLS = "TLS of this server is set by tls_cert, tls_key and tls_required"

_OFF = frozenset({"false"})
# Name -> why anything but the harmless values is refused, and those.
REFUSED: dict[str, tuple[str, frozenset[str]]] = {
    "useTLS": (_TLS, _OFF),
    "brokerRole": (_ALWAYS_MASTER, frozenset({"async_master", "sync_master"})),
    "enableControllerMode": (_ALWAYS_MASTER, _OFF),
    "enableDLegerCommitLog": (_ALWAYS_MASTER, _OFF),
}
TLS_PREFIX = "tls."
# RocketMQ refuses to change these by a request: they name files and this very list.
NOT_BY_REQUEST = frozenset(
    {"brokerConfigPath", "configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)


def refusal(name: str, value: str) -> str:
    """Why this value of an official name cannot be taken; empty when it can."""
    if name.startswith(TLS_PREFIX):
        return _TLS
    why, harmless = REFUSED.get(name, ("", frozenset()))
    return "" if not why or value.lower() in harmless else why


# Of 3.x, or never anything; RocketMQ ignores them, and files are copied from file to file.
_STRAYS = frozenset(
    {
        "abortFile",
        "checkTransactionMessageEnable",
        "storeCheckpoint",
        "storePathConsumeQueue",
        "storePathIndex",
    }
)
_NAMES = """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable
    accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond
    aclCacheMaxNum aclCacheRefreshSecond aclEnable adminBrokerThreadPoolNums
    adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync asyncLearner asyncSendEnable authConfigPath authenticationEnabled
    authenticationMetadataProvider authenticationProvider authenticationStrategy authenticationWhitelist
    authorizationEnabled authorizationMetadataProvider authorizationProvider authorizationStrategy
    authorizationWhitelist autoCreateSubscriptionGroup autoCreateTopicEnable autoDeleteUnusedStats
    autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums bindAddress bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerId brokerIP1 brokerIP2 brokerName brokerNotActiveTimeoutMillis
    brokerPermission brokerRole brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
    channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod cleanFileForciblyEnable
    cleanOfflineBrokerInterval cleanResourceInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval
    clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientManagerThreadPoolQueueCapacity
    clientManageThreadPoolNums clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize
    clientSocketSndBufSize clientWorkerThreads clusterName clusterTest clusterTopicEnable
    coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable commercialBaseCount
    commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount
    commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogRollingInterval commitLogRollingMinimumSize
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv
    compressedRegister configBlackList configManagerVersion configName configStorePath connectTimeoutMillis
    consumerFallbehindThreshold consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
    consumerOffsetUpdateVersionStep controllerAddr controllerDLegerGroup controllerDLegerPeers
    controllerDLegerSelfId controllerHeartBeatTimeoutMills controllerRequestThreadPoolQueueCapacity
    controllerStorePath controllerThreadPoolNums controllerType correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable defaultMessageRequestMode
    defaultPopShareQueueNum defaultQueryMaxNum defaultThreadPoolNums defaultThreadPoolQueueCapacity
    defaultTopicQueueNums delayOffsetUpdateVersionStep deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval deleteFileBatchMax deleteTopicWithBrokerRegistration deleteWhen
    destroyMapedFileIntervalForcibly disableCallbackExecutor disableConsumeIfConsumerReadSlowly
    disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded diskMaxUsedSpaceRatio
    diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads
    dispatchFromSenderThread dLegerGroup dLegerPeers dLegerSelfId duplicationEnable electMasterMaxRetryCount
    enableAllTopicList enableAsyncReput enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore
    enableBuildConsumeQueueConcurrently enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction
    enableConsumeQueueExt enableControllerInNamesrv enableControllerMode enableCreateSysGroup
    enabledAppendPropCRC enableDetailStat enableDLegerCommitLog enableElectUncleanMaster
    enableFastChannelEventProcess enableLmq enableLmqStats enableMixedMessageType enableMultiDispatch
    enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
    enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePropertyFilter
    enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRetryTopicV2 enableRocksDBLog
    enableScheduleAsyncDeliver enableScheduleMessageStats enableShutdownGracefully enableSingleTopicRegister
    enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitRegistration enableTopicList
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval fileReservedTime
    filterDataCleanTimeSpan filterServerNums filterSupportRetry flushCommitLogLeastPages
    flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval
    flushDelayOffsetInterval flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC forwardTimeout globalColdReadThreshold
    haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize
    heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer
    initAuthenticationUser initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials inSyncReplicas
    isBrokerContainer isInBrokerContainer isolateLogEnable jraftConfig kvConfigPath listenPort
    litePullMessageEnable litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    lockInStrictMode logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum longPollingEnable mapedFileSizeCommitLog
    mapedFileSizeConsumeQueue mappedFileSize mappedFileSizeCommitLog mappedFileSizeConsumeQueue
    mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog mappedFileSwapEnable
    mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
    maxConsumeQueueScan maxDelayTime maxErrorRateOfBloomFilter maxFilterMessageSize maxHashSlotNum
    maxHaTransferByteInSecond maxIndexNum maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch
    maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
    maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength maxTransferBytesOnMessageInDisk
    maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory
    memTableFlushIntervalMs messageDelayLevel messageIndexEnable messageIndexSafe messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
    metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled
    minInSyncReplicas msgTraceTopicName namesrvAddr needWaitForService notifyBrokerRoleChanged
    notifyConsumerIdsChangedEnable notifyMinBrokerIdChanged objectStoreAccessKey objectStoreBucket
    objectStoreEndpoint objectStoreSecretKey offsetCheckInSlave orderMessageEnable
    osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
    popConsumerKVServiceLog popFromRetryProbability popInflightMessageThreshold
    popLongPollingForceNotifyInterval popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
    popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead preferredLeaderId printChannelGroups
    printChannelGroupsMinNum processReadEvent processReplyMessageThreadPoolNums productEnvName
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity readAheadCacheEnable
    readAheadCacheExpireDuration readAheadCacheSizeThresholdRate readAheadMessageCountThreshold
    readAheadMessageSizeThreshold readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange
    realTimePersistRocksDBConfig recallMessageEnable recheckReputOffsetFromCq recordGetMessageResult
    recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval regionId registerBrokerTimeoutMills
    registerNameServerPeriod rejectPullConsumerEnable rejectTransactionMessage replicasPerDiskPartition
    replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 returnOrderTopicConfigToBroker
    reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rmqAddressServerDomain
    rmqAddressServerSubGroup rocketmqHome rocksdbCompressionType rocksdbCQDoubleWriteEnable
    rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scanAvailableNameSrv scanInactiveMasterInterval scanNotActiveBrokerInterval
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline
    skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout socksProxyConfig
    spinLockCollisionRetreatOptimalDegree splitRegistrationSize startAcceptSendRequestTimeStamp
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum statRocksDBCQIntervalSec
    storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog storePathEpochFile storePathRootDir
    storeReplyMessageEnable storeType subscriptionExpiredTimeout supportActingMaster
    syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFlushTimeout
    syncFromLastFile syncMasterFlushOffsetWhenStartup tieredBackendServiceProvider
    tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize
    tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
    tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
    tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
    tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount
    tieredStoreMaxPendingLimit timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel
    timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs
    timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError timerStopEnqueue timerWheelEnable
    topicQueueLockNum totalReplicas traceOn traceTopicEnable transactionCheckInterval transactionCheckMax
    transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut
    transferMsgByHeap transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
    unRegisterBrokerQueueCapacity updateNameServerAddrPeriod useABSLock useEpollNativeSelector
    usePIDColdCtrStrategy userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    useReentrantLockWhenPutMessage useServerSideResetOffset useStaticSubscription useTLS
    validateSystemTopicWhenUpdateTopic waitSecondsForService waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeBufferHighWaterMark
    writeBufferLowWaterMark
"""
OFFICIAL = frozenset(_NAMES.split()) | _STRAYS
