// The official Node client, unmodified, against an endpoint: node official_client.js ADDRESS [tls]
// It prints one JSON object with what it has seen. `rocketmq-client-nodejs` is found in the current folder.
const { createRequire } = require('node:module');
const found = createRequire(`${process.cwd()}/package.json`);
const { Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult } = found('rocketmq-client-nodejs');
const { TransactionResolution, FilterType } = found('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, tls] = process.argv.slice(2);
const common = { endpoints, namespace: '', sslEnabled: tls === 'tls', requestTimeout: 5000 };
const seen = {};
const text = message => message.body.toString();

async function consumer(consumerGroup, topic, filter) {
  const made = new SimpleConsumer({
    ...common, consumerGroup, subscriptions: new Map().set(topic, filter ?? FilterExpression.SUB_ALL),
    awaitDuration: 4000,
  });
  await made.startup();
  return made;
}

async function receiveAll(receiver, count) {
  const got = [];
  while (got.length < count) {
    const messages = await receiver.receive(32, 15000);
    if (!messages.length) break;
    for (const message of messages) {
      await receiver.ack(message);
      got.push(message);
    }
  }
  return got;
}

async function normal(producer) {
  const receipt = await producer.send({
    topic: 'normal', tag: 'a', keys: [ 'k1' ], body: Buffer.from('one'), properties: new Map([[ 'price', '5' ]]),
  });
  const receiver = await consumer('g', 'normal');
  const [ got ] = await receiveAll(receiver, 1);
  seen.normal = [ text(got), got.tag, got.keys, Object.fromEntries(got.properties), got.messageId === receipt.messageId ];
  await receiver.shutdown();
}

async function filters(producer) {
  for (const [ tag, price ] of [[ 'a', '1' ], [ 'b', '5' ], [ 'c', '20' ]]) {
    await producer.send({ topic: 'filters', tag, body: Buffer.from(tag), properties: new Map([[ 'price', price ]]) });
  }
  const tags = await consumer('tags', 'filters', new FilterExpression('a || c'));
  const sql = await consumer('sql', 'filters', new FilterExpression('price BETWEEN 2 AND 30', FilterType.SQL));
  seen.tags = (await receiveAll(tags, 2)).map(text).sort();
  seen.sql = (await receiveAll(sql, 2)).map(text).sort();
  await tags.shutdown();
  await sql.shutdown();
}

async function order(producer) {
  for (let number = 0; number < 5; number++) {
    await producer.send({ topic: 'order', messageGroup: 'line', body: Buffer.from(`${number}`) });
  }
  const receiver = await consumer('lines', 'order');
  seen.order = (await receiveAll(receiver, 5)).map(message => [ text(message), message.messageGroup ]);
  await receiver.shutdown();
}

async function delay(producer) {
  const message = { topic: 'delay', body: Buffer.from('soon'), delay: 1000 };
  const began = Date.now();
  await producer.send(message);
  const receipt = await producer.send({ ...message, body: Buffer.from('never'), delay: 3600000 });
  const recalled = await producer.recallMessage('delay', receipt.recallHandle);
  const receiver = await consumer('g', 'delay');
  const got = await receiveAll(receiver, 1);
  seen.delay = [ got.map(text), Date.now() - began >= 1000, recalled.messageId === receipt.messageId ];
  seen.recalledAgain = await producer.recallMessage('delay', receipt.recallHandle).catch(error => error.message);
  await receiver.shutdown();
}

async function transactions(producer) {
  for (const body of [ 'kept', 'dropped', 'orphan' ]) {
    const transaction = producer.beginTransaction();
    await producer.send({ topic: 'transactions', body: Buffer.from(body) }, transaction);
    if (body === 'kept') await transaction.commit();
    if (body === 'dropped') await transaction.rollback();
  }
  const receiver = await consumer('g', 'transactions');
  seen.transactions = (await receiveAll(receiver, 2)).map(text).sort();
  await receiver.shutdown();
}

async function again(producer) {
  await producer.send({ topic: 'again', body: Buffer.from('slow') });
  const receiver = await consumer('g', 'again');
  const [ first ] = await receiver.receive(1, 30000);
  await receiver.changeInvisibleDuration(first, 0);
  const [ second ] = await receiver.receive(1, 30000);
  seen.again = [ first.deliveryAttempt, second.deliveryAttempt, first.messageId === second.messageId ];
  await receiver.ack(second);
  await receiver.shutdown();
}

async function push(producer) {
  const got = [];
  const pushed = new PushConsumer({
    ...common, consumerGroup: 'work', subscriptions: new Map().set('push', FilterExpression.SUB_ALL),
    messageListener: { async consume(message) {
      got.push(`${text(message)} ${message.deliveryAttempt}`);
      return text(message) === 'bad' ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    } },
  });
  await pushed.startup();
  await producer.send({ topic: 'push', body: Buffer.from('good') });
  await producer.send({ topic: 'push', body: Buffer.from('bad') });
  const receiver = await consumer('undertaker', '%DLQ%work');
  const [ letter ] = await receiveAll(receiver, 1);
  seen.push = got.sort();
  seen.letter = letter && [ text(letter), letter.properties.get('DLQ_ORIGIN_TOPIC') ];
  await receiver.shutdown();
  await pushed.shutdown();
}

async function main() {
  const topics = [ 'normal', 'filters', 'order', 'delay', 'transactions', 'again', 'push' ];
  const producer = new Producer({ ...common, topics, maxAttempts: 2, checker: {
    async check() { return TransactionResolution.COMMIT; },
  } });
  await producer.startup();
  const parts = tls ? [ normal ] : [ normal, filters, order, delay, transactions, again, push ];
  await Promise.all(parts.map(part => part(producer)));
  await producer.shutdown();
  console.log(JSON.stringify(seen));
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
