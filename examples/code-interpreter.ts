// Runs Python in a session as a notebook does. In the clone:
// VIV_API_KEY=viv_… node_modules/.bin/node examples/code-interpreter.ts
import { Client } from "@vivarium/sdk";

const client = new Client({ url: process.env.VIV_URL, apiKey: process.env.VIV_API_KEY });
const { session_id } = await client.sessions.create();
const session = client.session(session_id);
try {
  await session.files.write("prices.csv", "day,price\nmon,3\ntue,5\nwed,4\n");
  await session.runCode("import csv\nrows = list(csv.DictReader(open('prices.csv')))");

  const { results } = await session.runCode("{row['day']: int(row['price']) for row in rows}");
  for (const { type, data } of results) console.log(type, data);

  const failed = await session.runCode("rows[7]");
  console.log(failed.error?.traceback);

  // The variables are saved with the machine, and come back with it.
  await client.sessions.pause(session_id);
  const { stdout } = await session.runCode("print(len(rows), 'rows, after a pause')");
  console.log(stdout);
} finally {
  await client.sessions.delete(session_id);
}
