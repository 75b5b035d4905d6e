// Create a topic, append orders to each of its partitions, and read them back.
//
//   LEADLINE_BOOTSTRAP=http://127.0.0.1:9001 npm start

import { Leadline, OutcomeUnknown, Refused } from "./leadline.ts";

const TOPIC = process.env["TOPIC"] ?? "orders";
const PARTITIONS = 3;

const bootstrap = process.env["LEADLINE_BOOTSTRAP"];
if (bootstrap === undefined) throw new Error("set LEADLINE_BOOTSTRAP to the URL of a broker");
const leadline = new Leadline(bootstrap);

try {
  await leadline.createTopic(TOPIC, PARTITIONS);
  for (let partition = 0; partition < PARTITIONS; partition += 1) {
    const records = [{ key: "ann", value: { item: "coffee", partition } }, { value: null }];
    const { base_offset, count } = await leadline.produce(TOPIC, partition, records);
    console.log(`${TOPIC}-${partition}: appended ${count} records from offset ${base_offset} on`);
    for await (const { offset, key, value } of leadline.read(TOPIC, partition)) {
      console.log(offset, key, JSON.stringify(value));
    }
  }
  console.log(`followed ${leadline.followedHints} hints to a leader`);
  await leadline.createTopic(TOPIC, PARTITIONS);
} catch (error) {
  if (error instanceof Refused) {
    console.log(`refused with ${error.code}, and nothing changed: ${error.message}`);
    process.exitCode = 1;
  } else if (error instanceof OutcomeUnknown) {
    console.log(`unknown: look before you repeat it (${error.message})`);
    process.exitCode = 3;
  } else {
    throw error;
  }
}
