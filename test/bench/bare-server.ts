/** Floor F5: the same framework, the same response schema, a constant record: no credential, no database. */
import { SessionRecord } from "@vivarium/contract/api";
import { fastify } from "fastify";
import { serializerCompiler, validatorCompiler } from "fastify-type-provider-zod";
import { z } from "zod";

const record: SessionRecord = {
  session_id: "a".repeat(21),
  state: "live",
  created_at: "2027-03-01T09:30:00.125Z",
  last_active_at: "2027-03-01T09:30:00.125Z",
  size: "small",
  vcpus: 1,
  mem_mb: 1024,
  no_sudo: false,
  on_pty_detach: "pause",
  paused_ttl_ms: 2_592_000_000,
  egress: { mode: "allow", allow: [] },
  wake_on_http: true,
  project_id: `prj_${"a".repeat(21)}`,
  active_since: "2027-03-01T09:30:00.125Z",
  max_active_window_ms: 86_400_000,
  resumed_at: "2027-03-01T09:30:00.125Z",
};

const server = fastify();
server.setValidatorCompiler(validatorCompiler);
server.setSerializerCompiler(serializerCompiler);
server.get(
  "/v1/sessions/:id",
  { schema: { params: z.object({ id: z.string() }), response: { 200: SessionRecord } } },
  () => record,
);
await server.listen({ host: "127.0.0.1", port: 0 });
process.stdout.write(`${(server.server.address() as { port: number }).port}\n`);
