/** The network of a machine, preview routes, Connections, and wake requests. */
import { NetworkReport, NodeInfo, type SessionConnections } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { machinePath, newMachineId, type OneMachine, refusal, startSpec } from "../contracted-node.ts";

export function networks(one: OneMachine): void {
  const { machineId, path } = one;
  const conflict = refusal(409, "network_conflict");

  describe("the network of a machine", () => {
    const spec = (generation: number, ...exposed: number[]) => ({
      generation,
      egress: { mode: "allow", allow: [] },
      exposed,
    });
    const put = (body: object, at = path) => one.node.call("PUT", `${at}/network`, body);

    test("follows a later generation; an older one, or the same with other contents, is a conflict", async () => {
      for (const _again of [1, 2])
        expect(await put(spec(3, 3000))).toEqual({ status: 200, body: { generation: 3 } });
      expect(await put(spec(3))).toMatchObject(conflict);
      expect(await put(spec(2, 3000))).toMatchObject(conflict);
      expect(await put(spec(0))).toMatchObject(refusal(400, "invalid"));
      expect(await put(spec(9), machinePath(newMachineId()))).toMatchObject(
        refusal(404, "machine_not_found"),
      );
    });

    test("does not make it another machine: a repeated start may bring a later one", async () => {
      const again = await one.node.call("PUT", path, startSpec({ network: spec(5) }));
      expect(again).toMatchObject({ status: 200, body: { machine_id: machineId } });
      expect(await put(spec(4))).toMatchObject(conflict);
      const earlier = await one.node.call("PUT", path, startSpec({ network: spec(4) }));
      expect(earlier).toMatchObject({ status: 200 });
      expect(await put(spec(5))).toMatchObject({ status: 200 });
    });

    test("keeps the hosts that Connections bind, and is a conflict with others in the same generation", async () => {
      const bound = { ...spec(6), bound_hosts: ["api.example"] };
      for (const _again of [1, 2]) expect(await put(bound)).toMatchObject({ status: 200 });
      expect(await put({ ...bound, bound_hosts: ["b.example"] })).toMatchObject(conflict);
      expect(await put({ ...spec(7), bound_hosts: [] })).toMatchObject(refusal(400, "invalid"));
    });

    test("is counted while the machine runs", async () => {
      // A reading is up to two seconds old.
      await eventually(async () => {
        const { counters } = NetworkReport.parse((await one.node.call("GET", "/v1/network/report")).body);
        expect(counters.map(({ machine_id }) => machine_id)).toContain(machineId);
      });
    });
  });

  test("routes of previews follow a later version; an older one, or the same with other routes, is a conflict", async () => {
    const put = (version: number, ...routes: object[]) =>
      one.node.call("PUT", "/v1/previews", { version, routes });
    const known = async () => NodeInfo.parse((await one.node.call("GET", "/v1/info")).body).previews_version;
    const version = ((await known()) ?? 0) + 1;
    const route = {
      session_id: randomId(),
      port: 3000,
      version: 1,
      visibility: "public",
      cookie_key: "c".repeat(64),
      wake_on_http: false,
      state: "gone",
    };
    for (const _again of [1, 2])
      expect(await put(version, route)).toEqual({ status: 200, body: { version } });
    expect(await known()).toBe(version);
    expect(await put(version)).toMatchObject(conflict);
    expect(await put(version - 1, route)).toMatchObject(version > 1 ? conflict : refusal(400, "invalid"));
    expect(await put(version + 1)).toMatchObject({ status: 200 });
  });

  describe("Connections of a session", () => {
    const put = (body: SessionConnections | object, id: string) =>
      one.node.call("PUT", `/v1/connections/${id}`, body);
    const renew = (...sessions: { session_id: string; version: number }[]) =>
      one.node.call("PUT", "/v1/connections", { sessions });
    const of = (session_id: string, version: number): SessionConnections => ({
      ...{ session_id, version, connections: [], tombstones: [] },
      ca: { certificate_pem: "certificate", key_pem: "key" },
    });

    // Control of a service that runs here sends leases too, which do not list these sessions: hence the repetition.
    test("are answered with the version that the node has, with a machine and without", async () => {
      let first = 1;
      await eventually(async () => {
        first += 10;
        for (const id of [machineId.replace(/-1$/, ""), randomId()])
          for (const [given, known] of [
            [first, first],
            [first, first],
            [first - 1, first],
            [first + 1, first + 1],
          ] as const)
            expect(await put(of(id, given), id)).toMatchObject({ status: 200, body: { version: known } });
      });
    });

    test("are answered with a lease once control has sent one", async () => {
      await renew();
      const id = randomId();
      expect(await put(of(id, 1), id)).toEqual({ status: 200, body: { version: 1, is_leased: true } });
    });

    test("are requested by a lease if the node lacks their version, and forgotten if it does not list them", async () => {
      await eventually(async () => {
        const [known, other] = [randomId(), randomId()];
        const asks = async (versions: Record<string, number>, ...session_ids: string[]) => {
          const sessions = Object.entries(versions).map(([session_id, version]) => ({ session_id, version }));
          expect(await renew(...sessions)).toEqual({ status: 200, body: { session_ids } });
        };
        await put(of(known, 2), known);
        await asks({ [known]: 2, [other]: 1 }, other);
        // A newer one is requested too: control overtakes it.
        await asks({ [known]: 1 }, known);
        await asks({ [known]: 3 }, known);
        await put(of(known, 3), known);
        await asks({ [known]: 3 });
        // Not at once: a lease may have been composed before they were sent.
        await eventually(async () => {
          await asks({});
          await asks({ [known]: 3 }, known);
        }, 30_000);
      }, 90_000);
    });

    test("are withdrawn once the session has ended, and do not come back while its machine runs", async () => {
      const id = machineId.replace(/-1$/, "");
      const withdraw = (sessionId: string) => one.node.call("DELETE", `/v1/connections/${sessionId}`);
      await eventually(async () => {
        await renew();
        expect(await withdraw(id)).toMatchObject({ status: 204 });
      }, 30_000);
      expect(await put(of(id, 9_000), id)).toMatchObject({ status: 200, body: { version: 9_000 } });
      expect(await renew({ session_id: id, version: 9_000 })).toMatchObject({ body: { session_ids: [id] } });
      expect(await withdraw(randomId())).toMatchObject({ status: 204 });
    });

    test("are refused in another form, or of another session than the path names", async () => {
      const id = randomId();
      const header = { name: "Authorization", value: "two\nlines" };
      const connection = { name: "api", host: "api.example", methods: ["GET"], paths: ["/*"], header };
      const bodies = [
        of(randomId(), 1),
        of(id, 0),
        { ...of(id, 1), ca: undefined },
        { ...of(id, 1), connections: [{ ...connection, generation: 1, expires_at: "2030-01-01T00:00:00Z" }] },
      ];
      for (const body of bodies) expect(await put(body, id)).toMatchObject(refusal(400, "invalid"));
      expect(await renew({ session_id: id, version: 0 })).toMatchObject(refusal(400, "invalid"));
    });
  });

  test("an outcome for an unknown wake request is refused", async () => {
    const answer = await one.node.call("POST", `/v1/wakes/${randomId()}`, { result: "live" });
    expect(answer).toMatchObject(refusal(404, "wake_not_found"));
  });
}
