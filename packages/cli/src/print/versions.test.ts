import { expect, test } from "vitest";
import { renderVersions } from "./versions.ts";

const since = "2027-03-01T09:30:00.000Z";
const part = (version: string, pid: number) => ({ version, pid, since });

test("what runs is printed a line each, and what is of another version is named", () => {
  const text = renderVersions({
    viv: "0.2.0+bbbbbbb",
    service: { url: "http://127.0.0.1:7400", version: "0.1.0", isolation: "kvm" },
    data_dir: "/var/lib/vivarium",
    parts: {
      supervisor: part("0.1.0+aaaaaaa", 10),
      postgres: part("18.4", 11),
      control: part("0.2.0+bbbbbbb", 12),
    },
    schema: 17,
    agent_generation: 2,
    qemu: "8.2.2",
    templates: [{ name: "base", version: "2027.03.01-abc", sizes: ["small", "large"] }],
  });
  expect(text.split("\n")).toEqual([
    "viv         0.2.0+bbbbbbb",
    "service     http://127.0.0.1:7400, kvm",
    "data        /var/lib/vivarium",
    `supervisor  0.1.0+aaaaaaa, pid 10, since ${since}`,
    `postgres    18.4, pid 11, since ${since}`,
    `control     0.2.0+bbbbbbb, pid 12, since ${since}`,
    "schema      17",
    "agent       generation 2",
    "QEMU        8.2.2",
    "template    base@2027.03.01-abc (small, large)",
    "",
    "Of another version than this viv: supervisor. A restart of the service brings them to it.",
  ]);
});

test("of a unit the copy that runs and the one before are printed, and which processes are not of the copy", () => {
  const copyOf = (version: string) => ({ version, path: `/usr/local/lib/vivarium/vivarium/${version}` });
  const versions = {
    viv: "0.3.0+ccccccc",
    data_dir: "/var/lib/vivarium",
    unit: { name: "vivarium", copy: copyOf("0.2.0+bbbbbbb"), previous: copyOf("0.1.0+aaaaaaa") },
    parts: { supervisor: part("0.2.0+bbbbbbb", 10), node: part("0.1.0+aaaaaaa", 11) },
    schema: 17,
    agent_generation: 2,
  };
  const lines = renderVersions(versions).split("\n");
  expect(lines).toContain("unit        vivarium.service");
  expect(lines).toContain("copy        0.2.0+bbbbbbb, /usr/local/lib/vivarium/vivarium/0.2.0+bbbbbbb");
  expect(lines).toContain("previous    0.1.0+aaaaaaa, /usr/local/lib/vivarium/vivarium/0.1.0+aaaaaaa");
  expect(lines.slice(-2)).toEqual([
    "Of another version than the copy of its unit: node. A restart of the service brings them to it.",
    "This viv is of another version than the service: sudo viv install updates it.",
  ]);
  const unfinished = { ...versions, unit: { name: "vivarium", unfinished_update: "0.3.0+ccccccc" } };
  expect(renderVersions(unfinished)).toContain("An update to 0.3.0+ccccccc is not finished");
});

test("a service elsewhere shows its control alone, and none at all is said", () => {
  const own = { viv: "0.2.0", schema: 17, agent_generation: 2 };
  const service = { url: "https://v.example", version: "0.1.0", isolation: "kvm" as const };
  expect(renderVersions({ ...own, service })).toContain("control  0.1.0");
  expect(renderVersions(own)).toContain("service  none answers");
});
