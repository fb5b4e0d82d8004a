// SPDX-License-Identifier: Apache-2.0
'use strict';

// Drives npm rocketmq-nodejs (remoting, a C++ library inside a prebuilt addon).
const os = require('os');
const path = require('path');
const link = require('./link');
const { Producer, PushConsumer } = require('rocketmq-nodejs');

const logDir = path.join(os.homedir(), 'logs', 'rocketmq-nodejs');
const open = new Map();
const seen = new Map();

function options(request) {
  return { nameServer: request.namesrv, logDir, logLevel: 'warn' };
}

async function start(request, made) {
  if (request.accessKey) made.setSessionCredentials(request.accessKey, request.secretKey, 'LOCAL');
  await made.start();
  open.set(request.name, made);
}

link.serve({
  async producer(request) {
    await start(request, new Producer(request.group, request.name, { ...options(request), sendMessageTimeout: 10000 }));
  },

  async send(request) {
    const rows = [];
    for (const spec of request.messages) {
      const named = {};
      if (spec.tags) named.tags = spec.tags;
      if (spec.keys) named.keys = spec.keys;
      const sent = await open.get(request.producer).send(spec.topic, link.body(spec), named);
      rows.push({ status: sent.statusStr === 'OK' ? 'SEND_OK' : sent.statusStr, msgId: sent.msgId, offset: sent.offset });
    }
    return rows;
  },

  async consumer(request) {
    const rows = [];
    const made = new PushConsumer(request.group, request.name, { ...options(request), threadCount: 4 });
    const failures = new Map();
    made.on('message', (message, ack) => {
      // It does not tell how often a message came: its id is counted.
      const attempt = (failures.get(message.msgId) || 0) + 1;
      failures.set(message.msgId, attempt);
      rows.push(link.putBody({
        topic: message.topic,
        msgId: message.msgId,
        tags: message.tags,
        keys: message.keys,
        attempt,
        at: Date.now(),
      }, Buffer.from(message.body)));
      ack.done(attempt > (request.failTimes || 0));
    });
    for (const { topic, expression } of request.subscriptions) made.subscribe(topic, expression);
    seen.set(request.name, rows);
    await start(request, made);
  },

  received: request => seen.get(request.name).slice(request.from),

  async close(request) {
    if (open.has(request.name)) await open.get(request.name).shutdown();
    open.delete(request.name);
  },
});
