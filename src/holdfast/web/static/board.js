// All columns of one board, kept up to date by its stream: only cards that changed are asked for again.

import { get, path } from "./api.js";
import { fill } from "./card.js";
import { Column } from "./column.js";
import { setClock } from "./format.js";
import { follow } from "./stream.js";

const ORDER = [
  ...["triage", "todo", "scheduled", "ready", "running", "waiting_system", "waiting_human", "handoff_failed"],
  ...["review", "done", "failed", "cancelled", "archived"],
];
const ALWAYS = new Set(["todo", "ready", "running", "waiting_human", "review", "done"]);
export const PEOPLE = new Set(["triage", "waiting_human", "handoff_failed", "review", "failed"]);
const AT_ONCE = 100; // cards of one request
const TOO_MANY = 1000; // changed cards; from here on the beginnings of the columns are cheaper
const GATHER_MS = 120; // changes that come together are fetched together
const COUNT_MS = 500; // between two looks at how many tasks there are
const AGAIN_MS = 5000; // a heartbeat is no event, nor that a host comes or goes: what is in sight is looked at again
const RESTLESS = ["running", "ready", "waiting_system"];

export class Board {
  /** `on` has open(id), touched(ids), counted(standing), state(text) and failed(error). */
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.wanted = { search: "", assignee: "", mine: "" };
    this.archived = false;
    this.columns = new Map();
    this.pending = new Set();
    setInterval(() => this.#lookAgain(), AGAIN_MS);
  }

  filters() {
    return this.wanted;
  }

  get filtered() {
    return Boolean(this.wanted.search || this.wanted.assignee || this.wanted.mine);
  }

  async open(slug) {
    this.leaving?.abort();
    const leaving = (this.leaving = new AbortController());
    this.board = slug;
    this.pending.clear();
    const view = {
      board: slug,
      filters: () => this.wanted,
      open: this.on.open,
      failed: this.on.failed,
    };
    this.columns = new Map(ORDER.map((status) => [status, new Column(status, view)]));
    const { board } = await this.#count();
    if (leaving.signal.aborted) return;
    this.root.replaceChildren(...this.shown().map((column) => column.node));
    await this.reload();
    follow(path("boards", slug, "events"), board.last_seq, {
      hello: (message) => message.reset && this.reload(),
      changes: (message) => this.#changed(message.events),
      state: (text) => leaving.signal.aborted || this.on.state(text),
    }, leaving.signal);
  }

  /** The beginnings of all columns that are shown. */
  async reload() {
    await this.#count();
    for (const column of this.columns.values()) column.reset();
    const shown = this.shown();
    this.#arrange();
    for (const column of shown) {
      if (column.total) continue;
      column.cursor = null;
      column.draw();
    }
    await Promise.all(shown.map((column) => column.load()));
    this.#recount();
  }

  filter(wanted) {
    this.wanted = { ...this.wanted, ...wanted };
    return this.reload();
  }

  shown() {
    return [...this.columns.values()].filter(({ status, total }) => {
      if (status === "archived") return this.archived && !this.wanted.mine;
      if (this.wanted.mine && status === "running") return this.standing.asking; // of those, what asks about a host
      if (this.wanted.mine) return PEOPLE.has(status) && (total || status === "waiting_human");
      return total || ALWAYS.has(status);
    });
  }

  column(id) {
    return [...this.columns.values()].find((column) => column.known.has(id));
  }

  async #count() {
    const answer = await get(path("boards", this.board));
    setClock(answer.now_ms);
    this.countedAt = performance.now();
    for (const column of this.columns.values()) column.total = answer.counts[column.status] ?? 0;
    this.standing = answer;
    this.on.counted(answer);
    return answer;
  }

  /** Counting costs more than a card: it is done now and then, and once when everything is quiet. */
  #countSoon() {
    const wait = Math.max(0, COUNT_MS - (performance.now() - this.countedAt));
    this.counting ??= setTimeout(async () => {
      this.counting = null;
      await this.#count().catch(this.on.failed);
      this.#arrange();
      for (const column of this.shown()) column.draw();
    }, wait);
  }

  #recount() {
    for (const column of this.columns.values()) column.count(column.total, this.filtered);
    this.root.toggleAttribute("data-empty", ![...this.columns.values()].some((column) => column.total));
  }

  /** Columns that became empty go, and others come; those that stay keep their place and scroll. */
  #arrange() {
    const shown = this.shown();
    const nodes = shown.map((column) => column.node);
    for (const node of [...this.root.children]) if (!nodes.includes(node)) node.remove();
    nodes.forEach((node, index) => {
      if (this.root.children[index] !== node) this.root.insertBefore(node, this.root.children[index] ?? null);
    });
    this.#recount();
  }

  #changed(events) {
    const ids = events.map((event) => event.task_id).filter(Boolean);
    for (const id of ids) this.pending.add(id);
    this.on.touched(new Set(ids));
    this.gathering ??= setTimeout(() => this.#fetch(), GATHER_MS);
  }

  async #fetch() {
    const { board } = this;
    try {
      if (this.pending.size > TOO_MANY) {
        this.pending.clear();
        await this.reload();
        return;
      }
      this.#countSoon();
      while (this.pending.size && board === this.board) {
        const ids = [...this.pending].slice(0, AT_ONCE);
        for (const id of ids) this.pending.delete(id);
        await this.#refresh(ids, true);
      }
    } catch (error) {
      this.on.failed(error);
    } finally {
      this.gathering = null;
      if (this.pending.size) this.gathering = setTimeout(() => this.#fetch(), GATHER_MS);
    }
  }

  async #refresh(ids, visibly) {
    const { board, columns } = this;
    const answer = await get(path("boards", board, "cards"), { ...this.wanted, id: ids });
    if (columns !== this.columns) return;
    setClock(answer.now_ms);
    const found = new Map(answer.cards.map((card) => [card.id, card]));
    for (const id of ids) {
      const card = found.get(id);
      const known = this.column(id)?.card(id);
      if (card && known?.version > card.version) continue; // a later answer came first
      for (const column of columns.values()) if (column.status !== card?.status) column.drop(id);
      if (card) columns.get(card.status)?.put(card);
    }
    this.#arrange();
    for (const column of this.shown()) column.draw();
    if (visibly) for (const card of found.values()) columns.get(card.status)?.flash(card.id);
  }

  async #lookAgain() {
    if (document.hidden) return;
    const ids = RESTLESS.flatMap((status) => [...(this.columns.get(status)?.nodes.keys() ?? [])]).slice(0, AT_ONCE);
    if (ids.length) await this.#refresh(ids, false).catch(() => {});
    for (const column of this.shown()) {
      for (const card of column.cards.filter(({ id }) => column.nodes.has(id))) fill(column.nodes.get(card.id), card);
    }
  }
}
