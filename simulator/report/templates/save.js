
// Pictures are saved as they stand on a light page: as SVG, drawn four times as fine as PNG and in a PDF, and their points as CSV.

const FINER = 4;
const NAMED = { svg: "image/svg+xml", png: "image/png", pdf: "application/pdf", csv: "text/csv" };

function svgText(figure) {
  const drawn = figure.querySelector(".still svg").cloneNode(true);
  const [, , width, height] = drawn.getAttribute("viewBox").split(/\s+/).map(Number);
  drawn.setAttribute("width", width);
  drawn.setAttribute("height", height);
  const text = new XMLSerializer().serializeToString(drawn).replaceAll("(prefers-color-scheme: dark)", "not all");
  return { text, width, height };
}

async function painted(figure) {
  const { text, width, height } = svgText(figure);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * FINER;
  canvas.height = height * FINER;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return { canvas, width, height };
}

function blob(canvas, type, quality) {
  return new Promise((resolve) => canvas.toBlob(resolve, type, quality));
}

// One page with one image, as PDF 1.4 has it.
async function pdf(figure) {
  const { canvas, width, height } = await painted(figure);
  const jpeg = await blob(canvas, "image/jpeg", 0.95);
  const size = `/Width ${canvas.width} /Height ${canvas.height}`;
  const drawing = `q ${width} 0 0 ${height} 0 0 cm /I Do Q`;
  const objects = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${width} ${height}] /Resources << /XObject << /I 4 0 R >> >> /Contents 5 0 R >>`],
    [`<< /Type /XObject /Subtype /Image ${size} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${jpeg.size} >>\nstream\n`, jpeg, "\nendstream"],
    [`<< /Length ${drawing.length} >>\nstream\n${drawing}\nendstream`],
  ];
  const parts = ["%PDF-1.4\n"], places = [];
  let length = parts[0].length;
  objects.forEach((object, index) => {
    places.push(length);
    for (const part of [`${index + 1} 0 obj\n`, ...object, "\nendobj\n"]) {
      parts.push(part);
      length += part.size ?? part.length;
    }
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  parts.push(`xref\n0 6\n0000000000 65535 f \n${table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${length}\n%%EOF\n`);
  return parts;
}

// The points of a picture, which stand on the page; of a timeline its spans.
function csv(figure) {
  const held = JSON.parse(figure.querySelector("script").textContent);
  if (typeof held === "string") return held;
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = held.spans.map(([lane, kind, start, long]) => [cell(held.lanes[lane]), cell(held.kinds[kind].label), start, long].join(","));
  return ["lane,label,start_us,length_us", ...rows, ""].join("\n");
}

const SAVES = {
  svg: (figure) => [svgText(figure).text],
  png: async (figure) => [await blob((await painted(figure)).canvas, "image/png")],
  pdf,
  csv: (figure) => [csv(figure)],
};

for (const button of document.querySelectorAll("[data-save]")) {
  button.parentElement.hidden = false;
  button.addEventListener("click", async () => {
    const figure = button.closest("figure"), form = button.dataset.save;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(await SAVES[form](figure), { type: NAMED[form] }));
    link.download = `${figure.dataset.name}.${form}`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
