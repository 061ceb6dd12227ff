// The process of the endpoint's soak with the official Node client: node client.js ADDRESS, until its input ends.
// It does and prints what client.py does and prints. `rocketmq-client-nodejs` is found in the current folder.
const fs = require('node:fs');
const readline = require('node:readline');
const { createRequire } = require('node:module');
const found = createRequire(`${process.cwd()}/package.json`);
const { Producer, SimpleConsumer, FilterExpression } = found('rocketmq-client-nodejs');

const TOPIC = 'soak', GROUP = 'soakers';
const SENDERS = 2, RECEIVERS = 2;
const INVISIBLE_MS = 20000, POLL_MS = 1000;
const REST_MS = 50; // after an error

let isQuiet = false, isOver = false;
const say = (...words) => fs.writeSync(1, `${JSON.stringify(words)}\n`); // one line, whole
const rest = () => new Promise(resolve => setTimeout(resolve, REST_MS));

async function send(producer, sender) {
  for (let number = 0; !isQuiet; number++) {
    const name = `node ${sender}/${number}`;
    say('sending', name);
    try {
      await producer.send({ topic: TOPIC, body: Buffer.from(name) });
    } catch (error) { // it is not sent again: nobody knows what came of it
      say('failed', name, error.name);
      await rest();
      continue;
    }
    say('sent', name);
  }
}

async function acknowledge(consumer, message) {
  const name = message.body.toString();
  say('acking', name);
  try {
    await consumer.ack(message);
  } catch { // it comes again
    return;
  }
  say('acked', name);
}

async function receive(consumer) {
  while (!isOver) {
    let messages;
    try {
      messages = await consumer.receive(8, INVISIBLE_MS);
    } catch {
      await rest();
      continue;
    }
    if (!messages.length) say('idle');
    for (const message of messages) say('came', message.body.toString());
    for (const message of messages) await acknowledge(consumer, message);
  }
}

async function main() {
  const common = { endpoints: process.argv[2], namespace: '' };
  const producer = new Producer({ ...common, topics: [ TOPIC ] });
  await producer.startup();
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: GROUP, awaitDuration: POLL_MS,
    subscriptions: new Map().set(TOPIC, FilterExpression.SUB_ALL),
  });
  await consumer.startup();
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', line => { if (line === 'quiet') isQuiet = true; });
  input.on('close', () => { isQuiet = isOver = true; });
  const numbers = count => [ ...Array(count).keys() ];
  await Promise.all([
    ...numbers(SENDERS).map(number => send(producer, number)),
    ...numbers(RECEIVERS).map(() => receive(consumer)),
  ]);
  await consumer.shutdown();
  await producer.shutdown();
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
