import { expect, it } from "vitest";
import { environmentOf, notesOn } from "./image-settings.ts";

const config = {
  ...{ os: "linux", architecture: "amd64", stopSignal: "", labels: {}, diffIds: [] },
  ...{ env: [], entrypoint: [], cmd: [], workingDir: "", user: "" },
};

it("has a line for each variable, whose value has quotes around it", () => {
  expect(environmentOf(["PATH=/opt/bin:/bin", 'A=two "words"', "B=", "C=x=y"])).toBe(
    'PATH="/opt/bin:/bin"\nA="two "words""\nB=""\nC="x=y"\n',
  );
});

it("leaves out what the agent sets itself, and what would not be one line", () => {
  const left = [
    "HOME=/root",
    "USER=web",
    "SHELL=/bin/ash",
    "TWO=a\nLD_PRELOAD=x",
    "a b=c",
    "A-B=c",
    "CR=a\rb",
  ];
  expect(environmentOf(left)).toBe("");
  expect(notesOn({ ...config, env: left })).toEqual([
    "variables that sessions do not get from the image: HOME, USER, SHELL, TWO, a b, A-B, CR",
  ]);
});

it("says which settings sessions do not have, and no values of variables", () => {
  expect(notesOn({ ...config, env: ["TOKEN=secret"] })).toEqual([]);
  const all = { ...config, entrypoint: ["/init"], cmd: ["-x"], workingDir: "/srv", user: "web" };
  expect(notesOn(all)).toEqual([
    'its program is not started by itself: ["/init","-x"]',
    "programs begin in /workspace, not in its directory /srv",
    "programs run as sandbox, not as its user web",
  ]);
});
