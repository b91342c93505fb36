// Requests with the token of this start, which came in the fragment of the address and goes nowhere else, or
// with the cookie of this home, which counts only with the header that no other page can send.

const KEPT = "holdfast-token";

/** Take the token out of the address, so that it is in no bookmark and on no screen. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (!token) return;
  sessionStorage.setItem(KEPT, token);
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
}

export const authorization = () => ({
  Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}`,
  "X-Holdfast": "page",
});

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? "";
    this.remedy = error?.remedy ?? "";
  }
}

export function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join("/")}`;
}

/** A query without what is empty; a list is repeated. */
export function query(values) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined && one !== false) asked.append(name, one);
    }
  }
  return asked.size ? `?${asked}` : "";
}

/** Nobody answers there: the browser's own words ("Failed to fetch") tell a reader nothing. */
export class Unreachable extends Error {
  constructor() {
    super("Holdfast does not answer any more: it was ended, or this machine cannot be reached.");
    this.remedy = "holdfast status says what runs; holdfast up starts it again, and this page goes on by itself";
  }
}

async function asked(where, options) {
  try {
    return await fetch(where, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function answered(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer.error);
  return answer;
}

export async function get(where, values = {}, signal = undefined) {
  return answered(await asked(where + query(values), { headers: authorization(), signal }));
}

export async function post(where, body) {
  const headers = { ...authorization(), "Content-Type": "application/json" };
  return answered(await asked(where, { method: "POST", headers, body: JSON.stringify(body) }));
}

/** Save a file of a task or of a run under its own name. */
export async function save(where, values, name) {
  const response = await asked(where + query(values), { headers: authorization() });
  if (!response.ok) await answered(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
