// One task in a column.

import { el, plain } from "./dom.js";
import { ago, now } from "./format.js";

const STUCK_MS = 45000; // leases are a minute long, and heartbeats come several times in that time

/** The element of a card, to be put where the column wants it. */
export function made(card, open) {
  const node = el("article", {
    class: "card",
    role: "listitem",
    tabindex: -1,
    "data-id": card.id,
    "data-status": card.status,
    onclick: () => open(card.id),
  });
  fill(node, card);
  return node;
}

export function fill(node, card) {
  const quiet = card.beat_ms !== null && now() - card.beat_ms > STUCK_MS;
  node.setAttribute("aria-label", `${plain(card.title)}, ${card.assignee || "unassigned"}`);
  node.toggleAttribute("data-quiet", quiet);
  node.replaceChildren(
    el("h3", {}, card.title),
    el("p", { class: "line", title: card.line }, card.line || (quiet ? "its worker is silent" : "")),
    el(
      "footer",
      {},
      card.status === "running" ? el("span", { class: "pulse", "aria-hidden": "true" }) : null,
      card.assignee
        ? el("span", { class: "who" }, card.assignee)
        : el("span", { class: "who none" }, "unassigned"),
      card.place ? el("span", { class: "tag", title: "where it runs" }, `@${card.place}`) : null,
      card.priority ? el("span", { class: "tag", title: "priority" }, `P${card.priority}`) : null,
      card.open_parents ? el("span", { class: "tag", title: "waits for so many tasks" }, `↑${card.open_parents}`) : null,
      card.attempts > 1 ? el("span", { class: "tag", title: "attempts" }, `${card.attempts}/${card.max_attempts}`) : null,
      el("span", { class: "grow" }),
      el("time", { "data-since": card.status_ms, title: "in this column" }, ago(card.status_ms)),
    ),
  );
}
