"use strict";
// Draws each figure when it comes near the window, and again in the other colours when the theme changes.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const soft = style.getPropertyValue("--soft").trim();
    const edge = style.getPropertyValue("--edge").trim();
    const ground = style.getPropertyValue("--raised").trim();
    const axis = (name) => ({
      [`${name}.gridcolor`]: edge, [`${name}.zerolinecolor`]: edge, [`${name}.linecolor`]: edge,
    });
    return {
      "font.color": ink, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": soft, "modebar.activecolor": ink,
      "hoverlabel.bgcolor": ground, "hoverlabel.font.color": ink, "legend.bgcolor": "rgba(0,0,0,0)",
      ...axis("xaxis"), ...axis("yaxis"),
    };
  };

  const draw = async (element) => {
    if (drawn.has(element)) return;
    drawn.add(element);
    const figure = figures[Number(element.dataset.figure)];
    const options = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
    await Plotly.newPlot(element, figure.data, figure.layout, options);
    await Plotly.relayout(element, theme());
    element.dataset.drawn = "yes";
  };

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "800px" });
  const plots = [...document.querySelectorAll("[data-figure]")];
  plots.forEach((element) => near.observe(element));
  dark.addEventListener("change", () => drawn.forEach((element) => Plotly.relayout(element, theme())));
  window.addEventListener("beforeprint", () => plots.forEach(draw));
})();
