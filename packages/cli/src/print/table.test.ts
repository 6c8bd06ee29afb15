import { expect, test } from "vitest";
import { renderSessions } from "./session.ts";
import { renderFields, renderTable } from "./table.ts";

test("columns are as wide as their widest cell, lines end without blanks", () => {
  expect(
    renderTable(
      ["ID", "STATE"],
      [
        ["long-id", "live"],
        ["x", ""],
      ],
    ),
  ).toBe("ID       STATE\nlong-id  live\nx");
});

test("text from outside cannot steer the terminal or break the line", () => {
  expect(renderTable(["N"], [["\u001b[31mred\u001b[0m\nnext\u0007"]])).toBe("N\nred next");
});

test("fields that are not set are left out", () => {
  expect(
    renderFields([
      ["id", "x"],
      ["name", undefined],
      ["created", "now"],
    ]),
  ).toBe("id       x\ncreated  now");
});

test("a list of sessions shows name and detail only when one has them", () => {
  const now = new Date("2026-01-01T01:00:00Z");
  const session = {
    session_id: "s",
    state: "live" as const,
    created_at: "2026-01-01T00:00:00.000Z",
    last_active_at: "2026-01-01T00:00:00.000Z",
    size: "small",
    vcpus: 1,
    mem_mb: 1024,
  };
  expect(renderSessions([session], now)).toBe(
    "ID  STATE  SIZE   TEMPLATE  AGE\ns   live   small  base      1h",
  );
  expect(renderSessions([{ ...session, name: "box" }], now)).toContain("NAME\n");
  expect(renderSessions([], now)).toContain("viv create");
});
