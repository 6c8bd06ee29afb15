import { readFileSync, readdirSync } from "node:fs";
import { execFileSync, spawn } from "node:child_process";
import { Client } from "@vivarium/sdk";
import { startService } from "../../support/service.ts";
import { descendantsOf } from "../../support/host-processes.ts";
const mib = Number(process.argv[2] ?? 256);
const service = await startService();
const { facts } = service;
const client = new Client({ url: facts.url, apiKey: facts.apiKey });
let perfRun: (c: string) => Promise<string> = async () => "";
const threads = () => {
  const out: Record<string, number> = {};
  for (const pid of readdirSync("/proc").filter((n) => /^\d+$/.test(n))) {
    try {
      const cmd = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      const tag = /qemu-system/.test(cmd) ? "qemu" : /node\/src\/main/.test(cmd) ? "node" : /control\/src\/main/.test(cmd) ? "control" : /curl/.test(cmd) ? "curl" : undefined;
      if (!tag) continue;
      for (const tid of readdirSync(`/proc/${pid}/task`)) {
        const stat = readFileSync(`/proc/${pid}/task/${tid}/stat`, "utf8");
        const name = stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
        const f = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        out[`${tag}/${name}/${tid}`] = Number(f[11]) + Number(f[12]);
      }
    } catch {}
  }
  return out;
};
async function measure(name: string, args: string[], env: Record<string, string> = {}) {
  if (process.env.PERF || process.env.STRACE) console.log(await perfRun("sudo sh -c 'perf record -q -e cpu-clock -F 997 -a -o /tmp/perf.data sleep 3 >/dev/null 2>&1 &'"));
  const before = threads();
  const t0 = performance.now();
  const child = spawn("sh", ["-c", args.join(" ")], { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, ...env } });
  await new Promise((r) => child.once("exit", r));
  const s = (performance.now() - t0) / 1000;
  const after = threads();
  const rows = Object.entries(after).map(([k, v]) => [k, (v - (before[k] ?? 0)) / s] as const).filter(([, v]) => v > 3).sort((a, b) => b[1] - a[1]);
  if (process.env.PERF || process.env.STRACE) { await new Promise((r) => setTimeout(r, 3000)); console.log(await perfRun("sudo perf report -i /tmp/perf.data --sort comm,dso,symbol --stdio 2>/dev/null | grep -v '^#' | grep -v '^$' | head -40")); }
  console.log(`${name}: ${(mib / s).toFixed(1)} MiB/s in ${s.toFixed(2)} s;`, rows.map(([k, v]) => `${k} ${v.toFixed(0)}%`).join(", "));
}
try {
  const { session_id: id } = await client.sessions.create();
  await client.sessions.waitUntilLive(id);
  const H = `-H "authorization: Bearer ${facts.apiKey}"`;
  const base = `${facts.url}/v1/sessions/${id}`;
  perfRun = (c) => run(c);
  const run = async (c: string) => (await client.sessions.exec(id, { command: ["sh", "-c", c] , timeout_ms: 60000})).stdout + "";
  execFileSync("sh", ["-c", `truncate -s ${mib}M /tmp/prof.bin`]);
  console.log(await run(`cd /tmp; for i in 1 2; do dd if=/dev/zero of=f bs=256k count=${mib*4} conv=fsync 2>&1 | tail -1; dd if=f of=/dev/null bs=256k 2>&1 | tail -1; dd if=/dev/zero bs=32k count=${mib*32} 2>/dev/null | dd of=/dev/null bs=32k 2>&1 | tail -1; dd if=/dev/zero bs=8k count=${mib*128} 2>/dev/null| dd of=/dev/null bs=32k 2>&1 | tail -1; done; rm f`));
  if (process.env.PERF) {
    console.log((await run("sudo apt-get update -qq 2>&1 | tail -1; sudo apt-get install -y -qq linux-perf 2>&1 | tail -1; which perf")).slice(-300));
  }
  if (process.env.STRACE) {
    console.log((await run("sudo apt-get update -qq 2>&1 | tail -1; sudo apt-get install -y -qq strace 2>&1 | tail -1; which strace")).slice(-300));
    perfRun = async (c) => /record/.test(c) ? run("grep ctxt /proc/1/status; sudo sh -c 'timeout -s INT 4 strace -f -tt -T -p 1 -o /tmp/st >/dev/null 2>&1 &'") : run("grep ctxt /proc/1/status; awk '{print $3}' /tmp/st | sed 's/(.*//' | sort | uniq -c | sort -rn | head -12; sed -n 3000,3080p /tmp/st | cut -c1-150");
  }
  const which = process.argv[3] ?? "output,up,down";
  for (let i = 0; i < 2; i++) for (const w of which.split(",")) {
    if (w === "output") await measure("output head", [`curl -sN ${H} -H 'content-type: application/json' -d '{"command":["head","-c","${mib * 2 ** 20}","/dev/zero"]}' '${base}/exec?stream=true'`]);
    if (w === "output32") await measure("output dd 64k", [`curl -sN ${H} -H 'content-type: application/json' -d '{"command":["dd","if=/dev/zero","bs=64k","count=${mib * 16}"]}' '${base}/exec?stream=true'`]);
    if (w === "up") await measure("upload", [`curl -s -T /tmp/prof.bin ${H} '${base}/files/stream?path=p'`]);
    if (w === "down") await measure("download", [`curl -s ${H} '${base}/files/stream?path=p'`]);
  }
  await client.sessions.delete(id);
} finally {
  await service.stop();
}
