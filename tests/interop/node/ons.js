// SPDX-License-Identifier: Apache-2.0
'use strict';

// Drives npm ali-ons (remoting, pure JavaScript, signs every request).
const httpclient = require('urllib');
const { Producer, Consumer, Message } = require('ali-ons');
const link = require('./link');

const silent = { info() {}, debug() {}, warn() {}, error: console.error };
const producers = new Map();
const consumers = new Map();

function common(request) {
  return {
    httpclient,
    logger: silent,
    nameSrv: request.namesrv,
    accessKeyId: request.accessKey || 'interop-key',
    accessKeySecret: request.secretKey || 'interop-secret',
    instanceName: request.name,
    rebalanceInterval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 1000,
  };
}

function message(spec) {
  const made = new Message(spec.topic, spec.tags || '', link.body(spec));
  if (spec.keys) made.keys = spec.keys.split(' ');
  if (spec.delayLevel) made.delayTimeLevel = spec.delayLevel;
  if (spec.shardingKey) made.shardingKey = spec.shardingKey;
  Object.assign(made.properties, spec.properties);
  return made;
}

link.serve({
  async producer(request) {
    const made = new Producer({ ...common(request), producerGroup: request.group });
    made.on('error', console.error);
    await made.ready();
    producers.set(request.name, made);
  },

  async send(request) {
    const rows = [];
    for (const spec of request.messages) {
      const sent = await producers.get(request.producer).send(message(spec), spec.shardingKey);
      rows.push({
        status: sent.sendStatus,
        msgId: sent.msgId,
        offset: Number(sent.queueOffset),
        queueId: sent.messageQueue.queueId,
      });
    }
    return rows;
  },

  async consumer(request) {
    const seen = [];
    const made = new Consumer({
      ...common(request),
      consumerGroup: request.group,
      isBroadcast: request.kind === 'broadcast',
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      maxReconsumeTimes: request.maxReconsume === undefined ? 16 : request.maxReconsume,
    });
    made.on('error', console.error);
    consumers.set(request.name, { made, seen });
    for (const { topic, expression, type } of request.subscriptions) {
      const filter = type === 'SQL92' ? { expressionType: 'SQL92', subString: expression } : expression;
      made.subscribe(topic, filter, async received => {
        seen.push(link.putBody({
          topic: received.topic,
          msgId: received.msgId,
          tags: received.tags,
          keys: received.keys,
          queueId: received.queueId,
          offset: Number(received.queueOffset),
          attempt: received.reconsumeTimes + 1,
          properties: received.properties,
          at: Date.now(),
        }, received.body));
        if (received.reconsumeTimes < (request.failTimes || 0)) throw new Error('asked to fail');
      });
    }
    await made.ready();
  },

  received: request => consumers.get(request.name).seen.slice(request.from),

  async close(request) {
    if (producers.has(request.name)) await producers.get(request.name).close();
    if (consumers.has(request.name)) await consumers.get(request.name).made.close();
    producers.delete(request.name);
  },
});
