// Builds the page: summary, legend, controls and the list of charts.

const runs = JSON.parse(document.getElementById("runs").textContent);
const state = {
  smoothing: 0.6,
  axis: "iteration",
  hidden: new Set()
};
const kGibibyte = 2 ** 30;

/** Returns keys such as "lm loss validation", "lm loss validation-name" and "lm loss test". */
function lossesOfEvaluations() {
  const keys = new Set(runs.flatMap((run) => Object.keys(run.series)));
  return [...keys].filter((key) => /^lm loss (validation|test)/.test(key)).sort().reverse();
}

/** Returns the keys of what the routers did: statistics of a field over the layers. */
function overLayers(field) {
  return ["mean", "min", "max"].map((statistic) => `routing ${field} ${statistic}`);
}

/** The charts in order; `only` decides whether a chart has data to show. */
const kCharts = [
  {title: "Loss", keys: ["lm loss", ...lossesOfEvaluations()], smooth: true},
  {title: "Learning rate", keys: ["learning_rate", "decoupled_learning_rate"]},
  {title: "Gradient norm", keys: ["grad_norm"], smooth: true},
  {title: "Loss scale", keys: ["loss_scale"], only: varies, log: true},
  {title: "Skipped updates", keys: ["skipped"], only: varies},
  {title: "Tokens per second", keys: ["tokens_per_second"], smooth: true},
  {title: "TFLOP/s per device", keys: ["tflops"], smooth: true},
  {title: "MFU (%)", keys: ["mfu", "mfu_causal"], smooth: true, factor: 100},
  {title: "Memory (GiB)", keys: ["memory_bytes"], factor: 1 / kGibibyte},
  {title: "Global batch size", keys: ["global_batch_size"], only: varies},
  {title: "Norm of the parameters", keys: ["params_norm"]},
  {title: "Zeros in the gradient", keys: ["num_zeros"], smooth: true},
  {
    title: "Imbalance of experts over layers (largest load ÷ mean)",
    keys: overLayers("imbalance"),
    smooth: true
  },
  {title: "Entropy of the routers over layers (nats)", keys: overLayers("entropy"), smooth: true},
  {
    title: "Dropped choices over layers",
    keys: overLayers("dropped"),
    only: isSomewhereAboveZero,
    smooth: true
  },
  {
    title: "Load-balancing losses",
    keys: ["load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss"],
    smooth: true
  },
  {title: "z-loss of the routers", keys: ["z_loss"], smooth: true},
];
const kLabels = {
  "lm loss": "training",
  learning_rate: "all",
  decoupled_learning_rate: "embedding and output",
  mfu: "full attention",
  mfu_causal: "causal attention",
  load_balancing_loss: "aux_loss",
  seq_load_balancing_loss: "seq_aux_loss",
  global_load_balancing_loss: "global_aux_loss"
};
const kNotCharted = new Set(
    ["consumed_train_samples", "time_s", "elapsed_ms", ...kCharts.flatMap((chart) => chart.keys)]);

function varies(series) { return series.y.some((value) => value !== series.y[0]); }

function isSomewhereAboveZero(series) { return series.y.some((value) => value > 0); }

function runColor(index) { return `var(--c${index % 8})`; }

/** Converts iterations to the unit of the chosen axis. */
function axisValues(run, iterations) {
  const along = {samples: run.series.consumed_train_samples, hours: run.series.time_s}[state.axis];
  if (!along) return iterations;
  const factor = state.axis === "hours" ? 1 / 3600 : 1;
  return iterations.map((iteration) => interpolate(along.x, along.y, iteration) * factor);
}

/** Returns the lines of a chart: one per key and visible run. */
function linesOf(chart) {
  const lines = [];
  runs.forEach((run, runIndex) => {
    if (state.hidden.has(runIndex)) return;
    chart.keys.forEach((key, keyIndex) => {
      const series = run.series[key];
      if (!series || series.x.length === 0 || (chart.only && !chart.only(series))) return;
      const isEvaluation = /(validation|test)/.test(key);
      const scaled = (values) =>
          (chart.factor ? values.map((value) => (value === null ? null : value * chart.factor)) :
                          values);
      const y = scaled(series.y);
      lines.push({
        label: [
          runs.length > 1 ? run.name : "",
          chart.keys.length > 1 || runs.length === 1 ?
              kLabels[key] || key.replace(/^(lm loss|routing \w+) /, "") :
              ""
        ].filter(Boolean)
                   .join(" "),
        color: runs.length > 1 ? runColor(runIndex) : runColor(keyIndex),
        dash: runs.length > 1 && keyIndex > 0 ? "5 3" : "",
        marks: isEvaluation && series.x.length < 60,
        x: axisValues(run, series.x),
        y,
        smoothed: chart.smooth && !isEvaluation ?
            smooth(series.means ? scaled(series.means) : y, state.smoothing) :
            y,
      });
    });
  });
  return lines;
}

