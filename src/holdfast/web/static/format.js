// Times, sizes, money and names as people read them.

let ahead = 0; // milliseconds that the store's clock is ahead of ours

export function setClock(nowMs) {
  if (nowMs) ahead = nowMs - Date.now();
}

export const now = () => Date.now() + ahead;

export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d`;
}

export const ago = (ms) => span(now() - ms);

export const clock = (ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1048576) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1048576).toFixed(1)} MiB`;
}

/** A status, a move or an outcome in words. */
export const words = (name) => name.replaceAll("_", " ");

export const NAMES = {
  todo: "to do",
  waiting_human: "needs a person",
  waiting_system: "waits for the clock",
  handoff_failed: "report missing",
};

export const statusName = (status) => NAMES[status] ?? words(status);

/** What a run used, as far as its agent said so. Money is in millionths of a dollar. */
export function usage(run) {
  const found = [];
  if (run.tokens) found.push(`${run.tokens.toLocaleString()} tokens`);
  if (run.cost) found.push(money(run.cost));
  if (run.turns) found.push(`${run.turns} turns`);
  return found;
}

/** What a run reached by name, and what it was refused; nothing of a run that nobody counted for. */
export function network(told) {
  if (!told?.counted) return told?.whole ? ["whole network"] : [];
  const reached = told.sent.map((row) => `${row.host}:${row.port} ${bytes(row.sent)} out, ${bytes(row.received)} in`);
  const refused = told.refused.map((row) => `refused ${row.host}${row.port === null ? "" : `:${row.port}`}`);
  return [...reached, ...refused, ...(told.more ? [`${told.more} more hosts`] : [])];
}

export const money = (millionths) => `$${(millionths / 1e6).toFixed(millionths < 10000 ? 4 : 2)}`;

/** Without what a terminal would obey: colours, titles, cursor moves, backspaces. */
export function plain(text) {
  return text
    .replace(/\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "")
    .replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\^_]|[ -/]+[0-~])/g, "")
    .replace(/\r+\n/g, "\n")
    .replace(/[^\n]*\r(?!\n)/g, "")
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
}
