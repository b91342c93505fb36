// The page: which board, which filters, which task, and the keyboard.

import { get, path, takeToken } from "./api.js";
import { Board, PEOPLE } from "./board.js";
import { byId, el, toast } from "./dom.js";
import { Drawer } from "./drawer.js";
import { create } from "./forms.js";
import { ago } from "./format.js";

const TYPING_MS = 250; // a search begins when nobody has typed for so long
const KEYS = {
  "/": ["search", () => byId("search").focus()],
  j: ["next card", () => step(1)],
  k: ["previous card", () => step(-1)],
  h: ["column to the left", () => aside(-1)],
  l: ["column to the right", () => aside(1)],
  ArrowDown: ["next card", () => step(1)],
  ArrowUp: ["previous card", () => step(-1)],
  ArrowLeft: ["column to the left", () => aside(-1)],
  ArrowRight: ["column to the right", () => aside(1)],
  Enter: ["open the card", () => selected() && drawer.open(selected())],
  Escape: ["close, or empty and leave a field", () => drawer.close()],
  n: ["new task", () => newTask()],
  m: ["what waits on me", () => byId("mine").click()],
  c: ["comment on the open task", () => byId("drawer").querySelector(".say textarea")?.focus()],
  "?": ["this list", () => help()],
};

const place = () => new URLSearchParams(location.hash.slice(1));
const failed = (error) => (error.status === 401 ? locked() : toast(error.message, error.remedy));

const drawer = new Drawer(byId("drawer"), {
  opened: (id) => go({ task: id }),
  closed: () => {
    go({ task: null });
    const card = last && board.column(last)?.nodes.get(last);
    card?.focus({ preventScroll: true });
  },
  failed,
});
const board = new Board(byId("columns"), {
  open: (id) => {
    last = id;
    drawer.open(id);
  },
  touched: (ids) => ids.has(drawer.id) && drawer.refresh(),
  counted,
  state,
  failed,
});
let last = null; // the card that was selected last
let typing; // when nobody has typed for a while, the filter follows

function go(change) {
  const now = place();
  for (const [name, value] of Object.entries(change)) {
    if (value === null) now.delete(name);
    else now.set(name, value);
  }
  history.replaceState(null, "", now.size ? `#${now}` : location.pathname);
}

function counted({ board: { slug }, counts, asking, places }) {
  const away = places.filter(({ shut }) => shut).length;
  const button = byId("places");
  button.hidden = !places.length;
  button.textContent = `${places.length === 1 ? "1 host" : `${places.length} hosts`}${away ? ` · ${away} not taking work` : ""}`;
  const waiting = [...PEOPLE].reduce((sum, status) => sum + (counts[status] ?? 0), asking);
  byId("waiting").textContent = waiting ? waiting.toLocaleString() : "";
  document.title = `${waiting ? `(${waiting}) ` : ""}${slug} · Holdfast`;
}

function state(text) {
  const link = byId("link");
  link.dataset.state = text;
  link.title = text === "reconnecting" ? "Holdfast does not answer; it is asked again and again" : "";
  link.textContent = text === "live" ? `live${board.standing?.board.paused ? " · board paused" : ""}` : text;
  if (text === "refused") locked();
}

function locked() {
  byId("columns").replaceChildren(
    el(
      "div",
      { class: "locked", role: "alert" },
      el("h2", {}, "This page has no valid token"),
      el("p", {}, "Let this browser in, for as long as it is used; after that a bookmark of the page is enough:"),
      el("pre", {}, "holdfast open"),
    ),
  );
}

function selected() {
  const card = document.activeElement?.closest?.(".card");
  if (card) last = card.dataset.id;
  return card?.dataset.id ?? null;
}

/** To another card of the same column; the first time, to the first card of all. */
function step(by) {
  const id = selected() ?? last;
  const column = (id && board.column(id)) ?? board.shown().find((one) => one.cards.length);
  if (!column) return;
  const at = id ? column.indexOf(id) : -1;
  last = column.focus(at < 0 ? 0 : at + by) ?? last;
}