/** Returns where the visible runs were restarted. */
function restarts() {
  return runs.flatMap(
      (run, index) =>
          (state.hidden.has(index) ? [] : axisValues(run, run.starts.filter((at) => at > 0))));
}

function showSummary() {
  const section = document.getElementById("summary");
  runs.forEach((run, index) => {
    const article = html("article", "", section);
    const title = html("h2", "", article);
    if (runs.length > 1) swatch(runColor(index), title);
    title.append(run.name);
    const list = html("dl", "", article);
    for (const [term, text] of run.summary) {
      const entry = html("div", "", list);
      html("dt", "", entry, term);
      html("dd", "", entry, text);
    }
    showSettings(run, article);
  });
}

/** Adds all settings of the last start in a collapsed section. */
function showSettings(run, article) {
  if (run.settings.length === 0) return;
  const details = html("details", "", article);
  html("summary", "", details, `Settings (${run.settings.length})`);
  const table = html("table", "", details);
  for (const [name, value] of run.settings) {
    const row = html("tr", "", table);
    html("th", "", row, name);
    html("td", "", row, value);
  }
}

function showLegend(redraw) {
  const legend = document.getElementById("legend");
  if (runs.length < 2) return;
  runs.forEach((run, index) => {
    const button = html("button", "", legend);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    swatch(runColor(index), button);
    button.append(run.name);
    button.onclick = () => {
      state.hidden.has(index) ? state.hidden.delete(index) : state.hidden.add(index);
      button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
      redraw();
    };
  });
}

/** Adds one chart for each number in the file that no chart above shows. */
function otherCharts() {
  const keys = new Set(runs.flatMap((run) => Object.keys(run.series)));
  return [...keys]
      .filter((key) => !kNotCharted.has(key) && !/( ppl |^consumed_train_samples )/.test(key))
      .sort()
      .map((key) => ({title: key, keys: [key], smooth: !/(validation|test)/.test(key)}));
}

/** Returns the heat maps of the runs that log loads, and says how to have one for the others. */
function makeHeatMaps(parent) {
  const maps = [];
  runs.forEach((run, index) => {
    const name = runs.length > 1 ? ` of ${run.name}` : "";
    if (run.expert_loads) {
      maps.push(new HeatMap(parent, {
        title: `Load of experts${name} in iteration ${run.expert_loads.iteration}`,
        loads: run.expert_loads,
        isVisible: () => !state.hidden.has(index)
      }));
    } else if (run.has_routing) {
      html(
          "p", "note", parent,
          `A heat map of the load of every expert${name} needs a run with ` +
              "--moe-per-layer-logging.");
    }
  });
  return maps;
}

function makeCharts() {
  const parent = document.getElementById("charts");
  const axisTitle = () => ({iteration: "iteration", samples: "sample", hours: "hour"}[state.axis]);
  const make = (chart) => new Chart(parent, {
    title: chart.title,
    log: chart.log,
    axisTitle,
    starts: restarts,
    lines: () => linesOf(chart)
  });
  const charts = kCharts.map(make);
  charts.push(new Histogram(parent, {
    title: "Step time",
    groups: () => runs.map((run, index) => ({
                             label: runs.length > 1 ? run.name : "",
                             color: runColor(index),
                             bins: run.step_times,
                             index
                           }))
                      .filter((group) => group.bins && !state.hidden.has(group.index)),
  }));
  charts.push(...makeHeatMaps(parent));
  return charts.concat(otherCharts().map(make));
}

function start() {
  showSummary();
  const charts = makeCharts();
  const redraw = () => charts.forEach((chart) => chart.draw());
  showLegend(redraw);
  document.getElementById("smoothing").oninput = (event) => {
    state.smoothing = Number(event.target.value);
    document.getElementById("smoothing-value").textContent = state.smoothing.toFixed(2);
    redraw();
  };
  document.getElementById("axis").onchange = (event) => {
    state.axis = event.target.value;
    for (const chart of charts) chart.zoom = null;
    redraw();
  };
  document.getElementById("theme").onclick = () => {
    const isDark =
        getComputedStyle(document.documentElement).getPropertyValue("--page").trim() === "#12151c";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
  };
  addEventListener("resize", redraw);
  redraw();
}

start();
