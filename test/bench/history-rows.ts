/** Rows about lists with a history of many rows, which must cost the same as without history. */
import { Client } from "@vivarium/sdk";
import { query } from "../support/database.ts";
import type { ServiceFacts } from "../support/service.ts";
import { latencies } from "./http-load.ts";
import { percentile, type Row, row } from "./samples.ts";

const PAGE = 20;
/** A few times a page, for the floor. */
const FEW = 100;
const RATE = 20;

/** Fills the service's database, so the service must be used for nothing else. */
export async function historyRows(facts: ServiceFacts, rowCount: number, durationS: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const { session_id: ended } = await client.sessions.create();
  await client.sessions.waitUntilLive(ended);
  await client.sessions.delete(ended);
  const { session_id: live } = await client.sessions.create();
  const headers = { authorization: `Bearer ${facts.apiKey}` };
  const lists = { "of ended sessions": `limit=${PAGE}&state=ended`, "of current sessions": `limit=${PAGE}` };
  const measure = async (search: string) => {
    const target = { url: `${facts.url}/v1/sessions?${search}`, headers };
    await latencies(target, RATE, 1);
    return await latencies(target, RATE, durationS);
  };
  await addHistory(facts, ended, 0, FEW);
  const floors = new Map<string, number[]>();
  for (const [name, search] of Object.entries(lists)) floors.set(name, await measure(search));
  await addHistory(facts, ended, FEW, rowCount);
  const rows: Row[] = [];
  for (const [name, search] of Object.entries(lists)) {
    const floor = floors.get(name) as number[];
    const ms = await measure(search);
    const over = (percentile(ms, 50) / percentile(floor, 50)).toFixed(2);
    rows.push(
      row(`floor: list of ${PAGE} ${name}, ${FEW} rows of history`, "ms", floor),
      row(
        `list of ${PAGE} ${name}, ${rowCount.toLocaleString("en")} rows of history`,
        "ms",
        ms,
        `${over} × floor; p99 ${percentile(ms, 99).toFixed(1)} ms (goal ≤ 10)`,
      ),
    );
  }
  await client.sessions.delete(live);
  return rows;
}

/** Copies of an ended session, each one second older than the one before. */
async function addHistory(facts: ServiceFacts, id: string, from: number, to: number): Promise<void> {
  const columns = await query(
    facts,
    `select column_name as name from information_schema.columns
      where table_schema = 'public' and table_name = 'sessions' and is_generated = 'NEVER'
        and column_name not in ('id', 'created_at', 'ended_at')`,
  );
  const others = columns.map(({ name }) => `"${String(name)}"`).join(", ");
  await query(
    facts,
    `insert into sessions (id, created_at, ended_at, ${others})
      select lpad(n::text, 21, 'h'), created_at - n * interval '1 second', ended_at - n * interval '1 second', ${others}
        from sessions, generate_series(${from} + 1, ${to}) n where id = '${id}'`,
  );
  await query(facts, "analyze sessions");
}
