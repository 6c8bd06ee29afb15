/** The node's own refusals; refusals.ts adds those of an agent. Imports nothing. */
export const OWN_ERRORS = {
  invalid: {
    status: 400,
    meaning: "the request does not fit the contract, or the guest refuses an argument",
  },
  cwd_not_found: { status: 400, meaning: "working directory: no such file or directory" },
  cwd_not_a_directory: { status: 400, meaning: "working directory: not a directory" },
  machine_not_found: { status: 404, meaning: "no such machine on this node" },
  machine_conflict: { status: 409, meaning: "the machine exists with other parameters" },
  machine_gone: { status: 410, meaning: "the machine has ended" },
  machine_held: { status: 409, meaning: "the machine stands still; continue it first" },
  snapshot_not_found: { status: 404, meaning: "no such snapshot on this node" },
  snapshot_conflict: { status: 409, meaning: "the snapshot exists with other parameters" },
  snapshot_damaged: { status: 500, meaning: "a file of the snapshot is missing, cut short or altered" },
  snapshot_unfit: {
    status: 409,
    meaning: "the snapshot was made with a CPU or an accelerator that this host does not have",
  },
  snapshot_unfrozen: {
    status: 409,
    meaning:
      "what ran in it could not be frozen when it was saved, or its disk lacks what was in memory then; it goes on only as the machine that it was",
  },
  wrong_state_key: {
    status: 409,
    meaning: "the machine or snapshot is sealed, and the call has no state key or another one",
  },
  guest_unfit: {
    status: 409,
    meaning:
      "the guest of a saved state does not confirm that it was reseeded, or that it trusts its session's authority; nothing of its machine is left",
  },
  volume_not_found: { status: 404, meaning: "no such volume on this node" },
  volume_held: { status: 409, meaning: "another machine has the volume" },
  volume_unfit: {
    status: 409,
    meaning: "the state was saved by an earlier version, whose machines have no disk for a volume",
  },
  build_not_found: { status: 404, meaning: "no such build on this node" },
  build_conflict: { status: 409, meaning: "the build exists with other parameters" },
  base_not_found: {
    status: 404,
    meaning: "the state that an archive differs from is not on this node; it is unpacked first",
  },
  archive_unusable: {
    status: 409,
    meaning: "the archive is not what was packed, or key or base are others; its reason says which",
  },
  archive_interrupted: {
    status: 503,
    meaning:
      "packing or unpacking broke off, such as when the store does not answer; another attempt may succeed",
  },
  capture_failed: { status: 503, meaning: "the state could not be saved; the machine goes on as before" },
  template_unavailable: { status: 404, meaning: "no baseline for this template and size on this node" },
  disk_pressure: { status: 503, meaning: "not enough free disk for another machine" },
  no_capacity: { status: 503, meaning: "not enough memory, or no free slot, for another machine" },
  agent_unavailable: { status: 503, meaning: "the machine runs but its agent does not answer" },
  outcome_unknown: {
    status: 502,
    meaning: "the agent was handed the request and did not answer it: what was asked may have been done",
  },
  network_conflict: { status: 409, meaning: "a newer generation of the network is known here" },
  network_unconfirmed: { status: 503, meaning: "kernel or gateway did not confirm the change in time" },
  wake_not_found: { status: 404, meaning: "nobody waits for this wake any more" },
  internal: { status: 500, meaning: "unexpected failure on the node" },
} as const;
