"use strict";
// The bundle browser: filters over the facts of every bundle, and one bundle's answers side by side. Texts come from the
// page or, once the reader has opened the run's folder, from the run's own record files; nothing is ever requested.
(() => {
  const data = document.getElementById("bundles");
  if (data === null) return;
  const runs = JSON.parse(data.textContent);
  const PAGE = 12;
  const at = (name) => document.getElementById(`bundle-${name}`);
  const rows = at("rows"), shown = document.getElementById("bundle");
  const folders = runs.map(() => new Map());
  const state = { found: [], page: 0, open: null };

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const signed = (value) => value === null ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(3);
  const rate = (correct, judged) => judged ? `${correct}/${judged}` : "–";

  // -- filters

  const gap = (run, i) => {
    const under = run.hints[i].filter((hint) => hint[2]).map((hint) => hint[1] / hint[2]);
    return run.judged[i] && under.length ? run.correct[i] / run.judged[i] - Math.min(...under) : 0;
  };
  const rewards = (run, i) =>
    run.hints[i].length ? run.hints[i].map((hint) => hint[0]).filter((reward) => reward !== null)
      : run.reward[i] === null ? [] : [run.reward[i]];
  const VERDICTS = {
    all: () => true,
    misled: (run, i) => gap(run, i) > 1e-9,
    held: (run, i) => run.hints[i].some((hint) => hint[2]) && gap(run, i) <= 1e-9,
    refused: (run, i) => run.hints[i].some((hint) => hint[3]),
    solved: (run, i) => run.judged[i] > 0 && run.correct[i] === run.judged[i],
    mixed: (run, i) => run.correct[i] > 0 && run.correct[i] < run.judged[i],
    failed: (run, i) => run.judged[i] > 0 && run.correct[i] === 0,
  };
  const highest = (run, i) => Math.max(-Infinity, ...rewards(run, i));
  const ORDERS = {
    step: () => 0,
    gap: (run, a, b) => gap(run, b) - gap(run, a),
    reward: (run, a, b) => { const [x, y] = [highest(run, a), highest(run, b)]; return x === y ? 0 : y - x; },
    question: (run, a, b) => run.problem[a] - run.problem[b],
  };
  const number = (name, without) => at(name).value === "" ? without : Number(at(name).value);

  const search = () => {
    const run = runs[at("run").value], words = at("question").value.toLowerCase().split(/\s+/).filter(Boolean);
    const named = run.problems.map((id, p) => {
      const text = `${id} ${run.questions[p]}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const from = number("from", -Infinity), to = number("to", Infinity);
    const least = number("least", -Infinity), most = number("most", Infinity);
    const anyReward = least === -Infinity && most === Infinity;
    const verdict = VERDICTS[at("verdict").value], packedOnly = at("packed").checked;
    state.found = [];
    for (let i = 0; i < run.file.length; i++) {
      const step = run.steps[run.file[i]];
      if (step >= from && step <= to && named[run.problem[i]] && verdict(run, i) && (!packedOnly || run.packed[i])
        && (anyReward || rewards(run, i).some((reward) => reward >= least && reward <= most))) state.found.push(i);
    }
    const order = ORDERS[at("order").value];
    state.found.sort((a, b) => order(run, a, b) || a - b);
    state.page = 0;
    list();
  };

  const list = () => {
    const run = runs[at("run").value], pages = Math.max(1, Math.ceil(state.found.length / PAGE));
    at("count").textContent = `${state.found.length.toLocaleString("en")} of ${run.file.length.toLocaleString("en")} bundles`;
    at("page").textContent = `page ${state.page + 1} of ${pages}`;
    at("previous").disabled = state.page === 0;
    at("next").disabled = state.page + 1 >= pages;
    rows.replaceChildren(...state.found.slice(state.page * PAGE, (state.page + 1) * PAGE).map((i) => row(run, i)));
  };

  const row = (run, i) => {
    const question = run.questions[run.problem[i]];
    const button = make("button", { type: "button", "data-bundle": i, title: run.problems[run.problem[i]] }, question);
    const hints = run.hints[i].map((hint) => hint[3] ? "refused" : rate(hint[1], hint[2])).join(", ") || "–";
    const where = run.packed[i] ? "here" : folders[at("run").value].has(run.files[run.file[i]]) ? "opened" : "in the folder";
    const cells = [rate(run.correct[i], run.judged[i]), hints, rewards(run, i).map(signed).join(", ") || "–", where];
    return make("tr", {}, make("td", {}, String(run.steps[run.file[i]])), make("th", { scope: "row" }, button),
      ...cells.map((cell) => make("td", {}, cell)));
  };

  // -- one bundle

  const read = async (run, i, files) => {
    const name = run.files[run.file[i]], file = files.get(name);
    const blob = file.slice(run.offset[i], run.offset[i] + run.size[i]);
    const text = await new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const id = run.problems[run.problem[i]], step = run.steps[run.file[i]];
    const records = text.split("\n").filter(Boolean).map((line) => JSON.parse(line))
      .filter((record) => record.problem_id === id && record.step === step);
    if (!records.length) throw new Error(`${name} is of another run`);
    return { question: records[0].question, gold: String(records[0].gold), records };
  };

  const open = async (i, focus) => {
    const which = Number(at("run").value), run = runs[which], files = folders[which];
    const name = run.files[run.file[i]];
    state.open = i;
    let bundle = run.packed[i] ?? null, note = "";
    if (files.has(name)) {
      try {
        bundle = await read(run, i, files);
      } catch (error) {
        note = `${name} could not be read: ${error.message}`;
      }
    } else if (bundle === null) {
      note = `The texts of this bundle are in ${run.name}/rollouts/${name}. Open that folder above to read them.`;
    } else if (bundle.records.some((record) => record.characters > record.response.length)) {
      note = "Long texts are shortened in the middle; open the run's rollouts folder above to read them whole.";
    }
    if (state.open !== i || Number(at("run").value) !== which) return;
    show(run, i, bundle, note);
    if (focus) at("title").focus();
  };

  const show = (run, i, bundle, note) => {
    const words = `Step ${run.steps[run.file[i]]}, question ${run.problems[run.problem[i]]}`;
    const title = make("h3", { id: "bundle-title", tabindex: "-1" }, words);
    const parts = [title, ...(note ? [make("p", { class: "note", role: "status" }, note)] : [])];
    if (bundle === null) parts.push(make("p", {}, run.questions[run.problem[i]]));
    else parts.push(...content(bundle));
    shown.replaceChildren(...parts);
    shown.hidden = false;
  };

  const prose = (text, label) => {
    const place = make("div", { class: "text", tabindex: "0", role: "region", "aria-label": label });
    typeset(place, text, at("source").checked);
    return place;
  };

  const content = (bundle) => {
    const roots = bundle.records.filter((record) => record.parent === null);
    const clean = roots.filter((record) => record.judged), hints = roots.filter((record) => !record.judged);
    const columns = make("div", { class: `columns of-${hints.length ? 3 : 1}` });
    if (clean.length) columns.append(column("Clean answers", (index) => `Clean answer ${index + 1}`, clean, false));
    if (hints.length) {
      const under = make("div", { class: "under" });
      const follow = (hint) => {
        const answers = bundle.records.filter((record) => record.parent === hint.id);
        const which = hints.indexOf(hint) + 1, title = `Answers under hint ${which}`;
        const named = (index) => `Answer ${index + 1} under hint ${which}`;
        under.replaceChildren(answers.length ? column(title, named, answers, true)
          : make("section", {}, make("h4", {}, title), make("p", {}, "none")));
      };
      columns.append(column("Hints", (index) => `Hint ${index + 1}`, hints, null, follow), under);
    }
    const gold = make("p", {}, "Right answer: ", make("code", {}, bundle.gold));
    return [prose(bundle.question, "Question"), gold, columns];
  };

  // One stage: a button a rollout, and the chosen rollout below. `fault` says whether a wrong answer is shown first.
  const column = (title, named, records, fault, chosen = () => {}) => {
    const first = fault === null ? records[0] : records.find((record) => record.correct === !fault) ?? records[0];
    const card = make("div", {}), buttons = records.map((record, index) => {
      const mark = { true: "✓", false: "✗" }[record.correct] ?? "";
      const label = `${named(index)}: ${verdict(record)}`;
      const button = make("button", { type: "button", "aria-label": label, class: kind(record) }, `${index + 1} ${mark}`.trim());
      button.addEventListener("click", () => choose(record));
      return button;
    });
    const choose = (record) => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(records[index] === record)));
      const text = prose(record.response, named(records.indexOf(record)));
      card.replaceChildren(make("p", { class: `facts ${kind(record)}` }, facts(record)), text);
      chosen(record);
    };
    choose(first);
    const lengths = records.map((record) => record.response_tokens);
    const [least, most] = [Math.min(...lengths), Math.max(...lengths)].map((length) => length.toLocaleString("en"));
    const judged = records.filter((record) => record.judged), right = judged.filter((record) => record.correct).length;
    const summary = `${records[0].stage}: ${judged.length ? `${right} of ${judged.length} correct, ` : ""}`
      + `${least === most ? least : `${least} to ${most}`} tokens`;
    return make("section", {}, make("h4", {}, title), make("p", { class: "facts" }, summary),
      make("div", { class: "choice", role: "group", "aria-label": title }, ...buttons), card);
  };

  const verdict = (record) => record.refused ? "refused" : !record.judged ? "not judged" : record.correct ? "correct" : "wrong";
  const kind = (record) => !record.judged ? "plain" : record.correct ? "correct" : "wrong";
  const facts = (record) => [
    ...(record.refused ? [`refused: ${record.refused}`] : record.judged ? [verdict(record)] : []),
    ...(record.extracted === null ? [] : [`answered ${record.extracted}`]),
    ...(record.reason && !["match", "mismatch"].includes(record.reason) ? [record.reason.replace("_", " ")] : []),
    `advantage ${signed(record.advantage)}`, `reward ${signed(record.reward)}`,
    `${record.response_tokens.toLocaleString("en")} tokens${record.finish_reason === "length" ? ", cut by the limit" : ""}`,
  ].join("; ");

  // -- what the reader does

  const filters = document.getElementById("bundle-filters");
  const reopen = () => { if (state.open !== null && !shown.hidden) open(state.open, false); };
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("input", (event) => {
    if (event.target === at("source")) reopen();
    else if (event.target !== at("folder")) search();
    if (event.target === at("run")) { shown.hidden = true; state.open = null; at("folder").value = ""; }
  });
  at("folder").addEventListener("change", () => {
    const files = folders[Number(at("run").value)];
    files.clear();
    for (const file of at("folder").files) if (file.name.endsWith(".jsonl.gz")) files.set(file.name, file);
    list();
    reopen();
  });
  at("reset").addEventListener("click", () => {
    for (const name of ["question", "from", "to", "least", "most"]) at(name).value = "";
    at("verdict").value = "all"; at("order").value = "step"; at("packed").checked = false;
    search();
  });
  const turn = (by) => { state.page += by; list(); rows.querySelector("button")?.focus(); };
  at("previous").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  rows.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(Number(button.dataset.bundle), true);
  });
  rows.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    const buttons = [...rows.querySelectorAll("button")];
    buttons[buttons.indexOf(document.activeElement) + by]?.focus();
    event.preventDefault();
  });
  shown.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    (rows.querySelector(`[data-bundle="${state.open}"]`) ?? at("question")).focus();
  });

  at("run").closest("p").hidden = runs.length === 1;
  search();
  const first = Object.keys(runs[0].packed).map(Number).sort((a, b) => gap(runs[0], b) - gap(runs[0], a) || b - a)[0];
  if (first !== undefined) open(first, false);
})();
