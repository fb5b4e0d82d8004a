// SPDX-License-Identifier: Apache-2.0
'use strict';

// Drives npm rocketmq-client-nodejs (gRPC).
const {
  Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult,
} = require('rocketmq-client-nodejs');
const {
  FilterType, TransactionResolution,
} = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const link = require('./link');

const logger = { info() {}, debug() {}, warn() {}, error: console.error };
const open = new Map();
const seen = new Map();
const handles = new Map();

const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};

function common(request) {
  const options = { endpoints: request.namesrv, namespace: '', logger, requestTimeout: 10000 };
  if (request.accessKey) {
    options.sessionCredentials = { accessKey: request.accessKey, accessSecret: request.secretKey };
  }
  return options;
}

function message(spec) {
  const made = { topic: spec.topic, body: link.body(spec) };
  if (spec.tags) made.tag = spec.tags;
  if (spec.keys) made.keys = spec.keys.split(' ');
  if (spec.shardingKey) made.messageGroup = spec.shardingKey;
  if (spec.delayMs) made.deliveryTimestamp = new Date(Date.now() + spec.delayMs);
  if (spec.properties) made.properties = new Map(Object.entries(spec.properties));
  return made;
}

function row(view) {
  return link.putBody({
    topic: view.topic,
    msgId: view.messageId,
    tags: view.tag,
    keys: view.keys.join(' '),
    messageGroup: view.messageGroup,
    attempt: view.deliveryAttempt,
    properties: Object.fromEntries(view.properties),
    at: Date.now(),
  }, view.body);
}

function subscriptions(request) {
  return new Map(request.subscriptions.map(({ topic, expression, type }) => [
    topic, new FilterExpression(expression, type === 'SQL92' ? FilterType.SQL : FilterType.TAG),
  ]));
}

link.serve({
  async producer(request) {
    const options = { ...common(request), topics: request.topics };
    if (request.check) options.checker = { check: async () => RESOLUTIONS[request.check] };
    const made = new Producer(options);
    await made.startup();
    open.set(request.name, made);
  },

  async send(request) {
    const producer = open.get(request.producer);
    const rows = [];
    for (const spec of request.messages) {
      let receipt;
      if (spec.local) {
        const transaction = producer.beginTransaction();
        receipt = await producer.send(message(spec), transaction);
        if (spec.local === 'commit') await transaction.commit();
        if (spec.local === 'rollback') await transaction.rollback();
      } else {
        receipt = await producer.send(message(spec));
      }
      rows.push({ msgId: receipt.messageId, recall: receipt.recallHandle });
    }
    return rows;
  },

  async recall(request) {
    return (await open.get(request.producer).recallMessage(request.topic, request.recall)).messageId;
  },

  async consumer(request) {
    const options = { ...common(request), consumerGroup: request.group, subscriptions: subscriptions(request) };
    let made;
    if (request.kind === 'simple') {
      made = new SimpleConsumer({ ...options, awaitDuration: 5000 });
    } else {
      const rows = [];
      seen.set(request.name, rows);
      made = new PushConsumer({
        ...options,
        messageListener: {
          async consume(view) {
            rows.push(row(view));
            return view.deliveryAttempt <= (request.failTimes || 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
          },
        },
      });
    }
    await made.startup();
    open.set(request.name, made);
  },

  received: request => seen.get(request.name).slice(request.from),

  async receive(request) {
    const views = await open.get(request.name).receive(request.max, request.invisibleMs);
    return views.map(view => {
      const handle = handles.size + 1;
      handles.set(handle, view);
      return { ...row(view), handle };
    });
  },

  async ack(request) {
    await open.get(request.name).ack(handles.get(request.handle));
  },

  async change(request) {
    await open.get(request.name).changeInvisibleDuration(handles.get(request.handle), request.invisibleMs);
  },

  async close(request) {
    if (open.has(request.name)) await open.get(request.name).shutdown();
    open.delete(request.name);
  },
});
