// A small client on the generated types. It sends each request to the leader of its partition, and
// keeps apart what was refused (nothing happened) and what is unknown (it may have happened).

import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./broker.d.ts";

type Schemas = components["schemas"];
type ErrorBody = Schemas["ErrorBody"];
export type OutgoingRecord = Schemas["JsonRecord"];
export type FetchedRecord = Schemas["JsonFetchedRecord"];
export type Appended = Schemas["ProduceAnswer"];
type Answer<T> = { data?: T | undefined; error?: ErrorBody | undefined; response: Response };

const ATTEMPTS = 20;
const PAUSE_MS = 250;

/** Nothing was or will be changed; `code` is one of docs/errors.md. */
export class Refused extends Error {
  readonly code: number;
  readonly retriable: boolean;
  readonly leaderUrl: string | null;

  constructor(body: ErrorBody) {
    super(body.message);
    this.code = body.error_code;
    this.retriable = body.retriable;
    this.leaderUrl = body.leader?.url || null;
  }
}

/** The records may be in the log or not: look before you send them again. */
export class OutcomeUnknown extends Error {}

export class Leadline {
  readonly #clients = new Map<string, Client<paths>>();
  readonly #bootstrap: string;
  /** How often a broker has named another one as the leader. */
  followedHints = 0;

  constructor(bootstrap: string) {
    this.#bootstrap = bootstrap;
  }

  async createTopic(name: string, partitions: number): Promise<void> {
    const broker = this.#at(this.#bootstrap);
    await write(broker.POST("/v1/topics", { body: { name, partitions } }));
  }

  /** Append records as one batch, and return their offsets. Throws Refused and OutcomeUnknown. */
  async produce(topic: string, partition: number, records: OutgoingRecord[]): Promise<Appended> {
    const path = { topic, partition };
    return this.#atLeader((broker) =>
      write(
        broker.POST("/v1/topics/{topic}/partitions/{partition}/records", {
          params: { path, query: { acks: "all" } },
          headers: { "Content-Type": "application/json" },
          body: { records, format: "json" },
        }),
      ),
    );
  }

  /** Yield the records of a partition from `offset` to its end at the start of the call. */
  async *read(topic: string, partition: number, offset = 0): AsyncGenerator<FetchedRecord> {
    let end: number | undefined;
    while (end === undefined || offset < end) {
      const query = { offset, wait_ms: 500, format: "json" } as const;
      const path = { topic, partition };
      const fetched = await this.#atLeader((broker) =>
        read(
          broker.GET("/v1/topics/{topic}/partitions/{partition}/records", {
            params: { path, query },
            headers: { Accept: "application/json" },
          }),
        ),
      );
      if (typeof fetched === "string") throw new TypeError("octets came, which were not asked for");
      end ??= fetched.high_watermark;
      yield* fetched.records;
      offset = fetched.next_offset;
    }
  }

  /** Send a request to the leader: follow the hint of a refusal, and retry what is retriable. */
  async #atLeader<T>(send: (broker: Client<paths>) => Promise<T>): Promise<T> {
    let url = this.#bootstrap;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await send(this.#at(url));
      } catch (error) {
        if (!(error instanceof Refused && error.retriable) || attempt === ATTEMPTS) throw error;
        if (error.leaderUrl !== null && error.leaderUrl !== url) {
          url = error.leaderUrl;
          this.followedHints += 1;
        } else {
          await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        }
      }
    }
  }

  #at(url: string): Client<paths> {
    const known = this.#clients.get(url) ?? createClient<paths>({ baseUrl: url, fetch: sendOnce });
    this.#clients.set(url, known);
    return known;
  }
}

/**
 * Send a request once. After a 421, `fetch` sends a request again by itself if it still has the
 * body; Node.js 24 then fails now and then. A body that is a stream is sent once.
 */
async function sendOnce(request: Request): Promise<Response> {
  if (request.body === null) return fetch(request);
  const { url, method, headers, body } = request;
  return fetch(new Request(url, { method, headers, body, duplex: "half" }));
}

/** Return the answer to a request that changes nothing. */
async function read<T>(sent: Promise<Answer<T>>): Promise<T> {
  return outcome(await sent);
}

/** Return the answer to a write. Without an answer, nobody knows what has become of it. */
async function write<T>(sent: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await sent;
  } catch (error) {
    const reason = error instanceof Error ? (error.cause ?? error) : error;
    throw new OutcomeUnknown(`no answer came: ${reason}`, { cause: error });
  }
  return outcome(answer);
}

function outcome<T>({ data, error, response }: Answer<T>): T {
  if (data !== undefined) return data;
  if (error?.outcome === "refused") throw new Refused(error);
  throw new OutcomeUnknown(error?.message ?? `the answer has the status ${response.status}`);
}
