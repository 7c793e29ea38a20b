// @ts-check
// Writes a table as a CSV file (RFC 4180) in the browser. A cell that a spreadsheet would interpret as a formula is quoted as text.
export function csvText(head, rows) {
  const cell = (value) => {
    const text = value == null ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

export function saveCsv(name, head, rows) {
  const url = URL.createObjectURL(new Blob([csvText(head, rows)], { type: "text/csv" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `${name}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
