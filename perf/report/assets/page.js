"use strict";
// Draws each chart of the page, as wide as its place, and again when that changes.
(function () {
  const COLOURS = ["#1f6fb2", "#c4501b", "#2e8540", "#8e44ad", "#b8860b", "#c2185b", "#00838f", "#5d4037"];
  const HEIGHT = 320, MOST_TICKS = 12, TICK_ROOM = 32;
  const short = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    for (const [least, unit, name] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
      if (size >= least) return +(value / unit).toPrecision(4) + name;
    return String(+value.toPrecision(4));
  };
  const digits = (value) => (value === null || value === undefined ? "" : value.toPrecision(4) * 1 + "");
  const shown = (line, log) => line.map((value) => (value === null || (log && value <= 0) ? null : value));
  const ticks = (plot, values) => values.map((value) => (value === null ? "" : short(value)));

  // The ticks with room for their text; the others have none.
  const apart = (plot, ticks) => {
    let last = -Infinity;
    return ticks.map((value) => {
      const at = plot.valToPos(value, "x");
      if (at - last < TICK_ROOM) return null;
      last = at;
      return value;
    });
  };

  function options(chart, xs, width) {
    const series = [{ label: chart.x_what, value: (plot, value) => digits(value) }];
    const names = [...Object.keys(chart.lines), ...Object.keys(chart.marks)];
    names.forEach((name, at) => series.push({
      label: name.replaceAll("`", ""), stroke: COLOURS[at % COLOURS.length], width: 2, spanGaps: true,
      dash: at < Object.keys(chart.lines).length ? undefined : [6, 4],
      points: { show: at < Object.keys(chart.lines).length, size: 6 },
      value: (plot, value) => digits(value),
    }));
    // Few points: each has its tick, and the axis begins and ends with them. Many: as the library chooses.
    const few = xs.length <= MOST_TICKS;
    const ends = few && xs.length > 1 ? { range: [xs[0], xs[xs.length - 1]] } : {};
    const at = few ? { splits: () => xs, filter: apart, space: 0 } : { space: 60 };
    const scale = (log) => (log ? { time: false, distr: 3 } : { time: false });
    return {
      width, height: HEIGHT, series,
      scales: { x: { ...scale(chart.log_x), ...ends }, y: scale(chart.log_y) },
      axes: [
        { label: chart.x_what, values: ticks, ...at },
        { values: ticks, size: 64 },
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
    const up = document.createElement("p");  // across the page: a long one has no room along its axis
    up.className = "up";
    up.textContent = "\u2191 " + chart.y_what;
    place.append(up);
    const wide = () => Math.max(240, place.clientWidth);
    const plot = new uPlot(options(chart, data[0], wide()), data, place);
    new ResizeObserver(() => {
      if (plot.width !== wide()) plot.setSize({ width: wide(), height: HEIGHT });
    }).observe(place);
  });
})();
