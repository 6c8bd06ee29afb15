/** The tests on real machines that are part of `npm test`: a file for each thing that the product does. */
export const QUICK = [
  "test/e2e/cli-run.test.ts",
  "test/e2e/cli-lifecycle.test.ts",
  "test/e2e/sessions.test.ts",
  "test/e2e/files.test.ts",
  "test/e2e/processes.test.ts",
  "test/e2e/terminals.test.ts",
  "test/e2e/cli-ssh.test.ts",
  "test/e2e/volumes.test.ts",
  "test/e2e/jail.test.ts",
  "test/e2e/network-egress.test.ts",
  "test/e2e/network-previews.test.ts",
];

/**
 * The tests on real machines that `scripts/run-long-tests machines` and `clients` run, and no part of `npm test`: commands and
 * programs whose parts are tested without machines, the faults of guests that cost the most time, and what many sessions leave.
 */
export const LONG = [
  "test/e2e/archive-cycles.test.ts",
  "test/e2e/cli-{checkpoints,files,network,shell}.test.ts",
  "test/e2e/{abandoned-streams,attached-faults,exec-streams,output,tunnel}.test.ts",
  "test/e2e/{broken-guests,guest-faults,hostile-agent,link-races,snapshot-damage}.test.ts",
  "test/e2e/{clone-randomness,cpu-model,deleted-data,image-builder,official-templates,saved-sizes}.test.ts",
  "test/e2e/network-{bound-clients,browser,churn,clients,dockerfile}.test.ts",
];

/**
 * Tests without machines that are no part of it: of every crash point, of every defence, of random loads and random input, of
 * floods and hostile peers that take long, of the kernel's rules, of artifacts, builds, previews, archives, caps, keys, object
 * stores, events, the audit log and kernels of code in all their cases, of whole services, and of programs started many times.
 */
export const EXHAUSTIVE = [
  "packages/control/src/**/{crash-points*,histories,serialised,lapsed-leases,rotation}.test.ts",
  "packages/control/src/archives/{archives,in-bucket,upkeep,warm-tier}.test.ts",
  "packages/control/src/{audit/chain,audit/changes,connections/refusals,files/streams,jobs/queue}.test.ts",
  "packages/control/src/{http/access,http/wrong-credentials,previews/expose,service/service}.test.ts",
  "packages/control/src/{artifacts/artifacts,builds/builds,builds/layouts,events/emitted}.test.ts",
  "packages/control/src/{db/dump-rows,db/load-killed,exec/command-lease,operations/take-over}.test.ts",
  "packages/control/src/upkeep/{first-look,pause-all}.test.ts",
  "packages/control/src/{connections/many-connections,sessions/state-table,terminals/detach}.test.ts",
  "packages/control/src/{egress/cap,egress/log,egress/org-cap,secrets/keks,secrets/moved-rows}.test.ts",
  "packages/gateway/src/connections/{hostile-origin,reflection}.test.ts",
  "packages/gateway/src/{main,dns/listen,egress/survival,egress/sent-ahead}.test.ts",
  "packages/gateway/src/previews/{hostile-guest,smuggling,waking}.test.ts",
  "packages/node/src/network/{networks,ruleset}.test.ts",
  "packages/sdk/src/code/{code-context,code-results,code-time}.test.ts",
  "packages/objects/src/s3-store.test.ts",
  "packages/oci/src/hostile-transfer.test.ts",
  "packages/archive/src/{hostile-store,killed,random-folders,relay,shared-blocks,stores}.test.ts",
  "packages/cli/src/{commands/version,update/copies}.test.ts",
  "packages/node/src/archives/{archives,deaths}.test.ts",
  "packages/node/src/{guest/overdue,host/qemu-root,machines/stop}.test.ts",
  "packages/node/src/**/crash-points.test.ts",
  "test/{defences/*,fuzz/*}.test.ts",
  "test/{backup,ca-bundle,forwarding,lanes,power-cut,require-data,setup-templates,storage,update}.test.ts",
];
