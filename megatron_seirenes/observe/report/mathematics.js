"use strict";
// typeset(element, text, asWritten): puts a model's text into an element, its LaTeX set as MathML. Everything enters the
// page as text nodes or as nodes that Temml builds; LaTeX that cannot be read stays as it was written.
const typeset = (() => {
  // Lengths are bounded, so that no text however hostile is searched for long; a formula that is longer stays as it is.
  const FORMULA = new RegExp([
    String.raw`\$\$([^]{1,4000}?)\$\$`,
    String.raw`\\\[([^]{1,4000}?)\\\]`,
    String.raw`\\\(([^]{1,4000}?)\\\)`,
    String.raw`(\\begin\{(?:align|aligned|equation|gather|cases|array|[pbvB]?matrix)\*?\}[^]{1,4000}?\\end\{\w+\*?\})`,
    String.raw`\$(?!\s)([^$\n]{1,1000}?)(?<![\s\\])\$(?!\d)`,
    String.raw`(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\}){0,200}\}){0,200}\})`,
  ].join("|"), "g");
  const MOST = 3000;

  const formula = (latex, display, written) => {
    const place = document.createElement("span");
    place.className = display ? "formula display" : "formula";
    try {
      temml.render(latex, place, {
        displayMode: display, throwOnError: true, trust: false, maxExpand: 200, maxSize: [20, 20], macros: {},
      });
    } catch {
      place.className = "unreadable";
      place.textContent = written;
    }
    return place;
  };

  return (element, text, asWritten) => {
    element.replaceChildren();
    if (asWritten) {
      element.append(text);
      return;
    }
    let end = 0, count = 0;
    for (const found of text.matchAll(FORMULA)) {
      if (++count > MOST) break;
      const which = found.findIndex((part, index) => index > 0 && part !== undefined);
      element.append(text.slice(end, found.index), formula(found[which], [1, 2, 4].includes(which), found[0]));
      end = found.index + found[0].length;
    }
    element.append(text.slice(end));
  };
})();
