// One column: a virtual list. However many tasks there are, only those in sight are in the page.

import { get, path } from "./api.js";
import { fill, made } from "./card.js";
import { el } from "./dom.js";
import { setClock, statusName } from "./format.js";

export const ROW = 108; // pixels of a card and the gap below it, as in board.css
const BEYOND = 5; // cards kept above and below what is in sight
const PAGE = 50;

/** Newest first, as the store lists them. */
function before(a, b) {
  return a.created_ms !== b.created_ms ? a.created_ms > b.created_ms : a.id > b.id;
}

export class Column {
  /** `view` has board, filters(), open(id) and failed(error). */
  constructor(status, view) {
    this.status = status;
    this.view = view;
    this.total = 0;
    this.nodes = new Map();
    this.number = el("span", { class: "number" }, "0");
    this.list = el("div", { class: "list", role: "list" });
    this.body = el("div", { class: "scroll", tabindex: -1, onscroll: () => this.draw() }, this.list);
    this.node = el(
      "section",
      { class: "column", "data-status": status, "aria-label": statusName(status) },
      el("h2", {}, el("span", { class: "dot" }), statusName(status), this.number),
      this.body,
    );
    this.reset();
  }

  /** Forget what is loaded; what is still on its way is not taken any more. */
  reset() {
    this.cards = [];
    this.known = new Set();
    this.cursor = "";
    this.loading = null;
    this.body.scrollTop = 0;
  }

  /** The first card that is in sight. */
  get top() {
    return Math.ceil(this.body.scrollTop / ROW);
  }

  get hasMore() {
    return this.cursor !== null;
  }

  load() {
    if (!this.hasMore || this.loading) return this.loading;
    const mine = (this.loading = this.#page().finally(() => {
      if (this.loading !== mine) return;
      this.loading = null;
      this.draw();
    }));
    return mine;
  }

  async #page() {
    const asked = { ...this.view.filters(), status: this.status, limit: PAGE, cursor: this.cursor };
    const cards = this.cards;
    try {
      const page = await get(path("boards", this.view.board, "tasks"), asked);
      if (this.cards !== cards) return; // reset meanwhile
      setClock(page.now_ms);
      this.cursor = page.cursor;
      for (const card of page.cards) this.#insert(card);
    } catch (error) {
      if (this.cards !== cards) return;
      this.cursor = null;
      this.view.failed(error);
    }
  }

  /** A card that is new or has changed. Beyond what is loaded it comes with its page. */
  put(card) {
    if (this.known.has(card.id)) {
      this.cards[this.#place(card)] = card;
      const node = this.nodes.get(card.id);
      if (node) fill(node, card);
    } else if (this.#place(card) < this.cards.length || !this.hasMore) this.#insert(card);
  }

  drop(id) {
    if (!this.known.delete(id)) return;
    this.cards.splice(this.indexOf(id), 1);
  }

  indexOf(id) {
    return this.cards.findIndex((card) => card.id === id);
  }

  card(id) {
    return this.cards[this.indexOf(id)];
  }

  #insert(card) {
    if (this.known.has(card.id)) return;
    this.known.add(card.id);
    this.cards.splice(this.#place(card), 0, card);
    const node = this.nodes.get(card.id);
    if (node) fill(node, card);
  }

  #place(card) {
    let low = 0;
    let high = this.cards.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(this.cards[middle], card)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  count(total, filtered) {
    this.total = total;
    const shown = filtered ? `${this.cards.length}${this.hasMore && total ? "+" : ""}` : total.toLocaleString();
    if (this.number.textContent !== shown) this.number.textContent = shown;
    this.node.classList.toggle("empty", !(filtered ? this.cards.length : total));
  }

  /** Put what is in sight into the page, and take out the rest. */
  draw() {
    const height = this.body.clientHeight;
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.cards.length, Math.ceil((this.body.scrollTop + height) / ROW) + BEYOND);
    this.list.style.height = `${this.cards.length * ROW}px`;
    const seen = new Map();
    for (let index = first; index < last; index += 1) {
      const card = this.cards[index];
      const node = this.nodes.get(card.id) ?? made(card, this.view.open);
      node.style.transform = `translateY(${index * ROW}px)`;
      node.setAttribute("aria-posinset", index + 1);
      node.setAttribute("aria-setsize", this.hasMore ? -1 : this.cards.length);
      if (!node.isConnected) this.list.append(node);
      seen.set(card.id, node);
    }
    for (const [id, node] of this.nodes) if (!seen.has(id)) node.remove();
    this.nodes = seen;
    if (this.hasMore && !this.loading && last + BEYOND >= this.cards.length) this.load();
  }

  /** Bring a card into sight and give it the focus. */
  focus(index) {
    const at = Math.max(0, Math.min(index, this.cards.length - 1));
    if (!this.cards.length) return null;
    const top = at * ROW;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    const bottom = top + ROW - this.body.clientHeight;
    if (bottom > this.body.scrollTop) this.body.scrollTop = bottom;
    this.draw();
    const { id } = this.cards[at];
    this.nodes.get(id)?.focus({ preventScroll: true });
    this.node.scrollIntoView({ block: "nearest", inline: "nearest" });
    return id;
  }

  flash(id) {
    const node = this.nodes.get(id);
    if (!node) return;
    node.classList.remove("changed");
    void node.offsetWidth; // so that the animation begins anew
    node.classList.add("changed");
  }
}
