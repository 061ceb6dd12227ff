"use strict";
// Draws each chart of the page, as wide as its place, and again when that changes.
(function () {
  const COLOURS = ["#1f6fb2", "#c4501b", "#2e8540", "#8e44ad", "#b8860b", "#c2185b", "#00838f", "#5d4037"];
  const HEIGHT = 320;
  const short = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    for (const [least, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= least) return +(value / least).toPrecision(4) + name;
    return String(+value.toPrecision(4));
  };
  const digits = (value) => (value === null || value === undefined ? "-" : value.toPrecision(4) * 1 + "");
  const shown = (line, log) => line.map((value) => (value === null || (log && value <= 0) ? null : value));
  const ticks = (plot, values) => values.map((value) => (value === null ? "" : short(value)));

  function options(chart, width) {
    const series = [{ label: chart.x_what, value: (plot, value) => digits(value) }];
    const names = [...Object.keys(chart.lines), ...Object.keys(chart.marks)];
    names.forEach((name, at) => series.push({
      label: name, stroke: COLOURS[at % COLOURS.length], width: 2, spanGaps: true,
      dash: at < Object.keys(chart.lines).length ? undefined : [6, 4],
      points: { show: at < Object.keys(chart.lines).length, size: 6 },
      value: (plot, value) => digits(value),
    }));
    const scale = (log) => (log ? { time: false, distr: 3 } : { time: false });
    return {
      width, height: HEIGHT, series,
      scales: { x: scale(chart.log_x), y: scale(chart.log_y) },
      axes: [
        { label: chart.x_what, values: ticks, space: 60 },
        { label: chart.y_what, values: ticks, size: 64 },
      ],
    };
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  charts.forEach((chart, number) => {
    const place = document.getElementById("chart-" + number);
    const use = chart.x.map((x, at) => at).filter((at) => !chart.log_x || chart.x[at] > 0);
    const kept = (line) => use.map((at) => line[at]);
    const data = [kept(chart.x), ...Object.values(chart.lines).map((line) => shown(kept(line), chart.log_y)),
                  ...Object.values(chart.marks).map((y) => use.map(() => y))];
    const wide = () => Math.max(240, place.clientWidth);
    const plot = new uPlot(options(chart, wide()), data, place);
    new ResizeObserver(() => {
      if (plot.width !== wide()) plot.setSize({ width: wide(), height: HEIGHT });
    }).observe(place);
  });
})();
