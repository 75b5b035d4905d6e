// Requests to the process that serves the page. The browser adds its user's credentials itself.
//
//   const { body } = await get("/v1/tasks");
//   const answer = await send({ method: "POST", path: "/v1/topics", body: { … } });
//
// A failure is an ApiError with the error body, and with the outcome: "refused" (nothing was or
// will be changed) or "unknown" (it may have been).

import { at } from "./site.js";

/** The id of the cluster whose data the page shows; requests that write name it. */
let clusterId = "";
export const nameCluster = (id) => { clusterId = id; };

/** A request that was not answered, or not with success. */
export class ApiError extends Error {
  /** @param {{status: number, body?: object, cause?: string, sent?: boolean}} found */
  constructor({ status, body, cause = "", wrote = false }) {
    super(body?.message ?? (status ? `status ${status}` : "no answer: is the process still running?"));
    this.status = status;
    this.code = body?.error_code ?? 0;
    this.body = body ?? {};
    this.causeId = cause;
    // What was sent and not answered may have taken effect.
    this.outcome = body?.outcome ?? (wrote ? "unknown" : "refused");
  }
}

/** A process that is frozen keeps its connections, and answers nothing: every read has a timeout. */
const TIMEOUT_MS = 60_000;
/** So has every change, whose outcome is unknown then: longer than a broker waits for a controller. */
const CHANGE_TIMEOUT_MS = 120_000;
/** The timeout of what needs no waiting, also at a busy process. */
export const PROMPT_TIMEOUT_MS = 10_000;

/**
 * Read a path of this process.
 * @param {string} path such as "/v1/tasks"
 * @param {{signal?: AbortSignal, timeoutMs?: number}} [options]
 */
export function get(path, { signal, timeoutMs = TIMEOUT_MS } = {}) {
  const late = AbortSignal.timeout(timeoutMs);
  return send({ method: "GET", path }, { signal: signal ? AbortSignal.any([signal, late]) : late });
}

/**
 * Send a change, or with a signal any request, and return the answer's body, status, ETag ("" without
 * one), and cause id (which the audit shows, too).
 * @param {{method: string, path: string, body?: object, headers?: object}} request
 * @returns {Promise<{status: number, body: any, etag: string, causeId: string}>}
 */
export async function send({ method, path, body, headers = {} }, { signal = AbortSignal.timeout(CHANGE_TIMEOUT_MS) } = {}) {
  const wrote = method !== "GET";
  let response;
  let text;
  try {
    response = await fetch(at(path), {
      method,
      signal,
      cache: "no-cache", // Asks whether what the browser keeps is current: an ETag saves the rest.
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(wrote && clusterId ? { "X-Leadline-Cluster-Id": clusterId } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    text = await response.text();
  } catch (problem) {
    // Whoever gave up knows why; a time limit is like no answer.
    if (signal?.aborted && problem.name !== "TimeoutError") throw problem;
    throw new ApiError({ status: 0, wrote });
  }
  const parsed = parse(text);
  const causeId = response.headers.get("X-Leadline-Cause") ?? "";
  if (!response.ok) throw new ApiError({ status: response.status, body: parsed, cause: causeId, wrote });
  return { status: response.status, body: parsed, etag: response.headers.get("ETag") ?? "", causeId };
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}