function aside(by) {
  const id = selected() ?? last;
  const shown = board.shown().filter((one) => one.cards.length);
  const here = shown.indexOf(id ? board.column(id) : undefined);
  const there = shown[here < 0 ? 0 : here + by];
  if (!there) return;
  const at = here < 0 ? 0 : shown[here].indexOf(id) - shown[here].top;
  last = there.focus(Math.max(there.top, there.top + at)) ?? last;
}

function newTask() {
  if (board.board) create(board.board, (id) => board.on.open(id));
}

function help() {
  const box = byId("dialog");
  const rows = Object.entries(KEYS).map(([key, [text]]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]);
  box.replaceChildren(
    el("h2", { id: "dialog-title" }, "Keyboard"),
    el("dl", { class: "keys" }, rows.flat()),
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => box.close() }, "Close")),
  );
  box.showModal();
}

function hosts() {
  const box = byId("dialog");
  const rows = board.standing.places.map(({ host, environment, shut, running }) => [
    el("dt", {}, environment ? `${environment} by ${host}` : host),
    el("dd", {}, `${running} running · ${shut || "takes work"}`),
  ]);
  box.replaceChildren(
    el("h2", { id: "dialog-title" }, "Hosts and environments"),
    el("dl", { class: "hosts" }, rows.flat()),
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => box.close() }, "Close")),
  );
  box.showModal();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("dialog").open) return;
  const field = event.target.closest("input, textarea, select");
  if (field) {
    if (event.key !== "Escape") return;
    if (field === byId("search") || field === byId("assignee")) {
      event.preventDefault(); // the browser empties one of the two, and tells nobody
      field.value = "";
      filtered();
    }
    field.blur();
    return;
  }
  if (event.key === "Enter" && event.target.closest("button, a, summary, [role=link]")) return;
  if (event.key.startsWith("Arrow") && event.target.closest(".drawer")) return;
  const known = KEYS[event.key];
  if (!known) return;
  event.preventDefault();
  known[1]();
}

/** Show what the two fields ask for, now. */
function filtered() {
  clearTimeout(typing);
  const wanted = { search: byId("search").value.trim(), assignee: byId("assignee").value.trim() };
  board.filter(wanted).catch(failed);
}

function toggled(button, changed) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    changed(on);
  });
}

function wired() {
  for (const name of ["search", "assignee"]) {
    byId(name).addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(filtered, TYPING_MS);
    });
  }
  toggled(byId("mine"), (on) => board.filter({ mine: on ? "true" : "" }).catch(failed));
  toggled(byId("archived"), (on) => {
    board.archived = on;
    board.reload().catch(failed);
  });
  byId("boards").addEventListener("change", (event) => {
    drawer.close();
    go({ board: event.target.value });
    board.open(event.target.value).catch(failed);
  });
  byId("new").addEventListener("click", newTask);
  byId("help").addEventListener("click", help);
  byId("places").addEventListener("click", hosts);
  document.addEventListener("keydown", pressed);
  addEventListener("hashchange", () => location.reload()); // another address was typed, perhaps with a new token
  addEventListener("resize", () => board.shown().forEach((column) => column.draw()));
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-since]")) time.textContent = ago(Number(time.dataset.since));
  }, 10000);
}

async function start() {
  takeToken();
  wired();
  const { boards, profiles, first: meant } = await get(path("boards"));
  const open = boards.filter((one) => !one.archived);
  const asked = place().get("board") ?? meant;
  const [first] = [...open.filter((one) => one.slug === asked), ...open.filter((one) => one.last_seq), ...open, ...boards];
  byId("profiles").replaceChildren(...profiles.map((name) => el("option", { value: name })));
  byId("boards").replaceChildren(...boards.map(({ slug, title }) => el("option", { value: slug }, title ? `${slug}: ${title}` : slug)));
  if (!first) {
    toast("There is no board yet.", "holdfast board create NAME");
    return;
  }
  byId("boards").value = first.slug;
  await board.open(first.slug);
  const task = place().get("task");
  if (task) await drawer.open(task);
}

start().catch(failed);
