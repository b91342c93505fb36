// What a run said and changed: live output, the kept output, the diff by line.

import { Refused, get, path, save } from "./api.js";
import { el, toast } from "./dom.js";
import { bytes, plain } from "./format.js";

const LIVE_MS = 1000; // a worker's output is looked at again
const MOST_LINES = 3000; // of a diff at once

/** Both, as tabs, for one run. `close` ends what is still under way. */
export class Evidence {
  constructor(task, run) {
    this.task = task;
    this.run = run;
    this.mark = "";
    this.pane = el("div", { class: "pane", role: "tabpanel" });
    this.tabs = ["output", "diff"].map((name) =>
      el("button", { type: "button", role: "tab", "aria-selected": "false", "data-tab": name, onclick: () => this.show(name) }, name),
    );
    this.node = el("div", { class: "evidence" }, el("div", { class: "tabs", role: "tablist", "aria-label": "Evidence" }, this.tabs), this.pane);
  }

  show(name) {
    this.close();
    this.mark = "";
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
    this.pane.replaceChildren(el("p", { class: "dim" }, "…"));
    const stop = (this.stop = new AbortController());
    const job = name === "diff" ? this.#diff(stop.signal) : this.#output(stop.signal);
    job.catch((error) => {
      if (stop.signal.aborted) return;
      const nothing = error instanceof Refused && error.status === 404;
      this.pane.replaceChildren(el("p", { class: nothing ? "dim" : "bad" }, error.message));
    });
  }

  close() {
    this.stop?.abort();
  }

  async #output(signal) {
    const text = el("pre", { class: "output", tabindex: 0, "aria-label": "Output" });
    const about = el("p", { class: "dim" });
    while (!signal.aborted) {
      if (!document.hidden) {
        const said = await get(path("tasks", this.task, "output"), { run: this.run.id, mark: this.mark }, signal);
        if (signal.aborted) return;
        this.mark = said.mark;
        if (!text.isConnected) this.pane.replaceChildren(about, text);
        about.replaceChildren(
          said.live ? el("span", { class: "live" }, "live") : "kept",
          ` · ${bytes(said.size)} `,
          said.live ? "" : this.#saver("output"),
        );
        if (said.content !== undefined) write(text, plain(said.content));
        if (!said.live) return;
      }
      await new Promise((done) => setTimeout(done, LIVE_MS));
    }
  }

  async #diff(signal) {
    const found = await get(path("tasks", this.task, "diff"), { run: this.run.id }, signal);
    if (!found.size) {
      this.pane.replaceChildren(el("p", { class: "dim" }, "nothing was changed"));
      return;
    }
    const lines = found.content.split("\n");
    const pre = el("pre", { class: "diff", tabindex: 0, "aria-label": "Diff" });
    let from = 0;
    const more = el("button", { type: "button", onclick: () => next() }, "more");
    const next = () => {
      pre.append(...lines.slice(from, from + MOST_LINES).map((line) => el("span", { class: kind(line) }, `${line}\n`)));
      from += MOST_LINES;
      more.hidden = from >= lines.length;
    };
    next();
    const clipped = found.content.length < found.size ? "the beginning of " : "";
    this.pane.replaceChildren(el("p", { class: "dim" }, `${clipped}${bytes(found.size)} `, this.#saver("diff.patch")), pre, more);
  }

  #saver(name) {
    const values = { run: this.run.id, name };
    const saved = () => save(path("tasks", this.task, "file"), values, `${this.run.id}-${name}`);
    return el("button", { type: "button", class: "text", onclick: () => saved().catch((error) => toast(error.message)) }, "save");
  }
}

/** Whoever reads the end goes on reading the end. */
function write(pre, text) {
  const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
  pre.textContent = text;
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}

function kind(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ")) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (line.startsWith("+")) return "plus";
  return line.startsWith("-") ? "minus" : "same";
}
