// SPDX-License-Identifier: Apache-2.0
'use strict';

// One JSON request a line from stdin, one JSON answer a line on stdout, in any order.
const readline = require('readline');

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr); // libraries print elsewhere

exports.serve = function serve(operations) {
  const answer = reply => write(JSON.stringify(reply) + '\n');
  process.on('unhandledRejection', error => console.error('unhandled', error));
  process.on('uncaughtException', error => console.error('uncaught', error));
  answer({ ready: true });
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', async line => {
    const request = JSON.parse(line);
    try {
      answer({ id: request.id, ok: await operations[request.op](request) });
    } catch (error) {
      answer({ id: request.id, error: `${error.name}: ${error.message}`, code: error.code });
    }
  });
  lines.on('close', () => process.exit(0));
};

exports.body = spec => (spec.size ? Buffer.from(Array.from({ length: spec.size }, (_, i) => 97 + i % 26)) : Buffer.from(spec.body));

exports.putBody = function putBody(row, body) {
  row.size = body.length;
  if (body.length <= 2000) row.body = body.toString();
  return row;
};
