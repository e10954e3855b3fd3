
// Sliders over a law. Python worked out the kinds of step: shares, tokens, and two times of which a step takes the longer.
// Here they are looked up, added and divided; no law is written a second time.

const MILLION = 1e6, HOUR_S = 3600;

function digits(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

class Sliders {
  constructor(figure) {
    this.figure = figure;
    this.law = JSON.parse(figure.querySelector("script").textContent);
    this.dials = {};
    for (const dial of figure.querySelectorAll("[data-dial]")) {
      this.dials[dial.dataset.dial] = dial;
      dial.addEventListener("input", () => this.show());
    }
    figure.querySelector("[data-do=reset]").addEventListener("click", () => this.reset());
    figure.classList.add("drawn");
    figure.querySelector(".live").hidden = false;
    this.reset();
  }

  reset() {
    for (const dial of Object.values(this.dials)) {
      if (dial.type === "range") dial.value = dial.defaultValue;
      else dial.selectedIndex = 0;
    }
    this.show();
  }

  get share() {
    return this.law.shares[this.dials.share.value];
  }

  // Seconds of a step: the longer of two times that grow with the share of the chosen duration.
  seconds(kind) {
    if (!this.dials.duration || this.share === 1) return kind.seconds;
    const [a, b, c, d] = kind.lines[this.dials.duration.value];
    return Math.max(a + b * this.share, c + d * this.share);
  }

  // Means over the kinds of step: a request's time per token is sum pi B T / sum pi n.
  means(rate, window) {
    const kinds = this.law.steps[window];
    let step = 0, batch = 0, requestStep = 0, tokens = 0;
    for (const [place, share, committed] of this.law.mixes[rate][window]) {
      const kind = kinds[place], seconds = this.seconds(kind);
      step += share * seconds;
      batch += share * kind.batch;
      requestStep += share * kind.batch * seconds;
      tokens += share * committed;
    }
    const price = this.law.usd_per_hour === null ? 0 : this.law.usd_per_hour * this.law.shares[this.dials.price.value];
    return { tpot: requestStep / tokens, step, tokens: tokens / batch, usd: ((price / HOUR_S) * step * MILLION) / tokens, price };
  }

  write(name, value, text) {
    const shown = this.figure.querySelector(`[data-shows=${name}]`);
    if (!shown) return;
    shown.dataset.value = value;
    shown.textContent = text;
  }

  say(name, text) {
    const dial = this.dials[name];
    dial.setAttribute("aria-valuetext", text);
    dial.parentElement.querySelector("output").textContent = text;
  }

  show() {
    const rate = +this.dials.rate.value, window = +this.dials.window.value, law = this.law;
    const { tpot, step, tokens, usd, price } = this.means(rate, window);
    this.say("rate", law.rates[rate] === null ? "as it is" : `${digits(100 * law.rates[rate])} %`);
    this.say("window", `${digits(law.windows[window])} draft tokens`);
    this.say("share", `${digits(100 * this.share)} % of now`);
    this.say("price", `${digits(price)} USD an hour`);
    this.write("tpot", tpot, `${digits(1000 * tpot)} ms`);
    this.write("speedup", law.plain_s / tpot, `${digits(law.plain_s / tpot)} ×`);
    this.write("step", step, `${digits(1000 * step)} ms`);
    this.write("tokens", tokens, digits(tokens));
    this.write("usd", usd, `${digits(usd)} USD`);
    this.draw(rate, window);
  }

  // Time per token over the windows, or where there is no choice of them over the chances; a dashed line for plain decoding.
  draw(rate, window) {
    const { rates, windows, plain_s: plain } = this.law;
    const byWindow = windows.length > 1, names = byWindow ? windows : rates.map((one) => (one === null ? "as it is" : `${digits(100 * one)} %`));
    if (names.length < 2) return;
    const times = names.map((_, place) => (byWindow ? this.means(rate, place) : this.means(place, window)).tpot);
    const most = roundUp(1000 * Math.max(...times, plain));
    const x = (place) => 44 + (place / (names.length - 1)) * 300, y = (seconds) => 160 - ((1000 * seconds) / most) * 145;
    const svg = element("svg", { role: "img", viewBox: "0 0 360 196" });
    svg.append(element("title", {}, "Time per token by law, and that of plain decoding"));
    for (const part of [0, 0.5, 1]) {
      const at = y((part * most) / 1000);
      svg.append(element("line", { class: "grid", x1: 44, x2: 344, y1: at, y2: at }));
      svg.append(element("text", { class: "tick", x: 38, y: at + 4, "text-anchor": "end" }, digits(part * most)));
    }
    svg.append(element("line", { class: "plain", x1: 44, x2: 344, y1: y(plain), y2: y(plain) }));
    svg.append(element("text", { class: "tick", x: 344, y: y(plain) - 4, "text-anchor": "end" }, "plain decoding"));
    svg.append(element("polyline", { class: "law", points: times.map((time, place) => `${x(place)},${y(time)}`).join(" ") }));
    const chosen = byWindow ? window : rate;
    svg.append(element("circle", { class: "chosen", cx: x(chosen), cy: y(times[chosen]), r: 5 }));
    for (const place of [0, chosen, names.length - 1]) {
      if (place !== chosen && Math.abs(x(place) - x(chosen)) < 56) continue;
      svg.append(element("text", { class: "tick", x: x(place), y: 176, "text-anchor": "middle" }, names[place]));
    }
    const along = byWindow ? "draft tokens in a window" : "draft tokens kept";
    svg.append(element("text", { class: "tick", x: 194, y: 192, "text-anchor": "middle" }, `ms per token over ${along}`));
    this.figure.querySelector(".curve").replaceChildren(svg);
  }
}

for (const figure of document.querySelectorAll("figure[data-sliders]")) new Sliders(figure);
