// One stream of changes, by fetch because it carries the token. It is taken up again where it broke off.

import { Refused, authorization, query } from "./api.js";

const SILENT_MS = 40000; // the server says something every 15 seconds
const FIRST_MS = 400;
const LONGEST_MS = 8000;

/**
 * Follow until the signal is aborted. `on` has hello(message), changes(message) and state(text);
 * `after` is the number of the last event that is known.
 */
export async function follow(where, after, on, signal) {
  let wait = FIRST_MS;
  let seen = after;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    try {
      const response = await fetch(where + query({ after: seen ?? "" }), {
        headers: authorization(),
        signal: attempt.signal,
      });
      if (response.status === 401) return on.state("refused");
      if (!response.ok) throw new Refused(response.status);
      on.state("live");
      for await (const message of messages(response.body, stop)) {
        wait = FIRST_MS;
        if (message.kind === "fault") break;
        seen = message.data.seq;
        on[message.kind]?.(message.data);
      }
    } catch {
      // whatever it was: the next attempt says whether it lasts
    } finally {
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    if (signal.aborted) return undefined;
    on.state("reconnecting");
    await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random())));
    wait = Math.min(wait * 2, LONGEST_MS);
  }
  return undefined;
}

async function* messages(body, stop) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const silence = setTimeout(stop, SILENT_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const message = parsed(part);
      if (message) yield message;
    }
  }
}

function parsed(part) {
  let kind = "message";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? { kind, data: JSON.parse(data) } : null;
}
