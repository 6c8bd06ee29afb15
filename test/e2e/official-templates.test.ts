/**
 * The official templates besides base, on real machines: what is said to be in them works at once, without a network. Needs both,
 * which `./setup --templates` makes: a long test.
 */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { describe, expect, test } from "vitest";
import { client, sh, withSession } from "../support/http.ts";

/** Compilers take minutes where machines are emulated. */
const EXEC_MS = 600_000;
const LIMIT_MS = 1_500_000 * SLOWNESS;
/** No host may be reached, so that nothing can be installed. */
const OFFLINE = { egress: { mode: "deny", allow: [] } };
const PLOT = `
import matplotlib.pyplot as plt
import numpy, pandas, scipy.stats
from sklearn.linear_model import LinearRegression
x = numpy.arange(10.0)
table = pandas.DataFrame({"x": x, "y": 3 * x + 1})
model = LinearRegression().fit(table[["x"]], table["y"])
print(round(float(model.coef_[0]), 6), round(float(scipy.stats.norm.cdf(0)), 6))
table.plot(x="x", y="y")
plt.show()
`;
/** A program of each language and how it is made: each prints its own name. */
const PROGRAMS = {
  c: `printf '#include <stdio.h>\\nint main(void) { puts("c works"); }\\n' > a.c && printf 'a: a.c\\n\\tcc -o a a.c\\n' > Makefile && make -s a && ./a`,
  go: `mkdir g && cd g && printf 'package main\\nfunc main() { println("go works") }\\n' > a.go && go build -o a a.go && ./a 2>&1`,
  rust: `cargo init -q --vcs none --name r r && cd r && printf 'fn main() { println!("rust works"); }\\n' > src/main.rs && cargo run -q --offline`,
  java: `printf 'class A { public static void main(String[] a) { System.out.println("java works"); } }\\n' > A.java && javac A.java && java A`,
};

describe.runIf(process.env.VIV_TEST_FULL === "1")("official templates", () => {
  test("are listed with base, each with its origin", async () => {
    const { templates } = await client.templates.list();
    const official = templates.filter(({ kind }) => kind === "official");
    expect(official.map(({ name }) => name)).toEqual(expect.arrayContaining(["base", "build", "data"]));
    for (const { status, category, base_image_ref } of official)
      expect([status, base_image_ref, category]).toEqual(["ready", "debian/trixie", expect.any(String)]);
  });

  test("in data a code context draws a plot, and nothing is installed for it", {
    timeout: LIMIT_MS,
  }, async () => {
    await withSession(
      async (id) => {
        const { stdout, results, error } = await client.session(id).runCode(PLOT, { timeoutMs: EXEC_MS });
        expect(error).toBeUndefined();
        expect(stdout).toBe("3.0 0.5\n");
        const picture = results.find(({ type }) => type === "image/png");
        const bytes = Buffer.from(String(picture?.data), "base64");
        expect(bytes.subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
        // Axes and a line, not an empty canvas.
        expect(bytes.length).toBeGreaterThan(5_000);
      },
      { template: "data", ...OFFLINE },
    );
  });

  test("data has a kernel that Jupyter's clients start", { timeout: LIMIT_MS }, async () => {
    const program = `
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(startup_timeout=500)
reply = client.execute_interactive("print(6 * 7)", timeout=500)
manager.shutdown_kernel(now=True)
print(reply["content"]["status"])`;
    await withSession(
      async (id) => {
        const command = ["python3", "-c", program];
        const done = await client.sessions.exec(id, { command, timeout_ms: EXEC_MS });
        expect(done, done.stderr).toMatchObject({ exit_code: 0, stdout: "42\nok\n" });
      },
      { template: "data", ...OFFLINE },
    );
  });

  test("in build C, Go, Rust and Java are compiled and run", { timeout: LIMIT_MS }, async () => {
    await withSession(
      async (id) => {
        for (const [language, script] of Object.entries(PROGRAMS)) {
          const done = await client.sessions.exec(id, { command: sh(script), timeout_ms: EXEC_MS });
          expect(done, `${language}: ${done.stderr}`).toMatchObject({
            exit_code: 0,
            stdout: `${language} works\n`,
          });
        }
      },
      { template: "build", size: "medium", ...OFFLINE },
    );
  });
});
