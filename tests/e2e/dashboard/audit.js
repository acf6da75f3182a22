// What a reader cannot read on this page: text without contrast, text that is too small, and what is wider than the screen.
(width => {
  const found = [];
  const channels = text => {
    const numbers = (text.match(/-?[\d.]+(e-?\d+)?/g) || [0, 0, 0, 0]).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    const alpha = numbers.length > 3 ? numbers[3] : text === "transparent" ? 0 : 1;
    return [numbers[0] * scale, numbers[1] * scale, numbers[2] * scale, alpha];
  };
  const over = (top, under) => under.map((value, at) => (at < 3 ? top[at] * top[3] + value * (1 - top[3]) : 1));
  const behind = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = colour => {
    const [r, g, b] = colour.map(value => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    if (!text || element.closest("title, desc, noscript, option, .hidden, .skip") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const svg = element.ownerSVGElement;
    const scale = svg && svg.viewBox.baseVal ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const size = parseFloat(style.fontSize) * scale;
    const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
    const back = behind(element);
    const seen = ratio(over(channels(svg ? style.fill : style.color), back), back);
    if (seen < (large ? 3 : 4.5)) found.push(`contrast ${seen.toFixed(2)}: ${text.slice(0, 60)}`);
    if (size < 10) found.push(`${size.toFixed(1)} px: ${text.slice(0, 60)}`);
  }
  if (document.documentElement.scrollWidth > width) {
    found.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  }
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest(".scroll, .skip, .hidden, svg, noscript") || !element.checkVisibility()) continue;
    const { left, right } = element.getBoundingClientRect();
    if (right > width + 1 || left < -1) found.push(`${element.tagName} ${element.className} reaches from ${left} to ${right}`);
  }
  return [...new Set(found)];
})
