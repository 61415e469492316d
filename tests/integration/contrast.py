"""How well everything on a page stands out from what is behind it."""

from __future__ import annotations

from tests.integration.browser import Page

CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => parts(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const worst = {};
  const note = (kind, front, back, element) => {
    const found = ratio(front, back);
    if (!(kind in worst) || found < worst[kind][0]) worst[kind] = [found, element.outerHTML.slice(0, 80)];
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !element.getClientRects().length || element.closest("script, style, noscript")) continue;
    const style = getComputedStyle(element);
    note("text", element instanceof SVGElement ? style.fill : style.color, behind(element), element);
  }
  for (const element of document.querySelectorAll("use, .stairs")) {
    const stroke = getComputedStyle(element).stroke;
    if (element.getClientRects().length) note("marks", stroke, behind(element.closest("figure")), element);
  }
  return worst;
})()
"""


def worst_contrast(tab: Page) -> dict[str, tuple[float, str]]:
    """The least contrast (1 to 21, as in WCAG 2.2) of `text` and of `marks`, and the element that has it."""
    return {kind: (ratio, element) for kind, (ratio, element) in tab.js(CONTRAST).items()}
