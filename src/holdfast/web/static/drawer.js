// One task with everything that belongs to it.

import { get, path, save } from "./api.js";
import { el, toast } from "./dom.js";
import { Evidence } from "./evidence.js";
import { actions, run as act } from "./forms.js";
import { ago, bytes, clock, money, network, now, setClock, span, statusName, usage, words } from "./format.js";
import { graph } from "./graph.js";

const PARTS = ["head", "actions", "ask", "facts", "body", "result", "graph", "runs", "files", "comments"];

export class Drawer {
  /** `on` has opened(id), closed() and failed(error). */
  constructor(node, on) {
    this.node = node;
    this.on = on;
    this.id = null;
  }

  async open(id) {
    if (this.id === id) return;
    this.evidence?.close();
    this.evidence = null;
    this.chosen = null;
    this.id = id;
    this.parts = Object.fromEntries(PARTS.map((name) => [name, el("section", { class: `part ${name}` })]));
    this.events = el("div", {});
    const history = el("details", { class: "part" }, el("summary", {}, "History"), this.events);
    this.node.replaceChildren(...Object.values(this.parts), this.#form(), history);
    this.node.hidden = false;
    this.node.scrollTop = 0;
    this.on.opened(id);
    await this.refresh();
    if (this.id === id) this.node.querySelector("h2")?.focus();
  }

  close() {
    if (this.id === null) return;
    this.evidence?.close();
    this.evidence = null;
    this.id = null;
    this.node.hidden = true;
    this.node.replaceChildren();
    this.on.closed();
  }

  /** Look again; what a person is writing stays. */
  async refresh() {
    const { id } = this;
    try {
      const detail = await get(path("tasks", id));
      if (this.id !== id) return;
      setClock(detail.now_ms);
      this.#draw(detail);
    } catch (error) {
      if (this.id !== id) return;
      this.close();
      this.on.failed(error);
    }
  }

  #draw(detail) {
    const { task } = detail;
    const put = (name, ...children) => {
      const part = this.parts[name];
      if (name === "ask" && part.querySelector("input:focus")) return;
      const filled = children.flat().filter(Boolean);
      part.hidden = !filled.length;
      part.replaceChildren(...filled);
    };
    put("head", this.#head(task));
    put("actions", actions(task, detail.moves));
    put("ask", this.#ask(task), this.#hosts(detail));
    put("facts", this.#facts(detail));
    put("body", task.body ? [el("h3", {}, "Description"), el("div", { class: "text" }, task.body)] : []);
    put("result", task.result ? [el("h3", {}, "Result"), el("div", { class: "text" }, task.result)] : []);
    const drawing = graph(detail, (other) => this.open(other));
    put("graph", drawing ? [el("h3", {}, "Dependencies"), drawing] : []);
    this.#runs(detail);
    put("files", detail.files.length ? [el("h3", {}, "Attachments"), this.#files(detail.files)] : []);
    put("comments", el("h3", {}, "Comments"), ...this.#said(detail));
    this.events.replaceChildren(...detail.events.toReversed().map(happened));
  }

  #head(task) {
    return [
      el(
        "div",
        { class: "line-up" },
        el("span", { class: "chip", "data-status": task.status }, statusName(task.status)),
        el("code", {}, task.id),
        el("span", { class: "grow" }),
        el("button", { type: "button", class: "round", "aria-label": "Close", onclick: () => this.close() }, "×"),
      ),
      el("h2", { tabindex: -1 }, task.title),
    ];
  }

  #ask(task) {
    if (task.status !== "waiting_human") return [];
    const answer = (reason) => act(task.id, "unblock", { reason });
    const field = el("input", { type: "text", "aria-label": "Answer", placeholder: "Answer" });
    return [
      el("p", { class: "question" }, task.question),
      task.waiting_for ? el("p", { class: "dim" }, `for ${task.waiting_for}`) : null,
      el(
        "form",
        {
          class: "answers",
          onsubmit: (event) => {
            event.preventDefault();
            field.blur();
            answer(field.value);
          },
        },
        task.options.map((one) => el("button", { type: "button", onclick: () => answer(one) }, one)),
        field,
        el("button", { type: "submit", class: "primary" }, "Answer"),
      ),
    ];
  }

  /** Hosts that its worker waits for, each with the answers that there are. */
  #hosts({ task, questions }) {
    const open = questions.filter((one) => !one.answer && !one.outcome);
    const said = (one) => [["yes", "Allow"], ["no", "Refuse"], ...(one.pattern ? [["pattern", `Allow ${one.pattern}`]] : [])];
    return open.flatMap((one) => [
      el("p", { class: "question" }, `${one.program || "it"} wants to reach ${one.host}`),
      el(
        "div",
        { class: "answers" },
        said(one).map(([answer, label]) =>
          el("button", { type: "button", onclick: () => act(task.id, "answer", { answer, host: one.host }) }, label),
        ),
      ),
    ]);
  }

  #facts(detail) {
    const { task, runs } = detail;
    const cost = runs.reduce((sum, run) => sum + (run.cost ?? 0), 0);
    const tokens = runs.reduce((sum, run) => sum + (run.tokens ?? 0), 0);
    const facts = [
      ["why", detail.why],
      ["assignee", task.assignee || "nobody"],
      ["priority", task.priority || null],
      ["attempts", `${task.attempts} of ${task.max_attempts}`],
      ["reviewer", task.reviewer],
      ["checks", task.checks?.join(" · ")],
      ["environment", task.environment],
      ["pool", task.pool],
      ["workspace", task.workspace ? `${task.workspace_kind} ${task.workspace}` : null],
      ["used", [tokens ? `${tokens.toLocaleString()} tokens` : "", cost ? money(cost) : ""].filter(Boolean).join(" · ")],
      ["budget", [task.max_tokens ? `${task.max_tokens.toLocaleString()} tokens` : "", task.max_cost ? money(task.max_cost) : ""].filter(Boolean).join(" · ")],
      ["created", `${clock(task.created_ms)} by ${task.created_by}`],
      ["since", `${ago(task.status_ms)} ${statusName(task.status)}`],
    ];
    return el("dl", {}, facts.filter(([, text]) => text).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, String(text))]));
  }

  #runs(detail) {
    const { runs, task } = detail;
    const part = this.parts.runs;
    part.hidden = !runs.length;
    if (!runs.length) return;
    const newest = runs.at(-1);
    if (!this.chosen || (this.follows && this.chosen !== newest.id)) this.#choose(task, newest, detail.kept);
    this.follows = this.chosen === newest.id;
    const shown = runs.find((run) => run.id === this.chosen);
    if (shown && shown.outcome !== this.outcome) this.#choose(task, shown, detail.kept);
    const reached = Object.fromEntries(detail.events.filter((one) => one.kind === "run_network").map((one) => [one.run_id, one.payload]));
    const list = el(
      "ol",
      { class: "run-list" },
      runs.toReversed().map((run) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              class: "run",
              "aria-pressed": String(run.id === this.chosen),
              onclick: () => {
                this.#choose(task, run, detail.kept);
                this.#runs(detail);
              },
            },
            el("span", { class: "chip", "data-outcome": run.outcome ?? "running" }, words(run.outcome ?? "running") + (run.outcome === "failed" && run.failure ? ` (${run.failure})` : "")),
            el("span", {}, `#${run.generation} ${run.profile}`),
            el("span", { class: "dim" }, [span((run.ended_ms ?? now()) - run.started_ms), ...usage(run), run.environment ? `${run.environment} by ${run.host}` : run.host].join(" · ")),
            el("span", { class: "dim network" }, network(reached[run.id]).join(" · ")),
            el("span", { class: "said" }, run.stuck || run.error || run.summary || run.note || ""),
          ),
        ),
      ),
    );
    part.replaceChildren(el("h3", {}, "Runs"), list, this.evidence.node);
  }

  #choose(task, run, kept) {
    this.evidence?.close();
    this.chosen = run.id;
    this.outcome = run.outcome;
    this.evidence = new Evidence(task.id, run);
    const names = (kept[run.id] ?? []).map((file) => file.name);
    this.evidence.show(run.outcome && names.includes("diff.patch") ? "diff" : "output");
  }

  #files(files) {
    const saved = (name) => save(path("tasks", this.id, "file"), { name }, name).catch((error) => toast(error.message));
    return el(
      "ul",
      { class: "file-list" },
      files.map((file) =>
        el(
          "li",
          {},
          el("button", { type: "button", class: "text", onclick: () => saved(file.name) }, file.name),
          el("span", { class: "dim" }, ` ${bytes(file.size)} by ${file.author}`),
        ),
      ),
    );
  }

  #said(detail) {
    const remarks = [...detail.comments, ...(detail.messages ?? [])].sort((a, b) => a.at_ms - b.at_ms);
    if (!remarks.length) return [el("p", { class: "dim" }, "none yet")];
    return remarks.map((one) =>
      el(
        "article",
        { class: "comment" },
        el("header", {}, el("b", {}, one.author), el("span", { class: "dim" }, ` ${clock(one.at_ms)}${about(one)}`)),
        el("div", { class: "text" }, one.body),
      ),
    );
  }

  #form() {
    const field = el("textarea", { rows: 2, "aria-label": "Comment", placeholder: "Comment", required: true });
    const submit = async (event) => {
      event.preventDefault();
      if (await act(this.id, "comment", { body: field.value })) field.value = "";
    };
    const send = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && field.form.requestSubmit();
    field.addEventListener("keydown", send);
    return el("form", { class: "part say", onsubmit: submit }, field, el("button", { type: "submit" }, "Comment"));
  }
}

function about(one) {
  if ("delivered_ms" in one) return ` · message, ${one.seen_ms ? "seen" : one.delivered_ms ? "delivered" : "on its way"}`;
  return one.path ? ` · ${one.path}${one.line ? `:${one.line}` : ""}` : "";
}

function happened(event) {
  const payload = Object.entries(event.payload).filter(([, value]) => value !== "" && value !== null);
  const text = payload.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · ");
  return el(
    "p",
    { class: "event" },
    el("time", { class: "dim" }, clock(event.at_ms)),
    el("b", {}, ` ${words(event.kind)} `),
    el("span", { class: "dim" }, `by ${event.actor} ${text.length > 300 ? `${text.slice(0, text.lastIndexOf(" ", 299) + 1 || 299)}…` : text}`),
  );
}
