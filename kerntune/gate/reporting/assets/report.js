"use strict";
(() => {
  // All text of users goes into the page as text nodes, never as markup; plots get it with &, < and > escaped,
  // because plotly reads a few tags in its labels.
  const $ = (id) => document.getElementById(id);
  const details = JSON.parse($("details").textContent);
  const rows = [...document.querySelectorAll("#table tbody tr")];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== false) node.setAttribute(name, value);
    node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
    return node;
  }

  // ---- the table ------------------------------------------------------------------------------------------------

  const texts = rows.map((row) => row.textContent.toLowerCase());
  const verdicts = [...document.querySelectorAll("input[name=verdict]")];

  function filter() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(verdicts.filter((box) => box.checked).map((box) => box.value));
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = wanted.has(row.dataset.verdict) && words.every((word) => texts[i].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    $("shown").textContent = `${shown} of ${rows.length} cases`;
    $("none").hidden = shown > 0 || rows.length === 0;
  }

  function showAll() {
    $("search").value = "";
    verdicts.forEach((box) => { box.checked = true; });
    filter();
    $("search").focus();
  }

  const NUMBERS = new Set(["rank", "change", "today", "baseline"]);

  function sortBy(header) {
    const key = header.dataset.key;
    const up = header.getAttribute("aria-sort") !== "ascending";
    const column = [...header.parentNode.children].indexOf(header);
    const value = (row) => NUMBERS.has(key) ? (row.dataset[key] === "" ? -Infinity : Number(row.dataset[key])) : row.cells[column].textContent;
    const sorted = rows.map((row) => [value(row), row]);
    sorted.sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1) || x.dataset.rank - y.dataset.rank);
    $("table").tBodies[0].append(...sorted.map(([, row]) => row));
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  for (const header of document.querySelectorAll("#table thead th")) {
    const button = el("button", { type: "button" }, header.textContent);
    button.addEventListener("click", () => sortBy(header));
    header.replaceChildren(button);
  }
  $("filters").hidden = false;
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("input", filter);
  $("clear").addEventListener("click", showAll);
  $("clear-too").addEventListener("click", showAll);
  filter();

  // ---- numbers --------------------------------------------------------------------------------------------------

  const UNITS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const unitOf = (ns) => UNITS.find(([scale]) => Math.abs(ns) / scale < 999.5) || UNITS[3];
  const digits = (x) => Number(x.toPrecision(4)).toString();
  const time = (ns) => { const [scale, unit] = unitOf(ns); return `${digits(ns / scale)} ${unit}`; };
  const percent = (share, places = 2) => `${share > 0 ? "+" : ""}${(100 * share).toFixed(places)} %`;
  const big = (value, unit) => {
    const [scale, name] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([s]) => value >= s) || [1, ""];
    return `${digits(value / scale)} ${name}${unit}`;
  };

  function quantile(sorted, share) {
    const at = share * (sorted.length - 1), low = Math.floor(at);
    return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  }

  // ---- pieces of a case's view ----------------------------------------------------------------------------------

  let plots = [];

  // Roles are said, too: on a phone rows are blocks, and browsers take blocks for no table.
  function table(caption, head, body) {
    const made = el("table", { class: "data", role: "table" }, el("caption", {}, el("span", {}, caption)),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head.map((text) => el("th", { scope: "col", role: "columnheader" }, text)))),
      el("tbody", { role: "rowgroup" }, body.map((cells) => el("tr", { role: "row" }, cells.map((cell, i) =>
        i ? el("td", { role: "cell", "data-label": cell === "" ? null : head[i] }, cell) : el("th", { scope: "row", role: "rowheader" }, cell))))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
  }

  const folded = (title, content, open) => el("details", { open: open ? "" : null }, el("summary", {}, title), content);

  function panel(title, ...children) {
    const id = `h-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
    return el("section", { class: "panel", "aria-labelledby": id }, el("h3", { id }, title), ...children);
  }

  // A plot is a picture with a sentence for a name; what it shows stands in a table beside it.
  function figure(sentence, height, traces, layout) {
    const box = el("div", { class: "plot", role: "img", "aria-label": sentence, style: `height:${height}px` });
    plots.push({ box, traces, layout, height });
    return el("figure", {}, box, el("figcaption", {}, sentence));
  }

  function draw({ box, traces, layout, height }) {
    const [text, grid, muted] = [css("--text"), css("--grid"), css("--muted")];
    const axis = { gridcolor: grid, zerolinecolor: muted, linecolor: muted, automargin: true, fixedrange: true };
    const made = layout(box.clientWidth);
    const axes = Object.fromEntries(Object.entries(made).filter(([name]) => /^[xy]axis/.test(name)).map(([name, own]) => [name, { ...axis, ...own }]));
    window.Plotly.react(box, traces(), {
      height, margin: { l: 10, r: 10, t: 10, b: 10 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false,
      font: { color: text, size: 13, family: "system-ui, sans-serif" }, hoverlabel: { align: "left", namelength: -1 },
      xaxis: axis, yaxis: axis, ...made, ...axes,
    }, { displayModeBar: false, responsive: true, doubleClick: false });
  }

  const theme = () => ({ now: css("--series"), old: css("--series-old"), bad: css("--bad"), good: css("--good"), muted: css("--muted"), text: css("--text"), info: css("--info") });

  // ---- sections -------------------------------------------------------------------------------------------------

  // Text to take away; the button is there where the browser lets a page write to the clipboard.
  function copied(text) {
    const button = navigator.clipboard && window.isSecureContext ? el("button", { type: "button" }, "Copy") : "";
    if (button) button.addEventListener("click", () => navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => {}));
    return el("div", { class: "copy" }, el("pre", { class: "paste" }, text), button);
  }

  function decision(data) {
    return panel("Verdict",
      el("p", { class: "message" }, data.message),
      data.accept ? [el("h4", {}, "To accept it, if that is meant"), copied(data.accept)] : "",
      el("dl", { class: "facts" }, data.facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
      (data.notes || []).map(([kind, lines]) => [el("h4", {}, kind), el("ul", {}, lines.map((line) => el("li", {}, line)))]));
  }

  function samples({ today, stored, outliers, replayedBaseline, replayedToday }) {
    const sides = [["Baseline, when recorded", stored, "old"], ["Today", today, "now"], ["Baseline, replayed today", replayedBaseline, "old"], ["Today, replayed", replayedToday, "now"]].filter(([, times]) => times.length);
    const [scale, unit] = unitOf(Math.max(...sides.flatMap(([, times]) => times)));
    const stats = sides.map(([name, times]) => {
      const sorted = [...times].sort((a, b) => a - b);
      return [name, String(times.length), ...[0, .25, .5, .75, 1].map((q) => time(quantile(sorted, q)))];
    });
    const sentence = stats.map((row) => `${row[0]}: median ${row[4]} of ${row[1]}`).join("; ") + ".";
    const box = figure(`Distributions of times. ${sentence}`, 70 + 62 * sides.length,
      () => sides.map(([name, times, side]) => ({
        type: "box", orientation: "h", name, x: times.map((t) => t / scale), boxpoints: "all", jitter: .6, pointpos: 0, hoverinfo: "x",
        marker: { color: theme()[side], size: 4, opacity: .55 }, line: { color: theme()[side], width: 1.5 }, fillcolor: "rgba(0,0,0,0)",
      })).reverse(),
      (width) => ({ showlegend: false, xaxis: { title: { text: `time (${unit})` } }, yaxis: { automargin: true, tickfont: { size: width < 500 ? 10 : 13 } } }));
    const parts = [box, table("Quantiles of the times", ["Sample", "Times", "Least", "25 %", "Median", "75 %", "Largest"], stats)];
    if (today.length > 1) {
      const flagged = new Set(outliers);
      parts.push(figure(`Today's times in the order they were taken; ${outliers.length || "no"} outlier${outliers.length === 1 ? "" : "s"}, all kept.`, 240,
        () => [{
          type: "scatter", mode: "markers", x: today.map((_, i) => i + 1), y: today.map((t) => t / scale), hoverinfo: "x+y",
          marker: { size: 6, color: today.map((_, i) => flagged.has(i) ? theme().bad : theme().now), symbol: today.map((_, i) => flagged.has(i) ? "x" : "circle") },
        }],
        () => ({ xaxis: { title: { text: "number of the time" }, zeroline: false }, yaxis: { title: { text: unit } } })));
    }
    return panel("Samples and distributions", parts);
  }

  function waterfall(steps) {
    let level = 1;
    const bars = [], unknown = [];
    for (const step of steps) {
      if (step.within) continue;
      if (step.change === null) { unknown.push(step.name); continue; }
      bars.push([step.name, level * step.change]);
      level *= 1 + step.change;
    }
    const parts = bars.length ? bars.map(([name, d]) => `${name} ${percent(d)}`).join(", ") : "no cause was measured";
    const rest = unknown.length ? ` Not measured: ${unknown.join(", ")}.` : "";
    const chart = figure(`From the stored time to today's, in per cent of the stored time: ${parts}; together ${percent(level - 1)}.${rest}`, 300,
      () => [{
        type: "waterfall", x: [...bars.map(([name]) => plain(name)), "together"], y: [...bars.map(([, d]) => 100 * d), 0], measure: [...bars.map(() => "relative"), "total"],
        text: [...bars.map(([, d]) => percent(d)), percent(level - 1)], textposition: "outside", hoverinfo: "x+text", cliponaxis: false,
        increasing: { marker: { color: theme().bad } }, decreasing: { marker: { color: theme().good } }, totals: { marker: { color: theme().info } },
        connector: { line: { color: theme().muted, width: 1 } }, textfont: { color: theme().text },
      }],
      () => ({ yaxis: { title: { text: "%" }, zeroline: true }, margin: { l: 10, r: 10, t: 25, b: 10 } }));
    return panel("Where the change comes from", chart, table("Causes", ["Cause", "Change of the step before", "What differs"], steps.map((s) =>
      [s.name, s.within ? `within ${s.within}` : s.change === null ? "not measured" : percent(s.change), s.why || ""])));
  }

  // The landscape: configs are points, their parameters axes. `state` is ran, failed, wrong output, left out or compiled.
  // Fast to slow, readable on light and on dark.
  const SHADES = ["#2f7ed8", "#3a9bc7", "#3fb0a0", "#6bb06a", "#a3a64a", "#c99a3a", "#d97b3a", "#d9534f"];
  const MARKS = { failed: "✕", "wrong output": "≠", "left out": "○" };

  function landscape(part, many) {
    const { kernel, configs, chosen, more } = part;
    const names = [...new Set(configs.flatMap((c) => Object.keys(c.at)))];
    const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    const values = Object.fromEntries(names.map((n) => [n, [...new Set(configs.map((c) => c.at[n]).filter((v) => v !== undefined))].sort(order)]));
    const varied = names.filter((n) => values[n].length > 1).sort((a, b) => values[b].length - values[a].length);
    const timed = configs.filter((c) => c.ns !== undefined);
    const best = Math.min(...timed.map((c) => c.ns));
    const spec = (c) => Object.entries(c.at).map(([n, v]) => `${n}=${v}`).join(" ");
    const isChosen = (c) => chosen && spec(c) === spec({ at: chosen });
    const value = (c) => (timed.length ? c.ns / best : c.registers);
    const what = timed.length ? "time against the best" : "registers a thread";
    const word = (c) => (c.ns !== undefined ? `${time(c.ns)} (${(c.ns / best).toFixed(2)} × best)` : c.registers !== undefined && c.registers !== null ? `${c.registers} registers` : c.state) + (c.reason ? `: ${c.reason}` : "");
    const parts = [el("p", {}, `${configs.length + more} configs${timed.length ? `, the best at ${time(best)}` : ""}; ` +
      (["failed", "wrong output", "left out"].map((s) => [s, configs.filter((c) => c.state === s).length]).filter(([, n]) => n).map(([s, n]) => `${n} ${s} (${MARKS[s]})`).join(", ") || "none failed") + ".")];
    if (many) parts.unshift(el("h4", {}, kernel));
    if (varied.length >= 2) parts.push(heatMap());
    if (varied.length >= 2 && configs.length > 2) parts.push(parallel());
    if (varied.length === 1) parts.push(line());
    const listed = table(`Configs of ${kernel}${more ? `, without ${more} slow ones` : ""}`, ["Config", timed.length ? "Time" : "Figure", "State", "Reason"],
      configs.map((c) => [spec(c) + (isChosen(c) ? " (used)" : ""), c.ns !== undefined ? `${time(c.ns)}, ${(c.ns / best).toFixed(2)} × best` : c.registers ? `${c.registers} registers, ${c.spills || 0} B spilled` : "–", c.state, c.reason || ""]));
    parts.push(folded(`All ${configs.length} configs as a table`, listed, configs.length <= 12));
    return parts;

    // Of the configs that a cell stands for, those that could not be used: "✕2 ○1".
    function marks(x, y, a, b) {
      const here = configs.filter((c) => c.at[x] === a && c.at[y] === b);
      return Object.entries(MARKS).map(([state, mark]) => [mark, here.filter((c) => c.state === state).length]).filter(([, n]) => n).map(([mark, n]) => `${mark}${n}`).join(" ");
    }

    function cell(x, y, a, b) {
      const here = configs.filter((c) => c.at[x] === a && c.at[y] === b);
      const good = here.filter((c) => Number.isFinite(value(c))).sort((p, q) => value(p) - value(q));
      return good[0] || here[0];
    }

    function heatMap() {
      const choose = (label, at) => {
        const select = el("select", {}, varied.map((n) => el("option", { value: n }, n)));
        select.value = varied[at];
        return [el("label", {}, `${label} `, select), select];
      };
      const [labelX, selectX] = choose("Across", 0), [labelY, selectY] = choose("Down", 1);
      const box = el("div", { class: "plot", role: "img", style: "height:360px" });
      const caption = el("figcaption", {}, "");
      const made = { box, height: 360,
        traces: () => {
          const [x, y] = [selectX.value, selectY.value];
          const cells = values[y].map((b) => values[x].map((a) => cell(x, y, a, b)));
          const hover = cells.map((line, j) => line.map((c, i) => `${plain(x)}=${plain(values[x][i])} ${plain(y)}=${plain(values[y][j])}<br>` + (c ? `${plain(spec(c))}<br>${plain(word(c)).slice(0, 160)}` : "no config here")));
          const marked = cells.flatMap((line, j) => line.map((c, i) => [c, i, j])).filter(([c]) => c && !Number.isFinite(value(c)));
          const used = cells.flatMap((line, j) => line.map((c, i) => [c, i, j])).filter(([c]) => c && isChosen(c));
          const at = (list, k) => list.map((item) => plain(k === 1 ? values[x][item[1]] : values[y][item[2]]));
          return [
            { type: "heatmap", x: values[x].map(plain), y: values[y].map(plain), z: cells.map((line) => line.map((c) => (c && Number.isFinite(value(c)) ? value(c) : null))),
              text: cells.map((line, j) => line.map((c, i) => (c && Number.isFinite(value(c)) ? `${timed.length ? value(c).toFixed(2) : value(c)}<br>${marks(x, y, values[x][i], values[y][j])}` : ""))), texttemplate: "%{text}", textfont: { color: "#000" },
              customdata: hover, hovertemplate: "%{customdata}<extra></extra>", colorscale: SHADES.map((shade, i) => [i / (SHADES.length - 1), shade]), xgap: 2, ygap: 2, colorbar: { title: { text: timed.length ? "× best" : "registers" }, thickness: 12 } },
            { type: "scatter", mode: "text", x: at(marked, 1), y: at(marked, 2), text: marked.map(([, i, j]) => marks(x, y, values[x][i], values[y][j]) || "–"), textfont: { size: 14, color: theme().bad }, hoverinfo: "skip", showlegend: false },
            { type: "scatter", mode: "markers", x: at(used, 1), y: at(used, 2), marker: { symbol: "square-open", size: 46, color: "#000", line: { width: 3 } }, hoverinfo: "skip", showlegend: false },
          ];
        },
        layout: () => ({ xaxis: { type: "category", title: { text: plain(selectX.value) }, range: [-.5, values[selectX.value].length - .5] },
          yaxis: { type: "category", title: { text: plain(selectY.value) }, range: [-.5, values[selectY.value].length - .5] } }) };
      const say = () => {
        const sentence = `Heat map: ${what} over ${selectX.value} and ${selectY.value}, the best of all other parameters in each cell; a frame is around the config that is used. With their number: ✕ failed, ≠ wrong output, ○ left out.`;
        box.setAttribute("aria-label", sentence);
        caption.textContent = sentence;
      };
      for (const select of [selectX, selectY]) select.addEventListener("change", () => { say(); draw(made); });
      say();
      plots.push(made);
      return el("figure", {}, el("div", { class: "controls" }, labelX, labelY), box, caption);
    }

    // Lines of an ordinary plot, so that it needs no WebGL. Colours in eight steps, one trace each.
    function parallel() {
      const axes = [...varied.slice(0, 8)];
      const place = (c, n) => (c.at[n] === undefined ? null : values[n].length === 1 ? .5 : values[n].indexOf(c.at[n]) / (values[n].length - 1));
      const known = configs.map(value).filter(Number.isFinite);
      const [least, most] = [Math.min(...known), Math.max(...known)];
      const shown = (x) => (timed.length ? time(x * best) : `${x} registers`);
      const last = (c) => (!Number.isFinite(value(c)) ? 1.06 : most === least ? 0 : (value(c) - least) / (most - least));
      const sentence = `Parallel coordinates: a line a config through its parameters${known.length ? `, at the right from ${shown(least)} to ${shown(most)}` : ""}; the used one is thick, those that could not be used are dashed.`;
      const bins = SHADES.length, spread = new Map(configs.map((c, i) => [c, .035 * ((i * .618) % 1 - .5)]));  // so that lines don't hide each other
      const group = (c) => (isChosen(c) ? "used" : !Number.isFinite(value(c)) ? "none" : Math.min(bins - 1, Math.floor(last(c) * bins)));
      return figure(sentence, 340,
        () => {
          const groups = new Map();
          for (const c of configs) groups.set(group(c), [...(groups.get(group(c)) || []), c]);
          const traces = [...groups].map(([key, list]) => ({
            type: "scatter", mode: "lines", x: list.flatMap(() => [...axes.map((_, i) => i), ...(known.length ? [axes.length] : []), null]),
            y: list.flatMap((c) => [...axes.map((n) => (place(c, n) === null ? null : place(c, n) + (isChosen(c) ? 0 : spread.get(c)))), ...(known.length ? [last(c)] : []), null]),
            text: list.flatMap((c) => [...axes, ...(known.length ? [0] : []), null].map(() => `${plain(spec(c))}<br>${plain(word(c)).slice(0, 160)}`)), hovertemplate: "%{text}<extra></extra>",
            line: { color: key === "used" ? theme().text : key === "none" ? theme().muted : SHADES[key], width: key === "used" ? 4 : 1.3, dash: key === "none" ? "dot" : "solid" }, opacity: key === "used" ? 1 : .75, showlegend: false, connectgaps: false,
          }));
          return traces.sort((a, b) => a.line.width - b.line.width);
        },
        (width) => ({
          xaxis: { tickvals: [...axes.map((_, i) => i), ...(known.length ? [axes.length] : [])], ticktext: [...axes.map(plain), ...(known.length ? [timed.length ? "time" : "registers"] : [])], range: [width < 500 ? -.6 : -.35, axes.length - 1 + (known.length ? 1 + 60 * axes.length / width : .25)], showgrid: true, tickangle: width < 500 ? 40 : 0 },
          yaxis: { visible: false, range: [-.08, 1.12] },
          annotations: (known.length ? [[0, timed.length ? shown(least) : least], [1, timed.length ? shown(most) : most]] : []).map(([y, text]) => ({ x: axes.length, y, text, showarrow: false, xanchor: "left", xshift: 6, font: { size: 11, color: theme().text } })).concat(axes.flatMap((n, i) => values[n].filter((_, k, all) => all.length <= 8 || k % Math.ceil(all.length / 8) === 0).map((v) => ({ x: i, y: place({ at: { [n]: v } }, n), text: plain(v), showarrow: false, xanchor: "right", xshift: -6, bgcolor: css("--panel"), font: { size: 11, color: theme().text } })))),
        }));
    }

    function line() {
      const [name] = varied;
      const sentence = `${what} by ${name}: ` + configs.map((c) => `${c.at[name]}: ${word(c)}`).join("; ").slice(0, 400) + ".";
      return figure(sentence, 260, () => {
        const found = values[name].map((v) => configs.find((c) => c.at[name] === v && Number.isFinite(value(c))) || configs.find((c) => c.at[name] === v));
        const missing = found.filter((c) => !Number.isFinite(value(c)));
        return [
          { type: "bar", x: found.map((c) => plain(c.at[name])), y: found.map((c) => (Number.isFinite(value(c)) ? value(c) : null)), text: found.map((c) => plain(word(c)).slice(0, 160)), hovertemplate: "%{text}<extra></extra>", textposition: "none", marker: { color: found.map((c) => (isChosen(c) ? theme().good : theme().now)) } },
          { type: "scatter", mode: "text", x: missing.map((c) => plain(c.at[name])), y: missing.map(() => 0), text: missing.map((c) => MARKS[c.state] || "?"), textposition: "top center", textfont: { size: 16, color: theme().bad }, hoverinfo: "skip" },
        ];
      }, () => ({ showlegend: false, xaxis: { type: "category", title: { text: plain(name) } }, yaxis: { title: { text: timed.length ? "× best" : "registers" } } }));
    }
  }

  function roofline({ ns, flops, bytes, bandwidth, peak, peakOf, shares }) {
    const seconds = ns * 1e-9, parts = [], body = [["Time", time(ns)]];
    if (bytes) body.push(["Bytes moved", big(bytes, "B")], ["Bytes a second", big(bytes / seconds, "B/s")]);
    if (bandwidth) body.push(["What a copy reaches here", big(bandwidth, "B/s")]);
    if (bytes && bandwidth) body.push(["Share of that", `${(100 * bytes / seconds / bandwidth).toFixed(1)} %`]);
    if (flops) body.push(["Operations", big(flops, "FLOP")], ["Operations a second", big(flops / seconds, "FLOP/s")]);
    if (flops && peak) body.push([`What a large product of ${peakOf || "matrices"} reaches here`, big(peak, "FLOP/s")], ["Share of that", `${(100 * flops / seconds / peak).toFixed(1)} %`]);
    if (flops && bytes && bandwidth) {
      const at = flops / bytes, rate = flops / seconds, limits = [["memory", at * bandwidth], ...(peak ? [["arithmetic", peak]] : [])];
      const [kind, roof] = limits.reduce((a, b) => (b[1] < a[1] ? b : a));
      body.push(["Operations a byte", digits(at)], ["Roof there", `${big(roof, "FLOP/s")}, of ${kind}`]);
      const sentence = `Roofline: ${digits(at)} operations a byte, ${big(rate, "FLOP/s")}, which is ${(100 * rate / roof).toFixed(1)} % of the ${big(roof, "FLOP/s")} that ${kind} allows there.${peak ? "" : " The limit of arithmetic isn't drawn: it was not measured."}`;
      const ridge = peak ? peak / bandwidth : at, span = [Math.min(at, ridge) / 30, Math.max(at, ridge) * 30];
      const places = [span[0], ...(peak ? [ridge] : []), span[1]];
      parts.push(figure(sentence, 320, () => [
        { type: "scatter", mode: "lines", name: peak ? "what the device reaches" : "what memory reaches", x: places, y: places.map((x) => Math.min(x * bandwidth, peak || Infinity)), line: { color: theme().muted, width: 2 }, hoverinfo: "name" },
        { type: "scatter", mode: "markers", name: "this case", x: [at], y: [rate], marker: { size: 12, color: theme().now }, hoverinfo: "name+x+y" },
      ], () => ({ showlegend: true, legend: { orientation: "h", y: 1.1 }, xaxis: { type: "log", dtick: "D2", title: { text: "operations a byte" } }, yaxis: { type: "log", dtick: "D2", title: { text: "FLOP/s" }, exponentformat: "SI" } })));
    } else if (bytes && bandwidth) {
      const share = bytes / seconds / bandwidth;
      parts.push(figure(`${big(bytes / seconds, "B/s")}, ${(100 * share).toFixed(1)} % of what a copy reaches on this device (${big(bandwidth, "B/s")}).`, 130, () => [
        { type: "bar", orientation: "h", x: [100 * share], y: ["today"], marker: { color: theme().now }, hoverinfo: "x" },
      ], () => ({ xaxis: { title: { text: "% of a copy's bandwidth" }, range: [0, Math.max(105, 110 * share)] }, yaxis: { automargin: true }, shapes: [{ type: "line", x0: 100, x1: 100, y0: -.5, y1: .5, line: { color: theme().muted, width: 2, dash: "dot" } }] })));
    }
    parts.push(table("Work and rates", ["Figure", "Value"], body));
    if (shares && shares.length) parts.push(table("Launches, each timed alone", ["Kernel", "Time", "Share"], shares.map(([kernel, t, s]) => [kernel, time(t), `${(100 * s).toFixed(1)} %`])));
    return panel("Work against the device", parts);
  }

  const commit = (name, length) => name.slice(0, length) || "?";  // a run outside of git has none

  // A commit as a link, where the repository's address is known.
  function linked(repository, name, length) {
    const known = repository && /^[0-9a-f]{7,64}$/.test(name);
    return known ? el("a", { href: `${repository}/commit/${name}`, rel: "noreferrer" }, commit(name, length)) : commit(name, length);
  }

  function history({ points, steps, runs, branch }, repository) {
    const lines = steps.map((s) => `${s.kind} of ${percent(s.size)} between ${commit(s.before, 10)} and ${commit(s.after, 10)}`);
    const sentence = `Paired changes of the last ${points.length} of ${runs} runs${branch ? ` of ${branch}` : ""}, with 99 % intervals; ${lines.join("; ") || "no step"}.`;
    const chart = figure(sentence, 320,
      () => {
        const groups = [...new Set(points.map((p) => p.stretch || 0))];
        return groups.map((g, k) => {
          const here = points.map((p, i) => [p, i]).filter(([p]) => (p.stretch || 0) === g);
          return { type: "scatter", mode: "lines+markers", name: `reference ${k + 1}`, x: here.map(([, i]) => i), y: here.map(([p]) => 100 * p.change),
            error_y: { type: "data", array: here.map(([p]) => 258 * p.sd), thickness: .7, width: 0, color: theme().muted },
            text: here.map(([p]) => `${plain(p.created)}<br>${plain(p.commit.slice(0, 12))}<br>${percent(p.change)}`), hovertemplate: "%{text}<extra></extra>",
            marker: { size: 5, color: k % 2 ? theme().old : theme().now }, line: { width: .6, color: k % 2 ? theme().old : theme().now } };
        });
      },
      (width) => {
        const every = Math.max(1, Math.ceil(points.length / (width < 500 ? 4 : 8)));
        const at = steps.map((s) => [s, points.findIndex((p) => p.commit === s.after)]).filter(([, i]) => i >= 0);
        return { showlegend: false, yaxis: { title: { text: "change, %" } },
          xaxis: { zeroline: false, tickvals: points.map((_, i) => i).filter((i) => i % every === 0), ticktext: points.filter((_, i) => i % every === 0).map((p) => plain(p.created.slice(0, 10))) },
          shapes: at.map(([, i]) => ({ type: "line", x0: i - .5, x1: i - .5, y0: 0, y1: 1, yref: "paper", line: { color: theme().bad, width: 1.5, dash: "dash" } })),
          annotations: at.map(([s, i]) => ({ x: i - .5, y: 1, yref: "paper", yanchor: "bottom", text: percent(s.size), showarrow: false, font: { color: theme().bad } })),
          margin: { l: 10, r: 10, t: 25, b: 10 } };
      });
    const found = steps.map((s) => [`${percent(s.size)} (${percent(s.low)}..${percent(s.high)})`, s.kind === "drift" ? `drift over ${s.runs} runs` : s.kind, el("span", {}, linked(repository, s.before, 12), "..", linked(repository, s.after, 12)), `${s.from_day} to ${s.to_day}`, s.settings.join("; ")]);
    return panel("History", chart, found.length ? table("Steps and drifts", ["Change, 99 %", "Kind", "Commits", "Days", "What else changed"], found) : "",
      folded("The runs as a table", table("Runs", ["When", "Commit", "Change", "Reference"], points.map((p) => [p.created, linked(repository, p.commit, 12), percent(p.change), String((p.stretch || 0) + 1)])), false));
  }

  function launches(list) {
    const names = list[0].figures.map(([name]) => name);
    const cell = ([, now, before]) => (before && before !== now ? `${now || "–"} (baseline ${before})` : now || "–");
    return panel("Launches", table("Static figures of each launch, today's and the baseline's where they differ", ["Kernel", "Config", "Grid", ...names, "limited by"],
      list.map((x) => [x.kernel, x.config, x.grid, ...x.figures.map(cell), x.limiter])),
      [...new Map(list.filter((x) => x.paste).map((x) => [`${x.kernel}: ${x.paste}`, x])).values()].map((x) => [el("h4", {}, `${x.kernel}: ${x.pasteOf} config, to paste`), copied(x.paste)]));
  }

  function code(list) {
    return panel("Changed code", el("p", { class: "muted" }, "Only what differs, with three lines around it; lines that differ only in how values are numbered count as equal."),
      list.map((one) => folded(`${one.kernel}, ${one.stage.toUpperCase()}`, hunks(one), list.length <= 2)));
  }

  // A unified diff as two columns: of neighbouring removed and added lines the n-th stand beside each other.
  function hunks({ kernel, stage, diff, cut }) {
    const bodies = [];
    let removed = [], added = [];
    const row = (left, right, what) => bodies.at(-1).append(el("tr", { class: what ? null : "same" },
      el("td", { class: left !== null && what ? "removed" : null }, left ?? ""), el("td", { class: "side" }, what ? el("span", {}, { both: "|", old: "<", now: ">" }[what]) : "", what ? el("span", { class: "hidden" }, { both: "changed", old: "removed", now: "added" }[what]) : ""),
      el("td", { class: right !== null && what ? "added" : null }, right ?? "")));
    const flush = () => {
      for (let i = 0; i < Math.max(removed.length, added.length); i++) {
        const [a, b] = [removed[i] ?? null, added[i] ?? null];
        row(a, b, a === null ? "now" : b === null ? "old" : "both");
      }
      removed = []; added = [];
    };
    for (const line of diff.split("\n")) {
      if (line.startsWith("@@") || !bodies.length) {
        flush();
        const found = /^@@ -(\d+),\d+ \+(\d+),\d+ @@/.exec(line);
        bodies.push(el("tbody", {}, el("tr", {}, el("th", { colspan: "3", scope: "rowgroup" }, found ? `from line ${found[1]} | ${found[2]}` : ""))));
        if (found) continue;
      }
      if (line.startsWith("-")) removed.push(line.slice(1));
      else if (line.startsWith("+")) added.push(line.slice(1));
      else { flush(); row(line.slice(1), line.slice(1), ""); }
    }
    flush();
    const label = `${stage.toUpperCase()} of ${kernel}: removed from the baseline's, added in today's`;
    return el("div", { class: "scroll listing", tabindex: "0", role: "region", "aria-label": label },
      el("table", { class: "codetable code" }, el("caption", {}, el("span", {}, label)), el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Baseline"), el("td", { class: "side" }), el("th", { scope: "col" }, "Today"))), bodies),
      cut ? el("p", { class: "muted" }, `${cut} more lines; kerntune code shows all.`) : "");
  }

  // ---- one case -------------------------------------------------------------------------------------------------

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function neighbours(index) {
    const shown = [...$("table").tBodies[0].rows].filter((row) => !row.hidden).map((row) => Number(row.dataset.rank));
    const at = shown.indexOf(index);
    return at < 0 ? [undefined, undefined] : [shown[at - 1], shown[at + 1]];
  }

  function crumbs(index) {
    const [before, after] = neighbours(index);
    const link = (to, text) => (to === undefined ? "" : el("a", { href: `#case=${to}` }, text));
    return el("nav", { "aria-label": "Cases" }, el("p", { class: "crumbs" }, el("a", { href: "#cases" }, "All cases"), link(before, "Previous case"), link(after, "Next case")));
  }

  // Plotly is run when the first case is opened: the table needn't wait for its 4.8 MB. The policy of the page allows
  // it by its hash.
  function loadPlotly() {
    if (window.Plotly) return;
    const script = document.createElement("script");
    script.textContent = $("plotly").textContent;
    document.head.append(script);
  }

  let opened = 0;

  async function openCase(index) {
    const turn = ++opened;
    performance.mark("case-asked");
    const data = await unpack(details[index]);
    if (turn !== opened) return;
    plots.forEach(({ box }) => window.Plotly && window.Plotly.purge(box));
    plots = [];
    const many = (data.landscape || []).length > 1;
    const title = el("h2", { id: "case-title", tabindex: "-1" }, el("span", { class: `verdict v-${data.verdict}` }, data.verdict), " ", data.title);
    $("case").replaceChildren(crumbs(index), title, decision(data),
      ...[data.samples && samples(data.samples), data.waterfall && waterfall(data.waterfall),
        data.landscape && panel("Tuning landscape", data.landscape.map((part) => landscape(part, many))),
        data.roofline && roofline(data.roofline), data.history && history(data.history, data.repository), data.launches && launches(data.launches),
        data.code && code(data.code)].filter(Boolean),
      crumbs(index));
    $("list").hidden = true;
    $("case").hidden = false;
    window.scrollTo(0, 0);
    title.focus({ preventScroll: true });
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));  // the text is shown first
    performance.mark("case-shown");
    if (turn !== opened) return;
    if (plots.length) loadPlotly();
    for (const plot of [...plots]) {
      await new Promise(requestAnimationFrame);
      if (turn !== opened) return;
      draw(plot);
    }
    performance.mark("case-drawn");
    $("case").dataset.drawn = String(index);
  }

  let left = null;

  function closeCase() {
    opened++;
    $("case").hidden = true;
    $("list").hidden = false;
    const row = left === null ? null : rows[left];
    if (row && !row.hidden) { row.querySelector("a").focus(); row.scrollIntoView({ block: "center" }); }
    left = null;
  }

  function route() {
    const found = /^#case=(\d+)$/.exec(location.hash);
    if (found && details[Number(found[1])] !== undefined) { left = Number(found[1]); openCase(left); }
    else if (!$("case").hidden) closeCase();
  }

  window.addEventListener("hashchange", route);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (window.Plotly) plots.forEach(draw); });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", route); else route();
})();
